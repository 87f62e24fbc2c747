//! The files of threads: what of their documents is written where, atomically, and how a file is
//! compared with the text that the records give.
//!
//! All of it blocks, and stands on [`threadkeep_storage::directory`] alone: no runtime, no engine
//! and no handle of a system, so that a host under WASI writes the same files. What they are made
//! of comes from the component, through [`DocumentRecords`]; when they are written, a host decides.

mod blob_files;
mod checkpoint_copies;
mod checkpoint_failure;
mod checkpoint_save;
mod checkpoint_settings;
mod directory_lock;
mod document_directory;
mod document_files;
mod document_records;
mod merge_patch;
mod save_occasion;
mod save_trigger;
mod thread_file;
mod transcript_file;
mod transcript_tail;
mod transcript_update;
mod usage_cache_file;
mod usage_file;

pub use blob_files::{BLOBS_DIR, blob_file_name};
pub use checkpoint_copies::{COPIES_DIR, CheckpointCopy, CopyName, RemovalReason};
pub use checkpoint_failure::{CHECKPOINT_FAILED, describe_checkpoint_failure};
pub use checkpoint_save::{
    CheckpointSave, FileRemoval, STATE_BYTES_MAX, STATE_FILE, decompress, remove_files,
    select_thread_removals,
};
pub use checkpoint_settings::{
    AgeCleanup, CheckpointSettings, CompletionAction, RetryBackoff, SETTINGS_NAME,
};
pub use document_directory::{DocumentDirectory, FileReplacement, MissingDirectory, WriteFault};
pub use document_files::{DocumentFiles, HistoryStates, RefreshReport, WrittenCheckpoint};
pub use document_records::{DocumentPiece, DocumentRecords, DocumentedThread, PieceRequest};
pub use merge_patch::apply_merge_patch;
pub use save_occasion::{SaveOccasion, triggers_of_stop};
pub use save_trigger::{SaveTrigger, TriggerSet};
pub use thread_file::{check_thread_file, write_thread_file};
pub use transcript_file::{OpenTranscript, TranscriptAppend, TranscriptComparison, TranscriptFile};
pub use usage_cache_file::{USAGE_CACHE_FILE, read_usage_cache, write_usage_cache};
pub use usage_file::{
    LoggedReply, ReplyEvent, USAGE_FILE, UsageLine, append_usage_line, usage_file_bytes,
    usage_lines,
};

use threadkeep_storage::directory::AuthorityError;

/// The directory of the threads, as errors call it.
pub const THREADS_PATH: &str = ".ai/threads";

/// A kind of document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Document {
    /// `thread.json`: the state of the thread. Replaced as a whole.
    Thread,
    /// `transcript.jsonl`: a manifest line that is rewritten in place, then one event a line.
    Jsonl,
    /// `transcript.md`: for people. Append-only.
    Markdown,
}

impl Document {
    /// The name of its file.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Thread => "thread.json",
            Self::Jsonl => "transcript.jsonl",
            Self::Markdown => "transcript.md",
        }
    }

    /// The component's name for it.
    pub fn component_name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Jsonl => "jsonl",
            Self::Markdown => "markdown",
        }
    }
}

/// The result of comparing a document with the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentState {
    /// It equals what the records give.
    Current,
    /// It is older than the head: it reaches this version, or was made from this version before
    /// mail changed the head. A transcript with a torn end reaches an earlier version.
    Stale(u64),
    /// It is neither: it was edited, or it is no ordinary file. A hard link, which is not even
    /// read, is such a case. `repair` rebuilds it.
    Other,
    /// The file does not exist.
    Missing,
}

/// Reason why a file of a thread cannot be written or compared. The records are unchanged.
#[derive(Debug, thiserror::Error)]
pub enum ThreadFileError {
    /// A directory or file cannot be used: a link, not a regular file, a full disk.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The id cannot be a path inside the directory of threads.
    #[error("{0:?} cannot be the directory of a thread")]
    Id(String),
    /// Another process writes the documents of this thread and does not finish.
    #[error("another process keeps the directory of {0} locked and writes its documents")]
    Busy(String),
    /// The component returned something that is not a document.
    #[error("the component is wrong: {0}")]
    Component(&'static str),
    /// A directory that was just made is gone.
    #[error("a directory of the thread was removed while its files were written")]
    Vanished,
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests open directories from outside the library"
)]
mod tests;
