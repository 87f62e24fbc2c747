//! A store in which something happens between what a request reads and what it commits: another process's request.

use std::sync::{Arc, Mutex, PoisonError};
use threadkeep::storage::{Item, Key, Line, Op, Outcome, Page, Storage, StorageError};

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
    fn get(&self, keys: &[Key]) -> Result<Vec<Item>, StorageError> {
        self.inner.get(keys)
    }

    fn scan(
        &self,
        collection: &str,
        start: &str,
        end: &str,
        limit: u32,
        reverse: bool,
    ) -> Result<Page, StorageError> {
        self.inner.scan(collection, start, end, limit, reverse)
    }

    fn read_log(
        &self,
        log: &str,
        partition: &str,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<Line>, StorageError> {
        self.inner.read_log(log, partition, start, limit, reverse)
    }

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
