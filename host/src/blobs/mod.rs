//! Blobs: the bytes of images and of large results, which never pass through the component.
//!
//! They stand in the tenant's own store, so that its quota counts them and every copy of the store
//! has them. `wit/storage.wit` describes the record and the lines, which every host writes alike.
//! How they are written and read is [`threadkeep_adapters::blobs`]'s; here are what names them, and
//! the removal of those that nothing names. [`Tenant::store_blob`] writes one for a thread that can
//! still take it.
//!
//! [`Tenant::store_blob`]: crate::tenant::Tenant::store_blob

mod prune;
mod references;

pub use prune::prune_blobs;
pub use references::{UnreferencedBlob, list_unreferenced_blobs};
use threadkeep_adapters::blobs as stored;
pub use threadkeep_adapters::blobs::{BLOB_BYTES_MAX, BLOB_GRACE, BlobName, BlobWrite};
pub use threadkeep_adapters::image_type::{IMAGE_BYTES_MAX, image_type};

use crate::clock::ClockTime;
use crate::error::CallError;
use crate::storage::StorageBackend;
use stored::{BLOB, BlobState, blob_key};
pub(crate) use stored::{BlobThread, BlobThreads, StoredResult, ThreadBlobs, UnstoredResult};

/// Error of writing or reading a blob.
pub type BlobError = stored::BlobError<CallError>;

impl From<CallError> for BlobError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// Writes a blob under a chain whose record has the version `chain_version`. One that is there is
/// not written again, one that is not whole is gone on with. `now` is the time of the host.
///
/// # Errors
/// As [`stored::write_blob`].
pub fn write_blob(
    storage: &dyn StorageBackend,
    chain: (&str, u64),
    content: (&[u8], &str),
    now: ClockTime,
) -> Result<BlobWrite, BlobError> {
    stored::write_blob(storage, chain, content, now.seconds)
}

/// Reads the bytes of a blob, and compares their hash with its name.
///
/// # Errors
/// [`BlobError::Missing`], [`BlobError::Damaged`], and those of the store.
pub fn read_blob(
    storage: &dyn StorageBackend,
    chain: &str,
    hash: &str,
) -> Result<Vec<u8>, BlobError> {
    stored::read_blob(storage, chain, hash)
}

#[cfg(test)]
mod tests;
