//! The file `.ai/threads/current-store`, which says which store counts while a project has two, and
//! keeps other processes out while one is copied.
//!
//! It is there from the beginning of a copy until the store that was replaced is put away. Its
//! first line names the store that counts, its second the process that copies. It is replaced in
//! one step, so the moment at which the new store counts is one rename.

use super::{ProjectError, ProjectStore};
use crate::authority::{
    self, AuthorityError, HolderLock, HolderState, open_private, open_without_hard_links,
    read_bounded,
};
use cap_std::fs::{Dir, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use threadkeep_units::project_layout::STORE_CHOICE;

/// The file, as errors call it.
const PLACE: &str = ".ai/threads/current-store";
/// The name under which it is written.
const NEW_NAME: &str = "current-store.new";
/// Most bytes of the file: two short words.
const BYTES_MAX: u64 = 200;

/// Which of two stores counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoreChoice {
    /// The store that counts.
    pub current: ProjectStore,
    /// The nonce of the process that copies it, or has copied it.
    pub copier: String,
}

impl StoreChoice {
    /// Reads the choice; `None` if there is none.
    pub(super) fn read(threads: &Dir) -> Result<Option<Self>, ProjectError> {
        let file = match open_without_hard_links(threads, Path::new(STORE_CHOICE), PLACE) {
            Err(error) if error.is_missing() => return Ok(None),
            file => file?,
        };
        let bytes = read_bounded(file, PLACE, BYTES_MAX)?;
        let text = String::from_utf8(bytes).unwrap_or_default();
        let mut lines = text.lines();
        let word = lines.next().unwrap_or_default();
        let current = [ProjectStore::Sqlite, ProjectStore::Files]
            .into_iter()
            .find(|store| store.word() == word)
            .ok_or_else(|| {
                let problem = "it names no store: its first line is sqlite or files";
                AuthorityError::from_io(PLACE, io::Error::new(ErrorKind::InvalidData, problem))
            })?;
        let copier = lines.next().unwrap_or_default().to_owned();
        Ok(Some(Self { current, copier }))
    }

    /// Makes this the choice, durably and in one step.
    pub(super) fn write(&self, threads: &Dir) -> Result<(), AuthorityError> {
        let failed = |source| AuthorityError::from_io(PLACE, source);
        // What a dead process left, or what stands there by another's hand, is not written through.
        match threads.remove_file(NEW_NAME) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let mut file = open_private(threads, NEW_NAME, options).map_err(failed)?;
        let written = writeln!(file, "{}\n{}", self.current.word(), self.copier);
        written.and_then(|()| file.sync_all()).map_err(failed)?;
        threads
            .rename(NEW_NAME, threads, STORE_CHOICE)
            .map_err(failed)?;
        sync_directory(threads).map_err(failed)
    }

    /// Removes the choice: one store is left.
    pub(super) fn remove(threads: &Dir) -> Result<(), AuthorityError> {
        let removed = match threads.remove_file(STORE_CHOICE) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        let removed = removed.and_then(|()| sync_directory(threads));
        removed.map_err(|source| AuthorityError::from_io(PLACE, source))
    }
}

/// Refuses a project whose store is being copied by another process. The caller has taken its own
/// lock before, so either it sees the copy or the copy sees its lock.
pub(super) fn check_no_copy(threads: &Dir, own: Option<&HolderLock>) -> Result<(), ProjectError> {
    let Some(StoreChoice { copier, .. }) = StoreChoice::read(threads)? else {
        return Ok(());
    };
    if own.is_some_and(|lock| lock.nonce() == copier) {
        return Ok(());
    }
    match authority::holder_state(threads, &copier)? {
        HolderState::Lives => Err(ProjectError::BeingCopied { copier }),
        HolderState::Dead | HolderState::Unknown => Ok(()),
    }
}

/// Makes the names of a directory durable.
pub(super) fn sync_directory(dir: &Dir) -> io::Result<()> {
    #[cfg(unix)]
    // The handle of a `Dir` may be path-only, and such a handle cannot be synced.
    dir.open(".")?.sync_all()?;
    // On other systems a directory cannot be synced.
    #[cfg(not(unix))]
    let _ = dir;
    Ok(())
}
