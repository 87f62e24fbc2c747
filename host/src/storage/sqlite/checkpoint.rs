//! Checkpoints of the write-ahead log, on a separate connection, off the path of commits.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;

use super::super::StorageError;
use super::Durability;
use super::connection::{Session, open_checkpointer};
use super::files::Place;
use super::lock::LockFile;

/// Estimated pages written between two checkpoints.
const PAGES_BETWEEN: usize = 1_000;
/// Pages in the log above which writers have to wait until it restarts. A restarted log is
/// overwritten, which costs less than one that grows, and bounds the disk space of an open store;
/// the wait is two synchronised writes.
const LOG_PAGES_MAX: i64 = 4_000;
const PAGE_BYTES: usize = 4_096;
/// Pages that an operation changes beside its value: its leaf, an index leaf.
const PAGES_PER_OP: usize = 2;

/// The write-ahead log of one open store.
#[derive(Debug)]
pub(super) struct Log {
    place: Arc<Place>,
    durability: Durability,
    pages: AtomicUsize,
    /// True while a checkpoint is pending.
    due: AtomicBool,
    means: Mutex<Means>,
}

/// The connection and lock file of the checkpoints.
#[derive(Debug)]
enum Means {
    /// There was no checkpoint yet: most stores that are opened for a moment never need one.
    Unopened,
    Open(Session, LockFile),
    Closed,
}

impl Log {
    pub(super) fn new(place: Arc<Place>, durability: Durability) -> Self {
        Self {
            place,
            durability,
            pages: AtomicUsize::new(0),
            due: AtomicBool::new(false),
            means: Mutex::new(Means::Unopened),
        }
    }

    /// Counts written pages; true if a checkpoint has become due.
    pub(super) fn note(&self, ops: usize, bytes: usize) -> bool {
        let pages = ops * PAGES_PER_OP + bytes / PAGE_BYTES;
        if self.pages.fetch_add(pages, Ordering::Relaxed) + pages < PAGES_BETWEEN {
            return false;
        }
        self.pages.store(0, Ordering::Relaxed);
        !self.due.swap(true, Ordering::AcqRel)
    }

    /// Makes a checkpoint.
    pub(super) fn carry(&self) {
        self.due.store(false, Ordering::Release);
        let mut means = self.means.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*means, Means::Unopened) {
            match self.open() {
                Ok(opened) => *means = opened,
                Err(error) => return tracing::warn!(%error, "a log could not be moved"),
            }
        }
        if let Means::Open(connection, lock) = &*means {
            checkpoint(connection, lock);
        }
    }

    /// Closes the connection of the checkpoints, after waiting for one under way.
    pub(super) fn close(&self) {
        *self.means.lock().unwrap_or_else(PoisonError::into_inner) = Means::Closed;
    }

    fn open(&self) -> Result<Means, StorageError> {
        self.place.check_unchanged()?;
        let connection = open_checkpointer(&self.place, self.durability)?;
        Ok(Means::Open(connection, LockFile::open(&self.place)?))
    }
}

fn checkpoint(connection: &Connection, lock: &LockFile) {
    let pages = move_log(connection, "PRAGMA wal_checkpoint(PASSIVE)");
    if pages <= LOG_PAGES_MAX {
        return;
    }
    // Writers queue at the lock file meanwhile, instead of polling.
    match lock.acquire() {
        Ok(_turn) => drop(move_log(connection, "PRAGMA wal_checkpoint(RESTART)")),
        Err(error) => tracing::warn!(%error, "a checkpoint could not get its turn"),
    }
}

/// Runs a checkpoint; returns the pages in the log. A failed checkpoint is repeated after later
/// commits; until then the log grows and nothing is lost.
fn move_log(connection: &Connection, sql: &str) -> i64 {
    let pages = connection.query_row(sql, [], |row| row.get(1));
    pages.unwrap_or_else(|error| {
        tracing::warn!(%error, "a checkpoint failed");
        0
    })
}
