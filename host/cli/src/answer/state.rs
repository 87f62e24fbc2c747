//! The state document of a thread.

use super::CommandAnswer;
use crate::exit::CommandExit;
use crate::screen::OutputScreen;
use serde::Serialize;
use serde_json::Value;

/// The answer of `state`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StateAnswer {
    /// The thread.
    pub thread_id: String,
    /// The version whose state it is.
    pub version: u64,
    /// An object for each scope: `thread`, `run` and `tool_call`.
    pub state: Value,
    /// The tip of the thread's chain, if it was continued.
    pub continued_in: Option<String>,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandAnswer for StateAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        // A value of JSON is always written.
        let state = serde_json::to_string_pretty(&self.state).unwrap_or_default();
        screen.print_text(&format!("{state}\n"));
    }
}
