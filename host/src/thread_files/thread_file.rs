//! `thread.json`: replaced as a whole, and compared with what the records give.

use super::document_directory::{DocumentDirectory, FileReplacement};
use super::{Document, DocumentState, ThreadFileError};
use std::sync::Arc;
use threadkeep_storage::directory::AuthorityError;

/// Largest `thread.json` that is compared: a result has less than 1 MiB as it is stored.
const THREAD_BYTES_MAX: u64 = 8 << 20;

/// Replaces `thread.json`, unless it is already equal.
///
/// # Errors
/// Those of the files; the one before is whole then.
pub fn write_thread_file(
    place: &Arc<DocumentDirectory>,
    text: &[u8],
) -> Result<(), ThreadFileError> {
    let name = Document::Thread.file_name();
    match place.read(name, text.len() as u64) {
        Ok(Some(found)) if found == text => return Ok(()),
        Err(ThreadFileError::Authority(
            AuthorityError::TooLarge { .. } | AuthorityError::HardLink { .. },
        ))
        | Ok(_) => {}
        Err(error) => return Err(error),
    }
    let mut replacement = FileReplacement::begin(Arc::clone(place), name)?;
    replacement.write(text)?;
    replacement.commit()
}

/// Compares `thread.json` with the text that the records give.
///
/// # Errors
/// If it cannot be read, or is no regular file.
pub fn check_thread_file(
    place: &DocumentDirectory,
    expected: &[u8],
) -> Result<DocumentState, ThreadFileError> {
    let found = match place.read(Document::Thread.file_name(), THREAD_BYTES_MAX) {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(DocumentState::Missing),
        Err(ThreadFileError::Authority(
            AuthorityError::TooLarge { .. } | AuthorityError::HardLink { .. },
        )) => {
            return Ok(DocumentState::Other);
        }
        Err(error) => return Err(error),
    };
    if found == expected {
        return Ok(DocumentState::Current);
    }
    let marks = (thread_mark(&found), thread_mark(expected));
    Ok(match marks {
        // Mail changes the head, and with it `updated_at`, without a new version.
        (Some(old), Some(new))
            if old.thread_id == new.thread_id
                && (old.version, &old.updated_at) < (new.version, &new.updated_at) =>
        {
            DocumentState::Stale(old.version)
        }
        _ => DocumentState::Other,
    })
}

#[derive(serde::Deserialize)]
struct ThreadMark {
    thread_id: String,
    version: u64,
    updated_at: String,
}

fn thread_mark(text: &[u8]) -> Option<ThreadMark> {
    serde_json::from_slice(text).ok()
}
