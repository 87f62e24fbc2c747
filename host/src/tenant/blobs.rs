//! Blobs of a tenant: written for a thread that can take them, read by their chain.

use super::Tenant;
use crate::blobs::{
    self, BLOB_BYTES_MAX, BlobError, BlobName, BlobWrite, IMAGE_BYTES_MAX, UnreferencedBlob,
    image_type,
};
use crate::storage::{StorageBackend, StorageError};
use std::sync::Arc;
use threadkeep_units::status::has_ended;

/// Most times that the record of a chain may move while a blob is written.
const MOVES_MAX: u32 = 16;

impl Tenant {
    /// Stores an image for a thread, recognized by its bytes.
    ///
    /// # Errors
    /// [`BlobError::NotAnImage`], [`BlobError::ImageTooLarge`], and those of [`Self::store_blob`].
    pub async fn store_image(&self, thread: &str, bytes: Vec<u8>) -> Result<BlobName, BlobError> {
        let media = image_type(&bytes).ok_or(BlobError::NotAnImage)?;
        if bytes.len() > IMAGE_BYTES_MAX {
            let bytes = bytes.len() as u64;
            return Err(BlobError::ImageTooLarge { bytes });
        }
        self.store_blob(thread, bytes, media).await
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
        if bytes.len() > BLOB_BYTES_MAX {
            let bytes = bytes.len() as u64;
            return Err(BlobError::TooLarge { bytes });
        }
        let bytes: Arc<[u8]> = bytes.into();
        let chain = self.get(thread).await?.chain;
        for _ in 0..MOVES_MAX {
            let root = chain.clone();
            let found = self
                .on_store(move |storage| Ok(blobs::chain_version(storage, &root)?))
                .await?;
            // The status is read after the version: an end in between moves the record.
            let record = self.get(thread).await?;
            let Some(version) = found.filter(|_| !has_ended(&record.status)) else {
                let (thread, status) = (record.id, record.status);
                return Err(BlobError::Ended { thread, status });
            };
            let (root, bytes, media) = (chain.clone(), Arc::clone(&bytes), media.to_owned());
            let now = self.context.clock.now();
            let written = self.on_store(move |storage| {
                blobs::write_blob(storage, (&root, version), (&bytes, &media), now)
            });
            if let BlobWrite::Stored(name) = written.await? {
                return Ok(name);
            }
        }
        Err(BlobError::Contention)
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
    async fn on_store<T: Send + 'static>(
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
