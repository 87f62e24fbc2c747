//! A transcript: what its records give, put into its file or compared with it.
//!
//! Appending needs no memory of its own. The file's end names a version, the records give the text
//! of that version, and the rest is appended only if they agree. Otherwise the whole file is
//! rebuilt. What is written where is [`TranscriptFile`]'s.

use super::blob_files::write_blob_files;
use super::document_records::{DocumentRecords, DocumentedThread, PieceRequest};
use super::transcript_file::{OpenTranscript, TranscriptFile};
use super::{Document, DocumentDirectory, DocumentState, ThreadFileError};
use std::collections::BTreeSet;
use std::sync::Arc;
use threadkeep_units::thread_path::ThreadPath;

/// The result of a refresh of a transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TranscriptOutcome {
    /// The file was continued, or was up to date.
    Continued,
    /// The file was written anew; true if there was one that could not be continued.
    Rebuilt(bool),
    /// Another process put a file in its place while it was continued.
    Replaced,
}

/// One transcript of one thread, while its directory is open.
pub(super) struct TranscriptUpdate<'a, R> {
    records: &'a R,
    file: TranscriptFile,
    /// The version of the thread's head when the head of the file was made, or an older one.
    version: u64,
    /// The order of the versions, which need not ascend where a link was handed off.
    path: &'a ThreadPath,
}

impl<'a, R: DocumentRecords> TranscriptUpdate<'a, R> {
    /// `transcript.md`: a title line, then entries.
    pub(super) fn new_markdown(
        records: &'a R,
        place: &Arc<DocumentDirectory>,
        version: u64,
        thread: &'a DocumentedThread,
    ) -> Self {
        Self {
            records,
            file: TranscriptFile::new_markdown(place),
            version,
            path: &thread.path,
        }
    }

    /// `transcript.jsonl`: the manifest line as the records give it, then events.
    pub(super) fn new_jsonl(
        records: &'a R,
        place: &Arc<DocumentDirectory>,
        thread: &'a DocumentedThread,
    ) -> Result<Self, R::RecordError> {
        let piece = records.render_piece(PieceRequest {
            thread: place.id(),
            document: "manifest",
            at: None,
            after: 0,
            cursor: None,
        })?;
        Ok(Self {
            records,
            file: TranscriptFile::new_jsonl(place, &piece.text)?,
            version: piece.version,
            path: &thread.path,
        })
    }

    /// Brings the file up to the head.
    pub(super) fn refresh(&self) -> Result<TranscriptOutcome, R::RecordError> {
        let is_there = self.file.is_there()?;
        if let Some(open) = self.file.open()?
            && let Some(outcome) = self.append_missing(open)?
        {
            return Ok(outcome);
        }
        self.rebuild()?;
        Ok(TranscriptOutcome::Rebuilt(is_there))
    }

    /// Writes the whole file again and puts it in place.
    pub(super) fn rebuild(&self) -> Result<(), R::RecordError> {
        let mut replacement = self.file.begin_replacement()?;
        let mut pieces = self.pieces(0);
        while let Some(text) = pieces.next_piece()? {
            self.write_blob_files(&text)?;
            replacement.write(text.as_bytes())?;
        }
        Ok(replacement.commit()?)
    }

    /// Compares the whole file with its records.
    pub(super) fn check(&self) -> Result<DocumentState, R::RecordError> {
        let mut comparison = match self.file.begin_comparison()? {
            Ok(comparison) => comparison,
            Err(state) => return Ok(state),
        };
        let mut pieces = self.pieces(0);
        loop {
            let after = pieces.reached;
            let text = pieces.next_piece()?;
            if let Some(state) = comparison.compare_piece(text.as_deref(), after)? {
                return Ok(state);
            }
        }
    }

    /// Appends the missing part, if the file's end agrees with the records; else changes nothing
    /// and returns `None`.
    fn append_missing(
        &self,
        open: OpenTranscript,
    ) -> Result<Option<TranscriptOutcome>, R::RecordError> {
        let version = open.version();
        if version > self.version {
            return Ok(None);
        }
        let mut pieces = self.pieces(self.path.version_before(version));
        let first = pieces.next_piece()?.unwrap_or_default();
        let Some((mut append, rest)) = open.continue_after(&first) else {
            return Ok(None);
        };
        self.write_blob_files(&first)?;
        append.write(&rest)?;
        while let Some(more) = pieces.next_piece()? {
            self.write_blob_files(&more)?;
            append.write(more.as_bytes())?;
        }
        Ok(Some(match append.finish()? {
            true => TranscriptOutcome::Continued,
            false => TranscriptOutcome::Replaced,
        }))
    }

    /// Writes the files of the blobs that a piece names, before the piece itself.
    fn write_blob_files(&self, piece: &str) -> Result<(), ThreadFileError> {
        match self.file.document() {
            Document::Jsonl => write_blob_files(self.records, self.file.place(), piece),
            Document::Markdown | Document::Thread => Ok(()),
        }
    }

    fn pieces(&self, after: u64) -> TranscriptPieces<'_, R> {
        TranscriptPieces {
            records: self.records,
            thread: self.file.place().id(),
            document: self.file.document().component_name(),
            after,
            next: Some(None),
            seen: BTreeSet::new(),
            reached: after,
        }
    }
}

/// The pieces of a document after a version. The component must advance with each: no cursor may
/// come again.
struct TranscriptPieces<'a, R> {
    records: &'a R,
    thread: &'a str,
    document: &'static str,
    after: u64,
    /// Cursor of the next piece, which the first has none of; `None` after the last.
    next: Option<Option<String>>,
    /// The cursors so far.
    seen: BTreeSet<String>,
    /// The version that the pieces so far reach.
    reached: u64,
}

impl<R: DocumentRecords> TranscriptPieces<'_, R> {
    /// Returns the next piece, which may be empty; `None` after the last.
    fn next_piece(&mut self) -> Result<Option<String>, R::RecordError> {
        let Some(cursor) = self.next.take() else {
            return Ok(None);
        };
        let piece = self.records.render_piece(PieceRequest {
            thread: self.thread,
            document: self.document,
            at: None,
            after: self.after,
            cursor: cursor.as_deref(),
        })?;
        let cursor = piece.cursor.as_ref();
        if cursor.is_some_and(|cursor| !self.seen.insert(cursor.clone())) {
            let problem = "a piece of a transcript leads nowhere";
            return Err(ThreadFileError::Component(problem).into());
        }
        self.next = piece.cursor.map(Some);
        self.reached = piece.version;
        Ok(Some(piece.text))
    }
}
