//! The writes of a commit, and those of single records: replacements, index and due entries.

use crate::json::{self, ToJson};
use crate::key;

/// Condition on a record before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteCondition {
    /// No condition: the record may exist or not.
    Any,
    /// The record must not exist.
    Absent,
    /// The record must be at this store version.
    Version(u64),
}

impl WriteCondition {
    /// Returns the condition that a record is as it was read: at this store version, or absent if
    /// the version is 0.
    pub fn for_read_version(version: u64) -> Self {
        match version {
            0 => Self::Absent,
            version => Self::Version(version),
        }
    }
}

/// One write of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreWrite {
    /// Requires a record to be absent or at a version, and writes nothing.
    Check {
        /// Its collection.
        collection: &'static str,
        /// Its key.
        key: String,
        /// The condition; never [`WriteCondition::Any`].
        expect: WriteCondition,
    },
    /// Replaces or creates a record.
    Put {
        /// Its collection.
        collection: &'static str,
        /// Its key.
        key: String,
        /// Condition on the record before.
        expect: WriteCondition,
        /// Its text.
        value: String,
    },
    /// Removes a record.
    Delete {
        /// Its collection.
        collection: &'static str,
        /// Its key.
        key: String,
    },
    /// Appends an entry to a log.
    Append {
        /// The kind of the log.
        log: &'static str,
        /// Name of the log of that kind; of a history, the key of the thread.
        partition: String,
        /// Its position: that of the newest entry plus one.
        at: u64,
        /// Its text.
        value: String,
    },
    /// Removes the entries of a log below a position.
    Trim {
        /// The kind of the log.
        log: &'static str,
        /// Name of the log of that kind.
        partition: String,
        /// The lowest position that stays.
        below: u64,
    },
}

/// Adds the write of a record that was read at a store version, or (0) found absent.
pub(super) fn push_replacement(
    writes: &mut Vec<StoreWrite>,
    collection: &'static str,
    key: &str,
    version: u64,
    value: &impl ToJson,
) {
    let value = json::to_text(value);
    writes.push(StoreWrite::Put {
        collection,
        key: key.to_owned(),
        expect: WriteCondition::for_read_version(version),
        value,
    });
}

/// Returns the write of an index entry.
pub fn index_write(name: &str, value: &str, millis: u64, thread: &str) -> StoreWrite {
    let key = key::index_key(name, value, millis, thread);
    StoreWrite::Put {
        collection: key::INDEX,
        key,
        expect: WriteCondition::Any,
        value: String::new(),
    }
}

pub(super) fn index_delete(name: &str, value: &str, millis: u64, thread: &str) -> StoreWrite {
    StoreWrite::Delete {
        collection: key::INDEX,
        key: key::index_key(name, value, millis, thread),
    }
}
