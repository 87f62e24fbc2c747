//! The size of a document while patches are applied to it, kept up to date by what each step
//! touches. A step that copies can double a document, so the bounds of what can be stored hold
//! after each step, not after the last one alone.

use super::pointer::JsonPointer;
use super::storable::{STATE_BYTES_MAX, STATE_DEPTH_MAX, count_levels};
use crate::json::{self, JsonValue};

/// Most bytes that the steps of one patch copy and move together. Each of a few hundred steps could
/// otherwise move a whole document, and a change is applied again wherever a state is read.
pub const PATCH_COPIED_BYTES_MAX: usize = 4 * STATE_BYTES_MAX;

/// The running size of a document. What a step refuses leaves it as it was or larger: the document
/// is then of no use, either.
#[derive(Debug, Clone, Copy)]
pub struct PatchSize {
    /// Bytes of the document as JSON text.
    document_bytes: usize,
    /// Bytes that the steps of the patch have copied and moved.
    copied_bytes: usize,
}

impl PatchSize {
    /// Begins with a document of so many bytes.
    pub fn new(document_bytes: usize) -> Self {
        Self {
            document_bytes,
            copied_bytes: 0,
        }
    }

    /// Begins another patch of the same document.
    pub fn begin_patch(&mut self) {
        self.copied_bytes = 0;
    }

    /// Counts a value that a step copies or moves, before it does.
    pub fn count_copied(&mut self, value: &JsonValue<'_>) -> Result<(), String> {
        self.copied_bytes += text_bytes(value);
        match self.copied_bytes > PATCH_COPIED_BYTES_MAX {
            true => Err(format!(
                "copies and moves more than {PATCH_COPIED_BYTES_MAX} bytes with the steps before it"
            )),
            false => Ok(()),
        }
    }

    /// Counts a value that a step is to put at a place, where it replaces another or adds `around`
    /// bytes of its own: a name and a comma.
    pub fn count_put(
        &mut self,
        path: &JsonPointer,
        value: &JsonValue<'_>,
        replaced: Option<&JsonValue<'_>>,
        around: usize,
    ) -> Result<(), String> {
        if path.tokens.len() + count_levels(value) > STATE_DEPTH_MAX {
            return Err(format!(
                "makes a state that is nested deeper than {STATE_DEPTH_MAX} levels"
            ));
        }
        let added = text_bytes(value) + around;
        let dropped = replaced.map_or(0, text_bytes);
        self.count_dropped(dropped);
        self.document_bytes += added;
        // A step that makes no larger document may follow one that a snapshot left too large.
        match added > dropped && self.document_bytes > STATE_BYTES_MAX {
            true => Err(format!(
                "makes a state of {} bytes, the most is {STATE_BYTES_MAX}",
                self.document_bytes
            )),
            false => Ok(()),
        }
    }

    /// Counts a value that a step has removed, with `around` bytes of its own.
    pub fn count_removed(&mut self, value: &JsonValue<'_>, around: usize) {
        self.count_dropped(text_bytes(value) + around);
    }

    /// Returns the bytes of the document now.
    pub fn document_bytes(&self) -> usize {
        self.document_bytes
    }

    /// Counts the scope of a call that a patch has made or emptied, with its name; what is in it
    /// was counted. `alone` is true if no other call has one.
    pub fn count_call_scope(&mut self, call: &str, is_made: bool, alone: bool) {
        let bytes = bytes_around(Some(call), alone) + "{}".len();
        match is_made {
            true => self.document_bytes += bytes,
            false => self.count_dropped(bytes),
        }
    }

    fn count_dropped(&mut self, bytes: usize) {
        self.document_bytes = self.document_bytes.saturating_sub(bytes);
    }
}

/// Returns the bytes that a field or an element has beside its value. `alone` is true if there is
/// no other: then it has no comma.
pub(super) fn bytes_around(name: Option<&str>, alone: bool) -> usize {
    let name = name.map_or(0, |name| json::to_text(name).len() + 1);
    name + usize::from(!alone)
}

fn text_bytes(value: &JsonValue<'_>) -> usize {
    json::to_text(value).len()
}
