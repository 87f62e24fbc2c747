//! A store in which something happens between what a request reads and what it commits: another process's request.

use std::sync::{Arc, Mutex, PoisonError};
use threadkeep::storage::{Op, Outcome, Storage, StorageError};

/// What happens.
type Other = Box<dyn FnOnce() + Send>;

/// See the module's documentation.
pub struct Between {
    inner: Arc<dyn Storage>,
    other: Mutex<Option<Other>>,
}

impl Between {
    /// A store over `inner` in which nothing happens yet.
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        Self {
            inner,
            other: Mutex::new(None),
        }
    }

    /// Let this happen before the next commit, once.
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
