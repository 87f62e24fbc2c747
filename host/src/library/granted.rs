//! A tenant's library over a directory that was granted to it.

use super::files::FilesLibrary;
use super::{
    DirectoryEntry, DirectoryListing, EntryKind, LibraryError, LibraryFiles, TenantLibrary,
};
use crate::authority::{self, AuthorityError, EnvironmentSnapshot};
use crate::policy::Policy;
use crate::tools::ToolEntry;
use cap_std::fs::{Dir, DirEntry};
use std::ops::Deref;
use std::path::Path;

/// The library of one tenant, in a directory that was opened for it.
#[derive(Debug)]
pub struct GrantedLibrary {
    library: FilesLibrary,
}

impl GrantedLibrary {
    /// Makes a library over `.ai` (`None` for a project without it, which has only the built-in
    /// models). `catalog` has the tools that the tenant was granted, `environment` the variables
    /// that a provider's address and key may use.
    pub fn open(
        ai: Option<Dir>,
        policy: Policy,
        catalog: Vec<ToolEntry>,
        environment: EnvironmentSnapshot,
    ) -> Self {
        let ai = ai.map(|dir| Box::new(GrantedFiles { dir }) as Box<dyn LibraryFiles>);
        Self {
            library: FilesLibrary::new(ai, policy, catalog, environment),
        }
    }
}

impl Deref for GrantedLibrary {
    type Target = FilesLibrary;

    fn deref(&self) -> &FilesLibrary {
        &self.library
    }
}

impl TenantLibrary for GrantedLibrary {
    fn document(&self, kind: &str, name: &str) -> Result<Option<String>, LibraryError> {
        self.library.document(kind, name)
    }

    fn names(&self, kind: &str) -> Result<Vec<String>, LibraryError> {
        self.library.names(kind)
    }
}

/// A directory out of which no path leads.
#[derive(Debug)]
struct GrantedFiles {
    dir: Dir,
}

impl LibraryFiles for GrantedFiles {
    fn open_directory(
        &self,
        name: &str,
        place: &str,
    ) -> Result<Option<Box<dyn LibraryFiles>>, LibraryError> {
        let opened = authority::child_dir(&self.dir, name).map_err(|error| error.with_place(place));
        let opened = none_if_missing(place, opened)?;
        Ok(opened.map(|dir| Box::new(Self { dir }) as Box<dyn LibraryFiles>))
    }

    fn read(
        &self,
        path: &str,
        place: &str,
        bytes_max: u64,
    ) -> Result<Option<Vec<u8>>, LibraryError> {
        let file = authority::open_without_hard_links(&self.dir, Path::new(path), place);
        let bytes = file.and_then(|file| authority::read_bounded(file, place, bytes_max));
        none_if_missing(place, bytes)
    }

    fn list(&self, path: &str, place: &str) -> Result<Option<DirectoryListing>, LibraryError> {
        let failed = |error| AuthorityError::from_io(path, error);
        let listing = match self.dir.read_dir(path).map_err(failed) {
            Ok(listing) => listing,
            Err(AuthorityError::Missing { .. } | AuthorityError::NotDirectory { .. }) => {
                return Ok(None);
            }
            Err(error) => return Err(to_library_error(place, error)),
        };
        let (path, place) = (path.to_owned(), place.to_owned());
        let entries = listing.map(move |entry| match entry {
            Ok(entry) => Ok(describe_entry(&entry)),
            Err(error) => Err(to_library_error(
                &place,
                AuthorityError::from_io(&path, error),
            )),
        });
        Ok(Some(Box::new(entries)))
    }

    fn is_file(&self, path: &str) -> bool {
        let found = self.dir.metadata(path);
        found.is_ok_and(|metadata| metadata.is_file())
    }
}

fn describe_entry(entry: &DirEntry) -> DirectoryEntry {
    let kind = match entry.file_type() {
        Ok(kind) if kind.is_dir() => EntryKind::Directory,
        // An entry that was removed meanwhile is found to be no file.
        Ok(_) | Err(_) => EntryKind::Other,
    };
    DirectoryEntry {
        name: entry.file_name().to_str().map(str::to_owned),
        kind,
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

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests plant files from outside the library"
)]
mod tests;
