//! The usage log, `.ai/threads/usage.jsonl`: the usage of each model reply, one JSON object a line,
//! for tools that add up.
//!
//! A line is made from the entry that holds the reply, once it is durable, off the run's path. So a
//! reply has one line however often its commit was requested, and a line that cannot be written
//! changes no run. A reply whose usage was never reported (a broken stream, a charged call) has no
//! line. The ledger is the truth: a line is lost if the process dies between the commit and the
//! line, or if more replies wait than the queue takes.
//!
//! Each line is one write at the end of the file, without a sync, so that lines of concurrent
//! processes stay whole. A line that a full disk cut short is closed by the next one. The file only
//! grows; if a user moves it away, a new one is begun.

use super::run_blocking;
use crate::authority::{
    AuthorityError, THREADS_PATH, file_identity, has_one_name, open_private, with_nonblock,
};
use crate::driver::{AfterRun, DurableReply, EndedRun};
use crate::models::BoxFuture;
use crate::tenant::Tenant;
use crate::wit::Instant;
use cap_std::fs::{Dir, File, Metadata, OpenOptions};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::io::{self, Read, Seek, SeekFrom, Write};
use threadkeep_units::time::rfc3339_millis;

/// Name of the file in `.ai/threads`.
pub const USAGE_FILE: &str = "usage.jsonl";
/// Longest line, in bytes: ids and names are bounded far below, and one write of a few thousand
/// bytes is not divided.
const LINE_BYTES_MAX: usize = 8 << 10;

/// Writes the usage of replies to the log. [`crate::project::OpenProject`] registers it with its
/// drivers as work after replies.
pub struct UsageLog {
    tenant: Tenant,
    threads: Dir,
}

impl UsageLog {
    /// Makes a log in `threads`, a directory `.ai/threads`.
    pub fn new(tenant: Tenant, threads: Dir) -> Self {
        Self { tenant, threads }
    }

    async fn log_reply(&self, replied: &DurableReply) -> Result<(), Box<dyn Error + Send + Sync>> {
        let before = replied.version.saturating_sub(1);
        let page = self.tenant.events(&replied.thread, before, 1, None);
        let page = page.await?;
        for event in page.events.iter().filter(|event| event.kind == "result") {
            let result: ResultEvent = serde_json::from_str(&event.body)?;
            if result.estimated || event.version != replied.version {
                continue;
            }
            let line = format_line(replied, event.time, &result)?;
            let threads = self.threads.try_clone()?;
            run_blocking(move || Ok(append_line(&threads, &line)?)).await?;
        }
        Ok(())
    }
}

impl AfterRun for UsageLog {
    fn name(&self) -> &str {
        USAGE_FILE
    }

    fn after_run<'a>(
        &'a self,
        _: &'a EndedRun,
    ) -> BoxFuture<'a, Result<(), Box<dyn Error + Send + Sync>>> {
        Box::pin(async { Ok(()) })
    }

    fn wants_replies(&self) -> bool {
        true
    }

    fn after_reply<'a>(
        &'a self,
        replied: &'a DurableReply,
    ) -> BoxFuture<'a, Result<(), Box<dyn Error + Send + Sync>>> {
        Box::pin(self.log_reply(replied))
    }
}

/// The event `result` as it is stored.
#[derive(Deserialize)]
struct ResultEvent {
    model: String,
    usage: TokenCounts,
    spend: u64,
    duration: u64,
    estimated: bool,
    /// True for the summary of a thread that is handed off: it is paid, and no turn.
    #[serde(default)]
    summary: bool,
}

#[derive(Deserialize)]
struct TokenCounts {
    input: u64,
    output: u64,
    read: u64,
    write: u64,
}

/// One line, with its fields in order. Only `costUsd` is not an integer; its digits are exact.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UsageRecord<'a> {
    timestamp: String,
    agent_id: &'a str,
    thread_id: &'a str,
    input_tokens: u64,
    output_tokens: u64,
    cache_read_tokens: u64,
    cache_creation_tokens: u64,
    cost_usd: serde_json::Number,
    duration_ms: u64,
    turns: u64,
    model: &'a str,
    version: u64,
}

fn format_line(
    replied: &DurableReply,
    time: Instant,
    told: &ResultEvent,
) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(&UsageRecord {
        timestamp: rfc3339_millis(time.seconds, time.nanos),
        // As in the manifest of a transcript.
        agent_id: replied.agent.as_deref().unwrap_or("default"),
        thread_id: &replied.thread,
        input_tokens: told.usage.input,
        output_tokens: told.usage.output,
        cache_read_tokens: told.usage.read,
        cache_creation_tokens: told.usage.write,
        cost_usd: nanos_to_usd(told.spend)?,
        duration_ms: told.duration,
        turns: u64::from(!told.summary),
        model: &told.model,
        version: replied.version,
    })?;
    line.push(b'\n');
    Ok(line)
}

/// Converts nano-USD to a number with exact digits.
fn nanos_to_usd(nanos: u64) -> Result<serde_json::Number, serde_json::Error> {
    let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    serde_json::from_str(text.trim_end_matches('0').trim_end_matches('.'))
}

fn to_error(source: io::Error) -> AuthorityError {
    AuthorityError::from_io(&log_place(), source)
}

fn log_place() -> String {
    format!("{THREADS_PATH}/{USAGE_FILE}")
}

/// Returns the size of the log in bytes; `None` if it does not exist.
///
/// # Errors
/// If its place is taken by a link, a directory, a pipe, or a file with a second name. No line is
/// written then.
pub fn usage_log_bytes(threads: &Dir) -> Result<Option<u64>, AuthorityError> {
    Ok(check_log(threads)?.map(|metadata| metadata.len()))
}

fn check_log(threads: &Dir) -> Result<Option<Metadata>, AuthorityError> {
    let place = log_place();
    match threads.symlink_metadata(USAGE_FILE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(to_error(error)),
        Ok(seen) if seen.is_symlink() => Err(AuthorityError::Link { place }),
        Ok(seen) if !seen.is_file() => Err(AuthorityError::NotRegular { place }),
        Ok(seen) if !has_one_name(&seen) => Err(AuthorityError::HardLink { place }),
        Ok(seen) => Ok(Some(seen)),
    }
}

/// Opens the log for appending. A file that replaces it between the two checks is opened but never
/// written to.
fn open_log(threads: &Dir) -> Result<File, AuthorityError> {
    check_log(threads)?;
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    let file = open_private(threads, USAGE_FILE, with_nonblock(options)).map_err(to_error)?;
    let opened = file.metadata().map_err(to_error)?;
    let there = check_log(threads)?;
    if there.is_none_or(|there| file_identity(&there) != file_identity(&opened)) {
        return Err(AuthorityError::Replaced { place: log_place() });
    }
    Ok(file)
}

/// Appends a line, in one write.
fn append_line(threads: &Dir, line: &[u8]) -> Result<(), AuthorityError> {
    if line.len() > LINE_BYTES_MAX {
        let bytes_max = LINE_BYTES_MAX as u64;
        let place = log_place();
        return Err(AuthorityError::TooLarge { place, bytes_max });
    }
    let mut file = open_log(threads)?;
    let mut whole = Vec::with_capacity(line.len() + 1);
    if is_torn(&mut file).map_err(to_error)? {
        whole.push(b'\n');
    }
    whole.extend_from_slice(line);
    let written = file.write(&whole).map_err(to_error)?;
    if written < whole.len() {
        return Err(to_error(io::ErrorKind::StorageFull.into()));
    }
    Ok(())
}

/// Returns true if the file ends inside a line. Two processes that see that at once leave an empty
/// line between theirs.
fn is_torn(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests plant files from outside the library"
)]
mod tests {
    use super::*;

    fn threads() -> (tempfile::TempDir, Dir) {
        let temporary = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(temporary.path(), cap_std::ambient_authority()).unwrap();
        (temporary, dir)
    }

    fn result_event(spend: u64) -> ResultEvent {
        ResultEvent {
            model: "a \"model\"".to_owned(),
            usage: TokenCounts {
                input: 100,
                output: 10,
                read: 3,
                write: 2,
            },
            spend,
            duration: 1_234,
            estimated: false,
            summary: false,
        }
    }

    fn reply_notice() -> DurableReply {
        DurableReply {
            thread: "a/b".to_owned(),
            agent: None,
            version: 7,
        }
    }

    const TIME: Instant = Instant {
        seconds: 1_771_322_456,
        nanos: 7_999_999,
    };

    #[test]
    fn a_line_has_the_fields_of_the_log_and_exact_money() {
        for (nanos, cost) in [
            (0, "0"),
            (1, "0.000000001"),
            (310_000, "0.00031"),
            (1_500_000_000, "1.5"),
            (20_000_000_000, "20"),
            (u64::MAX, "18446744073.709551615"),
        ] {
            let line = format_line(&reply_notice(), TIME, &result_event(nanos)).unwrap();
            let expected = format!(
                "{{\"timestamp\":\"2026-02-17T10:00:56.007Z\",\"agentId\":\"default\",\
                 \"threadId\":\"a/b\",\"inputTokens\":100,\"outputTokens\":10,\
                 \"cacheReadTokens\":3,\"cacheCreationTokens\":2,\"costUsd\":{cost},\
                 \"durationMs\":1234,\"turns\":1,\"model\":\"a \\\"model\\\"\",\"version\":7}}\n"
            );
            assert_eq!(String::from_utf8(line).unwrap(), expected);
        }
    }

    #[test]
    fn lines_are_added_and_a_torn_one_is_closed() {
        let (_temporary, dir) = threads();
        append_line(&dir, b"one\n").unwrap();
        append_line(&dir, b"two\n").unwrap();
        assert_eq!(dir.read(USAGE_FILE).unwrap(), b"one\ntwo\n");
        dir.write(USAGE_FILE, "one\ntw").unwrap();
        append_line(&dir, b"three\n").unwrap();
        assert_eq!(dir.read(USAGE_FILE).unwrap(), b"one\ntw\nthree\n");
        assert_eq!(usage_log_bytes(&dir).unwrap(), Some(13));
        let long = vec![b'x'; LINE_BYTES_MAX + 1];
        assert!(matches!(
            append_line(&dir, &long),
            Err(AuthorityError::TooLarge { .. })
        ));
        assert_eq!(usage_log_bytes(&dir).unwrap(), Some(13));
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_ordinary_file_is_not_written_to() {
        let (temporary, dir) = threads();
        let refused = |what: &str| {
            let error = append_line(&dir, b"x\n").expect_err(what);
            assert_eq!(
                std::mem::discriminant(&error),
                std::mem::discriminant(&usage_log_bytes(&dir).expect_err(what)),
                "{what}"
            );
            error
        };
        dir.write("registry.db", "keep").unwrap();
        for target in ["registry.db", "gone", USAGE_FILE, "/etc/hostname"] {
            dir.symlink_contents(target, USAGE_FILE).unwrap();
            assert!(matches!(refused(target), AuthorityError::Link { .. }));
            dir.remove_file(USAGE_FILE).unwrap();
        }
        dir.hard_link("registry.db", &dir, USAGE_FILE).unwrap();
        assert!(matches!(
            refused("a second name"),
            AuthorityError::HardLink { .. }
        ));
        dir.remove_file(USAGE_FILE).unwrap();
        dir.create_dir(USAGE_FILE).unwrap();
        assert!(matches!(
            refused("a directory"),
            AuthorityError::NotRegular { .. }
        ));
        dir.remove_dir(USAGE_FILE).unwrap();
        let path = temporary.path().join(USAGE_FILE);
        std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(matches!(
            refused("a socket"),
            AuthorityError::NotRegular { .. }
        ));
        assert_eq!(dir.read("registry.db").unwrap(), b"keep");
        assert!(!dir.exists("gone"));
    }
}
