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

use std::path::PathBuf;

use cap_std::fs::{Dir, File, OpenOptions};

use super::super::StorageError;
use super::super::check::other;

/// Longest name of a store's file, in bytes: file systems take 255, and `-journal` is added.
const NAME_BYTES_MAX: usize = 200;
/// What SQLite adds to the name of its files, and what we add for the lock file.
const SUFFIXES: [&str; 5] = ["", "-wal", "-shm", "-journal", LOCK_SUFFIX];
const LOCK_SUFFIX: &str = ".lock";

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
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        let file = self
            .dir
            .open_with(&name, &options)
            .map_err(|error| unavailable(&name, &error))?;
        Ok(LockFile {
            file: File::into_std(file),
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

/// Where the writers of all processes queue: whoever holds it may begin a transaction. The kernel wakes the next one,
/// and frees it when its holder dies. A holder that is stopped (not dead) stops the others.
#[derive(Debug)]
pub(super) struct LockFile {
    file: std::fs::File,
}

impl LockFile {
    /// Waits until it is ours.
    pub(super) fn acquire(&self) -> Result<Turn<'_>, StorageError> {
        self.file
            .lock()
            .map_err(|error| unavailable("the lock file", &error))?;
        Ok(Turn { file: &self.file })
    }
}

/// Holds a [`LockFile`] until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    file: &'a std::fs::File,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            tracing::warn!(%error, "the lock file of a store could not be freed");
        }
    }
}

fn unavailable(what: &str, error: &std::io::Error) -> StorageError {
    StorageError::Unavailable {
        message: format!("{what}: {error}"),
    }
}
