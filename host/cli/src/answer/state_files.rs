//! `prune` and `import`.

use super::{CommandAnswer, ThreadView, count_noun};
use crate::exit::CommandExit;
use crate::screen::OutputScreen;
use serde::Serialize;

/// A file that is removed, or is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PrunedRow {
    /// The thread.
    pub thread_id: String,
    /// Its path in the project.
    pub file: String,
    /// `too-many`, `too-old`, `left-behind` or `ended`.
    pub reason: String,
}

impl PrunedRow {
    /// Says why the file is removed.
    fn describe(&self) -> &'static str {
        match self.reason.as_str() {
            "too-many" => "more copies than max_checkpoints",
            "too-old" => "older than delete_older_than_days",
            "left-behind" => "left behind by a save that was interrupted",
            _ => "its thread has ended",
        }
    }
}

/// The answer of `prune`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PruneAnswer {
    /// True if nothing was removed.
    pub dry_run: bool,
    /// The files.
    pub files: Vec<PrunedRow>,
    /// Threads whose files could not be looked at or removed, and why.
    pub failed: Vec<String>,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandAnswer for PruneAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        for row in &self.files {
            screen.print_line(&format!("{}: {}", row.file, row.describe()));
        }
        for failed in &self.failed {
            screen.warn(failed);
        }
        let files = count_noun(self.files.len() as u64, "file");
        screen.note(&match self.dry_run {
            true => format!("{files} would be removed"),
            false => format!("{files} removed"),
        });
    }
}

/// The answer of `import`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ImportAnswer {
    /// The thread that the file was made of.
    pub imported_from: String,
    /// Its status in the file, if the file names one.
    pub status_then: Option<String>,
    /// Messages of the file.
    pub messages: u64,
    /// The new thread.
    pub thread: ThreadView,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandAnswer for ImportAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        let id = &self.thread.thread_id;
        screen.print_line(id);
        let messages = count_noun(self.messages, "message");
        let then = self.status_then.as_deref().unwrap_or("of no status");
        screen.note(&format!(
            "{messages} of {} ({then}); next: threadkeep resume {id} MESSAGE",
            self.imported_from
        ));
    }
}
