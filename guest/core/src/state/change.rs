//! The change of a state as an entry records it, and how it is applied again.

use super::document::StateDocument;
use super::edits::{ScopedOperation, ScopedPatch};
use crate::json::record;

/// Part of an entry: how its commit changed the state. The document of the entry is the snapshot,
/// or the document of the version `before`, to which the patches are applied, then the operations;
/// last, the scopes of the calls that have their results in the entry are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateChange {
    /// Version of the thread's own entry that changed the state before; 0 if there is none.
    pub before: u64,
    /// Position in the log `state` of the document that the change begins with; 0 if it wrote none.
    pub snapshot: u64,
    /// True if the content of that document is new: a caller gave it, or the thread inherited it.
    /// False for a copy of the document of `before`, written so that a reader need not go back
    /// further.
    pub replaced: bool,
    /// Patches, in order.
    pub patches: Vec<ScopedPatch>,
    /// Operations, in order.
    pub operations: Vec<ScopedOperation>,
    /// SHA-256 of the document after the change.
    pub hash: String,
}

record!(StateChange {
    before or nothing, snapshot or nothing, replaced or nothing, patches or nothing,
    operations or nothing, hash
});

impl StateChange {
    /// Applies the change to the document that it begins with. `closed` are the ids of the calls
    /// that the entry records results of.
    ///
    /// # Errors
    /// A sentence, if it does not apply: then the records were changed since.
    pub fn apply_to(&self, document: &mut StateDocument, closed: &[String]) -> Result<(), String> {
        let done = document.apply_patches(&self.patches);
        let done = done.and_then(|()| document.apply_operations(&self.operations));
        done.map_err(|refusal| format!("{} {}", refusal.place, refusal.problem))?;
        for call in closed {
            document.drop_call(call);
        }
        Ok(())
    }
}
