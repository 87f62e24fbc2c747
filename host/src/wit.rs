//! The types of the component's interfaces, as `wit/` documents them, with constructors and
//! conversions.
//!
//! Records do not grow once a version of the contract is released. Sets that may grow (statuses,
//! step kinds, codes) are strings: have a branch for a value that you do not know.

pub use crate::bindings::exports::threadkeep::threads::{
    history, ledger, maintenance, registry, runner, transcript,
};
mod error;

pub use crate::bindings::threadkeep::threads::llm;
pub use crate::bindings::threadkeep::threads::types::Error as ErrorRecord;
pub use crate::bindings::threadkeep::threads::types::*;
// `Error` is the enum and not the record of the same name, which is `ErrorRecord` here.
pub use error::{
    BusyThread, CallFailure, ContinuedThread, DeletedThread, Error, InvalidValue, MissingName,
    RefusedStatus, StoredDamage, TakenId, ValueMismatch,
};

use crate::clock::ClockTime;
use crate::component::convert;

/// A time of the host's clock as the component takes it.
impl From<ClockTime> for Instant {
    fn from(time: ClockTime) -> Self {
        convert::time_to_wit(time)
    }
}

/// Returns the content of a [`ToolOutcome`] that is one text.
pub fn text_content(text: &str) -> String {
    serde_json::json!([{"type": "text", "text": text}]).to_string()
}

/// Asks for no caps: in a draft, those of the directive and the preset hold.
impl Default for Limits {
    fn default() -> Self {
        Self {
            turns: None,
            tokens: None,
            spend: None,
            spawns: None,
            depth: None,
            duration: None,
        }
    }
}

/// A draft of a chat without settings: its id is made, and the preset's model and limits hold.
impl Default for registry::Draft {
    fn default() -> Self {
        Self {
            id: None,
            directive: None,
            agent: None,
            task: None,
            title: None,
            model: None,
            limits: Limits::default(),
            capabilities: Vec::new(),
            approvals: Vec::new(),
            inputs: None,
            incomplete: false,
        }
    }
}

impl registry::Draft {
    /// A draft of a thread of this directive without other settings.
    pub fn for_directive(directive: impl Into<String>) -> Self {
        Self {
            directive: Some(directive.into()),
            ..Self::default()
        }
    }
}

/// Matches every thread.
impl Default for registry::Filter {
    fn default() -> Self {
        Self::All
    }
}

impl history::ChangeSet {
    /// A change that adds events and nothing else; each is a JSON object.
    pub fn of_events(events: Vec<String>) -> Self {
        Self {
            events,
            patches: Vec::new(),
            operations: Vec::new(),
            snapshot: None,
            request: None,
        }
    }
}

impl runner::Due {
    /// True if this call is one of those that get the thread going.
    pub fn needs(&self, call: &str) -> bool {
        self.calls.iter().any(|known| known == call)
    }
}
