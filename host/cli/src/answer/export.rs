//! The answer of `export` with `--json`.

use super::CommandAnswer;
use crate::exit::CommandExit;
use crate::screen::OutputScreen;
use serde::Serialize;

/// A thread, written for people elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExportAnswer {
    /// The thread.
    pub thread_id: String,
    /// `html`.
    pub format: String,
    /// The version of the thread.
    pub version: u64,
    /// The page.
    pub text: String,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandAnswer for ExportAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        screen.print_text(&self.text);
    }
}
