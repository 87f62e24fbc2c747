//! Names of threads and directives, and the key under which a thread is stored.
//!
//! A name has segments of `[A-Za-z0-9_-]` joined by `/`, at most 200 bytes, and no reserved device
//! name. The key is the id in lower case, so that ids that differ by case alone collide loudly. An
//! id has no dot and each file name of the host has one, so that the two never collide on disk.

use crate::error::{Error, cut};
use crate::time::UnixTime;

/// Longest id, in bytes.
pub const ID_BYTES_MAX: usize = 200;
/// Most segments of an id. It bounds the depth of the directories that documents need.
pub const SEGMENTS_MAX: usize = 16;

/// Names that Windows keeps for devices, in any case, in every directory.
const DEVICES: [&str; 4] = ["con", "prn", "aux", "nul"];

/// Checks a name of a thread or directive. `field` names the argument in the error.
pub fn check_id(field: &str, name: &str) -> Result<(), Error> {
    let refuse = |problem: &str| Err(Error::invalid(field, name, problem));
    if name.is_empty() {
        return refuse("is empty: it needs segments of letters, digits, _ and - joined by /");
    }
    if name.len() > ID_BYTES_MAX {
        return refuse("is longer than 200 bytes");
    }
    if name.split('/').count() > SEGMENTS_MAX {
        return refuse("has more than 16 segments");
    }
    for segment in name.split('/') {
        if segment.is_empty() {
            return refuse("has an empty segment: no / at the beginning, at the end or twice");
        }
        if !segment
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        {
            return refuse(
                "may hold letters, digits, _ and - in segments joined by / and nothing else",
            );
        }
        if is_device(segment) {
            return refuse(
                "has a segment that some systems keep for devices (con, nul, com1, ...)",
            );
        }
    }
    Ok(())
}

/// Longest name of a holder, a request or a signal, in bytes.
const REQUEST_NAME_BYTES_MAX: usize = 128;

/// Checks the name that a caller gives a holder, a request or a signal.
pub fn check_request_name(field: &str, name: &str) -> Result<(), Error> {
    let fits = !name.is_empty() && name.len() <= REQUEST_NAME_BYTES_MAX;
    if !fits || name.chars().any(char::is_control) {
        let problem = "must be 1 to 128 bytes without control characters";
        return Err(Error::invalid(field, name, problem));
    }
    Ok(())
}

/// Returns the key of an id, which is the id in lower case.
pub fn key(id: &str) -> String {
    id.to_ascii_lowercase()
}

/// Makes a new id: `<directive>-<unix ms>-<random hex>`; the id of a chat begins with `chat`.
/// `random` is at least six hex digits. A long name of a directive is cut, so that the id is valid
/// for each valid name.
pub fn generate_id(directive: Option<&str>, now: UnixTime, random: &str) -> String {
    let end = format!("-{}-{random}", now.millis());
    let name = cut(
        directive.unwrap_or("chat"),
        ID_BYTES_MAX.saturating_sub(end.len()),
    );
    format!("{name}{end}")
}

/// Makes a name that may be no id printable for a message: it cuts the name to [`ID_BYTES_MAX`] and
/// replaces each character that is not visible ASCII.
pub fn printable_id(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_graphic() { c } else { '\u{fffd}' };
    cut(name, ID_BYTES_MAX).chars().map(plain).collect()
}

fn is_device(segment: &str) -> bool {
    let lower = segment.to_ascii_lowercase();
    let numbered = lower
        .strip_prefix("com")
        .or_else(|| lower.strip_prefix("lpt"));
    DEVICES.contains(&lower.as_str())
        || numbered.is_some_and(|n| n.len() == 1 && n.as_bytes()[0].is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_ids() {
        for id in [
            "a",
            "agency-kiwi/discover_leads-1739820456",
            "A/b/C-1",
            "com10",
            "console",
        ] {
            check_id("thread", id).unwrap();
        }
    }

    #[test]
    fn refuses_what_could_mean_something_else() {
        let long = "x".repeat(201);
        let deep = ["a"; 17].join("/");
        for id in [
            "",
            "/",
            "a/",
            "/a",
            "a//b",
            "..",
            "a/../b",
            ".",
            "a.b",
            "a b",
            "a\0",
            "a\n",
            "a\\b",
            "CON",
            "x/nul",
            "Com1",
            "lpt9/x",
            "é",
            "а",
            "a\u{202e}",
            &long,
            &deep,
        ] {
            assert!(check_id("thread", id).is_err(), "{id:?}");
        }
    }

    #[test]
    fn keys_of_case_twins_are_the_same() {
        assert_eq!(key("Demo-1"), key("demo-1"));
    }
}
