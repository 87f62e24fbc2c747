//! Keys of callers' requests to create threads: each makes one thread, however often it is
//! repeated.

use super::ThreadDraft;
use crate::error::Error;
use crate::hash::sha256;
use crate::json;
use crate::json::record::record;
use crate::{id, key};

/// The record of a key that was used. It stays for ever, also where its thread goes, so that a
/// repeated request makes no second thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreationRecord {
    /// Digest of the draft.
    pub draft: String,
    /// Id of the thread.
    pub thread: String,
}

record!(CreationRecord { draft, thread });

impl CreationRecord {
    /// Makes the record of a draft that created this thread.
    pub fn new(draft: &ThreadDraft, thread: &str) -> Self {
        Self {
            draft: draft_digest(draft),
            thread: thread.to_owned(),
        }
    }

    /// Returns the id of the thread that the key has made.
    ///
    /// # Errors
    /// [`Error::Conflict`] if it was made of another draft.
    pub fn thread_for(&self, draft: &ThreadDraft) -> Result<&str, Error> {
        let expected = draft_digest(draft);
        if self.draft == expected {
            return Ok(&self.thread);
        }
        Err(Error::Conflict {
            field: "draft",
            expected,
            actual: self.draft.clone(),
        })
    }
}

/// Returns the key of the record in the collection `seen`. Its first part is empty, as no id of a
/// chain is.
pub fn creation_key(request: &str) -> Result<String, Error> {
    id::check_request_name("key", request)?;
    Ok(key::join(&["", request]))
}

fn draft_digest(draft: &ThreadDraft) -> String {
    let ThreadDraft {
        key: _,
        id,
        directive,
        agent,
        task,
        title,
        overrides,
        inputs,
    } = draft;
    let names = [id, directive, agent, task, title].map(json::to_text);
    let [id, directive, agent, task, title] = &names;
    let overrides = json::to_text(overrides);
    sha256(&[
        "draft", id, directive, agent, task, title, &overrides, inputs,
    ])
}
