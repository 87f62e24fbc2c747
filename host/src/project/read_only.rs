//! Opens a project without writing: over a store that is only read, or one in memory.

use super::store::open_store;
use super::{OpenProject, ProjectError, ProjectOptions};
use crate::authority::{self, AuthorityError, ProjectDir};
use crate::engine::Engine;
use crate::storage::{StorageBackend, StorageQuota, memory::MemoryStore};
use cap_std::fs::Dir;
use std::sync::Arc;

impl OpenProject {
    /// Opens a project to read its store. Nothing is made in its directory and no lock is taken, so
    /// that a directory which cannot be written is read too: another user's, a backup. No run may
    /// begin in it: its holder would have no lock file.
    ///
    /// # Errors
    /// If there is no `.ai/threads`, or the store cannot be opened.
    pub fn open_to_read(
        engine: Engine,
        project: &ProjectDir,
        options: ProjectOptions,
    ) -> Result<Self, ProjectError> {
        let threads = open_threads(project)?;
        let storage = match &options.store {
            Some(store) => Arc::clone(store),
            None => open_store(&threads, &options)?,
        };
        Self::with_storage(engine, project, options, storage, Some((threads, None)))
    }

    /// Opens the store that [`Self::open_to_read`] would open, for a caller that prepares its
    /// engine meanwhile and passes the store as [`ProjectOptions::store`].
    ///
    /// # Errors
    /// As [`Self::open_to_read`].
    pub fn open_store_to_read(
        project: &ProjectDir,
        options: &ProjectOptions,
    ) -> Result<Arc<dyn StorageBackend>, ProjectError> {
        open_store(&open_threads(project)?, options)
    }
}

fn open_threads(project: &ProjectDir) -> Result<Dir, AuthorityError> {
    project
        .threads_dir()?
        .ok_or_else(|| AuthorityError::Missing {
            place: authority::THREADS_PATH.to_owned(),
        })
}

/// A store that ends with this value, bounded by the policy.
pub(super) fn in_memory(quota_bytes: Option<u64>) -> Arc<dyn StorageBackend> {
    let store = MemoryStore::new();
    store.set_quota(quota_bytes.map(|limit_bytes| StorageQuota {
        limit_bytes,
        closing_margin_bytes: StorageQuota::CLOSING_MARGIN_BYTES,
    }));
    Arc::new(store)
}
