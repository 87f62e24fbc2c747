//! The scopes of a state document.

use super::patch::empty_object;
use crate::json::words;
use crate::json::{JsonObject, JsonValue};

/// Scopes of a state document, by how long what is in them lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateScope {
    /// As long as the thread, and with the threads that continue it.
    Thread,
    /// As long as a run: emptied where the next one begins.
    Run,
    /// As long as a call is open.
    ToolCall,
}

words!(StateScope { Thread = "thread", Run = "run", ToolCall = "tool-call" });

impl StateScope {
    /// The words of all scopes.
    pub const NAMES: [&'static str; 3] = ["thread", "run", "tool-call"];

    /// Returns the scope of this word.
    pub fn parse(word: &str) -> Option<Self> {
        let all = [Self::Thread, Self::Run, Self::ToolCall];
        all.into_iter().find(|scope| scope.as_str() == word)
    }
}

/// Returns the patch that empties a scope.
pub(super) fn emptying_patch() -> JsonValue<'static> {
    let mut step = JsonObject::new();
    step.insert("op", "replace");
    step.insert("path", "");
    step.insert("value", empty_object());
    JsonValue::Array(vec![JsonValue::Object(step)])
}
