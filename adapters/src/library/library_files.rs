//! A directory of a tenant, as its library reads it: the rules are the same for every host, which
//! grants no more than the directory.

use super::{DirectoryEntry, EntryKind, LibraryError};
use crate::tree_walk::{WalkRefusal, WalkedPath};
use std::fmt;
use threadkeep_storage::directory::{
    AuthorityError, DirectoryTree, EntryType, FileAccess, open_checked_file, open_child_tree,
    read_bounded_file,
};

/// A directory out of which no path leads, by `..` or a link.
///
/// `place` names the directory or file in errors. A file that exists and is not acceptable (a link
/// that leads out, a pipe, a file with a second name) is [`LibraryError::Invalid`]; a failure of
/// the file system is [`LibraryError::Unavailable`].
pub struct LibraryFiles {
    tree: Box<dyn DirectoryTree>,
}

impl fmt::Debug for LibraryFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LibraryFiles").finish_non_exhaustive()
    }
}

impl LibraryFiles {
    /// The files below a directory that a host grants.
    pub fn new(tree: Box<dyn DirectoryTree>) -> Self {
        Self { tree }
    }

    /// Opens a directory directly inside this one; `None` if it does not exist. A link is refused.
    ///
    /// # Errors
    /// [`LibraryError`].
    pub fn open_directory(&self, name: &str, place: &str) -> Result<Option<Self>, LibraryError> {
        let opened = open_child_tree(&*self.tree, name).map_err(|error| error.with_place(place));
        Ok(none_if_missing(place, opened)?.map(Self::new))
    }

    /// Reads a regular file of at most `bytes_max` bytes; `None` if it does not exist. A file with
    /// a second name is refused, and nothing is waited for.
    ///
    /// # Errors
    /// [`LibraryError`].
    pub fn read(
        &self,
        path: &str,
        place: &str,
        bytes_max: u64,
    ) -> Result<Option<Vec<u8>>, LibraryError> {
        none_if_missing(place, self.read_file(path, place, bytes_max))
    }

    fn read_file(
        &self,
        path: &str,
        place: &str,
        bytes_max: u64,
    ) -> Result<Vec<u8>, AuthorityError> {
        let walked = self.walk(path, place)?;
        let Some((name, _)) = walked.entry() else {
            let place = place.to_owned();
            return Err(AuthorityError::NotRegular { place });
        };
        let mut file = open_checked_file(walked.directory(), name, FileAccess::Read, place)?;
        read_bounded_file(&mut *file, place, bytes_max)
    }

    /// Lists at most `entries_max` entries of a directory, in any order; `None` if it does not
    /// exist or is no directory.
    ///
    /// # Errors
    /// [`LibraryError`].
    pub fn list(
        &self,
        path: &str,
        place: &str,
        entries_max: usize,
    ) -> Result<Option<impl Iterator<Item = DirectoryEntry>>, LibraryError> {
        let failed = |error| AuthorityError::from_io(place, error);
        let listed = self.walk(path, place).and_then(|walked| {
            if walked.entry().is_some() {
                let place = place.to_owned();
                return Err(AuthorityError::NotDirectory { place });
            }
            let directory = walked.into_directory().map_err(failed)?;
            let names = directory.list_some(entries_max).map_err(failed)?;
            Ok((directory, names))
        });
        let (directory, names) = match listed {
            Ok(listed) => listed,
            Err(AuthorityError::Missing { .. } | AuthorityError::NotDirectory { .. }) => {
                return Ok(None);
            }
            Err(error) => return Err(to_library_error(place, error)),
        };
        let describe = move |name: Option<String>| {
            let seen = name.as_deref().map(|name| directory.details(name));
            let kind = match seen {
                Some(Ok(seen)) if seen.entry_type == EntryType::Directory => EntryKind::Directory,
                // An entry that was removed meanwhile is found to be no file.
                Some(Ok(_) | Err(_)) | None => EntryKind::Other,
            };
            DirectoryEntry { name, kind }
        };
        Ok(Some(names.into_iter().map(describe)))
    }

    /// Returns true if the path leads to a regular file.
    pub fn is_file(&self, path: &str) -> bool {
        let found = self.walk(path, path);
        found.is_ok_and(|found| found.entry().is_some_and(|(_, seen)| seen.is_file()))
    }

    fn walk(&self, path: &str, place: &str) -> Result<WalkedPath<'_>, AuthorityError> {
        let walked = WalkedPath::walk(&*self.tree, path, &|_| false);
        walked.map_err(|refusal| match refusal {
            WalkRefusal::Authority(error) => error.with_place(place),
            // A name that is no UTF-8 is not named by any document.
            WalkRefusal::Hidden => AuthorityError::Missing {
                place: place.to_owned(),
            },
        })
    }
}

fn none_if_missing<T>(
    place: &str,
    result: Result<T, AuthorityError>,
) -> Result<Option<T>, LibraryError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(to_library_error(place, error)),
    }
}

/// Converts an error. A file that exists and is not acceptable is invalid; an error of the
/// operating system may be temporary.
fn to_library_error(place: &str, error: AuthorityError) -> LibraryError {
    match error {
        AuthorityError::Io { source, .. } => LibraryError::Unavailable {
            message: format!("{place}: {source}"),
        },
        AuthorityError::Replaced { .. } => LibraryError::Unavailable {
            message: error.to_string(),
        },
        AuthorityError::Missing { .. }
        | AuthorityError::Link { .. }
        | AuthorityError::HardLink { .. }
        | AuthorityError::Leaves { .. }
        | AuthorityError::NotDirectory { .. }
        | AuthorityError::NotRegular { .. }
        | AuthorityError::TooLarge { .. } => {
            let described = error.to_string();
            let bare = described
                .strip_prefix(place)
                .map(|rest| rest.trim_start().to_owned());
            LibraryError::invalid(place, "", bare.unwrap_or(described))
        }
    }
}
