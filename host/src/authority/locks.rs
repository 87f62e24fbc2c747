//! Lock files of native holders: who lives, without heartbeats.
//!
//! A process takes `.ai/threads/locks.d/<nonce>.lock` before it holds its first thread and keeps the file locked until
//! it ends; the operating system lets go of it when the process dies, however it dies. So a lock that can be taken, or
//! a file that is gone, belongs to a dead process, and its threads can be recovered at once.

use super::{AuthorityError, child_dir, child_dir_or_create, identity, writing};
use cap_std::fs::{Dir, OpenOptions};
use std::fs::{File, TryLockError};
use std::io;

/// What the nonce of a native process begins with. Holders on other hosts (the bundle has no locks) do not begin with
/// it, and nothing is ever concluded about them from a file that is not there.
pub const NATIVE_PREFIX: &str = "native-";

/// Most lock files that one [`sweep`] looks at.
pub const SWEPT_MAX: usize = 1_000;

const DIRECTORY: &str = "locks.d";

/// The same as errors call it.
const PLACE: &str = ".ai/threads/locks.d";

/// Tries to make a lock file that a sweep does not remove between making and locking.
const TRIES: usize = 8;

/// The lock of this process in one tenant's directory. Dropping it says that the process holds nothing any more.
#[derive(Debug)]
pub struct HolderLock {
    directory: Dir,
    nonce: String,
    /// Locked as long as it is open.
    _file: File,
}

impl HolderLock {
    /// Take a lock under a fresh random nonce. `threads` is `.ai/threads`.
    pub fn take(threads: &Dir) -> Result<Self, AuthorityError> {
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random).map_err(|error| AuthorityError::Io {
            place: "the system's random numbers".to_owned(),
            source: io::Error::other(error.to_string()),
        })?;
        Self::take_as(
            threads,
            &format!("{NATIVE_PREFIX}{:016x}", u64::from_be_bytes(random)),
        )
    }

    fn take_as(threads: &Dir, nonce: &str) -> Result<Self, AuthorityError> {
        let directory = child_dir_or_create(threads, DIRECTORY).map_err(|error| error.at(PLACE))?;
        let name = file_name(nonce);
        for _ in 0..TRIES {
            if let Some(file) = try_take(&directory, &name)
                .map_err(|error| AuthorityError::from_io(&place(&name), error))?
            {
                return Ok(Self {
                    directory,
                    nonce: nonce.to_owned(),
                    _file: file,
                });
            }
        }
        Err(AuthorityError::Replaced {
            place: place(&name),
        })
    }

    /// The name of this process among holders.
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    /// The holder for this process's run number `run`.
    pub fn holder(&self, run: u64) -> String {
        format!("{}/{run}", self.nonce)
    }
}

impl Drop for HolderLock {
    fn drop(&mut self) {
        // A file that stays behind says the same as one that is gone, so a failure here changes nothing.
        let _ = self.directory.remove_file(file_name(&self.nonce));
    }
}

/// True if the process of `holder` (`<nonce>` or `<nonce>/<n>`) is known to be dead: its lock file can be locked, or is
/// gone. False for a holder that lives, and for one that no native process of this directory can be.
pub fn is_dead(threads: &Dir, holder: &str) -> Result<bool, AuthorityError> {
    let nonce = holder.split_once('/').map_or(holder, |(nonce, _)| nonce);
    if !is_nonce(nonce) {
        return Ok(false);
    }
    let directory = match child_dir(threads, DIRECTORY).map_err(|error| error.at(PLACE)) {
        Err(error) if error.is_missing() => return Ok(true),
        other => other?,
    };
    is_free(&directory, &file_name(nonce))
}

/// Remove the lock files of dead processes; the answer is how many.
pub fn sweep(threads: &Dir) -> Result<usize, AuthorityError> {
    let failed = |error| AuthorityError::from_io(PLACE, error);
    let directory = match child_dir(threads, DIRECTORY).map_err(|error| error.at(PLACE)) {
        Err(error) if error.is_missing() => return Ok(0),
        other => other?,
    };
    let mut removed = 0;
    for entry in directory.entries().map_err(failed)?.take(SWEPT_MAX) {
        let name = entry.map_err(failed)?.file_name();
        let Some(name) = name
            .to_str()
            .filter(|name| name.strip_suffix(".lock").is_some_and(is_nonce))
        else {
            continue;
        };
        removed += usize::from(remove_free(&directory, name)?);
    }
    Ok(removed)
}

fn place(name: &str) -> String {
    format!("{PLACE}/{name}")
}

fn file_name(nonce: &str) -> String {
    format!("{nonce}.lock")
}

fn is_nonce(nonce: &str) -> bool {
    nonce.strip_prefix(NATIVE_PREFIX).is_some_and(|rest| {
        rest.len() == 16
            && rest
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Make the file and lock it. `None` if a sweep took it for a dead one's in between.
fn try_take(directory: &Dir, name: &str) -> io::Result<Option<File>> {
    let file = directory
        .open_with(name, OpenOptions::new().write(true).create_new(true))?
        .into_std();
    if taken(file.try_lock())? {
        return Ok(directory.try_exists(name)?.then_some(file));
    }
    let _ = directory.remove_file(name);
    Ok(None)
}

/// True if nobody holds the lock of this file, or there is none. The lock taken here ends with the handle.
fn is_free(directory: &Dir, name: &str) -> Result<bool, AuthorityError> {
    let Some(file) = existing(directory, name)? else {
        return Ok(true);
    };
    taken(file.try_lock_shared()).map_err(|error| AuthorityError::from_io(&place(name), error))
}

/// Remove the file if nobody holds its lock. The lock is held meanwhile: whoever locks it after this finds it gone.
fn remove_free(directory: &Dir, name: &str) -> Result<bool, AuthorityError> {
    let Some(file) = existing(directory, name)? else {
        return Ok(false);
    };
    let free = taken(file.try_lock());
    let free = free.map_err(|error| AuthorityError::from_io(&place(name), error))?;
    Ok(free && directory.remove_file(name).is_ok())
}

/// Open a lock file that is there. What is no regular file, or takes the place of one meanwhile, is refused; a pipe is
/// not waited for.
fn existing(directory: &Dir, name: &str) -> Result<Option<File>, AuthorityError> {
    let place = place(name);
    let failed = |error| AuthorityError::from_io(&place, error);
    let absent = |error| match failed(error) {
        error if error.is_missing() => Ok(None),
        error => Err(error),
    };
    let seen = match directory.symlink_metadata(name) {
        Err(error) => return absent(error),
        Ok(seen) => seen,
    };
    if seen.is_symlink() {
        return Err(AuthorityError::Link { place });
    }
    if !seen.is_file() {
        return Err(AuthorityError::NotRegular { place });
    }
    let file = match directory.open_with(name, &writing()) {
        Err(error) => return absent(error),
        Ok(file) => file,
    };
    if identity(&seen) != identity(&file.metadata().map_err(failed)?) {
        return Err(AuthorityError::Replaced { place });
    }
    Ok(Some(file.into_std()))
}

fn taken(tried: Result<(), TryLockError>) -> io::Result<bool> {
    match tried {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
