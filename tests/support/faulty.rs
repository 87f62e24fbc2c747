//! A store that dies at a chosen commit, like a process that is killed before, or just after, its
//! commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use threadkeep::storage::{
    CommitOp, CommitOutcome, LogEntry, RecordKey, RecordPage, StorageBackend, StorageError,
    StoredRecord,
};

/// The commit at which a store dies, and its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeathPoint {
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
pub struct FaultyStore {
    inner: Arc<dyn StorageBackend>,
    death: DeathPoint,
    commits: AtomicU64,
    dead: AtomicU64,
}

impl FaultyStore {
    /// A store over `inner` that dies at the commit that `death` counts, from 1.
    pub fn new(inner: Arc<dyn StorageBackend>, death: DeathPoint) -> Self {
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

    fn check_alive(&self) -> Result<(), StorageError> {
        match self.dead.load(Ordering::SeqCst) {
            0 => Ok(()),
            _ => Err(dead_error()),
        }
    }

    fn die(&self) -> StorageError {
        self.dead.store(1, Ordering::SeqCst);
        dead_error()
    }
}

fn dead_error() -> StorageError {
    StorageError::Other {
        code: "dead",
        message: "the process of this store is dead".to_owned(),
    }
}

fn unknown_error() -> StorageError {
    StorageError::OutcomeUnknown {
        message: "the answer was lost".to_owned(),
    }
}

impl StorageBackend for FaultyStore {
    fn get(&self, keys: &[RecordKey]) -> Result<Vec<StoredRecord>, StorageError> {
        self.check_alive()?;
        self.inner.get(keys)
    }

    fn scan(
        &self,
        collection: &str,
        start: &str,
        end: &str,
        limit: u32,
        reverse: bool,
    ) -> Result<RecordPage, StorageError> {
        self.check_alive()?;
        self.inner.scan(collection, start, end, limit, reverse)
    }

    fn read_log(
        &self,
        log: &str,
        partition: &str,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<LogEntry>, StorageError> {
        self.check_alive()?;
        self.inner.read_log(log, partition, start, limit, reverse)
    }

    fn commit(&self, ops: &[CommitOp], closing: bool) -> Result<CommitOutcome, StorageError> {
        self.check_alive()?;
        let n = self.commits.fetch_add(1, Ordering::SeqCst) + 1;
        match self.death {
            DeathPoint::Before(at) if at == n => Err(self.die()),
            DeathPoint::After(at) if at == n => {
                self.inner.commit(ops, closing)?;
                Err(self.die())
            }
            DeathPoint::Unknown(at) if at == n => {
                self.inner.commit(ops, closing)?;
                Err(unknown_error())
            }
            DeathPoint::UnknownLost(at) if at == n => Err(unknown_error()),
            _ => self.inner.commit(ops, closing),
        }
    }
}
