//! The documents of threads: which are written, in which order, and when they are looked at again.
//!
//! A host may not be able to lock a directory (WASI has no locks), and then several processes write
//! the documents of one thread at once. None of them can spoil a file: without the lock a file is
//! only ever replaced as a whole. The last one to write may have read the records before another
//! did, so each looks at the thread again afterwards and, if it has changed and nobody runs it,
//! writes once more: the last to look finds what it wrote to be current.

use super::document_records::{DocumentPiece, DocumentRecords, DocumentedThread, PieceRequest};
use super::transcript_update::{TranscriptOutcome, TranscriptUpdate};
use super::{
    CheckpointSave, CheckpointSettings, Document, DocumentDirectory, DocumentState,
    MissingDirectory, STATE_BYTES_MAX, STATE_FILE, ThreadFileError, WriteFault, check_thread_file,
    write_thread_file,
};
use std::sync::Arc;
use threadkeep_storage::directory::DirectoryTree;
use threadkeep_units::status::has_ended;

/// Most times that documents are written in one refresh. Whoever changes a thread that often
/// refreshes its documents itself.
const PASSES_MAX: u32 = 4;

/// The result of a refresh or a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefreshReport {
    /// The version that all three documents reach at least.
    pub version: u64,
    /// Transcripts whose file could not be continued and was rebuilt.
    pub rebuilt: Vec<Document>,
}

/// A checkpoint whose `state.json` is written.
#[derive(Debug)]
pub struct WrittenCheckpoint {
    /// The version that it is of.
    pub version: u64,
    /// The thread as it was.
    pub thread: DocumentedThread,
    /// The reason why its copies are not as the settings say, if they are not. The checkpoint
    /// itself is written.
    pub copies_problem: Option<ThreadFileError>,
}

/// The states of the documents that are made of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryStates {
    /// `thread.json`.
    pub thread: DocumentState,
    /// `transcript.jsonl`.
    pub jsonl: DocumentState,
    /// `transcript.md`.
    pub markdown: DocumentState,
}

/// Writes and compares the documents of threads in a directory `.ai/threads`. It blocks.
pub struct DocumentFiles<'a, R> {
    /// The records that they are made from.
    pub records: &'a R,
    /// The directory of the threads.
    pub threads: &'a dyn DirectoryTree,
    /// Letters and digits that no other writer has: where a directory cannot be locked, they keep
    /// the temporary files of two writers apart.
    pub writer: &'a str,
    /// A fault that a test plants at the writing of whole files.
    pub fault: Option<WriteFault>,
}

/// The outcome of one pass over the documents of a thread.
struct WrittenPass {
    thread: DocumentedThread,
    version: u64,
    rebuilt: Vec<Document>,
    /// True if another process put a file in the place of one that was continued.
    was_replaced: bool,
}

impl<R: DocumentRecords> DocumentFiles<'_, R> {
    /// Brings the documents of a thread up to its head; with `rebuild` writes them anew, whatever
    /// their files hold now. Each document is written even if another one fails.
    ///
    /// # Errors
    /// The first failure. Every document is then unchanged, up to date, or torn at its end, which
    /// the next refresh repairs.
    pub fn refresh(&self, thread: &str, rebuild: bool) -> Result<RefreshReport, R::RecordError> {
        let mut rebuilt = Vec::new();
        for pass in 1.. {
            let written = self.write_documents(thread, rebuild && pass == 1)?;
            for document in written.rebuilt {
                if !rebuilt.contains(&document) {
                    rebuilt.push(document);
                }
            }
            let again = written.was_replaced || self.has_changed(&written.thread);
            if !again || pass == PASSES_MAX {
                let version = written.version;
                return Ok(RefreshReport { version, rebuilt });
            }
        }
        Err(ThreadFileError::Vanished.into())
    }

    /// Returns true if a thread has changed since this record was read, and nobody runs it who
    /// would write its documents. One that cannot be read has not.
    fn has_changed(&self, before: &DocumentedThread) -> bool {
        let now = self.records.read_thread(&before.id);
        now.is_ok_and(|now| {
            let moved = (now.version, now.updated) != (before.version, before.updated);
            moved && now.status != "running"
        })
    }

    fn write_documents(&self, thread: &str, rebuild: bool) -> Result<WrittenPass, R::RecordError> {
        let opened = self.open_directory(thread, MissingDirectory::Make)?;
        let (place, thread) = opened.ok_or(ThreadFileError::Vanished)?;
        place.remove_abandoned(self.records.now())?;
        let head = self.render_thread(&place)?;
        let (version, mut rebuilt, mut was_replaced) = (head.version, Vec::new(), false);
        let written = write_thread_file(&place, head.text.as_bytes());
        let mut update = |document, transcript: &TranscriptUpdate<'_, R>| {
            let outcome = match rebuild {
                true => transcript
                    .rebuild()
                    .map(|()| TranscriptOutcome::Rebuilt(true)),
                false => transcript.refresh(),
            };
            match outcome? {
                TranscriptOutcome::Rebuilt(true) => rebuilt.push(document),
                TranscriptOutcome::Continued | TranscriptOutcome::Rebuilt(false) => {}
                TranscriptOutcome::Replaced => was_replaced = true,
            }
            Ok(())
        };
        let jsonl = TranscriptUpdate::new_jsonl(self.records, &place, &thread);
        let jsonl = jsonl.and_then(|jsonl| update(Document::Jsonl, &jsonl));
        let markdown = TranscriptUpdate::new_markdown(self.records, &place, version, &thread);
        let markdown = update(Document::Markdown, &markdown);
        written?;
        jsonl.and(markdown)?;
        Ok(WrittenPass {
            thread,
            version,
            rebuilt,
            was_replaced,
        })
    }

    /// Compares the documents in a thread's directory with its records. Reads them whole and writes
    /// nothing.
    ///
    /// # Errors
    /// If the records or the files cannot be read, or an entry is not a regular file.
    pub fn check(
        &self,
        place: &Arc<DocumentDirectory>,
        thread: &DocumentedThread,
    ) -> Result<HistoryStates, R::RecordError> {
        let head = self.render_thread(place)?;
        let jsonl = TranscriptUpdate::new_jsonl(self.records, place, thread)?;
        let markdown = TranscriptUpdate::new_markdown(self.records, place, head.version, thread);
        Ok(HistoryStates {
            thread: check_thread_file(place, head.text.as_bytes())?,
            jsonl: jsonl.check()?,
            markdown: markdown.check()?,
        })
    }

    /// Writes `state.json` of a thread as it is now, keeps a copy of it and removes those that the
    /// settings do not keep. The checkpoints of a thread that has ended are then archived, removed
    /// or kept.
    ///
    /// # Errors
    /// If `state.json` cannot be written; the one before, if there is one, is whole. A copy that
    /// cannot be written is named in the answer.
    pub fn save_checkpoint(
        &self,
        thread: &str,
        settings: &CheckpointSettings,
    ) -> Result<WrittenCheckpoint, R::RecordError> {
        for pass in 1.. {
            let opened = self.open_directory(thread, MissingDirectory::Make)?;
            let (place, thread) = opened.ok_or(ThreadFileError::Vanished)?;
            let (text, version) = self.render_checkpoint(&thread.id, None)?;
            let save = CheckpointSave {
                place,
                version,
                text,
                has_ended: has_ended(&thread.status),
                now: self.records.now(),
                settings: settings.clone(),
            };
            let copies_problem = save.perform()?;
            if pass == PASSES_MAX || !self.has_changed(&thread) {
                return Ok(WrittenCheckpoint {
                    version,
                    thread,
                    copies_problem,
                });
            }
        }
        Err(ThreadFileError::Vanished.into())
    }

    /// Returns the version that `state.json` of a thread is of; `None` if there is none, or it is
    /// no checkpoint.
    ///
    /// # Errors
    /// If it cannot be read, or is no regular file.
    pub fn saved_version(&self, thread: &str) -> Result<Option<u64>, R::RecordError> {
        #[derive(serde::Deserialize)]
        struct StateMark {
            history_version: u64,
        }
        let Some((place, _)) = self.open_directory(thread, MissingDirectory::Leave)? else {
            return Ok(None);
        };
        let bytes = place.read(STATE_FILE, STATE_BYTES_MAX)?;
        let mark = bytes.and_then(|bytes| serde_json::from_slice::<StateMark>(&bytes).ok());
        Ok(mark.map(|mark| mark.history_version))
    }

    /// Renders the checkpoint of a version (`None`: the newest) as a whole.
    ///
    /// # Errors
    /// That of the call.
    pub fn render_checkpoint(
        &self,
        thread: &str,
        at: Option<u64>,
    ) -> Result<(String, u64), R::RecordError> {
        let (mut text, mut cursor) = (String::new(), None::<String>);
        loop {
            let piece = self.records.render_piece(PieceRequest {
                thread,
                document: "checkpoint",
                at,
                after: 0,
                cursor: cursor.as_deref(),
            })?;
            text.push_str(&piece.text);
            cursor = piece.cursor;
            if cursor.is_none() {
                return Ok((text, piece.version));
            }
        }
    }

    /// Opens the directory of a thread, under its id in the case of its record; returns the thread,
    /// too.
    ///
    /// # Errors
    /// If the thread cannot be read, or its directory is none of this user's.
    pub fn open_directory(
        &self,
        thread: &str,
        absent: MissingDirectory,
    ) -> Result<Option<(Arc<DocumentDirectory>, DocumentedThread)>, R::RecordError> {
        let record = self.records.read_thread(thread)?;
        if !record.id.eq_ignore_ascii_case(thread) {
            let problem = "it names another thread than it was asked for";
            return Err(ThreadFileError::Component(problem).into());
        }
        let opened = DocumentDirectory::open(self.threads, &record.id, absent)?;
        Ok(opened.map(|place| {
            let place = place.with_fault(self.fault.clone());
            (Arc::new(place.with_writer(self.writer)), record)
        }))
    }

    /// Reads the content of `thread.json`. Called while the directory is open, so that no older
    /// content follows a newer one where it is locked.
    fn render_thread(&self, place: &DocumentDirectory) -> Result<DocumentPiece, R::RecordError> {
        self.records.render_piece(PieceRequest {
            thread: place.id(),
            document: Document::Thread.component_name(),
            at: None,
            after: 0,
            cursor: None,
        })
    }
}
