//! The file of the usage log, `.ai/threads/usage.jsonl`: one JSON object a line. It blocks.
//!
//! Each line is one write at the end of the file, without a sync, so that lines of concurrent
//! processes stay whole. A line that a full disk cut short is closed by the next one. The file only
//! grows; if a user moves it away, a new one is begun.

use super::THREADS_PATH;
use serde::{Deserialize, Serialize};
use std::io;
use threadkeep_storage::directory::{
    AuthorityError, DirectoryTree, EntryDetails, EntryType, FileAccess, TreeFile, open_checked_file,
};
use threadkeep_units::time::rfc3339_millis;

/// Name of the file in `.ai/threads`.
pub const USAGE_FILE: &str = "usage.jsonl";
/// Longest line, in bytes: ids and names are bounded far below, and one write of a few thousand
/// bytes is not divided.
const LINE_BYTES_MAX: usize = 8 << 10;

/// The reply that a line is about, and its event `result`.
#[derive(Debug, Clone, Copy)]
pub struct UsageLine<'a> {
    /// Id of the thread.
    pub thread: &'a str,
    /// Its agent, if it has one.
    pub agent: Option<&'a str>,
    /// Version of the entry that holds the reply.
    pub version: u64,
    /// When it was committed: seconds and nanoseconds.
    pub time: (i64, u32),
    /// The event, JSON as it is stored.
    pub result: &'a str,
}

/// A reply of a model that is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedReply<'a> {
    /// Id of the thread.
    pub thread: &'a str,
    /// Its agent, if it has one.
    pub agent: Option<&'a str>,
    /// Version of the entry that holds the reply.
    pub version: u64,
}

/// An event of a history, as `history.events` tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyEvent {
    /// Version of its entry.
    pub version: u64,
    /// Its type.
    pub kind: String,
    /// When it was committed: seconds and nanoseconds.
    pub time: (i64, u32),
    /// The event, JSON as it is stored.
    pub body: String,
}

/// Returns the lines of a reply, among whose events these are.
///
/// # Errors
/// If an event `result` is not what one is.
pub fn usage_lines(
    reply: LoggedReply<'_>,
    events: &[ReplyEvent],
) -> Result<Vec<Vec<u8>>, serde_json::Error> {
    let own = |event: &&ReplyEvent| event.kind == "result" && event.version == reply.version;
    let lines = events.iter().filter(own).map(|event| {
        let line = UsageLine {
            thread: reply.thread,
            agent: reply.agent,
            version: reply.version,
            time: event.time,
            result: &event.body,
        };
        line.to_bytes()
    });
    lines.filter_map(Result::transpose).collect()
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

impl UsageLine<'_> {
    /// Writes the line; `None` if the usage was estimated and never reported.
    ///
    /// # Errors
    /// If the event is not what an event `result` is.
    pub fn to_bytes(&self) -> Result<Option<Vec<u8>>, serde_json::Error> {
        let told: ResultEvent = serde_json::from_str(self.result)?;
        if told.estimated {
            return Ok(None);
        }
        let (seconds, nanos) = self.time;
        let mut line = serde_json::to_vec(&UsageRecord {
            timestamp: rfc3339_millis(seconds, nanos),
            // As in the manifest of a transcript.
            agent_id: self.agent.unwrap_or("default"),
            thread_id: self.thread,
            input_tokens: told.usage.input,
            output_tokens: told.usage.output,
            cache_read_tokens: told.usage.read,
            cache_creation_tokens: told.usage.write,
            cost_usd: nanos_to_usd(told.spend)?,
            duration_ms: told.duration,
            turns: u64::from(!told.summary),
            model: &told.model,
            version: self.version,
        })?;
        line.push(b'\n');
        Ok(Some(line))
    }
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
pub fn usage_file_bytes(threads: &dyn DirectoryTree) -> Result<Option<u64>, AuthorityError> {
    let place = log_place();
    match threads.details(USAGE_FILE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(to_error(error)),
        Ok(EntryDetails {
            entry_type: EntryType::Link,
            ..
        }) => Err(AuthorityError::Link { place }),
        Ok(seen) if !seen.is_file() => Err(AuthorityError::NotRegular { place }),
        Ok(seen) if !seen.has_one_name => Err(AuthorityError::HardLink { place }),
        Ok(seen) => Ok(Some(seen.bytes)),
    }
}

/// Appends a line, in one write. A file that takes the place of the log meanwhile is opened but
/// never written to.
///
/// # Errors
/// As [`usage_file_bytes`], and those of writing.
pub fn append_usage_line(threads: &dyn DirectoryTree, line: &[u8]) -> Result<(), AuthorityError> {
    if line.len() > LINE_BYTES_MAX {
        let bytes_max = LINE_BYTES_MAX as u64;
        let place = log_place();
        return Err(AuthorityError::TooLarge { place, bytes_max });
    }
    let mut file = open_checked_file(threads, USAGE_FILE, FileAccess::Append, &log_place())?;
    let mut whole = Vec::with_capacity(line.len() + 1);
    if is_torn(&mut *file).map_err(to_error)? {
        whole.push(b'\n');
    }
    whole.extend_from_slice(line);
    let written = file.append_once(&whole).map_err(to_error)?;
    if written < whole.len() {
        return Err(to_error(io::ErrorKind::StorageFull.into()));
    }
    Ok(())
}

/// Returns true if the file ends inside a line. Two processes that see that at once leave an empty
/// line between theirs.
fn is_torn(file: &mut dyn TreeFile) -> io::Result<bool> {
    let Some(last) = file.size()?.checked_sub(1) else {
        return Ok(false);
    };
    Ok(file.read_at(last, 1)? != b"\n")
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests plant files from outside the library"
)]
mod tests {
    use super::*;
    use cap_std::fs::Dir;
    use threadkeep_storage::directory::GrantedDirectory;

    fn threads() -> (tempfile::TempDir, Dir) {
        let temporary = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(temporary.path(), cap_std::ambient_authority()).unwrap();
        (temporary, dir)
    }

    fn grant_directory(dir: &Dir) -> GrantedDirectory {
        GrantedDirectory::new(dir.try_clone().unwrap())
    }

    fn append_line(dir: &Dir, line: &[u8]) -> Result<(), AuthorityError> {
        append_usage_line(&grant_directory(dir), line)
    }

    fn usage_log_bytes(dir: &Dir) -> Result<Option<u64>, AuthorityError> {
        usage_file_bytes(&grant_directory(dir))
    }

    fn result_event(spend: u64, estimated: bool) -> String {
        serde_json::json!({
            "model": "a \"model\"", "spend": spend, "duration": 1_234, "estimated": estimated,
            "usage": {"input": 100, "output": 10, "read": 3, "write": 2},
        })
        .to_string()
    }

    fn format_line(result: &str) -> Option<Vec<u8>> {
        let line = UsageLine {
            thread: "a/b",
            agent: None,
            version: 7,
            time: (1_771_322_456, 7_999_999),
            result,
        };
        line.to_bytes().unwrap()
    }

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
            let line = format_line(&result_event(nanos, false)).unwrap();
            let expected = format!(
                "{{\"timestamp\":\"2026-02-17T10:00:56.007Z\",\"agentId\":\"default\",\
                 \"threadId\":\"a/b\",\"inputTokens\":100,\"outputTokens\":10,\
                 \"cacheReadTokens\":3,\"cacheCreationTokens\":2,\"costUsd\":{cost},\
                 \"durationMs\":1234,\"turns\":1,\"model\":\"a \\\"model\\\"\",\"version\":7}}\n"
            );
            assert_eq!(String::from_utf8(line).unwrap(), expected);
        }
        assert_eq!(format_line(&result_event(1, true)), None);
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
