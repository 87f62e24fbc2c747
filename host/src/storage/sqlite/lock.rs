//! The queue of writers of all processes: a lock file beside the store.
//!
//! It is opened inside the held directory, without following a link, and must be an ordinary file
//! with one name. The openings of one store in this process queue in memory first, so that only one
//! waits at the file, and one thread is enough to wait for it, however many openings come and fail.

use std::collections::VecDeque;
use std::fs::{File, TryLockError};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use threadkeep_storage::locks::{SleepingCondvar, SleepingMutex};

use super::super::StorageError;
use super::files::{StoreFiles, unavailable_error};

/// Longest time that a writer waits for the lock. A holder needs it for a few synchronised writes,
/// and a checkpoint at most. A holder that takes longer is a stopped process, and the waiters fail
/// instead of hanging with it. Together with [`super::connection::BUSY_TIMEOUT`] it is less than a
/// strict call may take, so the call gets the reason.
pub(super) const LOCK_TIME_MAX: Duration = Duration::from_secs(4);
/// Interval at which the first in the queue tries the lock itself, beside the thread that waits in
/// the kernel's queue: that thread may wait at a file that was replaced, or could not be started.
const LOCK_TRY_EVERY: Duration = Duration::from_millis(10);

/// The queue of writers of all processes: the holder of the lock may begin a transaction. The
/// kernel wakes the next one, and frees the lock when its holder dies. A stopped (not dead) holder
/// is waited for no longer than [`LOCK_TIME_MAX`].
#[derive(Debug)]
pub(super) struct LockFile {
    file: File,
    place: Arc<StoreFiles>,
}

/// The queue of this process for the lock file of one store, first come, first served.
#[derive(Debug, Default)]
pub(super) struct LockQueue {
    state: SleepingMutex<LockQueueState>,
    changed: SleepingCondvar,
}

#[derive(Debug, Default)]
struct LockQueueState {
    /// The number of the next waiter.
    next_number: u64,
    /// Numbers of the waiters, in the order in which they came.
    waiting: VecDeque<u64>,
    /// True while a caller of this process has the lock.
    is_locked: bool,
    waiter: WaiterThread,
}

/// State of the thread that waits in the kernel's queue: one at most, however long it takes.
#[derive(Debug, Default)]
enum WaiterThread {
    #[default]
    None,
    Waits,
    /// It has obtained the lock, or an error, and has ended.
    Finished(io::Result<File>),
}

impl LockFile {
    /// Opens a new handle: two handles queue behind each other, also in one process.
    pub(super) fn open(place: &Arc<StoreFiles>) -> Result<Self, StorageError> {
        Ok(Self {
            file: place.open_lock()?,
            place: Arc::clone(place),
        })
    }

    /// Waits for the lock.
    pub(super) fn acquire(&self) -> Result<LockFileGuard<'_>, StorageError> {
        self.acquire_within(LOCK_TIME_MAX)
    }

    fn acquire_within(&self, most: Duration) -> Result<LockFileGuard<'_>, StorageError> {
        let turns = self.place.lock_queue();
        let until = Instant::now() + most;
        let mut line = turns.state.lock();
        let own = line.next_number;
        line.next_number += 1;
        line.waiting.push_back(own);
        let lock = loop {
            let first = line.waiting.front() == Some(&own) && !line.is_locked;
            if first && let Some(lock) = self.try_take_lock(&mut line).transpose() {
                break lock;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Err(self.held_error(most));
            }
            // Waiters that are not the first are woken by a notification.
            let wait = if first {
                left.min(LOCK_TRY_EVERY)
            } else {
                left
            };
            turns.changed.wait_for(&mut line, wait);
        };
        line.waiting.retain(|number| *number != own);
        line.is_locked |= lock.is_ok();
        line.release_unwanted_lock();
        turns.wake_waiters(&line);
        drop(line);
        let lock = Some(lock?);
        Ok(LockFileGuard { queue: turns, lock })
    }

    /// Takes the lock for the first in the queue, if it is free; else starts the thread that waits
    /// for it.
    fn try_take_lock(
        &self,
        line: &mut LockQueueState,
    ) -> Result<Option<AcquiredLock<'_>>, StorageError> {
        let failed = |error| unavailable_error(self.place.lock_name(), &error);
        if matches!(line.waiter, WaiterThread::Finished(_))
            && let WaiterThread::Finished(brought) = std::mem::take(&mut line.waiter)
        {
            let file = brought.map_err(failed)?;
            return Ok(Some(AcquiredLock::WaiterHandle { _file: file }));
        }
        match self.file.try_lock() {
            Ok(()) => return Ok(Some(AcquiredLock::OwnHandle(&self.file))),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        if matches!(line.waiter, WaiterThread::None) && self.start_waiter_thread() {
            line.waiter = WaiterThread::Waits;
        }
        Ok(None)
    }

    /// Starts a thread that waits in the kernel's queue, with its own handle. It keeps the place,
    /// so that later openings of the store find this queue and start no other thread.
    fn start_waiter_thread(&self) -> bool {
        let Ok(file) = self.place.open_lock() else {
            return false;
        };
        let place = Arc::clone(&self.place);
        let thread = std::thread::Builder::new().name("threadkeep-turn".to_owned());
        let wait = move || {
            let locked = file.lock().map(|()| file);
            let turns = place.lock_queue();
            let mut line = turns.state.lock();
            line.waiter = WaiterThread::Finished(locked);
            line.release_unwanted_lock();
            turns.wake_waiters(&line);
        };
        thread.spawn(wait).is_ok()
    }

    fn held_error(&self, most: Duration) -> StorageError {
        let (name, millis) = (self.place.lock_name(), most.as_millis());
        StorageError::Unavailable {
            message: format!(
                "another process keeps the lock file {name} of the store locked, for {millis} ms \
                 by \
                 now: end that process, or try again"
            ),
        }
    }
}

impl LockQueue {
    /// Wakes all waiters, because each waits for another condition.
    fn wake_waiters(&self, line: &LockQueueState) {
        if !line.waiting.is_empty() {
            self.changed.notify_all();
        }
    }
}

impl LockQueueState {
    /// Releases a lock that the thread obtained when no waiter is left.
    fn release_unwanted_lock(&mut self) {
        if self.waiting.is_empty() && matches!(self.waiter, WaiterThread::Finished(_)) {
            self.waiter = WaiterThread::None;
        }
    }
}

/// The lock of a [`LockFile`], held until this is dropped.
#[derive(Debug)]
pub(super) struct LockFileGuard<'a> {
    queue: &'a LockQueue,
    lock: Option<AcquiredLock<'a>>,
}

#[derive(Debug)]
enum AcquiredLock<'a> {
    /// Taken at once.
    OwnHandle(&'a File),
    /// Taken by the thread that waited: closing its handle frees it.
    WaiterHandle {
        /// The handle of the thread.
        _file: File,
    },
}

impl Drop for AcquiredLock<'_> {
    fn drop(&mut self) {
        if let Self::OwnHandle(file) = self
            && let Err(error) = file.unlock()
        {
            tracing::warn!(%error, "the lock file of a store could not be freed");
        }
    }
}

impl Drop for LockFileGuard<'_> {
    fn drop(&mut self) {
        // Before the next one tries.
        self.lock = None;
        let mut line = self.queue.state.lock();
        line.is_locked = false;
        self.queue.wake_waiters(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::ProjectDir;

    fn lock_files() -> (tempfile::TempDir, Arc<StoreFiles>) {
        let temp = tempfile::TempDir::new().expect("a temporary directory");
        let place = place(&temp);
        (temp, place)
    }

    fn place(temp: &tempfile::TempDir) -> Arc<StoreFiles> {
        let project = ProjectDir::open_ambient(temp.path()).expect("it opens");
        let threads = project.threads_dir_or_create().expect("made");
        Arc::new(StoreFiles::new(&threads, "registry.db").expect("a name"))
    }

    /// The lock as another process holds it: it ends with the handle, and is in no queue of this
    /// process.
    fn lock_as_other_process(place: &Arc<StoreFiles>) -> File {
        let file = place.open_lock().expect("opened");
        file.lock().expect("nobody has it");
        file
    }

    /// Number of open handles of this process to a file.
    #[expect(
        clippy::disallowed_methods,
        reason = "looks from outside at what this process has open"
    )]
    fn open_handle_count(path: &std::path::Path) -> usize {
        let path = path.canonicalize().expect("it is there");
        let open = std::fs::read_dir("/proc/self/fd").expect("Linux");
        open.filter_map(Result::ok)
            .filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to == path))
            .count()
    }

    /// Symptom: a stopped process that held the lock file hung every other one. Cause: the wait was
    /// unbounded. Fix: a deadline, and an error that names the file.
    #[test]
    fn held_lock_is_an_error_and_free_again_afterwards() {
        const SHORT: Duration = Duration::from_millis(50);
        let (_temp, place) = lock_files();
        let (one, other) = (
            LockFile::open(&place).unwrap(),
            LockFile::open(&place).unwrap(),
        );
        let stopped = lock_as_other_process(&place);
        assert!(one.file.try_lock().is_err());
        // In the second round the thread of the first still waits.
        for _ in 0..2 {
            let refused = other.acquire_within(SHORT).map(drop).unwrap_err();
            assert!(refused.retry_unchanged(), "{refused:?}");
            let words = refused.to_string();
            assert!(words.contains("registry.db.lock"), "{words}");
        }
        drop(stopped);
        drop(other.acquire().expect("it is free again"));
        drop(one.acquire().expect("what the thread got was given back"));
    }

    /// Symptom: a strict call ended by its clock, without an error about the stopped process.
    /// Cause: the wait for the lock was 20 seconds, the call had 10. Fix: the waits of storage are
    /// less than the least time of a call.
    #[test]
    fn storage_gives_up_before_a_call_does() {
        let waits = LOCK_TIME_MAX + super::super::connection::BUSY_TIMEOUT;
        assert!(waits < crate::limits::EngineLimits::strict().wall_time_max);
        assert!(waits < crate::limits::EngineLimits::local().wall_time_max);
    }

    #[test]
    fn waiter_gets_the_lock() {
        let (_temp, place) = lock_files();
        let (one, other) = (
            LockFile::open(&place).unwrap(),
            LockFile::open(&place).unwrap(),
        );
        for foreigner in [false, true] {
            let turn = match foreigner {
                true => Ok(lock_as_other_process(&place)),
                false => Err(one.acquire().expect("nobody has it")),
            };
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| other.acquire().map(drop));
                while place.lock_queue().state.lock().waiting.is_empty() {
                    std::thread::yield_now();
                }
                drop(turn);
                waiting.join().expect("no panic").expect("its turn");
            });
            drop(one.acquire().expect("free again"));
        }
    }

    /// Waiters are served in the order of arrival, and one that gives up delays no other.
    #[test]
    fn waiters_are_served_in_order_of_arrival() {
        const COMING: u64 = 6;
        let (_temp, place) = lock_files();
        let lock = || LockFile::open(&place).expect("opened");
        let (one, stopped) = (lock(), lock_as_other_process(&place));
        one.acquire_within(Duration::from_millis(1)).unwrap_err();
        let served = SleepingMutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 1..=COMING {
                let (lock, served) = (lock(), &served);
                scope.spawn(move || {
                    let turn = lock.acquire().expect("its turn");
                    served.lock().push(number);
                    drop(turn);
                });
                while place.lock_queue().state.lock().waiting.len() < number as usize {
                    std::thread::yield_now();
                }
            }
            drop(stopped);
        });
        let expected: Vec<u64> = (1..=COMING).collect();
        assert_eq!(served.into_inner(), expected);
        drop(one.acquire().expect("free again"));
    }

    /// Symptom: openings that failed while a process was stopped left a thread each. Cause: the
    /// waiting thread belonged to the opening. Fix: it belongs to the store, of which there is one
    /// in a process, and keeps it.
    #[test]
    fn failed_openings_leave_one_thread() {
        let (temp, place) = lock_files();
        let path = temp.path().join(".ai/threads/registry.db.lock");
        let stopped = lock_as_other_process(&place);
        drop(place);
        for _ in 0..5 {
            let place = self::place(&temp);
            let lock = LockFile::open(&place).unwrap();
            let refused = lock.acquire_within(Duration::from_millis(20)).map(drop);
            assert!(refused.is_err());
        }
        // Each thread has its own handle of the file.
        assert_eq!(
            open_handle_count(&path),
            2,
            "of the stopped one, and of one thread"
        );
        drop(stopped);
        let place = self::place(&temp);
        drop(LockFile::open(&place).unwrap().acquire().expect("free"));
        while open_handle_count(&path) > 0 {
            std::thread::yield_now();
        }
    }
}
