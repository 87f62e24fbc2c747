//! Checkpoints of the write-ahead log, on a separate connection, off the path of commits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use threadkeep_storage::locks::SleepingMutex;

use rusqlite::Connection;

use super::super::StorageError;
use super::CommitDurability;
use super::connection::{SqliteSession, open_checkpointer};
use super::files::StoreFiles;
use super::lock::LockFile;

/// Estimated pages written between two checkpoints.
const CHECKPOINT_PAGES: usize = 1_000;
/// Pages in the log above which writers have to wait until it restarts. A restarted log is
/// overwritten, which costs less than one that grows, and bounds the disk space of an open store;
/// the wait is two synchronised writes.
const RESTART_PAGES: i64 = 4_000;
const PAGE_BYTES: usize = 4_096;
/// Pages that an operation changes beside its value: its leaf, an index leaf.
const PAGES_PER_OP: usize = 2;

/// The write-ahead log of one open store.
#[derive(Debug)]
pub(super) struct WriteAheadLog {
    place: Arc<StoreFiles>,
    durability: CommitDurability,
    pages: AtomicUsize,
    /// True while a checkpoint is pending.
    due: AtomicBool,
    state: SleepingMutex<CheckpointState>,
}

/// The connection and lock file of the checkpoints.
#[derive(Debug)]
enum CheckpointState {
    /// There was no checkpoint yet: most stores that are opened for a moment never need one.
    Unopened,
    Open(SqliteSession, LockFile),
    Closed,
}

impl WriteAheadLog {
    pub(super) fn new(place: Arc<StoreFiles>, durability: CommitDurability) -> Self {
        Self {
            place,
            durability,
            pages: AtomicUsize::new(0),
            due: AtomicBool::new(false),
            state: SleepingMutex::new(CheckpointState::Unopened),
        }
    }

    /// Counts written pages; true if a checkpoint has become due.
    pub(super) fn count_written(&self, ops: usize, bytes: usize) -> bool {
        let pages = ops * PAGES_PER_OP + bytes / PAGE_BYTES;
        if self.pages.fetch_add(pages, Ordering::Relaxed) + pages < CHECKPOINT_PAGES {
            return false;
        }
        self.pages.store(0, Ordering::Relaxed);
        !self.due.swap(true, Ordering::AcqRel)
    }

    /// Makes a checkpoint.
    pub(super) fn checkpoint(&self) {
        self.due.store(false, Ordering::Release);
        let mut means = self.state.lock();
        if matches!(*means, CheckpointState::Unopened) {
            match self.open() {
                Ok(opened) => *means = opened,
                Err(error) => return tracing::warn!(%error, "a log could not be moved"),
            }
        }
        if let CheckpointState::Open(connection, lock) = &*means {
            checkpoint_and_restart(connection, lock);
        }
    }

    /// Closes the connection of the checkpoints, after waiting for one under way.
    pub(super) fn close(&self) {
        *self.state.lock() = CheckpointState::Closed;
    }

    fn open(&self) -> Result<CheckpointState, StorageError> {
        self.place.check_unchanged()?;
        let connection = open_checkpointer(&self.place, self.durability)?;
        Ok(CheckpointState::Open(
            connection,
            LockFile::open(&self.place)?,
        ))
    }
}

fn checkpoint_and_restart(connection: &Connection, lock: &LockFile) {
    let pages = execute_checkpoint(connection, "PRAGMA wal_checkpoint(PASSIVE)");
    if pages <= RESTART_PAGES {
        return;
    }
    // Writers queue at the lock file meanwhile, instead of polling.
    match lock.acquire() {
        Ok(_turn) => drop(execute_checkpoint(
            connection,
            "PRAGMA wal_checkpoint(RESTART)",
        )),
        Err(error) => tracing::warn!(%error, "a checkpoint could not get its turn"),
    }
}

/// Runs a checkpoint; returns the pages in the log. A failed checkpoint is repeated after later
/// commits; until then the log grows and nothing is lost.
fn execute_checkpoint(connection: &Connection, sql: &str) -> i64 {
    let pages = connection.query_row(sql, [], |row| row.get(1));
    pages.unwrap_or_else(|error| {
        tracing::warn!(%error, "a checkpoint failed");
        0
    })
}
