//! What the service needs of its host, in core types. The component implements it over its imports, tests and
//! benchmarks over a native store.

use threadkeep_core::plan::Write;
use threadkeep_core::time::Instant;

/// A record as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its collection.
    pub collection: String,
    /// Its key.
    pub name: String,
    /// The store's version of it.
    pub version: u64,
    /// Its text.
    pub value: String,
}

/// One page of a scan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// In order.
    pub items: Vec<Item>,
    /// Records of the range that the store cannot give, in the same order: name, and what is wrong.
    pub damaged: Vec<(String, String)>,
    /// Where to go on.
    pub cursor: Option<String>,
}

/// Why storage said no, as `wit/storage.wit` defines it: (code, message) where there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorageError {
    /// Nothing was written; may be repeated.
    Unavailable(String, String),
    /// May or may not have been written.
    OutcomeUnknown(String, String),
    /// The store is full.
    QuotaExceeded(String, String),
    /// Over a size limit.
    TooLarge(String, String),
    /// The store contradicts itself or the request.
    Corrupt(String, String),
    /// Any other failure.
    Other(String, String),
}

/// Why the library said no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LibraryError {
    /// A file is not what it should be.
    Invalid {
        /// File and line.
        field: String,
        /// The value.
        value: String,
        /// What is wrong.
        problem: String,
        /// The nearest valid one.
        nearest: Option<String>,
    },
    /// It cannot be reached: (code, message).
    Unavailable(String, String),
    /// Any other failure: (code, message).
    Other(String, String),
}

/// The host, as the service sees it. Contracts are those of the WIT interfaces of the same names.
pub trait Ports {
    /// `storage.get` of (collection, key).
    fn get(&self, keys: &[(&str, &str)]) -> Result<Vec<Item>, StorageError>;
    /// `storage.scan`.
    fn scan(
        &self,
        collection: &str,
        start: &str,
        end: &str,
        limit: u32,
        reverse: bool,
    ) -> Result<Page, StorageError>;
    /// `storage.read-log` of `history`: (position, text).
    fn read_history(
        &self,
        partition: &str,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<(u64, String)>, StorageError>;
    /// `storage.commit`: true if committed, false after a conflict.
    fn commit(&self, writes: Vec<Write>, closing: bool) -> Result<bool, StorageError>;
    /// `clock.now`.
    fn now(&self) -> Instant;
    /// `random.bytes` as hex.
    fn random(&self, bytes: u32) -> String;
    /// `library.get`.
    fn library(&self, kind: &str, name: &str) -> Result<Vec<String>, LibraryError>;
}
