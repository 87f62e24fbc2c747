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

/// A blob that is removed, or is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PrunedBlobRow {
    /// Key of the chain that has it: the id of its first thread in lower case.
    pub chain_root_id: String,
    /// SHA-256 of its bytes.
    pub blob: String,
    /// Number of its bytes.
    pub bytes: u64,
    /// `unreferenced`.
    pub reason: String,
}

/// The answer of `prune`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PruneAnswer {
    /// True if nothing was removed.
    pub dry_run: bool,
    /// The files.
    pub files: Vec<PrunedRow>,
    /// The blobs.
    pub blobs: Vec<PrunedBlobRow>,
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
        for row in &self.blobs {
            screen.print_line(&format!(
                "blob {} of {}, {}: no history and no message names it",
                row.blob,
                row.chain_root_id,
                count_noun(row.bytes, "byte")
            ));
        }
        for failed in &self.failed {
            screen.warn(failed);
        }
        let mut removed = count_noun(self.files.len() as u64, "file");
        if !self.blobs.is_empty() {
            let blobs = count_noun(self.blobs.len() as u64, "blob");
            removed = format!("{removed} and {blobs}");
        }
        screen.note(&match self.dry_run {
            true => format!("{removed} would be removed"),
            false => format!("{removed} removed"),
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
    /// Images that were taken with them.
    pub images: u64,
    /// Images of which only a text tells, because their files are not there.
    pub images_left_out: u64,
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
        if self.images_left_out > 0 {
            screen.warn(&format!(
                "{} left out: the files are not in blobs.d beside the checkpoint, and a text \
                 stands in their place",
                count_noun(self.images_left_out, "image")
            ));
        }
        let then = self.status_then.as_deref().unwrap_or("of no status");
        screen.note(&format!(
            "{messages} of {} ({then}); next: threadkeep resume {id} MESSAGE",
            self.imported_from
        ));
    }
}
