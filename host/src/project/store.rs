//! Which store a project has in `.ai/threads`, and how it is opened.

use super::store_choice::StoreChoice;
use super::{ProjectError, ProjectOptions};
use crate::authority::{self, AuthorityError, child_dir, private_child_dir};
use crate::storage::directory::GrantedDirectory;
use crate::storage::files::{FilesOptions, FilesStore};
#[cfg(feature = "sqlite")]
use crate::storage::sqlite::{SqliteOptions, SqliteStore};
use crate::storage::{StorageBackend, StorageError, StorageQuota};
use cap_std::fs::Dir;
use std::sync::Arc;

use threadkeep_units::project_layout::FoundStores;
pub use threadkeep_units::project_layout::{FILES_STORE, SQLITE_STORE};

/// The kind of a store that a project keeps on its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectStore {
    /// SQLite, in `registry.db`.
    Sqlite,
    /// Plain files, in `store.d`: for any number of processes, native and under WASI mixed.
    Files,
}

impl ProjectStore {
    /// Its word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Files => "files",
        }
    }

    /// The other kind.
    pub(super) fn other(self) -> Self {
        match self {
            Self::Sqlite => Self::Files,
            Self::Files => Self::Sqlite,
        }
    }

    /// The file or directory that holds it, in `.ai/threads`.
    pub fn place(self) -> &'static str {
        match self {
            Self::Sqlite => SQLITE_STORE,
            Self::Files => FILES_STORE,
        }
    }

    /// Returns the store that `.ai/threads` has; `None` if it has none yet. While it has two,
    /// because one is copied or a copy was interrupted, it is the one that counts.
    ///
    /// # Errors
    /// [`ProjectError::TwoStores`] if it has both, and nothing says which counts.
    pub fn find(threads: &Dir) -> Result<Option<Self>, ProjectError> {
        match FoundStores::look(|name| threads.symlink_metadata(name).is_ok()) {
            FoundStores::Both => match StoreChoice::read(threads)? {
                Some(choice) => Ok(Some(choice.current)),
                None => Err(ProjectError::TwoStores),
            },
            FoundStores::Sqlite => Ok(Some(Self::Sqlite)),
            FoundStores::Files => Ok(Some(Self::Files)),
            FoundStores::Nothing => Ok(None),
        }
    }
}

/// Opens the store of a project; makes a missing one.
pub(super) fn open_store(
    threads: &Dir,
    options: &ProjectOptions,
) -> Result<Arc<dyn StorageBackend>, ProjectError> {
    let found = ProjectStore::find(threads);
    let kind = match (options.backend, found) {
        (Some(asked), Ok(Some(there))) if asked != there => {
            return Err(ProjectError::OtherStore { asked, there });
        }
        (Some(asked), _) => asked,
        (None, found) => found?.unwrap_or(ProjectStore::Sqlite),
    };
    match kind {
        ProjectStore::Sqlite => open_sqlite(threads, options),
        ProjectStore::Files => {
            let store = open_files_store(threads, options.policy.quota_bytes)?;
            Ok(Arc::new(store))
        }
    }
}

/// Opens the store of files in `.ai/threads`; makes a missing one.
///
/// # Errors
/// [`ProjectError::FilesStore`], or that of the directory.
pub fn open_files_store(
    threads: &Dir,
    quota_bytes: Option<u64>,
) -> Result<FilesStore, ProjectError> {
    let place = |error: AuthorityError| {
        error.with_place(&format!("{}/{FILES_STORE}", authority::THREADS_PATH))
    };
    let dir = match child_dir(threads, FILES_STORE) {
        Err(error) if error.is_missing() => private_child_dir(threads, FILES_STORE),
        found => found,
    };
    open_files_in(dir.map_err(place)?, quota_bytes)
}

/// Opens the store of files in its own directory; makes one where it is empty.
pub(super) fn open_files_in(
    dir: Dir,
    quota_bytes: Option<u64>,
) -> Result<FilesStore, ProjectError> {
    let directory = Box::new(GrantedDirectory::new(dir));
    let options = FilesOptions {
        writer: random_writer()?,
        durable: true,
        quota: quota_bytes.map(|limit_bytes| StorageQuota {
            limit_bytes,
            closing_margin_bytes: StorageQuota::CLOSING_MARGIN_BYTES,
        }),
    };
    FilesStore::open(directory, options).map_err(ProjectError::FilesStore)
}

/// Makes a name that no other opening has.
fn random_writer() -> Result<String, ProjectError> {
    let mut bytes = [0; 12];
    getrandom::fill(&mut bytes).map_err(|error| {
        ProjectError::FilesStore(StorageError::Other {
            code: "no-random",
            message: format!("the system gives no random bytes: {error}"),
        })
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(feature = "sqlite")]
fn open_sqlite(
    threads: &Dir,
    options: &ProjectOptions,
) -> Result<Arc<dyn StorageBackend>, ProjectError> {
    let own = SqliteOptions {
        quota_bytes: options.policy.quota_bytes,
        ..SqliteOptions::local()
    };
    let Some(stores) = &options.stores else {
        return Ok(Arc::new(SqliteStore::open(threads, SQLITE_STORE, own)?));
    };
    let threads = threads.try_clone();
    let threads =
        threads.map_err(|error| AuthorityError::from_io(authority::THREADS_PATH, error))?;
    Ok(Arc::new(stores.store(
        move || threads.try_clone(),
        SQLITE_STORE,
        own,
    )))
}

#[cfg(not(feature = "sqlite"))]
fn open_sqlite(_: &Dir, _: &ProjectOptions) -> Result<Arc<dyn StorageBackend>, ProjectError> {
    Err(no_sqlite())
}

/// The error of a build without SQLite.
#[cfg(not(feature = "sqlite"))]
pub(super) fn no_sqlite() -> ProjectError {
    let message = "this build has no sqlite: name the store files, or give one".to_owned();
    ProjectError::Store(StorageError::Other {
        code: "no-sqlite",
        message,
    })
}
