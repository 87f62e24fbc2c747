//! A store that dies at a chosen commit, like a process that is killed before, or just after, its
//! commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use threadkeep::storage::{Item, Key, Line, Op, Outcome, Page, Storage, StorageError};

/// The commit at which a store dies, and its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// The commit is never made.
    Before(u64),
    /// The commit is made and its answer never arrives.
    After(u64),
    /// The commit is made and answered with "outcome unknown"; the store lives on.
    Unknown(u64),
    /// The commit is not made and answered with "outcome unknown"; the store lives on.
    UnknownLost(u64),
}

/// A store that dies at a chosen commit.
pub struct Faulty {
    inner: Arc<dyn Storage>,
    death: Death,
    commits: AtomicU64,
    dead: AtomicU64,
}

impl Faulty {
    /// A store over `inner` that dies at the commit that `death` counts, from 1.
    pub fn new(inner: Arc<dyn Storage>, death: Death) -> Self {
        Self {
            inner,
            death,
            commits: AtomicU64::new(0),
            dead: AtomicU64::new(0),
        }
    }

    /// Number of commits that were requested.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    fn alive(&self) -> Result<(), StorageError> {
        match self.dead.load(Ordering::SeqCst) {
            0 => Ok(()),
            _ => Err(gone()),
        }
    }

    fn die(&self) -> StorageError {
        self.dead.store(1, Ordering::SeqCst);
        gone()
    }
}

fn gone() -> StorageError {
    StorageError::Other {
        code: "dead",
        message: "the process of this store is dead".to_owned(),
    }
}

fn unknown() -> StorageError {
    StorageError::OutcomeUnknown {
        message: "the answer was lost".to_owned(),
    }
}

impl Storage for Faulty {
    fn get(&self, keys: &[Key]) -> Result<Vec<Item>, StorageError> {
        self.alive()?;
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
        self.alive()?;
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
        self.alive()?;
        self.inner.read_log(log, partition, start, limit, reverse)
    }

    fn commit(&self, ops: &[Op], closing: bool) -> Result<Outcome, StorageError> {
        self.alive()?;
        let n = self.commits.fetch_add(1, Ordering::SeqCst) + 1;
        match self.death {
            Death::Before(at) if at == n => Err(self.die()),
            Death::After(at) if at == n => {
                self.inner.commit(ops, closing)?;
                Err(self.die())
            }
            Death::Unknown(at) if at == n => {
                self.inner.commit(ops, closing)?;
                Err(unknown())
            }
            Death::UnknownLost(at) if at == n => Err(unknown()),
            _ => self.inner.commit(ops, closing),
        }
    }
}
