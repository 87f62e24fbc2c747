//! The records that documents are made from, as a host reads them for it.

use super::ThreadFileError;
use std::time::SystemTime;
use threadkeep_units::thread_path::ThreadPath;

/// The component's answers about threads. Calls block: a host with a runtime makes them on a thread
/// that may.
pub trait DocumentRecords {
    /// Reason why a call gives no answer, or a file cannot be written.
    type RecordError: From<ThreadFileError>;

    /// Reads the record of a thread (`registry.get`).
    ///
    /// # Errors
    /// That of the call.
    fn read_thread(&self, thread: &str) -> Result<DocumentedThread, Self::RecordError>;

    /// Renders a piece of a document (`transcript.render`).
    ///
    /// # Errors
    /// That of the call.
    fn render_piece(&self, asked: PieceRequest<'_>) -> Result<DocumentPiece, Self::RecordError>;

    /// Reads a blob of a chain; `None` if the store cannot give it, of which the host tells.
    fn read_blob(&self, chain: &str, hash: &str) -> Option<Vec<u8>>;

    /// Returns the time of the host's clock.
    fn now(&self) -> SystemTime;
}

/// A thread, as far as its documents need its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentedThread {
    /// Its id, in the case of its record.
    pub id: String,
    /// Its status.
    pub status: String,
    /// The reason of its cause, if it has stopped for one.
    pub cause: Option<String>,
    /// Its newest version.
    pub version: u64,
    /// The time of its last change, mail included: seconds and nanoseconds.
    pub updated: (i64, u32),
    /// The versions that it is read along.
    pub path: ThreadPath,
}

/// A piece of a document that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PieceRequest<'a> {
    /// The thread.
    pub thread: &'a str,
    /// The component's name of the document.
    pub document: &'a str,
    /// The version that it is made as of; `None` for the newest.
    pub at: Option<u64>,
    /// The version after which it begins.
    pub after: u64,
    /// The place of the piece; `None` for the first.
    pub cursor: Option<&'a str>,
}

/// A piece of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentPiece {
    /// Its text.
    pub text: String,
    /// The version that it reaches.
    pub version: u64,
    /// The place of the next piece; `None` after the last.
    pub cursor: Option<String>,
}
