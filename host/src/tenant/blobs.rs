//! The blobs of a tenant: written for a thread that can take them, read by their chain.

use super::Tenant;
use crate::blobs::{
    self, BlobError, BlobName, BlobThread, BlobThreads, ThreadBlobs, UnreferencedBlob,
};
use crate::error::CallError;
use crate::storage::{StorageBackend, StorageError};
use std::sync::Arc;
use tokio::runtime::Handle;

/// The threads of a tenant, from a thread of the process that may block.
pub(crate) struct TenantThreads {
    tenant: Tenant,
    runtime: Handle,
}

impl BlobThreads for TenantThreads {
    type ReadError = CallError;

    fn read_thread(&self, thread: &str) -> Result<BlobThread, BlobError> {
        let record = self.runtime.block_on(self.tenant.get(thread))?;
        Ok(BlobThread {
            id: record.id,
            chain: record.chain,
            status: record.status,
        })
    }
}

impl Tenant {
    /// Stores an image for a thread, recognized by its bytes.
    ///
    /// # Errors
    /// [`BlobError::NotAnImage`], [`BlobError::ImageTooLarge`], and those of [`Self::store_blob`].
    pub async fn store_image(&self, thread: &str, bytes: Vec<u8>) -> Result<BlobName, BlobError> {
        let thread = thread.to_owned();
        self.with_blobs(move |blobs| blobs.store_image(&thread, &bytes))
            .await
    }

    /// Stores a blob for a thread, under its chain. The same bytes are stored once. The caller
    /// names it to the component next: a blob that nothing names for a day may be pruned, and one
    /// that was stored so long ago is stored again before it is named.
    ///
    /// # Errors
    /// [`BlobError::Ended`], [`BlobError::TooLarge`], a store that is full, and others of the store
    /// and of `registry.get`.
    pub async fn store_blob(
        &self,
        thread: &str,
        bytes: Vec<u8>,
        media: &str,
    ) -> Result<BlobName, BlobError> {
        let (thread, media) = (thread.to_owned(), media.to_owned());
        self.with_blobs(move |blobs| blobs.store_blob(&thread, &bytes, &media))
            .await
    }

    /// Runs `act`, which stores blobs, on a thread that may block.
    pub(crate) async fn with_blobs<T: Send + 'static>(
        &self,
        act: impl FnOnce(&ThreadBlobs<'_, TenantThreads>) -> Result<T, BlobError> + Send + 'static,
    ) -> Result<T, BlobError> {
        let threads = TenantThreads {
            tenant: self.clone(),
            runtime: Handle::current(),
        };
        let clock = Arc::clone(&self.context.clock);
        self.on_store(move |storage| {
            act(&ThreadBlobs {
                storage,
                threads,
                now: &|| clock.now().seconds,
            })
        })
        .await
    }

    /// Reads a blob of a chain, whose hash is compared.
    ///
    /// # Errors
    /// [`BlobError::Missing`], [`BlobError::Damaged`], and those of the store.
    pub async fn read_blob(&self, chain: &str, hash: &str) -> Result<Vec<u8>, BlobError> {
        let (chain, hash) = (chain.to_owned(), hash.to_owned());
        self.on_store(move |storage| blobs::read_blob(storage, &chain, &hash))
            .await
    }

    /// Removes the blobs that nothing names and that no host has stored for a day, of one chain or
    /// of all; with `dry_run` it only names them. Every history is read.
    ///
    /// # Errors
    /// As [`blobs::prune_blobs`].
    pub async fn prune_blobs(
        &self,
        chain: Option<&str>,
        dry_run: bool,
    ) -> Result<Vec<UnreferencedBlob>, BlobError> {
        let (chain, now) = (chain.map(str::to_owned), self.context.clock.now());
        self.on_store(move |storage| blobs::prune_blobs(storage, chain.as_deref(), now, dry_run))
            .await
    }

    /// Runs `act` on a thread that may block.
    pub(crate) async fn on_store<T: Send + 'static>(
        &self,
        act: impl FnOnce(&dyn StorageBackend) -> Result<T, BlobError> + Send + 'static,
    ) -> Result<T, BlobError> {
        let storage = Arc::clone(&self.context.storage);
        let acted = tokio::task::spawn_blocking(move || act(&*storage));
        acted.await.unwrap_or_else(|error| {
            Err(BlobError::Storage(StorageError::Unavailable {
                message: format!("no thread could ask it: {error}"),
            }))
        })
    }
}
