//! The file of a transcript: continued at its end, written anew, or compared with what the records
//! give. It blocks.
//!
//! The manifest line, the only part that is rewritten in place, is written after the events that it
//! counts. In a directory that cannot be locked nothing is changed in place: the file is continued
//! in a copy, which then takes its place.

use super::document_directory::{DocumentDirectory, FileReplacement};
use super::transcript_tail::{self as tail, TranscriptTail};
use super::{Document, DocumentState, ThreadFileError};
use std::io;
use std::sync::Arc;
use threadkeep_storage::directory::{AuthorityError, TreeFile};

/// Bytes of the manifest line with its line feed; the component pads it.
const MANIFEST_BYTES: usize = 1_024;
/// Bytes that are copied at once.
const COPIED_BYTES: u64 = 256 << 10;

/// The file of one transcript, while the directory of its thread is locked.
#[derive(Clone)]
pub struct TranscriptFile {
    place: Arc<DocumentDirectory>,
    document: Document,
    head: Arc<[u8]>,
}

impl TranscriptFile {
    /// `transcript.md`: a title line, then entries.
    pub fn new_markdown(place: &Arc<DocumentDirectory>) -> Self {
        Self {
            place: Arc::clone(place),
            document: Document::Markdown,
            head: format!("# {}\n\n", place.id()).into_bytes().into(),
        }
    }

    /// `transcript.jsonl`: the manifest line as the records give it, then events.
    ///
    /// # Errors
    /// If the manifest is not one line of 1,024 bytes.
    pub fn new_jsonl(
        place: &Arc<DocumentDirectory>,
        manifest: &str,
    ) -> Result<Self, ThreadFileError> {
        let head = manifest.as_bytes();
        let end = head.iter().position(|&byte| byte == b'\n');
        if head.len() != MANIFEST_BYTES || end != Some(MANIFEST_BYTES - 1) {
            let problem = "the manifest is not one line of 1024 bytes";
            return Err(ThreadFileError::Component(problem));
        }
        Ok(Self {
            place: Arc::clone(place),
            document: Document::Jsonl,
            head: head.into(),
        })
    }

    /// The directory of its thread.
    pub fn place(&self) -> &Arc<DocumentDirectory> {
        &self.place
    }

    /// The kind of transcript.
    pub fn document(&self) -> Document {
        self.document
    }

    /// Returns true if there is a file.
    ///
    /// # Errors
    /// If something else stands there.
    pub fn is_there(&self) -> Result<bool, ThreadFileError> {
        let found = self.place.check_file(self.document.file_name())?;
        Ok(found.is_some())
    }

    /// Opens the file and finds its last whole version; `None` if it does not exist or cannot be
    /// continued.
    ///
    /// # Errors
    /// If it cannot be read, or is no regular file.
    pub fn open(&self) -> Result<Option<OpenTranscript>, ThreadFileError> {
        let name = self.document.file_name();
        let Some(mut file) = self.place.open_for_writing(name)? else {
            return Ok(None);
        };
        let failed = |error| self.place.to_error(name, error);
        let head = self.head.len() as u64;
        let found = tail::read_at(&mut *file, 0, head).map_err(failed)?;
        if head_state(self.document, &self.head, &found) == DocumentState::Other
            && !is_manifest_of(self.place.id(), &found)
        {
            return Ok(None);
        }
        let manifest = (*found != *self.head).then(|| Arc::clone(&self.head));
        let tail = tail::read_tail(&mut *file, self.document, head).map_err(failed)?;
        Ok(tail.map(|tail| OpenTranscript {
            target: self.clone(),
            file,
            tail,
            manifest,
        }))
    }

    /// Begins to write the whole file again; the pieces of the records follow.
    ///
    /// # Errors
    /// If what stands there is no regular file.
    pub fn begin_replacement(&self) -> Result<FileReplacement, ThreadFileError> {
        let place = Arc::clone(&self.place);
        let mut replacement = FileReplacement::begin(place, self.document.file_name())?;
        replacement.write(&self.head)?;
        Ok(replacement)
    }

    /// Begins to compare the whole file with its records; the inner error is a state that its head
    /// alone decides.
    ///
    /// # Errors
    /// If it cannot be read, or is no regular file.
    pub fn begin_comparison(
        &self,
    ) -> Result<Result<TranscriptComparison, DocumentState>, ThreadFileError> {
        let name = self.document.file_name();
        let mut file = match self.place.open_for_reading(name) {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(Err(DocumentState::Missing)),
            Err(ThreadFileError::Authority(AuthorityError::HardLink { .. })) => {
                return Ok(Err(DocumentState::Other));
            }
            Err(error) => return Err(error),
        };
        let found = tail::read_at(&mut *file, 0, self.head.len() as u64);
        let found = found.map_err(|error| self.place.to_error(name, error))?;
        Ok(match head_state(self.document, &self.head, &found) {
            DocumentState::Other => Err(DocumentState::Other),
            head => Ok(TranscriptComparison {
                target: self.clone(),
                file,
                head,
                at: self.head.len() as u64,
            }),
        })
    }
}

/// A file that may be continued.
pub struct OpenTranscript {
    target: TranscriptFile,
    file: Box<dyn TreeFile>,
    tail: TranscriptTail,
    /// The manifest line, if it must be rewritten.
    manifest: Option<Arc<[u8]>>,
}

impl OpenTranscript {
    /// The version that its last whole unit names; 0 if there is none.
    pub fn version(&self) -> u64 {
        self.tail.version
    }

    /// Continues the file, if its end agrees with the first piece of the records, which begins with
    /// that version. Returns the rest of the piece, to be written next.
    pub fn continue_after(self, first: &str) -> Option<(TranscriptAppend, Vec<u8>)> {
        let rest = first.as_bytes().strip_prefix(self.tail.last.as_slice())?;
        let append = TranscriptAppend {
            target: self.target,
            file: self.file,
            manifest: self.manifest,
            at: self.tail.whole,
            changed: false,
            copy: None,
        };
        Some((append, rest.to_vec()))
    }
}

/// A file that is being continued.
pub struct TranscriptAppend {
    target: TranscriptFile,
    file: Box<dyn TreeFile>,
    manifest: Option<Arc<[u8]>>,
    /// The end of what is whole.
    at: u64,
    changed: bool,
    /// The copy that is continued in its place, where the directory is shared and something is to
    /// be written.
    copy: Option<FileReplacement>,
}

impl TranscriptAppend {
    /// Cuts a torn end off and appends.
    ///
    /// # Errors
    /// Those of the file; a part may be written.
    pub fn write(&mut self, text: &[u8]) -> Result<(), ThreadFileError> {
        if self.target.place.is_shared() {
            return self.write_to_copy(text);
        }
        let written = write_at_end(&mut *self.file, self.at, text);
        self.changed |= written.map_err(|error| self.target.to_error(error))?;
        self.at += text.len() as u64;
        Ok(())
    }

    fn write_to_copy(&mut self, text: &[u8]) -> Result<(), ThreadFileError> {
        if self.copy.is_none() {
            let size = self.file.size();
            let is_torn = size.map_err(|error| self.target.to_error(error))? != self.at;
            if text.is_empty() && !is_torn {
                return Ok(());
            }
        }
        self.begin_copy()?.write(text)
    }

    /// Begins the copy with its head and all that is whole in the file.
    fn begin_copy(&mut self) -> Result<&mut FileReplacement, ThreadFileError> {
        let copy = match self.copy.take() {
            Some(copy) => copy,
            None => {
                let mut copy = self.target.begin_replacement()?;
                let mut from = self.target.head.len() as u64;
                while from < self.at {
                    let count = (self.at - from).min(COPIED_BYTES);
                    let part = tail::read_at(&mut *self.file, from, count);
                    let part = part.map_err(|error| self.target.to_error(error))?;
                    if part.is_empty() {
                        return Err(self.target.to_error(io::ErrorKind::UnexpectedEof.into()));
                    }
                    copy.write(&part)?;
                    from += part.len() as u64;
                }
                copy
            }
        };
        Ok(self.copy.insert(copy))
    }

    /// Makes the appended part durable, then writes the manifest, which counts it. Returns false if
    /// another process put a file in the place of this one meanwhile.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(mut self) -> Result<bool, ThreadFileError> {
        if self.target.place.is_shared() {
            if self.manifest.is_some() {
                self.begin_copy()?;
            }
            return match self.copy {
                Some(copy) => copy.commit().map(|()| true),
                None => Ok(true),
            };
        }
        let manifest = self.manifest.as_deref();
        let written = write_manifest(&mut *self.file, manifest, self.changed);
        written.map_err(|error| self.target.to_error(error))?;
        let was_written = self.changed || self.manifest.is_some();
        Ok(!was_written || self.is_in_place()?)
    }

    fn is_in_place(&mut self) -> Result<bool, ThreadFileError> {
        let own = self.file.details();
        let own = own.map_err(|error| self.target.to_error(error))?;
        let name = self.target.document.file_name();
        let found = self.target.place.check_file(name)?;
        Ok(found.is_some_and(|found| found.identity == own.identity))
    }
}

/// A file that is being compared with its records.
pub struct TranscriptComparison {
    target: TranscriptFile,
    file: Box<dyn TreeFile>,
    /// The state of its head.
    head: DocumentState,
    /// The end of what agrees.
    at: u64,
}

impl TranscriptComparison {
    /// Compares the next piece of the records, `None` after the last; `after` is the version before
    /// it. Returns the state once it is known.
    ///
    /// # Errors
    /// Those of the file.
    pub fn compare_piece(
        &mut self,
        piece: Option<&str>,
        after: u64,
    ) -> Result<Option<DocumentState>, ThreadFileError> {
        let expected = piece.unwrap_or_default().as_bytes();
        // One byte after the end of the records must not exist.
        let count = expected.len().max(1) as u64;
        let found = tail::read_at(&mut *self.file, self.at, count);
        let found = found.map_err(|error| self.target.to_error(error))?;
        self.at += expected.len() as u64;
        Ok(match piece {
            None if found.is_empty() => Some(self.head),
            None => Some(DocumentState::Other),
            Some(_) if !expected.starts_with(&found) => Some(DocumentState::Other),
            Some(_) if found.len() < expected.len() => {
                let document = self.target.document;
                let version = tail::reached_version(expected, found.len(), document, after);
                Some(DocumentState::Stale(version))
            }
            Some(_) => None,
        })
    }
}

impl TranscriptFile {
    fn to_error(&self, error: io::Error) -> ThreadFileError {
        self.place.to_error(self.document.file_name(), error)
    }
}

/// Cuts a torn end off and appends; returns true if that changed anything.
fn write_at_end(file: &mut dyn TreeFile, at: u64, text: &[u8]) -> io::Result<bool> {
    let torn = file.size()? != at;
    if torn {
        file.truncate(at)?;
    }
    if !text.is_empty() {
        file.write_at(at, text)?;
    }
    Ok(torn || !text.is_empty())
}

fn write_manifest(
    file: &mut dyn TreeFile,
    manifest: Option<&[u8]>,
    changed: bool,
) -> io::Result<()> {
    if changed {
        file.sync()?;
    }
    if let Some(manifest) = manifest {
        file.write_at(0, manifest)?;
        file.sync()?;
    }
    Ok(())
}

/// Returns the state of a file's head; `expected` is the head that the records give.
fn head_state(document: Document, expected: &[u8], found: &[u8]) -> DocumentState {
    if found == expected {
        return DocumentState::Current;
    }
    match (document, manifest_mark(expected), manifest_mark(found)) {
        (Document::Jsonl, Some(new), Some(old))
            if found.len() == expected.len() && old.id == new.id && old.is_before(&new) =>
        {
            DocumentState::Stale(old.version)
        }
        _ => DocumentState::Other,
    }
}

/// Returns true for any manifest line of this thread: it can be rewritten in place.
fn is_manifest_of(id: &str, found: &[u8]) -> bool {
    found.len() == MANIFEST_BYTES && manifest_mark(found).is_some_and(|mark| mark.id == id)
}

#[derive(serde::Deserialize)]
struct ManifestMark {
    #[serde(rename = "threadId")]
    id: String,
    #[serde(rename = "updatedAt")]
    updated: String,
    version: u64,
}

impl ManifestMark {
    fn is_before(&self, newer: &Self) -> bool {
        (self.version, &self.updated) < (newer.version, &newer.updated)
    }
}

fn manifest_mark(line: &[u8]) -> Option<ManifestMark> {
    let text = line.strip_suffix(b"\n")?;
    if text.contains(&b'\n') {
        return None;
    }
    serde_json::from_slice(text).ok()
}
