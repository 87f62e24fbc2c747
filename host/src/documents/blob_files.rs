//! Names of the files of blobs, beside the documents.

use crate::blobs::BlobName;
pub use crate::thread_files::BLOBS_DIR;

/// Returns the name of the file of a blob.
pub fn blob_file_name(blob: &BlobName) -> String {
    crate::thread_files::blob_file_name(&blob.hash, &blob.media)
}
