//! Moving the whole store of a project to the other kind of store.
//!
//! The copy is made in a directory of its own, audited, and compared with the store once more. Then
//! it gets its name, and one replaced file makes it the store that counts. A process that is killed
//! before leaves the old store as it was; one that is killed after leaves the new one in use. No
//! store is deleted: the one that was replaced is put away.
//!
//! No native process can have the project open meanwhile: this one and they take their locks, and
//! each looks for the other afterwards. A bundle under WASI has no locks; it is not to be run while
//! a store is copied.

use super::store::{open_files_in, open_files_store};
use super::store_choice::{StoreChoice, check_no_copy, sync_directory};
use super::{FILES_STORE, ProjectError, ProjectStore, SQLITE_STORE};
use crate::audit::{self, AuditReport};
use crate::authority::{self, AuthorityError, HolderLock, private_child_dir};
use crate::storage::StorageError;
#[cfg(feature = "sqlite")]
use crate::storage::sqlite::{SqliteOptions, SqliteStore};
use crate::storage::whole_store::{
    CopiedContents, CopyError, ListedStore, compare_contents, copy_contents,
};
use cap_std::fs::Dir;
use std::io::{self, ErrorKind};

/// The directory in `.ai/threads` that keeps stores which were replaced, each in one with a number.
pub const REPLACED_DIRECTORY: &str = "replaced.d";
/// The directory in `.ai/threads` in which a copy is made.
pub(super) const COPY_DIRECTORY: &str = "copy.d";
/// Files of a SQLite store beside its own, which move with it.
const SQLITE_SUFFIXES: [&str; 4] = ["-wal", "-shm", "-journal", ".lock"];
/// Most stores that are put away.
const REPLACED_MAX: u32 = 10_000;

/// A step of a transfer, for an observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferStep {
    /// So much is copied.
    Copying(CopiedContents),
    /// The copy is audited.
    Auditing,
    /// The copy is compared with the store.
    Comparing,
    /// The copy has its name, and does not count yet.
    Named,
    /// The copy counts.
    Chosen,
    /// The store that was replaced is put away.
    PutAway,
}

/// The result of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreTransfer {
    /// The store that was replaced.
    pub from: ProjectStore,
    /// The store that counts now.
    pub to: ProjectStore,
    /// The size of what was copied.
    pub copied: CopiedContents,
    /// Threads that the audit checked in the copy.
    pub threads: u64,
    /// The place of the store that was replaced, below `.ai/threads`.
    pub put_away: String,
}

/// Reason why a store was not moved. The store that was there counts as before, but for
/// [`TransferError::NotPutAway`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The project, its directory or one of its stores cannot be opened.
    #[error(transparent)]
    Project(#[from] ProjectError),
    /// There is no store.
    #[error("the project has no store yet: there is nothing to copy")]
    NoStore,
    /// The store is of this kind already.
    #[error("the project keeps its threads in .ai/threads/{} already", .0.place())]
    SameStore(ProjectStore),
    /// The store is of this kind already, and what an interrupted copy of it had left was removed.
    #[error(
        "the project keeps its threads in .ai/threads/{} already; what an interrupted copy had \
         left was removed",
        .0.place()
    )]
    LeftoversRemoved(ProjectStore),
    /// Another process has the project open.
    #[error("the process {holder} has the project open")]
    InUse {
        /// Its nonce, which names its lock file.
        holder: String,
    },
    /// The contents cannot be copied, or the copy differs.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// The copy cannot be audited.
    #[error("the copy cannot be audited: {0}")]
    Audit(StorageError),
    /// The audit of the copy has findings.
    #[error(
        "the audit of the copy found {} wrong, first {}",
        .0.findings.len() as u64 + .0.left_out,
        .0.findings.first().map(ToString::to_string).unwrap_or_default()
    )]
    Findings(Box<AuditReport>),
    /// A file of the copy cannot be put into place.
    #[error("{place}: {source}")]
    File {
        /// The file, below `.ai/threads`.
        place: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The copy counts, and the store that it replaced could not be put away.
    #[error("the new store counts, but the old one stands at .ai/threads/{place} still: {source}")]
    NotPutAway {
        /// The place of the store that was replaced.
        place: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

impl From<AuthorityError> for TransferError {
    fn from(error: AuthorityError) -> Self {
        Self::Project(error.into())
    }
}

/// Moves the store in `.ai/threads` to the other kind. Blocks until it is done; `observe` is called
/// at each step.
///
/// # Errors
/// [`TransferError`].
pub fn transfer_store(
    threads: &Dir,
    to: ProjectStore,
    observe: &mut dyn FnMut(TransferStep),
) -> Result<StoreTransfer, TransferError> {
    let lock = HolderLock::acquire(threads)?;
    check_no_copy(threads, Some(&lock))?;
    let from = ProjectStore::find(threads)?.ok_or(TransferError::NoStore)?;
    if from == to {
        return Err(match remove_leftovers(threads, from, &lock)? {
            true => TransferError::LeftoversRemoved(to),
            false => TransferError::SameStore(to),
        });
    }
    let choice = |current| StoreChoice {
        current,
        copier: lock.nonce().to_owned(),
    };
    choice(from).write(threads)?;
    let made = check_unused(threads, &lock).and_then(|()| make_copy(threads, from, to, observe));
    let (copied, report) = match made {
        Ok(made) => made,
        Err(error) => {
            // Where an earlier copy was interrupted there are two stores, and the choice stays.
            if threads.symlink_metadata(to.place()).is_err() {
                StoreChoice::remove(threads)?;
            }
            return Err(error);
        }
    };
    observe(TransferStep::Named);
    choice(to).write(threads)?;
    observe(TransferStep::Chosen);
    let put_away = put_away(threads, from).map_err(|source| TransferError::NotPutAway {
        place: from.place(),
        source,
    })?;
    observe(TransferStep::PutAway);
    StoreChoice::remove(threads)?;
    Ok(StoreTransfer {
        from,
        to,
        copied,
        threads: report.threads,
        put_away,
    })
}

/// Refuses if another process has the project open.
fn check_unused(threads: &Dir, own: &HolderLock) -> Result<(), TransferError> {
    let living = authority::live_processes(threads)?;
    match living.into_iter().find(|nonce| nonce != own.nonce()) {
        Some(holder) => Err(TransferError::InUse { holder }),
        None => Ok(()),
    }
}

/// Removes what an interrupted copy of the store that counts has left, of which the choice keeps
/// bundles out; a second store is put away. True if there was something.
fn remove_leftovers(
    threads: &Dir,
    current: ProjectStore,
    own: &HolderLock,
) -> Result<bool, TransferError> {
    let is_there = |name: &str| threads.symlink_metadata(name).is_ok();
    if StoreChoice::read(threads)?.is_none() && !is_there(COPY_DIRECTORY) {
        return Ok(false);
    }
    check_unused(threads, own)?;
    make_place(threads, current.other())?;
    StoreChoice::remove(threads)?;
    Ok(true)
}

/// Removes the parts of an interrupted copy, and puts away what has the name of this store.
fn make_place(threads: &Dir, to: ProjectStore) -> Result<(), TransferError> {
    let failed = |place: &str| {
        let place = place.to_owned();
        move |source| TransferError::File { place, source }
    };
    match threads.remove_dir_all(COPY_DIRECTORY) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(failed(COPY_DIRECTORY)(error));
        }
        Ok(()) | Err(_) => {}
    }
    if file_names(to).any(|name| threads.symlink_metadata(name).is_ok()) {
        put_away(threads, to).map_err(failed(to.place()))?;
    }
    Ok(())
}

/// Makes the copy, checks it, and gives it its name. What an interrupted copy left is removed, or
/// put away where it has the name of a store.
fn make_copy(
    threads: &Dir,
    from: ProjectStore,
    to: ProjectStore,
    observe: &mut dyn FnMut(TransferStep),
) -> Result<(CopiedContents, AuditReport), TransferError> {
    let failed = |place: &str| {
        let place = place.to_owned();
        move |source| TransferError::File { place, source }
    };
    make_place(threads, to)?;
    let place = private_child_dir(threads, COPY_DIRECTORY)?;
    let checked = fill_copy(threads, from, (&place, to), observe)?;
    // Closed: the last connection of SQLite has written its log into the file.
    let place_of_log = format!("{COPY_DIRECTORY}/{SQLITE_STORE}-wal");
    if threads.symlink_metadata(&place_of_log).is_ok() {
        let source = io::Error::other("the log of the copy is not written into it");
        return Err(failed(&place_of_log)(source));
    }
    sync_directory(&place).map_err(failed(COPY_DIRECTORY))?;
    let renamed = place.rename(to.place(), threads, to.place());
    let named = renamed.and_then(|()| sync_directory(threads));
    named.map_err(failed(to.place()))?;
    // What is left are lock files; the next copy removes them if this cannot.
    let _ = threads.remove_dir_all(COPY_DIRECTORY);
    Ok(checked)
}

/// Copies, audits and compares. Both stores are closed when it returns.
fn fill_copy(
    threads: &Dir,
    from: ProjectStore,
    (place, to): (&Dir, ProjectStore),
    observe: &mut dyn FnMut(TransferStep),
) -> Result<(CopiedContents, AuditReport), TransferError> {
    let source: Box<dyn ListedStore> = match from {
        ProjectStore::Sqlite => open_sqlite(threads)?,
        ProjectStore::Files => Box::new(open_files_store(threads, None)?),
    };
    let copy: Box<dyn ListedStore> = match to {
        ProjectStore::Sqlite => open_sqlite(place)?,
        ProjectStore::Files => {
            let dir = private_child_dir(place, FILES_STORE)?;
            Box::new(open_files_in(dir, None)?)
        }
    };
    let mut progress = |copied| observe(TransferStep::Copying(copied));
    let copied = copy_contents(&*source, &*copy, &mut progress)?;
    observe(TransferStep::Auditing);
    let report = audit::audit(&*copy).map_err(TransferError::Audit)?;
    if !report.is_clean() {
        return Err(TransferError::Findings(Box::new(report)));
    }
    observe(TransferStep::Comparing);
    compare_contents(&*source, &*copy)?;
    Ok((copied, report))
}

#[cfg(feature = "sqlite")]
fn open_sqlite(dir: &Dir) -> Result<Box<dyn ListedStore>, TransferError> {
    let store = SqliteStore::open(dir, SQLITE_STORE, SqliteOptions::local());
    Ok(Box::new(store.map_err(ProjectError::Store)?))
}

#[cfg(not(feature = "sqlite"))]
fn open_sqlite(_: &Dir) -> Result<Box<dyn ListedStore>, TransferError> {
    Err(super::store::no_sqlite().into())
}

/// The names of all files that belong to a store, its own at first. A log of SQLite that a dead
/// process left must not stand beside another store of that name.
pub(super) fn file_names(store: ProjectStore) -> impl Iterator<Item = String> {
    let suffixes: &[&str] = match store {
        ProjectStore::Sqlite => &SQLITE_SUFFIXES,
        ProjectStore::Files => &[],
    };
    let others = suffixes
        .iter()
        .map(|suffix| format!("{SQLITE_STORE}{suffix}"));
    std::iter::once(store.place().to_owned()).chain(others)
}

/// Moves a store into a directory with a number of its own, and returns that place. Its main file
/// or directory goes first: without it the others are no store.
fn put_away(threads: &Dir, store: ProjectStore) -> io::Result<String> {
    let kept = private_child_dir(threads, REPLACED_DIRECTORY).map_err(io::Error::other)?;
    let (number, place) = (1..=REPLACED_MAX)
        .find_map(|number| match kept.create_dir(number.to_string()) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => None,
            made => Some(made.and_then(|()| Ok((number, kept.open_dir(number.to_string())?)))),
        })
        .unwrap_or_else(|| {
            Err(io::Error::other(
                "too many stores are put away: remove some",
            ))
        })?;
    for name in file_names(store) {
        match threads.rename(&name, &place, &name) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    sync_directory(&place)?;
    sync_directory(&kept)?;
    sync_directory(threads)?;
    Ok(format!("{REPLACED_DIRECTORY}/{number}"))
}
