//! Images: stored as blobs of the project's store, and read for requests.
//!
//! The component has called this one, or waits for a command that has: it cannot be asked about a
//! thread meanwhile, so what a blob needs of its thread is read from the store.

use crate::exports::{bundle_host, llm};
use crate::project;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use threadkeep_adapters::blobs::{
    self, BlobError, RecordedThreads, StoredResult, ThreadBlobs, UnreadThread, UnstoredResult,
};
use threadkeep_adapters::models::{ConversationImages, RequestImages};
use threadkeep_storage::{StorageBackend, StorageError};

/// Error of a blob of this project.
type ProjectBlobError = BlobError<UnreadThread>;

/// Stores an image for a thread.
pub fn store_image(
    thread: &str,
    bytes: &[u8],
) -> Result<bundle_host::StoredImage, bundle_host::ImageFault> {
    let store = project::store().map_err(BlobError::Storage);
    let stored = store.and_then(|store| thread_blobs(&*store).store_image(thread, bytes));
    match stored {
        Ok(name) => Ok(bundle_host::StoredImage {
            hash: name.hash,
            media: name.media,
            size: name.size,
        }),
        Err(error) => Err(bundle_host::ImageFault {
            code: code_of(&error).to_owned(),
            message: error.to_string(),
        }),
    }
}

/// Stores the images of a tool's result.
pub fn store_result(thread: &str, takes_images: bool, result: UnstoredResult) -> StoredResult {
    if !result.has_blobs() {
        return result.into();
    }
    match project::store() {
        Ok(store) => thread_blobs(&*store).store_result(thread, takes_images, result),
        Err(_) => StoredResult::lost(&result),
    }
}

fn thread_blobs(storage: &dyn StorageBackend) -> ThreadBlobs<'_, RecordedThreads<'_>> {
    ThreadBlobs {
        storage,
        threads: RecordedThreads(storage),
        now: &seconds_now,
    }
}

fn seconds_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

fn code_of(error: &ProjectBlobError) -> &'static str {
    match error {
        BlobError::Call(UnreadThread::Missing(_)) => "not-found",
        BlobError::Call(UnreadThread::Damaged(_)) => "corrupt",
        error => error.code().unwrap_or("other"),
    }
}

/// Reads the images of a request, which is whole. Those that the last request of the same thread
/// has sent are not read again.
pub fn read_request_images(asked: &llm::Request) -> RequestImages {
    static LAST: Mutex<Option<(String, ConversationImages)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let mut images = match last.take() {
        Some((thread, images)) if thread == asked.thread => images,
        _ => ConversationImages::default(),
    };
    images.restart();
    images.add_messages(&asked.messages);
    let chosen = images.choose(asked.images, read_blob);
    *last = Some((asked.thread.clone(), images));
    chosen
}

/// Reads a blob; `None` if the store cannot give it, of which standard error tells.
pub fn read_blob(chain: &str, hash: &str) -> Option<Vec<u8>> {
    let store: Result<Arc<dyn StorageBackend>, StorageError> = project::store();
    let read = store
        .map_err(ProjectBlobError::from)
        .and_then(|store| blobs::read_blob(&*store, chain, hash));
    match read {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            eprintln!("threadkeep: the blob {hash} cannot be read: {error}");
            None
        }
    }
}
