//! A store that runs a request of another process between the reads of a request and its commit.

use std::sync::{Arc, Mutex, PoisonError};
use threadkeep::storage::{Op, Outcome, Storage, StorageError};

/// The other request.
type Other = Box<dyn FnOnce() + Send>;

/// A store that runs another request before a commit.
pub struct Between {
    inner: Arc<dyn Storage>,
    other: Mutex<Option<Other>>,
}

impl Between {
    /// A store over `inner` without another request so far.
    pub fn new(inner: Arc<dyn Storage>) -> Self {
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

impl Storage for Between {
    crate::hand_on!(inner: get, scan, read_log);

    fn commit(&self, ops: &[Op], closing: bool) -> Result<Outcome, StorageError> {
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
