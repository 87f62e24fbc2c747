//! The state document of a thread as it is now, and what the head says of it.

use super::RecordFormat;
use crate::json::record;
use crate::state::{StateDocument, StateScope};

/// Stored under the key of the thread's id, and replaced by every commit that changes the state.
/// Lines of the log `state` are of the same form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateRecord {
    /// Format of the record.
    pub format: RecordFormat,
    /// The document.
    pub document: StateDocument,
    /// Version of the entry that made it; of a line, of the one that wrote it. 0 for a document
    /// that a new thread inherits, until its first entry.
    pub version: u64,
}

record!(StateRecord {
    format,
    document,
    version
});

impl StateRecord {
    /// Makes the record of a document.
    pub fn new(document: StateDocument, version: u64) -> Self {
        Self {
            format: RecordFormat::CURRENT,
            document,
            version,
        }
    }
}

/// Part of the head of a thread that has a state: so a commit that does not change it reads none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StateSummary {
    /// Version of the thread's own entry that changed it last; 0 for a document that a new thread
    /// inherits, until its first entry.
    pub version: u64,
    /// Bytes of the document.
    pub bytes: u64,
    /// Entries that a reader of the newest document goes back: to the newest line of the log
    /// `state`, or to the first change.
    pub since: u64,
    /// Bytes of the patches and operations of these entries.
    pub patch_bytes: u64,
    /// Position of the newest line in the log `state`; 0 if there is none.
    pub snapshot: u64,
    /// True if the scope of the run has something in it.
    pub run: bool,
    /// True if a scope of a call has something in it.
    pub calls: bool,
}

record!(StateSummary {
    version, bytes, since, patch_bytes or nothing, snapshot or nothing, run or nothing,
    calls or nothing
});

impl StateSummary {
    /// Returns the summary of a document that a new thread inherits.
    pub fn of_inherited(document: &StateDocument) -> Self {
        Self {
            bytes: document.to_text().len() as u64,
            ..Self::default()
        }
        .of_scopes(document)
    }

    /// Returns the same with what is said of the scopes of a document.
    pub fn of_scopes(self, document: &StateDocument) -> Self {
        Self {
            run: !document.is_scope_empty(StateScope::Run),
            calls: !document.is_scope_empty(StateScope::ToolCall),
            ..self
        }
    }
}
