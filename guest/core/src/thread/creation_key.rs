//! Keys of callers' requests to create threads: each makes one thread, however often it is
//! repeated.

use super::RecordFormat;
use crate::error::Error;
use crate::json::record;
use crate::{id, key};

/// The record of a key that was used. It stays for ever, also where its thread goes, so that a
/// repeated request makes no second thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreationRecord {
    /// Format of the record.
    pub format: RecordFormat,
    /// Digest of the draft.
    pub draft: String,
    /// Id of the thread.
    pub thread: String,
}

record!(CreationRecord {
    format,
    draft,
    thread
});

impl CreationRecord {
    /// Returns the id of the thread that the key has made.
    ///
    /// # Errors
    /// `ErrorKind::NewerFormat` if a newer program wrote the record; `ErrorKind::Conflict` if the
    /// thread was made of a draft with another digest.
    pub fn thread_for(&self, digest: &str) -> Result<&str, Error> {
        self.format.refuse_newer(&self.thread, "creation key")?;
        if self.draft == digest {
            return Ok(&self.thread);
        }
        Err(Error::conflict(
            "draft",
            digest.to_owned(),
            self.draft.clone(),
        ))
    }
}

/// Returns the key of the record of a request to resume a chain: its `draft` is the digest of the
/// input, its `thread` the successor. It has one part more than the key of a signal, so no two of
/// them meet.
pub fn resume_key(chain: &str, request: &str) -> Result<String, Error> {
    id::check_request_name("key", request)?;
    Ok(key::join(&[&id::key(chain), "resume", request]))
}

/// Returns the key of the record in the collection `seen`. Its first part is empty, as no id of a
/// chain is.
pub fn creation_key(request: &str) -> Result<String, Error> {
    id::check_request_name("key", request)?;
    Ok(key::join(&["", request]))
}
