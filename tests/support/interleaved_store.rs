//! A store that runs a request of another process between the reads of a request and its commit,
//! or between two of its reads.

use std::sync::{Arc, Mutex, PoisonError};
use threadkeep::storage::{
    CommitOp, CommitOutcome, RecordKey, StorageBackend, StorageError, StoredRecord,
};

/// The other request.
type OtherRequest = Box<dyn FnOnce() + Send>;

/// A store that runs another request before a commit, or before a read of records.
pub struct InterleavedStore {
    inner: Arc<dyn StorageBackend>,
    other: Mutex<Option<OtherRequest>>,
    /// Reads that pass before the request runs, and the request.
    before_read: Mutex<Option<(u32, OtherRequest)>>,
}

impl InterleavedStore {
    /// A store over `inner` without another request so far.
    pub fn new(inner: Arc<dyn StorageBackend>) -> Self {
        Self {
            inner,
            other: Mutex::new(None),
            before_read: Mutex::new(None),
        }
    }

    /// Runs this after so many further reads of records, before the next one, once.
    pub fn after_reads(&self, reads: u32, other: impl FnOnce() + Send + 'static) {
        let mut before = self
            .before_read
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *before = Some((reads, Box::new(other)));
    }

    /// Takes the request whose turn has come.
    fn take_before_read(&self) -> Option<OtherRequest> {
        let mut before = self
            .before_read
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((left, _)) = before.as_mut().filter(|(left, _)| *left > 0) {
            *left -= 1;
            return None;
        }
        before.take().map(|(_, other)| other)
    }

    /// Runs this before the next commit, once.
    pub fn before_commit(&self, other: impl FnOnce() + Send + 'static) {
        *self.other.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(other));
    }
}

impl StorageBackend for InterleavedStore {
    crate::delegate_calls!(inner: scan, read_log);

    fn get(&self, keys: &[RecordKey]) -> Result<Vec<StoredRecord>, StorageError> {
        if let Some(other) = self.take_before_read() {
            other();
        }
        self.inner.get(keys)
    }

    fn commit(&self, ops: &[CommitOp], closing: bool) -> Result<CommitOutcome, StorageError> {
        let other = self
            .other
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(other) = other {
            other();
        }
        self.inner.commit(ops, closing)
    }
}
