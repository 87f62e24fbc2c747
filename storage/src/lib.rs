//! Storage of one tenant: the trait behind the `storage` import, its types, limits and errors; a
//! store in memory and one of plain files.
//!
//! The contract is `wit/storage.wit`, word for word; this file is its Rust form, with the checks
//! that every backend must make ([`check_get`], [`check_scan`], [`check_log`], [`check_commit`]).
//! Backends hold no domain rule: they know which collections are common and how large their records
//! are, keep any other just as well, and know nothing of the contents of a value.
//!
//! The crate is for both worlds: the native host, and the bundle that runs under WASI. It opens no
//! file by itself; [`directory::FileDirectory`] is all that it knows of a file system.

mod bounded_records;
pub mod check;
pub mod directory;
pub mod files;
mod growth;
pub mod locks;
pub mod memory;
pub mod quota;
mod record_map;
pub mod whole_store;

pub use bounded_records::BoundedRecords;
pub use check::{check_commit, check_get, check_log, check_scan};
pub use quota::{
    ENTRY_BYTES_OVERHEAD, PARTITION_BYTES_OVERHEAD, RECORD_BYTES_OVERHEAD, StorageQuota,
};

/// Longest key and longest log partition, in bytes. An id is at most 200 bytes and an index key
/// holds a name, a value and an id; SQLite keeps keys of this size inside one page.
pub const KEY_BYTES_MAX: usize = 512;
/// Longest value, in bytes: one entry of a history with its tool results (512 KiB) and room to
/// spare.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Most operations in one commit: bounds the work that a guest can ask of one transaction.
pub const COMMIT_OPS_MAX: usize = 1_024;
/// Most bytes of keys, partitions and values in one commit.
pub const COMMIT_BYTES_MAX: usize = 4 << 20;
/// Most records or log entries in one page, and most keys in one `get`.
pub const PAGE_ENTRIES_MAX: u32 = 500;
/// Most bytes of values in one page; the first entry is always given.
pub const PAGE_BYTES_MAX: usize = 1 << 20;
/// Most bytes of values in the answer of one `get`: as many as one commit writes, so that values
/// written together can be read together, and 500 keys are not 500 MiB in the host's memory.
pub const ANSWER_BYTES_MAX: usize = COMMIT_BYTES_MAX;

/// Size class of the records of a collection, by which a backend can lay them out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordSizeClass {
    /// Under about 1,000 bytes with their key, always.
    Small,
    /// May be larger.
    Large,
}

/// Longest name of a collection or log, in bytes: 1 to this many letters from `a` to `z`. Any such
/// name is kept, so that a later component can have more of them on the stores of today.
pub const SET_NAME_BYTES_MAX: usize = 16;

/// The collections of this version of the component and the size class of their records, by which a
/// backend can lay them out. Any other name is kept as well.
pub const COLLECTIONS: [(&str, RecordSizeClass); 13] = [
    ("thread", RecordSizeClass::Large),
    ("pin", RecordSizeClass::Large),
    ("head", RecordSizeClass::Large),
    ("chain", RecordSizeClass::Large),
    ("index", RecordSizeClass::Small),
    ("due", RecordSizeClass::Small),
    ("inbox", RecordSizeClass::Large),
    ("seen", RecordSizeClass::Small),
    ("partial", RecordSizeClass::Large),
    ("signature", RecordSizeClass::Small),
    ("sweep", RecordSizeClass::Small),
    ("blob", RecordSizeClass::Small),
    ("state", RecordSizeClass::Large),
];

/// The logs of this version of the component. Any other name is kept as well.
pub const LOGS: [&str; 3] = ["history", "blob", "state"];

/// Name of a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordKey {
    /// The collection: 1 to [`SET_NAME_BYTES_MAX`] letters from `a` to `z`.
    pub collection: String,
    /// 1 to [`KEY_BYTES_MAX`] bytes.
    pub name: String,
}

impl RecordKey {
    /// A key, unchecked: [`check_get`] and [`check_commit`] check it.
    pub fn new(collection: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            collection: collection.into(),
            name: name.into(),
        }
    }
}

/// A record as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// The name of the record.
    pub key: RecordKey,
    /// 1 when the record was created, one more with each put.
    pub version: u64,
    /// The text of the record.
    pub value: String,
}

/// A record that the store has and cannot return.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedItem {
    /// Its name, cut to [`KEY_BYTES_MAX`]; empty if that is its name, or if it is too long to be
    /// read.
    pub name: String,
    /// The problem, for a person.
    pub message: String,
}

/// One page of a scan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordPage {
    /// In the order of the scan.
    pub items: Vec<StoredRecord>,
    /// Records of the range that cannot be given, in the same order. They count for the limit, but
    /// for those whose name cannot be read.
    pub damaged: Vec<DamagedItem>,
    /// Pass it as `start` (reverse: as `end`) to continue; `None` at the end. It is the first name
    /// that was not returned (reverse: the last that was), so it is never longer than a name.
    pub cursor: Option<String>,
}

/// One entry of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// The position in the log, from 1.
    pub position: u64,
    /// The text of the entry.
    pub value: String,
}

/// Condition on a record of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordExpectation {
    /// Any version, or no record.
    Any,
    /// There must be no record.
    Absent,
    /// The record must exist at this version.
    Version(u64),
}

/// One operation of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitOp {
    /// A condition that writes nothing; [`RecordExpectation::Any`] is refused.
    Check {
        /// The record.
        key: RecordKey,
        /// The condition.
        expect: RecordExpectation,
    },
    /// Replaces or creates a record.
    Put {
        /// The record.
        key: RecordKey,
        /// The condition before the put.
        expect: RecordExpectation,
        /// The new text of the record.
        value: String,
    },
    /// Removes a record; nothing happens if there is none.
    Delete {
        /// The record.
        key: RecordKey,
    },
    /// Adds an entry to a log at its last position plus 1; any other position is
    /// [`StorageError::Corrupt`].
    Append {
        /// The kind of log: 1 to [`SET_NAME_BYTES_MAX`] letters from `a` to `z`.
        log: String,
        /// The name of the log of that kind: 1 to [`KEY_BYTES_MAX`] bytes.
        partition: String,
        /// The position of the entry.
        at: u64,
        /// The text of the entry.
        value: String,
    },
    /// Removes the entries of a log below a position.
    Trim {
        /// The kind of log: 1 to [`SET_NAME_BYTES_MAX`] letters from `a` to `z`.
        log: String,
        /// The name of the log of that kind: 1 to [`KEY_BYTES_MAX`] bytes.
        partition: String,
        /// The lowest position that stays.
        below: u64,
    },
}

/// The outcome of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitOutcome {
    /// The whole commit is written and durable.
    Committed,
    /// A condition does not hold, and nothing is written. A caller that needs to know which reads
    /// the records: what is read after the answer is at least as new as what the conflict saw.
    Conflict,
}

/// Error of a storage call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// Nothing was written; the same call may be repeated.
    #[error("the store cannot be reached: {message}")]
    Unavailable {
        /// The message of the backend.
        message: String,
    },
    /// The commit may or may not have been written.
    #[error("nobody knows whether the commit was written: {message}")]
    OutcomeUnknown {
        /// The message of the backend.
        message: String,
    },
    /// Nothing was written.
    #[error("the store is full: {used} of {limit} bytes are used")]
    QuotaExceeded {
        /// Bytes up to which this commit could have filled the store, with the margin if it was a
        /// closing one.
        limit: u64,
        /// Bytes in use before the commit.
        used: u64,
    },
    /// Nothing was written. `what` names the size: `key`, `partition`, `value`, `operations`,
    /// `commit`, `page`, `keys`, `answer`.
    #[error("{what} is {actual}, the most is {limit}")]
    TooLarge {
        /// The name of the size.
        what: &'static str,
        /// The largest allowed size.
        limit: u64,
        /// The actual size.
        actual: u64,
    },
    /// Nothing was written.
    #[error("the store is damaged: {message}")]
    Corrupt {
        /// A sentence that names what is missing, torn or contradicts the rest.
        message: String,
    },
    /// Nothing was written. Codes: `invalid-collection`, `invalid-log`, `empty-key`, `empty-page`,
    /// `key-named-twice`, `not-a-condition`, and a backend's own.
    #[error("{message} ({code})")]
    Other {
        /// A stable code for programs.
        code: &'static str,
        /// A sentence for a person.
        message: String,
    },
}

impl StorageError {
    /// True if the caller may repeat the same call unchanged.
    pub fn retry_unchanged(&self) -> bool {
        match self {
            Self::Unavailable { .. } => true,
            Self::OutcomeUnknown { .. }
            | Self::QuotaExceeded { .. }
            | Self::TooLarge { .. }
            | Self::Corrupt { .. }
            | Self::Other { .. } => false,
        }
    }
}

/// Durable storage of one tenant. Synchronous: called on the host's own threads, or on one that a
/// caller lends. It may block, but not on the async runtime of its caller.
pub trait StorageBackend: Send + Sync {
    /// Returns the records that exist among `keys`, in the order asked, as one snapshot. More than
    /// [`ANSWER_BYTES_MAX`] of values are [`StorageError::TooLarge`].
    fn get(&self, keys: &[RecordKey]) -> Result<Vec<StoredRecord>, StorageError>;

    /// Returns the records of `collection` with `start <= key < end` as one snapshot, at most
    /// `limit`. An empty `start` is the beginning, an empty `end` the end.
    fn scan(
        &self,
        collection: &str,
        start: &str,
        end: &str,
        limit: u32,
        reverse: bool,
    ) -> Result<RecordPage, StorageError>;

    /// Passes the name and value of each record of a collection to `visit`, in any order; no value
    /// where it cannot be given. Records that are written meanwhile are passed as they were before
    /// or after. A backend may have a faster way than pages.
    fn visit_records(
        &self,
        collection: &str,
        visit: &mut dyn FnMut(&str, Option<&str>),
    ) -> Result<(), StorageError> {
        let mut start = String::new();
        loop {
            let page = self.scan(collection, &start, "", PAGE_ENTRIES_MAX, false)?;
            for item in &page.items {
                visit(&item.key.name, Some(&item.value));
            }
            for damaged in &page.damaged {
                visit(&damaged.name, None);
            }
            match page.cursor {
                Some(cursor) => start = cursor,
                None => return Ok(()),
            }
        }
    }

    /// Passes on the names of all records of a collection, in any order: a store that has them
    /// apart from the values reads no value.
    ///
    /// # Errors
    /// As [`Self::scan`].
    fn visit_names(
        &self,
        collection: &str,
        visit: &mut dyn FnMut(&str),
    ) -> Result<(), StorageError> {
        self.visit_records(collection, &mut |name, _| visit(name))
    }

    /// Returns the entries of a log from `start` upwards (reverse: downwards; 0 begins at the
    /// newest) as one snapshot.
    fn read_log(
        &self,
        log: &str,
        partition: &str,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<LogEntry>, StorageError>;

    /// Writes all of `ops` or nothing; durable when it returns [`CommitOutcome::Committed`].
    /// Refusals are checked in this order: sizes and names, conditions (a conflict), positions of
    /// appends (corrupt), quota. So a caller that read something stale gets a conflict, not an
    /// error about a position that no longer fits.
    fn commit(&self, ops: &[CommitOp], closing: bool) -> Result<CommitOutcome, StorageError>;
}
