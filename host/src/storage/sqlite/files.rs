//! The files of one store inside the directory that was granted: their names, what may stand there, the lock file.
//!
//! **The gap.** SQLite opens files by path and follows symbolic links before it opens, so a path through
//! `/proc/self/fd/<directory>/` is turned back into an ordinary one. What stands at our names is therefore looked at
//! before every connection, and anything but an ordinary file with one name is refused. Between that look and the open
//! a writer of the same directory could still plant a link, and after the open a renamed directory is an I/O error.
//! The shim VFS that closes both is a later piece of work; until then the directory must be writable by us alone,
//! which `.ai/threads` is: no directory that tools see contains it.
//!
//! Only Linux has `/proc/self/fd`. Elsewhere a store is refused with the code `unsupported-platform`.

use std::fs::TryLockError;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use cap_std::fs::{Dir, File, OpenOptions};

use super::super::StorageError;
use super::super::check::other;

/// Longest name of a store's file, in bytes: file systems take 255, and `-journal` is added.
const NAME_BYTES_MAX: usize = 200;
/// What SQLite adds to the name of its files, and what we add for the lock file.
const SUFFIXES: [&str; 5] = ["", "-wal", "-shm", "-journal", LOCK_SUFFIX];
const LOCK_SUFFIX: &str = ".lock";
/// How long a writer waits for its turn. A turn is a few synchronised writes, and a checkpoint at most; whoever has not
/// come to an end after this long is stopped, and everybody else is told instead of waiting with it.
const TURN_TIME_MAX: Duration = Duration::from_secs(20);
/// How often a writer looks that cannot wait in the kernel's queue.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A directory and a name in it. It is kept as long as a connection, because connections are opened through it.
#[derive(Debug)]
pub(super) struct Place {
    dir: Dir,
    name: String,
}

impl Place {
    /// Checks the name, not yet what stands there.
    pub(super) fn new(dir: &Dir, name: &str) -> Result<Self, StorageError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let dots = name.starts_with('.') || !name.contains('.');
        if dots || name.len() > NAME_BYTES_MAX || !name.bytes().all(plain) {
            let message = format!(
                "{name:?} is no name of a store: letters, digits, `.`, `_`, `-`, with a dot inside"
            );
            return Err(other("bad-name", message));
        }
        let dir = dir
            .try_clone()
            .map_err(|error| unavailable("the directory", &error))?;
        Ok(Self {
            dir,
            name: name.to_owned(),
        })
    }

    /// Whether there is a file with something in it.
    pub(super) fn is_there(&self) -> Result<bool, StorageError> {
        match self.dir.symlink_metadata(&self.name) {
            Ok(found) => Ok(found.len() > 0),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(unavailable(&self.name, &error)),
        }
    }

    /// Where SQLite shall open the store, after a look at every file of it.
    pub(super) fn path(&self) -> Result<PathBuf, StorageError> {
        for suffix in SUFFIXES {
            self.look_at(&format!("{}{suffix}", self.name))?;
        }
        self.path_in_dir()
    }

    /// The lock file, opened anew: two handles queue behind each other, also in one process.
    pub(super) fn lock_file(&self) -> Result<LockFile, StorageError> {
        let name = format!("{}{LOCK_SUFFIX}", self.name);
        self.look_at(&name)?;
        let dir = self.dir.try_clone();
        let dir = dir.map_err(|error| unavailable("the directory", &error))?;
        let file = open_lock(&dir, &name).map_err(|error| unavailable(&name, &error))?;
        Ok(LockFile {
            file,
            dir,
            name,
            helped: Arc::default(),
        })
    }

    fn look_at(&self, name: &str) -> Result<(), StorageError> {
        let found = match self.dir.symlink_metadata(name) {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(unavailable(name, &error)),
        };
        if !found.is_file() {
            return Err(other(
                "not-a-regular-file",
                format!("{name} is a link, a directory or a device"),
            ));
        }
        if has_other_names(&found) {
            return Err(other(
                "hard-linked",
                format!("{name} has another name somewhere"),
            ));
        }
        Ok(())
    }

    #[cfg(target_os = "linux")]
    #[expect(clippy::unnecessary_wraps, reason = "elsewhere it fails")]
    fn path_in_dir(&self) -> Result<PathBuf, StorageError> {
        use std::os::fd::AsRawFd;
        Ok(PathBuf::from(format!(
            "/proc/self/fd/{}/{}",
            self.dir.as_raw_fd(),
            self.name
        )))
    }

    #[cfg(not(target_os = "linux"))]
    fn path_in_dir(&self) -> Result<PathBuf, StorageError> {
        Err(other(
            "unsupported-platform",
            "SQLite cannot be held inside a directory here; use the files store",
        ))
    }
}

#[cfg(unix)]
fn has_other_names(found: &cap_std::fs::Metadata) -> bool {
    use cap_std::fs::MetadataExt;
    found.nlink() != 1
}

#[cfg(not(unix))]
fn has_other_names(_found: &cap_std::fs::Metadata) -> bool {
    false
}

fn open_lock(dir: &Dir, name: &str) -> std::io::Result<std::fs::File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    dir.open_with(name, &options).map(File::into_std)
}

/// Where the writers of all processes queue: whoever holds it may begin a transaction. The kernel wakes the next one,
/// and frees it when its holder dies. A holder that is stopped (not dead) is waited for no longer than
/// [`TURN_TIME_MAX`].
#[derive(Debug)]
pub(super) struct LockFile {
    file: std::fs::File,
    dir: Dir,
    name: String,
    /// A thread waits in the kernel's queue for us: there is never more than one, however long it takes.
    helped: Arc<AtomicBool>,
}

impl LockFile {
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
                Ok(Err(error)) => Err(unavailable(&self.name, &error)),
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
            Err(TryLockError::Error(error)) => Err(unavailable(&self.name, &error)),
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
        let started = open_lock(&self.dir, &self.name).and_then(|file| {
            let thread = std::thread::Builder::new().name("threadkeep-turn".to_owned());
            thread.spawn(move || {
                let locked = file.lock().map(|()| file);
                helped.store(false, Ordering::Release);
                drop(sender.send(locked));
            })
        });
        if started.is_err() {
            self.helped.store(false, Ordering::Release);
        }
        started.ok().map(|_| receiver)
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
        let (name, millis) = (&self.name, most.as_millis());
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

fn unavailable(what: &str, error: &std::io::Error) -> StorageError {
    StorageError::Unavailable {
        message: format!("{what}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Project;

    fn lock_files() -> (tempfile::TempDir, Place) {
        let temp = tempfile::TempDir::new().expect("a temporary directory");
        let project = Project::open_ambient(temp.path()).expect("it opens");
        let threads = project.threads().expect("made");
        let place = Place::new(&threads, "registry.db").expect("a name");
        (temp, place)
    }

    /// Symptom: a stopped process that held the lock file hung every other one. Cause: they waited without an end.
    /// Fix: a deadline, and an error that names the file.
    #[test]
    fn a_turn_that_never_comes_is_an_error_and_the_next_one_is_had() {
        const SHORT: Duration = Duration::from_millis(50);
        let (_temp, place) = lock_files();
        let (one, other) = (place.lock_file().unwrap(), place.lock_file().unwrap());
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

    #[test]
    fn whoever_waits_is_handed_the_turn() {
        let (_temp, place) = lock_files();
        let (one, other) = (place.lock_file().unwrap(), place.lock_file().unwrap());
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
