//! Blobs of threads: each is stored under the chain of its thread, while that can take it.
//!
//! All of it blocks: a host with a runtime runs it on a thread that may.

use super::{BLOB_BYTES_MAX, BlobError, BlobName, BlobWrite, chain_version, write_blob};
use crate::image_type::{IMAGE_BYTES_MAX, image_type};
use std::error::Error;
use threadkeep_storage::StorageBackend;
use threadkeep_units::status::has_ended;

/// Most times that the record of a chain may move while a blob is written.
const MOVES_MAX: u32 = 16;

/// A thread, as far as a blob needs its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobThread {
    /// Its id, in the case of its record.
    pub id: String,
    /// The id of the first thread of its chain.
    pub chain: String,
    /// Its status.
    pub status: String,
}

/// The records of threads, as a host reads them for their blobs.
pub trait BlobThreads {
    /// Reason why a record cannot be had, other than the store.
    type ReadError: Error + 'static;

    /// Reads the record of a thread.
    ///
    /// # Errors
    /// [`BlobError::Call`], and those of the store.
    fn read_thread(&self, thread: &str) -> Result<BlobThread, BlobError<Self::ReadError>>;
}

/// A store, and the threads that blobs are stored for.
pub struct ThreadBlobs<'a, T> {
    /// The store.
    pub storage: &'a dyn StorageBackend,
    /// The threads.
    pub threads: T,
    /// Returns the time of the host, in seconds since 1970.
    pub now: &'a dyn Fn() -> i64,
}

impl<T: BlobThreads> ThreadBlobs<'_, T> {
    /// Stores an image for a thread, recognized by its bytes.
    ///
    /// # Errors
    /// [`BlobError::NotAnImage`], [`BlobError::ImageTooLarge`], and those of [`Self::store_blob`].
    pub fn store_image(
        &self,
        thread: &str,
        bytes: &[u8],
    ) -> Result<BlobName, BlobError<T::ReadError>> {
        let media = image_type(bytes).ok_or(BlobError::NotAnImage)?;
        if bytes.len() > IMAGE_BYTES_MAX {
            let bytes = bytes.len() as u64;
            return Err(BlobError::ImageTooLarge { bytes });
        }
        self.store_blob(thread, bytes, media)
    }

    /// Stores a blob for a thread, under its chain. The same bytes are stored once. The caller
    /// names it to the component next: a blob that nothing names for a day may be pruned, and one
    /// that was stored so long ago is stored again before it is named.
    ///
    /// # Errors
    /// [`BlobError::Ended`], [`BlobError::TooLarge`], a store that is full, and others of the store
    /// and of the record.
    pub fn store_blob(
        &self,
        thread: &str,
        bytes: &[u8],
        media: &str,
    ) -> Result<BlobName, BlobError<T::ReadError>> {
        if bytes.len() > BLOB_BYTES_MAX {
            let bytes = bytes.len() as u64;
            return Err(BlobError::TooLarge { bytes });
        }
        let chain = self.threads.read_thread(thread)?.chain;
        for _ in 0..MOVES_MAX {
            let found = chain_version(self.storage, &chain)?;
            // The status is read after the version: an end in between moves the record.
            let record = self.threads.read_thread(thread)?;
            let Some(version) = found.filter(|_| !has_ended(&record.status)) else {
                let (thread, status) = (record.id, record.status);
                return Err(BlobError::Ended { thread, status });
            };
            let (place, content) = ((chain.as_str(), version), (bytes, media));
            let written = write_blob(self.storage, place, content, (self.now)())?;
            if let BlobWrite::Stored(name) = written {
                return Ok(name);
            }
        }
        Err(BlobError::Contention)
    }
}
