//! Lock files of native processes, which tell a living process from a dead one without heartbeats.
//!
//! A process makes and locks `.ai/threads/locks.d/<nonce>.lock` before it takes its first lease,
//! and keeps the file locked until it ends; the operating system releases the lock when the process
//! dies, however it dies. So an existing file whose lock is free belongs to a dead process, and its
//! threads can be recovered at once.
//!
//! A missing file says nothing: a user who cleans up the directory removes the files of living
//! processes too, and they do not notice. The state of such a holder is unknown until its leases
//! expire. Therefore a file is removed only when its process holds no lease any more: by the
//! process itself, or after a recovery has closed what it left behind.

use super::private::close_to_others;
use super::{
    AuthorityError, child_dir, file_identity, open_private, private_child_dir, write_options,
};
use cap_std::fs::{Dir, OpenOptions};
use std::fs::{File, TryLockError};
use std::io;
use std::time::SystemTime;

/// Prefix of the nonce of a native process. Holders on other hosts (the bundle has no locks) do not
/// have it, and nothing is ever concluded about them from a missing file.
pub const NATIVE_PREFIX: &str = "native-";

/// Largest number of lock files that [`dead_processes`] examines.
pub const LOCK_FILES_MAX: usize = 1_000;

const DIRECTORY: &str = "locks.d";

/// The lock directory, as errors call it.
const PLACE: &str = ".ai/threads/locks.d";

/// Attempts at making a lock file that no sweep removes between making and locking.
const TRIES: usize = 8;

/// The lock of this process in one tenant's directory. Dropping it declares that the process holds
/// no lease any more; [`HolderLock::abandon`] declares that it may hold some.
#[derive(Debug)]
pub struct HolderLock {
    directory: Dir,
    nonce: String,
    /// Locked as long as it is open.
    _file: File,
    abandoned: bool,
}

/// State of a holder's process, according to the lock files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HolderState {
    /// The lock file is locked.
    Lives,
    /// The lock file exists and is not locked.
    Dead,
    /// The holder has no lock file, or is no native process.
    Unknown,
}

impl HolderLock {
    /// Takes a lock under a fresh random nonce. `threads` is `.ai/threads`.
    pub fn acquire(threads: &Dir) -> Result<Self, AuthorityError> {
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random).map_err(|error| AuthorityError::Io {
            place: "the system's random numbers".to_owned(),
            source: io::Error::other(error.to_string()),
        })?;
        Self::acquire_as(
            threads,
            &format!("{NATIVE_PREFIX}{:016x}", u64::from_be_bytes(random)),
        )
    }

    fn acquire_as(threads: &Dir, nonce: &str) -> Result<Self, AuthorityError> {
        let directory =
            private_child_dir(threads, DIRECTORY).map_err(|error| error.with_place(PLACE))?;
        close_to_others(&directory, PLACE)?;
        let name = file_name(nonce);
        for _ in 0..TRIES {
            if let Some(file) = create_locked(&directory, &name)
                .map_err(|error| AuthorityError::from_io(&display_place(&name), error))?
            {
                return Ok(Self {
                    directory,
                    nonce: nonce.to_owned(),
                    _file: file,
                    abandoned: false,
                });
            }
        }
        Err(AuthorityError::Replaced {
            place: display_place(&name),
        })
    }

    /// The nonce of this process, the first part of its holder names.
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    /// State of the process of `holder` (`<nonce>` or `<nonce>/<n>`) in the same directory.
    pub fn holder_state(&self, holder: &str) -> Result<HolderState, AuthorityError> {
        let nonce = holder.split_once('/').map_or(holder, |(nonce, _)| nonce);
        match is_nonce(nonce) {
            true => state_from_file(&self.directory, &file_name(nonce)),
            false => Ok(HolderState::Unknown),
        }
    }

    /// Releases the lock as a crash would: the file stays and declares that the leases of this
    /// process can be recovered.
    pub fn abandon(mut self) {
        self.abandoned = true;
    }

    /// The holder name for this process's run number `run`.
    pub fn holder_name(&self, run: u64) -> String {
        format!("{}/{run}", self.nonce)
    }
}

impl Drop for HolderLock {
    fn drop(&mut self) {
        // A file that cannot be removed is swept after the next recovery.
        if !self.abandoned {
            let _ = self.directory.remove_file(file_name(&self.nonce));
        }
    }
}

/// Refuses a `locks.d` in which no process could take its lock: a link, or anything else than a
/// directory.
pub fn check_locks_dir(threads: &Dir) -> Result<(), AuthorityError> {
    open_locks_dir(threads).map(drop)
}

/// The lock file of the process of `holder`, as errors call it.
pub fn lock_file_place(holder: &str) -> String {
    display_place(&file_name(nonce_of(holder)))
}

/// State of the process of `holder` (`<nonce>` or `<nonce>/<n>`).
pub fn holder_state(threads: &Dir, holder: &str) -> Result<HolderState, AuthorityError> {
    let nonce = nonce_of(holder);
    if !is_nonce(nonce) {
        return Ok(HolderState::Unknown);
    }
    match open_locks_dir(threads)? {
        Some(directory) => state_from_file(&directory, &file_name(nonce)),
        None => Ok(HolderState::Unknown),
    }
}

/// The nonces of dead processes that have lock files; at most [`LOCK_FILES_MAX`] files are
/// examined.
pub fn dead_processes(threads: &Dir) -> Result<Vec<String>, AuthorityError> {
    processes_in_state(threads, HolderState::Dead)
}

/// The nonces of living processes that have lock files, this one among them; at most
/// [`LOCK_FILES_MAX`] files are examined.
pub fn live_processes(threads: &Dir) -> Result<Vec<String>, AuthorityError> {
    processes_in_state(threads, HolderState::Lives)
}

fn processes_in_state(threads: &Dir, state: HolderState) -> Result<Vec<String>, AuthorityError> {
    let failed = |error| AuthorityError::from_io(PLACE, error);
    let Some(directory) = open_locks_dir(threads)? else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for entry in directory.entries().map_err(failed)?.take(LOCK_FILES_MAX) {
        let name = entry.map_err(failed)?.file_name();
        let nonce = name.to_str().and_then(|name| name.strip_suffix(".lock"));
        if let Some(nonce) = nonce.filter(|nonce| is_nonce(nonce))
            && state_from_file(&directory, &file_name(nonce))? == state
        {
            found.push(nonce.to_owned());
        }
    }
    Ok(found)
}

/// The dead processes that have lock files, each with the time since when it may have left
/// documents unwritten: the modification time of its file. At most [`LOCK_FILES_MAX`] files are
/// examined.
pub fn dead_processes_since(threads: &Dir) -> Result<Vec<(String, SystemTime)>, AuthorityError> {
    let mut found = Vec::new();
    for nonce in dead_processes(threads)? {
        if let Some((file, place)) = open_lock_file(threads, &nonce)? {
            let changed = file.metadata().and_then(|metadata| metadata.modified());
            let changed = changed.map_err(|error| AuthorityError::from_io(&place, error))?;
            found.push((nonce, changed));
        }
    }
    Ok(found)
}

/// Records in the lock files of these dead processes, as modification time, that the documents they
/// left behind are written until `now`.
pub fn mark_caught_up(
    threads: &Dir,
    dead: &[(String, SystemTime)],
    now: SystemTime,
) -> Result<(), AuthorityError> {
    for (nonce, _) in dead {
        if let Some((file, place)) = open_lock_file(threads, nonce)? {
            let noted = file.set_modified(now);
            noted.map_err(|error| AuthorityError::from_io(&place, error))?;
        }
    }
    Ok(())
}

/// Opens the lock file of a process, if it exists; also returns the name for errors.
fn open_lock_file(threads: &Dir, nonce: &str) -> Result<Option<(File, String)>, AuthorityError> {
    let Some(directory) = open_locks_dir(threads)? else {
        return Ok(None);
    };
    let name = file_name(nonce);
    let file = open_existing(&directory, &name)?;
    Ok(file.map(|file| (file, display_place(&name))))
}

/// Removes the lock files of these processes, which [`dead_processes`] listed before their leases
/// were closed, and returns the number removed. Processes that died since are not in the list.
pub fn remove_lock_files(threads: &Dir, dead: &[String]) -> Result<usize, AuthorityError> {
    let Some(directory) = open_locks_dir(threads)? else {
        return Ok(0);
    };
    let mut removed = 0;
    for nonce in dead.iter().filter(|nonce| is_nonce(nonce)) {
        removed += usize::from(remove_if_unlocked(&directory, &file_name(nonce))?);
    }
    Ok(removed)
}

fn open_locks_dir(threads: &Dir) -> Result<Option<Dir>, AuthorityError> {
    match child_dir(threads, DIRECTORY).map_err(|error| error.with_place(PLACE)) {
        Err(error) if error.is_missing() => Ok(None),
        found => found.map(Some),
    }
}

fn display_place(name: &str) -> String {
    format!("{PLACE}/{name}")
}

fn file_name(nonce: &str) -> String {
    format!("{nonce}.lock")
}

/// The nonce in `<nonce>/<n>`.
fn nonce_of(holder: &str) -> &str {
    holder.split_once('/').map_or(holder, |(nonce, _)| nonce)
}

fn is_nonce(nonce: &str) -> bool {
    nonce.strip_prefix(NATIVE_PREFIX).is_some_and(|rest| {
        rest.len() == 16
            && rest
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Makes the file and locks it. `None` if a sweep meanwhile removed the file as that of a dead
/// process.
fn create_locked(directory: &Dir, name: &str) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    let file = open_private(directory, name, options)?.into_std();
    if is_acquired(file.try_lock())? {
        return Ok(directory.try_exists(name)?.then_some(file));
    }
    let _ = directory.remove_file(name);
    Ok(None)
}

/// Tests whether the lock of this file is held, if the file exists. The lock taken by the test ends
/// with the handle.
fn state_from_file(directory: &Dir, name: &str) -> Result<HolderState, AuthorityError> {
    let Some(file) = open_existing(directory, name)? else {
        return Ok(HolderState::Unknown);
    };
    let free = is_acquired(file.try_lock_shared());
    match free.map_err(|error| AuthorityError::from_io(&display_place(name), error))? {
        true => Ok(HolderState::Dead),
        false => Ok(HolderState::Lives),
    }
}

/// Removes the file if its lock is free. The lock is held during the removal: a process that locks
/// the file afterwards finds it gone.
fn remove_if_unlocked(directory: &Dir, name: &str) -> Result<bool, AuthorityError> {
    let Some(file) = open_existing(directory, name)? else {
        return Ok(false);
    };
    let free = is_acquired(file.try_lock());
    let free = free.map_err(|error| AuthorityError::from_io(&display_place(name), error))?;
    Ok(free && directory.remove_file(name).is_ok())
}

/// Opens an existing lock file. Anything but a regular file is refused, even if it takes the file's
/// place meanwhile; opening does not wait for a pipe.
fn open_existing(directory: &Dir, name: &str) -> Result<Option<File>, AuthorityError> {
    let place = display_place(name);
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
    let file = match directory.open_with(name, &write_options()) {
        Err(error) => return absent(error),
        Ok(file) => file,
    };
    if file_identity(&seen) != file_identity(&file.metadata().map_err(failed)?) {
        return Err(AuthorityError::Replaced { place });
    }
    Ok(Some(file.into_std()))
}

fn is_acquired(tried: Result<(), TryLockError>) -> io::Result<bool> {
    match tried {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
