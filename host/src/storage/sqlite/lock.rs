//! The queue of writers of all processes: a lock file beside the store.
//!
//! It is opened inside the held directory, without following a link, and must be an ordinary file
//! with one name. The openings of one store in this process queue in memory first, so that only one
//! waits at the file, and one thread is enough to wait for it, however many openings come and fail.

use std::collections::VecDeque;
use std::fs::{File, TryLockError};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::super::StorageError;
use super::files::{Place, unavailable};

/// Longest time that a writer waits for the lock. A holder needs it for a few synchronised writes,
/// and a checkpoint at most. A holder that takes longer is a stopped process, and the waiters fail
/// instead of hanging with it. Together with [`super::connection::BUSY_TIMEOUT`] it is less than a
/// strict call may take, so the call gets the reason.
pub(super) const TURN_TIME_MAX: Duration = Duration::from_secs(4);
/// Interval at which the first in the queue tries the lock itself, beside the thread that waits in
/// the kernel's queue: that thread may wait at a file that was replaced, or could not be started.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The queue of writers of all processes: the holder of the lock may begin a transaction. The
/// kernel wakes the next one, and frees the lock when its holder dies. A stopped (not dead) holder
/// is waited for no longer than [`TURN_TIME_MAX`].
#[derive(Debug)]
pub(super) struct LockFile {
    file: File,
    place: Arc<Place>,
}

/// The queue of this process for the lock file of one store, first come, first served.
#[derive(Debug, Default)]
pub(super) struct Turns {
    line: Mutex<Line>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Line {
    /// The number of the next waiter.
    next: u64,
    /// Numbers of the waiters, in the order in which they came.
    waiting: VecDeque<u64>,
    /// True while a caller of this process has the lock.
    taken: bool,
    helper: Helper,
}

/// State of the thread that waits in the kernel's queue: one at most, however long it takes.
#[derive(Debug, Default)]
enum Helper {
    #[default]
    None,
    Waits,
    /// It has obtained the lock, or an error, and has ended.
    Brought(io::Result<File>),
}

impl LockFile {
    /// Opens a new handle: two handles queue behind each other, also in one process.
    pub(super) fn open(place: &Arc<Place>) -> Result<Self, StorageError> {
        Ok(Self {
            file: place.open_lock()?,
            place: Arc::clone(place),
        })
    }

    /// Waits for the lock.
    pub(super) fn acquire(&self) -> Result<Turn<'_>, StorageError> {
        self.acquire_within(TURN_TIME_MAX)
    }

    fn acquire_within(&self, most: Duration) -> Result<Turn<'_>, StorageError> {
        let turns = self.place.turns();
        let until = Instant::now() + most;
        let mut line = turns.line();
        let own = line.next;
        line.next += 1;
        line.waiting.push_back(own);
        let lock = loop {
            let first = line.waiting.front() == Some(&own) && !line.taken;
            if first && let Some(lock) = self.take(&mut line).transpose() {
                break lock;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Err(self.held(most));
            }
            // Waiters that are not the first are woken by a notification.
            let wait = if first { left.min(LOOK_EVERY) } else { left };
            let waited = turns.changed.wait_timeout(line, wait);
            line = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        line.waiting.retain(|number| *number != own);
        line.taken |= lock.is_ok();
        line.free_unwanted();
        turns.wake(&line);
        drop(line);
        let lock = Some(lock?);
        Ok(Turn { turns, lock })
    }

    /// Takes the lock for the first in the queue, if it is free; else starts the thread that waits
    /// for it.
    fn take(&self, line: &mut Line) -> Result<Option<Lock<'_>>, StorageError> {
        let failed = |error| unavailable(self.place.lock_name(), &error);
        if matches!(line.helper, Helper::Brought(_))
            && let Helper::Brought(brought) = std::mem::take(&mut line.helper)
        {
            let file = brought.map_err(failed)?;
            return Ok(Some(Lock::Brought { _file: file }));
        }
        match self.file.try_lock() {
            Ok(()) => return Ok(Some(Lock::Own(&self.file))),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        if matches!(line.helper, Helper::None) && self.send_helper() {
            line.helper = Helper::Waits;
        }
        Ok(None)
    }

    /// Starts a thread that waits in the kernel's queue, with its own handle. It keeps the place,
    /// so that later openings of the store find this queue and start no other thread.
    fn send_helper(&self) -> bool {
        let Ok(file) = self.place.open_lock() else {
            return false;
        };
        let place = Arc::clone(&self.place);
        let thread = std::thread::Builder::new().name("threadkeep-turn".to_owned());
        let wait = move || {
            let locked = file.lock().map(|()| file);
            let turns = place.turns();
            let mut line = turns.line();
            line.helper = Helper::Brought(locked);
            line.free_unwanted();
            turns.wake(&line);
        };
        thread.spawn(wait).is_ok()
    }

    fn held(&self, most: Duration) -> StorageError {
        let (name, millis) = (self.place.lock_name(), most.as_millis());
        StorageError::Unavailable {
            message: format!(
                "another process keeps the lock file {name} of the store locked, for {millis} ms by \
                 now: end that process, or try again"
            ),
        }
    }
}

impl Turns {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all waiters, because each waits for another condition.
    fn wake(&self, line: &Line) {
        if !line.waiting.is_empty() {
            self.changed.notify_all();
        }
    }
}

impl Line {
    /// Releases a lock that the thread obtained when no waiter is left.
    fn free_unwanted(&mut self) {
        if self.waiting.is_empty() && matches!(self.helper, Helper::Brought(_)) {
            self.helper = Helper::None;
        }
    }
}

/// The lock of a [`LockFile`], held until this is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    lock: Option<Lock<'a>>,
}

#[derive(Debug)]
enum Lock<'a> {
    /// Taken at once.
    Own(&'a File),
    /// Taken by the thread that waited: closing its handle frees it.
    Brought {
        /// The handle of the thread.
        _file: File,
    },
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        if let Self::Own(file) = self
            && let Err(error) = file.unlock()
        {
            tracing::warn!(%error, "the lock file of a store could not be freed");
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Before the next one tries.
        self.lock = None;
        let mut line = self.turns.line();
        line.taken = false;
        self.turns.wake(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Project;

    fn lock_files() -> (tempfile::TempDir, Arc<Place>) {
        let temp = tempfile::TempDir::new().expect("a temporary directory");
        let place = place(&temp);
        (temp, place)
    }

    fn place(temp: &tempfile::TempDir) -> Arc<Place> {
        let project = Project::open_ambient(temp.path()).expect("it opens");
        let threads = project.threads().expect("made");
        Arc::new(Place::new(&threads, "registry.db").expect("a name"))
    }

    /// The lock as another process holds it: it ends with the handle, and is in no queue of this
    /// process.
    fn foreign(place: &Arc<Place>) -> File {
        let file = place.open_lock().expect("opened");
        file.lock().expect("nobody has it");
        file
    }

    /// Number of open handles of this process to a file.
    #[expect(
        clippy::disallowed_methods,
        reason = "looks from outside at what this process has open"
    )]
    fn handles(path: &std::path::Path) -> usize {
        let path = path.canonicalize().expect("it is there");
        let open = std::fs::read_dir("/proc/self/fd").expect("Linux");
        open.filter_map(Result::ok)
            .filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to == path))
            .count()
    }

    /// Symptom: a stopped process that held the lock file hung every other one. Cause: the wait was
    /// unbounded. Fix: a deadline, and an error that names the file.
    #[test]
    fn a_turn_that_never_comes_is_an_error_and_the_next_one_is_had() {
        const SHORT: Duration = Duration::from_millis(50);
        let (_temp, place) = lock_files();
        let (one, other) = (
            LockFile::open(&place).unwrap(),
            LockFile::open(&place).unwrap(),
        );
        let stopped = foreign(&place);
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
        let waits = TURN_TIME_MAX + super::super::connection::BUSY_TIMEOUT;
        assert!(waits < crate::limits::Limits::strict().wall_time_max);
        assert!(waits < crate::limits::Limits::local().wall_time_max);
    }

    #[test]
    fn whoever_waits_is_handed_the_turn() {
        let (_temp, place) = lock_files();
        let (one, other) = (
            LockFile::open(&place).unwrap(),
            LockFile::open(&place).unwrap(),
        );
        for foreigner in [false, true] {
            let turn = match foreigner {
                true => Ok(foreign(&place)),
                false => Err(one.acquire().expect("nobody has it")),
            };
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| other.acquire().map(drop));
                while place.turns().line().waiting.is_empty() {
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
    fn turns_are_taken_in_the_order_of_coming() {
        const COMING: u64 = 6;
        let (_temp, place) = lock_files();
        let lock = || LockFile::open(&place).expect("opened");
        let (one, stopped) = (lock(), foreign(&place));
        one.acquire_within(Duration::from_millis(1)).unwrap_err();
        let served = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 1..=COMING {
                let (lock, served) = (lock(), &served);
                scope.spawn(move || {
                    let turn = lock.acquire().expect("its turn");
                    served.lock().unwrap().push(number);
                    drop(turn);
                });
                while place.turns().line().waiting.len() < number as usize {
                    std::thread::yield_now();
                }
            }
            drop(stopped);
        });
        let expected: Vec<u64> = (1..=COMING).collect();
        assert_eq!(served.into_inner().unwrap(), expected);
        drop(one.acquire().expect("free again"));
    }

    /// Symptom: openings that failed while a process was stopped left a thread each. Cause: the
    /// waiting thread belonged to the opening. Fix: it belongs to the store, of which there is one
    /// in a process, and keeps it.
    #[test]
    fn openings_that_fail_leave_one_thread_and_it_ends() {
        let (temp, place) = lock_files();
        let path = temp.path().join(".ai/threads/registry.db.lock");
        let stopped = foreign(&place);
        drop(place);
        for _ in 0..5 {
            let place = self::place(&temp);
            let lock = LockFile::open(&place).unwrap();
            let refused = lock.acquire_within(Duration::from_millis(20)).map(drop);
            assert!(refused.is_err());
        }
        // Each thread has its own handle of the file.
        assert_eq!(handles(&path), 2, "of the stopped one, and of one thread");
        drop(stopped);
        let place = self::place(&temp);
        drop(LockFile::open(&place).unwrap().acquire().expect("free"));
        while handles(&path) > 0 {
            std::thread::yield_now();
        }
    }
}
