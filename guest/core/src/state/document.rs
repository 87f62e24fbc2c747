//! The state document: an object for each scope.

use super::edits::{EditRefusal, ScopedOperation, ScopedPatch, StateEdits, StateSnapshot};
use super::operation::apply_operation;
use super::patch::{apply_patch, empty_object};
use super::patch_size::PatchSize;
use super::scope::StateScope;
use super::storable::{STATE_BYTES_MAX, find_unstorable};
use crate::json::record;
use crate::json::{self, JsonValue};

/// A state document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDocument {
    /// The scope of the thread, an object.
    pub thread: JsonValue<'static>,
    /// The scope of the run, an object.
    pub run: JsonValue<'static>,
    /// An object for each open call that has one, by the id of the call.
    pub tool_call: JsonValue<'static>,
}

record!(StateDocument {
    thread,
    run,
    tool_call
});

impl StateDocument {
    /// A document without anything.
    pub fn empty() -> Self {
        Self {
            thread: empty_object(),
            run: empty_object(),
            tool_call: empty_object(),
        }
    }

    /// Returns true if a scope has nothing in it.
    pub fn is_scope_empty(&self, scope: StateScope) -> bool {
        match self.scope(scope) {
            JsonValue::Object(map) => map.is_empty(),
            _ => false,
        }
    }

    fn scope(&self, scope: StateScope) -> &JsonValue<'static> {
        match scope {
            StateScope::Thread => &self.thread,
            StateScope::Run => &self.run,
            StateScope::ToolCall => &self.tool_call,
        }
    }

    /// Replaces the scopes that a caller's document names.
    pub fn replace_by(&mut self, snapshot: &StateSnapshot) {
        if let Some(thread) = &snapshot.thread {
            self.thread.clone_from(thread);
        }
        if let Some(run) = &snapshot.run {
            self.run.clone_from(run);
        }
    }

    /// Applies the patches of edits, in order.
    ///
    /// # Errors
    /// The first that does not apply, by its place among them.
    pub fn apply_patches(&mut self, patches: &[ScopedPatch]) -> Result<(), EditRefusal> {
        if patches.is_empty() {
            return Ok(());
        }
        let mut size = PatchSize::new(self.to_text().len());
        for (n, scoped) in patches.iter().enumerate() {
            let refuse = |at: Option<usize>, problem: String| EditRefusal {
                place: match at {
                    Some(at) => format!("patches[{n}].patch[{at}]"),
                    None => format!("patches[{n}].patch"),
                },
                problem,
            };
            let call = scoped.call.as_deref();
            let had_call = self.has_call(call);
            let done = self.change_scope(scoped.scope, call, |target| {
                let done = apply_patch(target, &scoped.patch, &mut size);
                done.map_err(|refusal| refuse(refusal.at, refusal.problem))
            });
            done?.map_err(|problem| refuse(None, problem))?;
            if let (Some(call), true) = (call, self.has_call(call) != had_call) {
                let others = usize::from(!had_call);
                size.count_call_scope(call, !had_call, self.count_calls() == others);
            }
        }
        // A stored change is applied again from another beginning, and must not be refused then.
        debug_assert_eq!(size.document_bytes(), self.to_text().len());
        Ok(())
    }

    fn has_call(&self, call: Option<&str>) -> bool {
        call.is_some_and(|call| self.tool_call.get(call).is_some())
    }

    fn count_calls(&self) -> usize {
        match &self.tool_call {
            JsonValue::Object(map) => map.keys().count(),
            _ => 0,
        }
    }

    /// Applies operations, in order.
    ///
    /// # Errors
    /// The first that does not apply, by its place among them.
    pub fn apply_operations(&mut self, operations: &[ScopedOperation]) -> Result<(), EditRefusal> {
        for (n, scoped) in operations.iter().enumerate() {
            let refuse = |field: &str, problem: String| EditRefusal {
                place: format!("operations[{n}].{field}"),
                problem,
            };
            let call = scoped.call.as_deref();
            let done = self.change_scope(scoped.scope, call, |target| {
                let path = scoped
                    .pointer()
                    .map_err(|problem| refuse("path", problem))?;
                let done = apply_operation(target, scoped.op, &path, &scoped.value);
                done.map_err(|(field, problem)| refuse(field, problem))
            });
            done?.map_err(|problem| refuse("path", problem))?;
        }
        Ok(())
    }

    /// Applies edits: patches, then operations. A snapshot among them was applied before.
    ///
    /// # Errors
    /// The first that does not apply; the document is partly changed then: discard it.
    pub fn apply_edits(&mut self, edits: &StateEdits) -> Result<(), EditRefusal> {
        self.apply_patches(&edits.patches)?;
        self.apply_operations(&edits.operations)
    }

    /// Changes the object of a scope. `Ok(Err(problem))` says that the change was applied and left
    /// no object in the scope, or that the scope of a call names no call.
    fn change_scope(
        &mut self,
        scope: StateScope,
        call: Option<&str>,
        change: impl FnOnce(&mut JsonValue<'static>) -> Result<(), EditRefusal>,
    ) -> Result<Result<(), String>, EditRefusal> {
        let target = match (scope, call, &mut self.tool_call) {
            (StateScope::Thread, ..) => &mut self.thread,
            (StateScope::Run, ..) => &mut self.run,
            (StateScope::ToolCall, Some(call), JsonValue::Object(map)) => {
                map.get_or_insert_with(call, empty_object)
            }
            (StateScope::ToolCall, ..) => return Ok(Err("names no call".to_owned())),
        };
        change(target)?;
        let JsonValue::Object(changed) = &*target else {
            return Ok(Err("makes a scope something else than an object".to_owned()));
        };
        let emptied = changed.is_empty();
        if let (true, StateScope::ToolCall, Some(call)) = (emptied, scope, call) {
            self.drop_call(call);
        }
        Ok(Ok(()))
    }

    /// Empties a scope.
    pub fn empty_scope(&mut self, scope: StateScope) {
        match scope {
            StateScope::Thread => self.thread = empty_object(),
            StateScope::Run => self.run = empty_object(),
            StateScope::ToolCall => self.tool_call = empty_object(),
        }
    }

    /// Drops what belongs to a call.
    pub fn drop_call(&mut self, call: &str) {
        if let JsonValue::Object(map) = &mut self.tool_call {
            map.shift_remove(call);
        }
    }

    /// Returns the document as it is stored.
    pub fn to_text(&self) -> String {
        json::to_text(self)
    }

    /// Returns what keeps the document from being stored, if something does; `text` is its text.
    pub fn find_unstorable(&self, text: &str) -> Option<String> {
        if text.len() > STATE_BYTES_MAX {
            let bytes = text.len();
            return Some(format!(
                "makes a state of {bytes} bytes, the most is {STATE_BYTES_MAX}"
            ));
        }
        let scopes = [&self.thread, &self.run, &self.tool_call];
        let found = scopes.into_iter().find_map(find_unstorable);
        found.map(|problem| format!("makes a state that {problem}"))
    }

    /// Returns the document that a fork begins with: the scope of the thread alone.
    pub fn for_fork(&self) -> Self {
        Self {
            thread: self.thread.clone(),
            ..Self::empty()
        }
    }

    /// Returns true if no scope has anything in it.
    pub fn is_empty(&self) -> bool {
        let all = [StateScope::Thread, StateScope::Run, StateScope::ToolCall];
        all.into_iter().all(|scope| self.is_scope_empty(scope))
    }
}

impl Default for StateDocument {
    fn default() -> Self {
        Self::empty()
    }
}
