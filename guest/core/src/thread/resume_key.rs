//! Keys of requests to resume a thread that had ended: each makes one successor, however often it
//! is repeated.

use super::RecordFormat;
use crate::error::Error;
use crate::json::record::record;
use crate::{id, key};

/// The record of a key that was used. It stays for ever, so that a repeated request finds the
/// successor and makes no second one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumeRecord {
    /// Format of the record.
    pub format: RecordFormat,
    /// Digest of the input and its origin.
    pub input: String,
    /// Id of the successor.
    pub thread: String,
}

record!(ResumeRecord {
    format,
    input,
    thread
});

impl ResumeRecord {
    /// Returns the id of the successor that the key has made.
    ///
    /// # Errors
    /// [`Error::NewerFormat`] if a newer program wrote the record; [`Error::Conflict`] if the
    /// request had another input.
    pub fn thread_for(&self, digest: &str) -> Result<&str, Error> {
        self.format.refuse_newer(&self.thread, "resume key")?;
        if self.input == digest {
            return Ok(&self.thread);
        }
        Err(Error::Conflict {
            field: "input",
            expected: digest.to_owned(),
            actual: self.input.clone(),
        })
    }
}

/// Returns the key of the record in the collection `seen`, under the root of the chain. It has one
/// part more than that of a signal, so no two of them meet.
pub fn resume_key(chain: &str, request: &str) -> Result<String, Error> {
    id::check_request_name("key", request)?;
    Ok(key::join(&[&id::key(chain), "resume", request]))
}
