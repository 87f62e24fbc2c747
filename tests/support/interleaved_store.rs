//! A store that runs a request of another process between the reads of a request and its commit.

use std::sync::{Arc, Mutex, PoisonError};
use threadkeep::storage::{CommitOp, CommitOutcome, StorageBackend, StorageError};

/// The other request.
type OtherRequest = Box<dyn FnOnce() + Send>;

/// A store that runs another request before a commit.
pub struct InterleavedStore {
    inner: Arc<dyn StorageBackend>,
    other: Mutex<Option<OtherRequest>>,
}

impl InterleavedStore {
    /// A store over `inner` without another request so far.
    pub fn new(inner: Arc<dyn StorageBackend>) -> Self {
        Self {
            inner,
            other: Mutex::new(None),
        }
    }

    /// Runs this before the next commit, once.
    pub fn before_commit(&self, other: impl FnOnce() + Send + 'static) {
        *self.other.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(other));
    }
}

impl StorageBackend for InterleavedStore {
    crate::delegate_calls!(inner: get, scan, read_log);

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
