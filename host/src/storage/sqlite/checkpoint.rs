//! Moving the write-ahead log into the file, on a thread and a connection of its own, off the path of commits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use rusqlite::Connection;

use super::super::StorageError;
use super::files::LockFile;

/// Pages written, as estimated, after which the log is moved.
const PAGES_BETWEEN: usize = 1_000;
/// Pages in the log after which writers have to wait until it starts anew. A log that starts anew is written over, which
/// costs less than one that grows, and it is what an open store takes on the disk; the wait is two synchronised writes.
const LOG_PAGES_MAX: i64 = 4_000;
const PAGE_BYTES: usize = 4_096;
/// Pages that an operation changes beside its value: its leaf, an index leaf.
const PAGES_PER_OP: usize = 2;

/// Tells the thread when there is something to do, and ends it when dropped.
#[derive(Debug)]
pub(super) struct Checkpointer {
    pages: AtomicUsize,
    order: Arc<Order>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Order {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    due: bool,
    ended: bool,
}

impl Checkpointer {
    /// Starts the thread.
    pub(super) fn start(connection: Connection, lock: LockFile) -> Result<Self, StorageError> {
        let order = Arc::new(Order::default());
        let orders = Arc::clone(&order);
        let work = move || {
            while orders.next() {
                checkpoint(&connection, &lock);
            }
        };
        let thread = Builder::new()
            .name("threadkeep-checkpoint".to_owned())
            .spawn(work);
        let thread = thread.map_err(|error| StorageError::Unavailable {
            message: error.to_string(),
        })?;
        Ok(Self {
            pages: AtomicUsize::new(0),
            order,
            thread: Some(thread),
        })
    }

    /// Notes what was written.
    pub(super) fn note(&self, ops: usize, bytes: usize) {
        let pages = ops * PAGES_PER_OP + bytes / PAGE_BYTES;
        if self.pages.fetch_add(pages, Ordering::Relaxed) + pages >= PAGES_BETWEEN {
            self.pages.store(0, Ordering::Relaxed);
            self.order.tell(|state| state.due = true);
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.order.tell(|state| state.ended = true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!("the checkpoint thread of a store had panicked");
        }
    }
}

impl Order {
    /// Waits for work; false at the end.
    fn next(&self) -> bool {
        let idle = |state: &mut State| !state.due && !state.ended;
        let mut state = self
            .changed
            .wait_while(self.state(), idle)
            .unwrap_or_else(PoisonError::into_inner);
        state.due = false;
        !state.ended
    }

    fn tell(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Answers how many pages the log has. A checkpoint that fails is tried again after the next commits; until then the
/// log grows and nothing is lost.
fn move_log(connection: &Connection, sql: &str) -> i64 {
    let pages = connection.query_row(sql, [], |row| row.get(1));
    pages.unwrap_or_else(|error| {
        tracing::warn!(%error, "a checkpoint failed");
        0
    })
}
