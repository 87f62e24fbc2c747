//! Where the writers of all processes queue: a lock file beside the store.
//!
//! It is opened inside the directory that is held, without following a link, and must be an ordinary file with one name.

use std::fs::TryLockError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::super::StorageError;
use super::files::{Place, unavailable};

/// How long a writer waits for its turn. A turn is a few synchronised writes, and a checkpoint at most; whoever has not
/// come to an end after this long is stopped, and everybody else is told instead of waiting with it. Together with
/// [`super::connection::BUSY_TIMEOUT`] it is less than a strict call may take, so the call is told why.
pub(super) const TURN_TIME_MAX: Duration = Duration::from_secs(4);
/// How often a writer looks that cannot wait in the kernel's queue.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Where the writers of all processes queue: whoever holds it may begin a transaction. The kernel wakes the next one,
/// and frees it when its holder dies. A holder that is stopped (not dead) is waited for no longer than
/// [`TURN_TIME_MAX`].
#[derive(Debug)]
pub(super) struct LockFile {
    file: std::fs::File,
    place: Arc<Place>,
    /// A thread waits in the kernel's queue for us: there is never more than one, however long it takes.
    helped: Arc<AtomicBool>,
}

impl LockFile {
    /// Opened anew: two handles queue behind each other, also in one process.
    pub(super) fn open(place: &Arc<Place>) -> Result<Self, StorageError> {
        Ok(Self {
            file: place.open_lock()?,
            place: Arc::clone(place),
            helped: Arc::default(),
        })
    }

    /// Waits until it is ours.
    pub(super) fn acquire(&self) -> Result<Turn<'_>, StorageError> {
        self.acquire_within(TURN_TIME_MAX)
    }

    fn acquire_within(&self, most: Duration) -> Result<Turn<'_>, StorageError> {
        if self.is_free()? {
            return Ok(Turn::Ours(&self.file));
        }
        match self.queued() {
            Some(queued) => match queued.recv_timeout(most) {
                Ok(Ok(file)) => Ok(Turn::Handed { _file: file }),
                Ok(Err(error)) => Err(unavailable(self.place.lock_name(), &error)),
                Err(_) => Err(self.held(most)),
            },
            None => self.looked_for(most),
        }
    }

    /// Takes it if nobody has it.
    fn is_free(&self) -> Result<bool, StorageError> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(unavailable(self.place.lock_name(), &error)),
        }
    }

    /// A thread that waits where the kernel keeps the order, through a handle of its own: what it gets too late is freed
    /// when nobody receives it. `None` if an earlier one still waits, or none can be had.
    fn queued(&self) -> Option<mpsc::Receiver<std::io::Result<std::fs::File>>> {
        if self.helped.swap(true, Ordering::AcqRel) {
            return None;
        }
        let helped = Arc::clone(&self.helped);
        let (sender, receiver) = mpsc::channel();
        let started = self.place.open_lock().ok().and_then(|file| {
            let thread = std::thread::Builder::new().name("threadkeep-turn".to_owned());
            let wait = move || {
                let locked = file.lock().map(|()| file);
                helped.store(false, Ordering::Release);
                drop(sender.send(locked));
            };
            thread.spawn(wait).ok()
        });
        if started.is_none() {
            self.helped.store(false, Ordering::Release);
        }
        started.map(|_| receiver)
    }

    fn looked_for(&self, most: Duration) -> Result<Turn<'_>, StorageError> {
        let begun = Instant::now();
        while begun.elapsed() < most {
            std::thread::sleep(LOOK_EVERY.min(most));
            if self.is_free()? {
                return Ok(Turn::Ours(&self.file));
            }
        }
        Err(self.held(most))
    }

    fn held(&self, most: Duration) -> StorageError {
        let (name, millis) = (self.place.lock_name(), most.as_millis());
        StorageError::Unavailable {
            message: format!(
                "the lock file {name} has been held by another process for {millis} ms; is one stopped?"
            ),
        }
    }
}

/// Holds a [`LockFile`] until it is dropped.
#[derive(Debug)]
pub(super) enum Turn<'a> {
    /// Taken at once.
    Ours(&'a std::fs::File),
    /// Taken by a thread that waited: closing its handle frees it.
    Handed {
        /// Its handle.
        _file: std::fs::File,
    },
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Self::Ours(file) = self
            && let Err(error) = file.unlock()
        {
            tracing::warn!(%error, "the lock file of a store could not be freed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Project;

    fn lock_files() -> (tempfile::TempDir, Arc<Place>) {
        let temp = tempfile::TempDir::new().expect("a temporary directory");
        let project = Project::open_ambient(temp.path()).expect("it opens");
        let threads = project.threads().expect("made");
        let place = Place::new(&threads, "registry.db").expect("a name");
        (temp, Arc::new(place))
    }

    /// Symptom: a stopped process that held the lock file hung every other one. Cause: they waited without an end.
    /// Fix: a deadline, and an error that names the file.
    #[test]
    fn a_turn_that_never_comes_is_an_error_and_the_next_one_is_had() {
        const SHORT: Duration = Duration::from_millis(50);
        let (_temp, place) = lock_files();
        let (one, other) = (
            LockFile::open(&place).unwrap(),
            LockFile::open(&place).unwrap(),
        );
        let stopped = one.acquire().expect("nobody has it");
        // The second time the thread of the first still waits.
        for _ in 0..2 {
            let begun = Instant::now();
            let refused = other.acquire_within(SHORT).map(drop).unwrap_err();
            assert!(begun.elapsed() < TURN_TIME_MAX / 2);
            assert!(refused.retry_unchanged(), "{refused:?}");
            let words = refused.to_string();
            assert!(words.contains("registry.db.lock"), "{words}");
        }
        drop(stopped);
        drop(other.acquire().expect("it is free again"));
        drop(one.acquire().expect("what the thread got was given back"));
    }

    /// Symptom: a strict call ended by its clock, and nobody said that a process was stopped. Cause: a turn was waited
    /// for 20 seconds, the call had 10. Fix: the waits of storage are less than the least that a call has.
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
        let turn = one.acquire().expect("nobody has it");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| other.acquire().map(drop));
            std::thread::sleep(Duration::from_millis(20));
            drop(turn);
            waiting.join().expect("no panic").expect("its turn");
        });
        drop(one.acquire().expect("free again"));
    }
}
