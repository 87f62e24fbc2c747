//! The functions that the service needs of its host, in core types. The component implements them
//! over its imports, tests and benchmarks over a native store.

use crate::service::Error;
use crate::service::runner::StepHandle;
use threadkeep_core::plan::StoreWrite;
use threadkeep_core::runner::StepOutcome;
use threadkeep_core::time::UnixTime;

/// A record as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredItem {
    /// The collection of the record.
    pub collection: String,
    /// The key of the record.
    pub name: String,
    /// The store's version of the record.
    pub version: u64,
    /// The text of the record.
    pub value: String,
}

/// Code of records that contradict each other, or cannot be read.
pub const CONTRADICTION: &str = "contradiction";

/// The reason why a record cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordDamage {
    /// A word for programs: that of the error which a call for the record answers.
    pub code: String,
    /// A sentence for people.
    pub message: String,
}

/// Code of an index entry that names a thread as another's child, which it is not.
pub const NOT_A_CHILD: &str = "not-a-child";

impl RecordDamage {
    /// Records contradict each other.
    pub fn contradiction(message: &str) -> Self {
        Self {
            code: CONTRADICTION.to_owned(),
            message: message.to_owned(),
        }
    }
}

/// One page of a scan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScanPage {
    /// The records, in order.
    pub items: Vec<StoredItem>,
    /// Records of the range that the store cannot read, in the same order: name and problem.
    pub damaged: Vec<(String, RecordDamage)>,
    /// Start of the next page.
    pub cursor: Option<String>,
}

/// Errors of storage, as `wit/storage.wit` defines them: (code, message) where there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorageError {
    /// Nothing was written; the caller may repeat the call.
    Unavailable(String, String),
    /// The batch may or may not have been written.
    OutcomeUnknown(String, String),
    /// The store is full.
    QuotaExceeded(String, String),
    /// A size limit was exceeded.
    TooLarge(String, String),
    /// The store contradicts itself or the request.
    Corrupt(String, String),
    /// Any other failure.
    Other(String, String),
}

/// Errors of the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LibraryError {
    /// A file is not valid.
    Invalid {
        /// File and line.
        field: String,
        /// The value.
        value: String,
        /// The problem.
        problem: String,
        /// The nearest valid value.
        nearest: Option<String>,
    },
    /// The library cannot be reached: (code, message).
    Unavailable(String, String),
    /// Any other failure: (code, message).
    Other(String, String),
}

/// The host, as the service sees it. The contracts are those of the WIT interfaces of the same
/// names.
pub trait HostPorts {
    /// `storage.get` of (collection, key).
    fn get(&self, keys: &[(&str, &str)]) -> Result<Vec<StoredItem>, StorageError>;
    /// `storage.scan`.
    fn scan(
        &self,
        collection: &str,
        start: &str,
        end: &str,
        limit: u32,
        reverse: bool,
    ) -> Result<ScanPage, StorageError>;
    /// `storage.read-log`: (position, text).
    fn read_log(
        &self,
        log: &str,
        partition: &str,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<(u64, String)>, StorageError>;
    /// `storage.commit`: returns true if committed, false after a conflict.
    fn commit(&self, writes: Vec<StoreWrite>, closing: bool) -> Result<bool, StorageError>;
    /// `clock.now`.
    fn now(&self) -> UnixTime;
    /// `random.bytes` as hex.
    fn random(&self, bytes: u32) -> String;
    /// `library.get`: one answer for each name; without names every document of the kind.
    fn library(&self, kind: &str, names: &[&str]) -> Result<Vec<Option<String>>, LibraryError>;
    /// `library.names`.
    fn library_names(&self, kind: &str) -> Result<Vec<String>, LibraryError>;
}

/// Performs steps for the loop inside the component.
pub trait StepPerformer {
    /// Makes the model call of a step, whose messages are all of the request, or runs its round of
    /// tools. Any other step is not performed.
    ///
    /// # Errors
    /// If the host's answer has not the form that its contract gives it.
    fn perform(&self, step: &StepHandle) -> Result<StepOutcome, Error>;
}
