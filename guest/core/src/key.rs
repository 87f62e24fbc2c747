//! Names of collections and logs, and keys that keep order and cannot be forged.
//!
//! The parts of a key are joined by U+0001. Inside a part, U+0000 to U+0002 are written as U+0002
//! and a digit. So no part can hold a separator, and the order of the encoded text is the order of
//! the parts.

use crate::hash::sha256_text;

/// Thread records, by [`crate::id::key`].
pub const THREAD: &str = "thread";
/// Heads, by thread key.
pub const HEAD: &str = "head";
/// Chain records, by root key.
pub const CHAIN: &str = "chain";
/// Pins, by (root key, SHA-256).
pub const PIN: &str = "pin";
/// Index entries, by (name, value, time, thread key): a list of one value is read from its newest
/// end. The entries of [`CHILD`] have a spawn number in the place of the time.
pub const INDEX: &str = "index";
/// Due entries, by (time, thread key); each holds the root of the tree.
pub const DUE: &str = "due";
/// Messages that wait for a chain, by (root key, number).
pub const INBOX: &str = "inbox";
/// Ids of callers' signals, by (root key, id); keys of requests to create threads, by (empty, key).
pub const SEEN: &str = "seen";
/// Decisions about calls that need consent, by (root key, thread key, call id).
pub const DECISION: &str = "decision";
/// Partial text of a model's stream, by thread key.
pub const PARTIAL: &str = "partial";
/// State documents as they are now, by thread key; also the log of earlier ones, whose partition is
/// the thread key.
pub const STATE: &str = "state";
/// Blobs, by (root key, SHA-256). The log of the same name has their bytes, in a partition of the
/// same key. The host alone writes them.
pub const BLOB: &str = "blob";
/// The log of entries; its partition is the thread key.
pub const HISTORY: &str = "history";

/// Longest key that a store takes, in bytes.
pub const KEY_BYTES_MAX: usize = 512;

/// Longest value that an index key holds as it is, in bytes. A longer value is replaced by its
/// digest, which serves an equality look-up just as well.
const INDEX_VALUE_BYTES_MAX: usize = 220;

/// Joins parts to a key.
pub fn join(parts: &[&str]) -> String {
    let mut key = String::new();
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            key.push('\u{1}');
        }
        escape(part, &mut key);
    }
    key
}

/// Returns the range of the keys that begin with these parts and have at least one more: `start <=
/// key < end`.
pub fn prefix_range(parts: &[&str]) -> (String, String) {
    let prefix = join(parts);
    (format!("{prefix}\u{1}"), format!("{prefix}\u{2}"))
}

/// Returns the last part of a key.
pub fn last_part(key: &str) -> String {
    unescape(key.rsplit('\u{1}').next().unwrap_or(key))
}

/// Encodes a number as text that sorts as the number does.
pub fn encode_number(n: u64) -> String {
    format!("{n:016x}")
}

/// Decodes the number that a key begins with.
pub fn leading_number(key: &str) -> Option<u64> {
    u64::from_str_radix(key.split('\u{1}').next()?, 16).ok()
}

/// Name of the index of all threads, by their last start or end. Its entries have no value.
pub const RECENCY: &str = "recency";

/// Name of the index of children by chain: (root key of the parent's chain, spawn number, root key
/// of the child's chain). An entry is written once, when the child's chain is created.
pub const CHILD: &str = "child";

/// Name of the index of forks, by the root key of the chain that was forked, and by creation.
pub const FORK: &str = "fork";

/// Name of the index of interrupted threads below a root, by the root key of their tree: see
/// [`crate::plan::is_indexed_as_interrupted`].
pub const INTERRUPTED: &str = "interrupted";

/// Makes the key of an index entry. `millis` orders the threads of one value: it is the time of the
/// last change of status where the entry moves then anyway, else the creation, so that the entry
/// never moves for its time. So a list comes newest first, as a page from one end of a range.
pub fn index_key(name: &str, value: &str, millis: u64, thread: &str) -> String {
    join(&[name, &index_value(value), &encode_number(millis), thread])
}

/// Returns the form of a value that an index key holds: the value, or its digest if it is too long.
pub fn index_value(value: &str) -> String {
    if join(&[value]).len() <= INDEX_VALUE_BYTES_MAX {
        value.to_owned()
    } else {
        sha256_text(value)
    }
}

fn escape(part: &str, key: &mut String) {
    for c in part.chars() {
        match c {
            '\u{0}' => key.push_str("\u{2}0"),
            '\u{1}' => key.push_str("\u{2}1"),
            '\u{2}' => key.push_str("\u{2}2"),
            c => key.push(c),
        }
    }
}

fn unescape(part: &str) -> String {
    const ESCAPED: [(char, char); 3] = [('0', '\u{0}'), ('1', '\u{1}'), ('2', '\u{2}')];
    let mut pieces = part.split('\u{2}');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let mut escaped = ESCAPED.iter();
        let found = escaped.find_map(|(digit, c)| Some((*c, piece.strip_prefix(*digit)?)));
        // Another character follows the mark only in a key that was not made here: both are kept.
        let (c, rest) = found.unwrap_or(('\u{2}', piece));
        text.push(c);
        text.push_str(rest);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_can_forge_a_separator() {
        assert_ne!(join(&["a\u{1}b", "c"]), join(&["a", "b\u{1}c"]));
        assert_ne!(join(&["a\u{2}1b"]), join(&["a\u{1}b"]));
        for part in ["a\u{1}\u{2}\u{0}b", "\u{2}0", "\u{2}\u{2}1", "\u{2}", ""] {
            assert_eq!(last_part(&join(&["x", part])), part, "{part:?}");
        }
        assert_eq!(last_part("x\u{1}a\u{2}b\u{2}"), "a\u{2}b\u{2}");
    }

    #[test]
    fn order_is_that_of_the_parts() {
        let mut parts = [
            "", "\u{0}", "\u{1}", "\u{2}", "\u{3}", "a", "a\u{0}", "ab", "b", "é",
        ];
        parts.sort_unstable();
        let keys: Vec<_> = parts.iter().map(|part| join(&[part, "z"])).collect();
        assert!(keys.is_sorted(), "{keys:?}");
    }

    #[test]
    fn ranges_hold_what_begins_with_the_parts() {
        let (start, end) = prefix_range(&["status", "idle"]);
        let inside = index_key("status", "idle", 7, "x");
        assert!(start <= inside && inside < end);
        for outside in [
            index_key("status", "idle2", 7, "x"),
            index_key("status", "idl", 7, "x"),
            join(&["status", "idle"]),
        ] {
            assert!(outside < start || outside >= end, "{outside:?}");
        }
    }

    #[test]
    fn long_values_fit() {
        let thread = "t".repeat(200);
        for value in ["é".repeat(400), "\u{1}".repeat(220), "x".repeat(220)] {
            assert!(
                index_key("directive", &value, u64::MAX, &thread).len() <= 512,
                "{value:?}"
            );
        }
    }
}
