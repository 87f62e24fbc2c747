//! A store that dies at a chosen commit, like a process that is killed before, or just after, its
//! commit; or that cannot be reached for a moment after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use threadkeep::storage::{CommitOp, CommitOutcome, StorageBackend, StorageError};

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
    /// The commit is made and answered, and the call after it finds the store unreachable, once.
    Away(u64),
}

impl DeathPoint {
    /// The store lives.
    pub const NEVER: Self = Self::Before(u64::MAX);

    /// The deaths at a commit: each way in which a process or its store can fail there.
    pub fn all_at(commit: u64) -> [Self; 4] {
        [
            Self::Before(commit),
            Self::After(commit),
            Self::Unknown(commit),
            Self::UnknownLost(commit),
        ]
    }
}

/// A store is alive, dead, or away for one call.
const ALIVE: u64 = 0;
const DEAD: u64 = 1;
const AWAY: u64 = 2;

/// A store that dies at a chosen commit.
pub struct FaultyStore {
    inner: Arc<dyn StorageBackend>,
    death: DeathPoint,
    commits: AtomicU64,
    state: AtomicU64,
}

impl FaultyStore {
    /// A store over `inner` that dies at the commit that `death` counts, from 1.
    pub fn new(inner: Arc<dyn StorageBackend>, death: DeathPoint) -> Self {
        Self {
            inner,
            death,
            commits: AtomicU64::new(0),
            state: AtomicU64::new(ALIVE),
        }
    }

    /// Number of commits that were requested.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    fn check_alive(&self) -> Result<(), StorageError> {
        match self.state.load(Ordering::SeqCst) {
            ALIVE => Ok(()),
            AWAY => {
                self.state.store(ALIVE, Ordering::SeqCst);
                let message = "the store is away for a moment".to_owned();
                Err(StorageError::Unavailable { message })
            }
            _ => Err(dead_error()),
        }
    }

    /// Passes a call on, unless the store is dead or away.
    fn serve<T>(
        &self,
        _: &str,
        call: impl FnOnce(&dyn StorageBackend) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        self.check_alive()?;
        call(&*self.inner)
    }

    fn die(&self) -> StorageError {
        self.state.store(DEAD, Ordering::SeqCst);
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
    crate::delegate_calls!(through serve: get, scan, read_log);

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
            DeathPoint::Away(at) if at == n => {
                let done = self.inner.commit(ops, closing);
                self.state.store(AWAY, Ordering::SeqCst);
                done
            }
            _ => self.inner.commit(ops, closing),
        }
    }
}
