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

use super::blocking;
use crate::authority::{
    AuthorityError, THREADS, has_one_name, identity, not_waiting, open_private,
};
use crate::driver::{AfterRun, Ended, Replied};
use crate::models::BoxFuture;
use crate::tenant::Tenant;
use crate::wit::Instant;
use cap_std::fs::{Dir, File, Metadata, OpenOptions};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::io::{self, Read, Seek, SeekFrom, Write};
use threadkeep_units::time::rfc3339_millis;

/// Name of the file in `.ai/threads`.
pub const USAGE: &str = "usage.jsonl";
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

    async fn note(&self, replied: &Replied) -> Result<(), Box<dyn Error + Send + Sync>> {
        let before = replied.version.saturating_sub(1);
        let page = self.tenant.events(&replied.thread, before, 1).await?;
        for event in page.events.iter().filter(|event| event.kind == "result") {
            let result: Told = serde_json::from_str(&event.body)?;
            if result.estimated || event.version != replied.version {
                continue;
            }
            let line = line(replied, event.time, &result)?;
            let threads = self.threads.try_clone()?;
            blocking(move || Ok(append(&threads, &line)?)).await?;
        }
        Ok(())
    }
}

impl AfterRun for UsageLog {
    fn name(&self) -> &str {
        USAGE
    }

    fn after<'a>(
        &'a self,
        _: &'a Ended,
    ) -> BoxFuture<'a, Result<(), Box<dyn Error + Send + Sync>>> {
        Box::pin(async { Ok(()) })
    }

    fn wants_replies(&self) -> bool {
        true
    }

    fn after_reply<'a>(
        &'a self,
        replied: &'a Replied,
    ) -> BoxFuture<'a, Result<(), Box<dyn Error + Send + Sync>>> {
        Box::pin(self.note(replied))
    }
}

/// The event `result` as it is stored.
#[derive(Deserialize)]
struct Told {
    model: String,
    usage: Tokens,
    spend: u64,
    duration: u64,
    estimated: bool,
}

#[derive(Deserialize)]
struct Tokens {
    input: u64,
    output: u64,
    read: u64,
    write: u64,
}

/// One line, with its fields in order. Only `costUsd` is not an integer; its digits are exact.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Record<'a> {
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

fn line(replied: &Replied, time: Instant, told: &Told) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(&Record {
        timestamp: rfc3339_millis(time.seconds, time.nanos),
        // As in the manifest of a transcript.
        agent_id: replied.agent.as_deref().unwrap_or("default"),
        thread_id: &replied.thread,
        input_tokens: told.usage.input,
        output_tokens: told.usage.output,
        cache_read_tokens: told.usage.read,
        cache_creation_tokens: told.usage.write,
        cost_usd: dollars(told.spend)?,
        duration_ms: told.duration,
        turns: 1,
        model: &told.model,
        version: replied.version,
    })?;
    line.push(b'\n');
    Ok(line)
}

/// Converts nano-USD to a number with exact digits.
fn dollars(nanos: u64) -> Result<serde_json::Number, serde_json::Error> {
    let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    serde_json::from_str(text.trim_end_matches('0').trim_end_matches('.'))
}

fn failed(source: io::Error) -> AuthorityError {
    AuthorityError::from_io(&place(), source)
}

fn place() -> String {
    format!("{THREADS}/{USAGE}")
}

/// Returns the size of the log in bytes; `None` if it does not exist.
///
/// # Errors
/// If its place is taken by a link, a directory, a pipe, or a file with a second name. No line is
/// written then.
pub fn look_at_usage(threads: &Dir) -> Result<Option<u64>, AuthorityError> {
    Ok(look(threads)?.map(|metadata| metadata.len()))
}

fn look(threads: &Dir) -> Result<Option<Metadata>, AuthorityError> {
    let place = place();
    match threads.symlink_metadata(USAGE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
        Ok(seen) if seen.is_symlink() => Err(AuthorityError::Link { place }),
        Ok(seen) if !seen.is_file() => Err(AuthorityError::NotRegular { place }),
        Ok(seen) if !has_one_name(&seen) => Err(AuthorityError::HardLink { place }),
        Ok(seen) => Ok(Some(seen)),
    }
}

/// Opens the log for appending. A file that replaces it between the two checks is opened but never
/// written to.
fn open(threads: &Dir) -> Result<File, AuthorityError> {
    look(threads)?;
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    let file = open_private(threads, USAGE, not_waiting(options)).map_err(failed)?;
    let opened = file.metadata().map_err(failed)?;
    let there = look(threads)?;
    if there.is_none_or(|there| identity(&there) != identity(&opened)) {
        return Err(AuthorityError::Replaced { place: place() });
    }
    Ok(file)
}

/// Appends a line, in one write.
fn append(threads: &Dir, line: &[u8]) -> Result<(), AuthorityError> {
    if line.len() > LINE_BYTES_MAX {
        let bytes_max = LINE_BYTES_MAX as u64;
        let place = place();
        return Err(AuthorityError::TooLarge { place, bytes_max });
    }
    let mut file = open(threads)?;
    let mut whole = Vec::with_capacity(line.len() + 1);
    if is_torn(&mut file).map_err(failed)? {
        whole.push(b'\n');
    }
    whole.extend_from_slice(line);
    let written = file.write(&whole).map_err(failed)?;
    if written < whole.len() {
        return Err(failed(io::ErrorKind::StorageFull.into()));
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

    fn told(spend: u64) -> Told {
        Told {
            model: "a \"model\"".to_owned(),
            usage: Tokens {
                input: 100,
                output: 10,
                read: 3,
                write: 2,
            },
            spend,
            duration: 1_234,
            estimated: false,
        }
    }

    fn replied() -> Replied {
        Replied {
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
            let line = line(&replied(), TIME, &told(nanos)).unwrap();
            let expected = format!(
                "{{\"timestamp\":\"2026-02-17T10:00:56.007Z\",\"agentId\":\"default\",\"threadId\":\"a/b\",\"inputTokens\":100,\"outputTokens\":10,\"cacheReadTokens\":3,\"cacheCreationTokens\":2,\"costUsd\":{cost},\"durationMs\":1234,\"turns\":1,\"model\":\"a \\\"model\\\"\",\"version\":7}}\n"
            );
            assert_eq!(String::from_utf8(line).unwrap(), expected);
        }
    }

    #[test]
    fn lines_are_added_and_a_torn_one_is_closed() {
        let (_temporary, dir) = threads();
        append(&dir, b"one\n").unwrap();
        append(&dir, b"two\n").unwrap();
        assert_eq!(dir.read(USAGE).unwrap(), b"one\ntwo\n");
        dir.write(USAGE, "one\ntw").unwrap();
        append(&dir, b"three\n").unwrap();
        assert_eq!(dir.read(USAGE).unwrap(), b"one\ntw\nthree\n");
        assert_eq!(look_at_usage(&dir).unwrap(), Some(13));
        let long = vec![b'x'; LINE_BYTES_MAX + 1];
        assert!(matches!(
            append(&dir, &long),
            Err(AuthorityError::TooLarge { .. })
        ));
        assert_eq!(look_at_usage(&dir).unwrap(), Some(13));
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_ordinary_file_is_not_written_to() {
        let (temporary, dir) = threads();
        let refused = |what: &str| {
            let error = append(&dir, b"x\n").expect_err(what);
            assert_eq!(
                std::mem::discriminant(&error),
                std::mem::discriminant(&look_at_usage(&dir).expect_err(what)),
                "{what}"
            );
            error
        };
        dir.write("registry.db", "keep").unwrap();
        for target in ["registry.db", "gone", USAGE, "/etc/hostname"] {
            dir.symlink_contents(target, USAGE).unwrap();
            assert!(matches!(refused(target), AuthorityError::Link { .. }));
            dir.remove_file(USAGE).unwrap();
        }
        dir.hard_link("registry.db", &dir, USAGE).unwrap();
        assert!(matches!(
            refused("a second name"),
            AuthorityError::HardLink { .. }
        ));
        dir.remove_file(USAGE).unwrap();
        dir.create_dir(USAGE).unwrap();
        assert!(matches!(
            refused("a directory"),
            AuthorityError::NotRegular { .. }
        ));
        dir.remove_dir(USAGE).unwrap();
        let path = temporary.path().join(USAGE);
        std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(matches!(
            refused("a socket"),
            AuthorityError::NotRegular { .. }
        ));
        assert_eq!(dir.read("registry.db").unwrap(), b"keep");
        assert!(!dir.exists("gone"));
    }
}
