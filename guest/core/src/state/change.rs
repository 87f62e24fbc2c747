//! The change of a state as an entry records it, and how it is applied again.

use super::document::StateDocument;
use super::edits::{ScopedOperation, ScopedPatch};
use crate::json::record::record;

/// Part of an entry: how its commit changed the state. A document is made from it by what it was
/// made with: the snapshot, or the document of the version `before`; then the patches; then the
/// operations; then the calls that the entry records results of are dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateChange {
    /// Version of the thread's own entry that changed the state before; 0 if there is none.
    pub before: u64,
    /// Position in the log `state` of the document that the change begins with; 0 if it wrote none.
    pub snapshot: u64,
    /// True if that document replaces the one before: a caller gave it, or the thread inherited it.
    /// Else it is the one before, written down so that a reader need not go back further.
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
