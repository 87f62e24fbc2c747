//! A transcript and its file: continued at its end, rebuilt, or compared with its records.
//!
//! Appending needs no memory of its own. The file's end names a version, the records give the text
//! of that version, and the rest is appended only if they agree. Otherwise the whole file is
//! rebuilt beside the old one and put in its place. The manifest line, the only part that is
//! rewritten in place, is written after the events that it counts.

use super::blob_files::write_blob_files;
use super::files::{DocumentDirectory, FileReplacement};
use super::tail::{self, TranscriptTail};
use super::{Document, DocumentError, DocumentState, run_blocking};
use crate::authority::AuthorityError;
use crate::tenant::Tenant;
use crate::thread_path::ThreadPath;
use cap_std::fs::File;
use std::collections::BTreeSet;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::Arc;

/// Bytes of the manifest line with its line feed; the component pads it.
const MANIFEST_BYTES: usize = 1_024;

/// One transcript of one thread, while its directory is locked.
pub(super) struct Transcript<'a> {
    tenant: &'a Tenant,
    place: Arc<DocumentDirectory>,
    document: Document,
    head: Arc<[u8]>,
    /// The version of the thread's head when `head` was made, or an older one.
    version: u64,
    /// The order of the versions, which need not ascend where a link was handed off.
    path: ThreadPath,
}

impl<'a> Transcript<'a> {
    /// `transcript.md`: a title line, then entries.
    pub(super) fn new_markdown(
        tenant: &'a Tenant,
        place: &Arc<DocumentDirectory>,
        version: u64,
        path: &ThreadPath,
    ) -> Self {
        let head = format!("# {}\n\n", place.id()).into_bytes();
        let reach = (version, path.clone());
        Self::new(tenant, place, Document::Markdown, head, reach)
    }

    /// `transcript.jsonl`: the manifest line as the records give it, then events.
    pub(super) async fn new_jsonl(
        tenant: &'a Tenant,
        place: &Arc<DocumentDirectory>,
        path: &ThreadPath,
    ) -> Result<Self, DocumentError> {
        let piece = tenant.render(place.id(), "manifest", None, 0, None).await?;
        let head = piece.text.into_bytes();
        if head.len() != MANIFEST_BYTES
            || head.iter().position(|&b| b == b'\n') != Some(MANIFEST_BYTES - 1)
        {
            return Err(DocumentError::Component(
                "the manifest is not one line of 1024 bytes",
            ));
        }
        Ok(Self::new(
            tenant,
            place,
            Document::Jsonl,
            head,
            (piece.version, path.clone()),
        ))
    }

    fn new(
        tenant: &'a Tenant,
        place: &Arc<DocumentDirectory>,
        document: Document,
        head: Vec<u8>,
        (version, path): (u64, ThreadPath),
    ) -> Self {
        Self {
            tenant,
            place: Arc::clone(place),
            document,
            head: head.into(),
            version,
            path,
        }
    }

    /// Brings the file up to the head. Returns true if there was a file that had to be rebuilt.
    pub(super) async fn refresh(&self) -> Result<bool, DocumentError> {
        let (place, document, head) = (
            Arc::clone(&self.place),
            self.document,
            Arc::clone(&self.head),
        );
        let (there, open) = run_blocking(move || {
            let there = place.check_file(document.file_name())?.is_some();
            Ok((there, open_transcript(&place, document, &head)?))
        })
        .await?;
        if let Some(open) = open
            && self.append_missing(open).await?
        {
            return Ok(false);
        }
        self.rebuild().await?;
        Ok(there)
    }

    /// Writes the whole file again and puts it in place.
    pub(super) async fn rebuild(&self) -> Result<(), DocumentError> {
        let (place, document, head) = (
            Arc::clone(&self.place),
            self.document,
            Arc::clone(&self.head),
        );
        let mut replacement = run_blocking(move || {
            let mut replacement = FileReplacement::begin(place, document.file_name())?;
            replacement.write(&head)?;
            Ok(replacement)
        })
        .await?;
        let mut pieces = self.pieces(0);
        while let Some(text) = pieces.next_piece().await? {
            self.write_blob_files(&text).await?;
            replacement = run_blocking(move || {
                replacement.write(text.as_bytes())?;
                Ok(replacement)
            })
            .await?;
        }
        run_blocking(move || replacement.commit()).await
    }

    /// Compares the whole file with its records.
    pub(super) async fn check(&self) -> Result<DocumentState, DocumentError> {
        let (place, document, head) = (
            Arc::clone(&self.place),
            self.document,
            Arc::clone(&self.head),
        );
        let opened = run_blocking(
            move || match place.open_for_reading(document.file_name())? {
                Some(mut file) => {
                    let found = tail::read_at(&mut file, 0, head.len() as u64);
                    let found =
                        found.map_err(|error| place.to_error(document.file_name(), error))?;
                    Ok(Some((file, head_state(document, &head, &found))))
                }
                None => Ok(None),
            },
        )
        .await;
        if let Err(DocumentError::Authority(AuthorityError::HardLink { .. })) = opened {
            return Ok(DocumentState::Other);
        }
        match opened? {
            None => Ok(DocumentState::Missing),
            Some((_, DocumentState::Other)) => Ok(DocumentState::Other),
            Some((file, head)) => self.compare_rest(file, head).await,
        }
    }

    /// Compares everything after the head, whose own state is `head`.
    async fn compare_rest(
        &self,
        mut file: File,
        head: DocumentState,
    ) -> Result<DocumentState, DocumentError> {
        let mut pieces = self.pieces(0);
        loop {
            let after = pieces.reached;
            let text = pieces.next_piece().await?;
            // One byte after the end of the records must not exist.
            let expected = text.clone().unwrap_or_default();
            let place = Arc::clone(&self.place);
            let (document, from) = (self.document, self.head.len() as u64 + pieces.bytes_before);
            let (opened, found) = run_blocking(move || {
                let count = expected.len().max(1) as u64;
                let found = tail::read_at(&mut file, from, count)
                    .map_err(|error| place.to_error(document.file_name(), error))?;
                Ok((file, found))
            })
            .await?;
            file = opened;
            match text {
                None if found.is_empty() => return Ok(head),
                None => return Ok(DocumentState::Other),
                Some(text) if !text.as_bytes().starts_with(&found) => {
                    return Ok(DocumentState::Other);
                }
                Some(text) if found.len() < text.len() => {
                    let version =
                        tail::reached_version(text.as_bytes(), found.len(), document, after);
                    return Ok(DocumentState::Stale(version));
                }
                Some(_) => {}
            }
        }
    }

    /// Appends the missing part and returns true, if the file's end agrees with the records; else
    /// changes nothing and returns false.
    async fn append_missing(&self, open: OpenTranscript) -> Result<bool, DocumentError> {
        let OpenTranscript {
            mut file,
            tail,
            manifest,
        } = open;
        let TranscriptTail {
            version,
            last,
            whole,
        } = tail;
        if version > self.version {
            return Ok(false);
        }
        let mut pieces = self.pieces(self.path.version_before(version));
        let first = pieces.next_piece().await?.unwrap_or_default();
        let Some(rest) = first.as_bytes().strip_prefix(last.as_slice()) else {
            return Ok(false);
        };
        let (mut text, mut at, mut changed) = (rest.to_vec(), whole, false);
        self.write_blob_files(&first).await?;
        loop {
            let (place, document) = (Arc::clone(&self.place), self.document);
            let written;
            (file, at, written) = run_blocking(move || {
                let failed = |error| place.to_error(document.file_name(), error);
                let written = write_at_end(&file, at, &text).map_err(failed)?;
                Ok((file, at + text.len() as u64, written))
            })
            .await?;
            changed |= written;
            match pieces.next_piece().await? {
                Some(more) => {
                    self.write_blob_files(&more).await?;
                    text = more.into_bytes();
                }
                None => break,
            }
        }
        let (place, document, head) = (
            Arc::clone(&self.place),
            self.document,
            Arc::clone(&self.head),
        );
        run_blocking(move || {
            write_manifest(&file, manifest.then_some(&head), changed)
                .map_err(|error| place.to_error(document.file_name(), error))
        })
        .await?;
        Ok(true)
    }

    /// Writes the files of the blobs that a piece names, before the piece itself.
    async fn write_blob_files(&self, piece: &str) -> Result<(), DocumentError> {
        match self.document {
            Document::Jsonl => write_blob_files(self.tenant, &self.place, piece).await,
            Document::Markdown | Document::Thread => Ok(()),
        }
    }

    fn pieces(&self, after: u64) -> TranscriptPieces<'_> {
        TranscriptPieces {
            tenant: self.tenant,
            id: self.place.id(),
            what: self.document.component_name(),
            after,
            next: Some(None),
            seen: BTreeSet::new(),
            reached: after,
            bytes_before: 0,
            bytes: 0,
        }
    }
}

/// A file that may be continued.
struct OpenTranscript {
    file: File,
    tail: TranscriptTail,
    /// True if its manifest line must be rewritten.
    manifest: bool,
}

/// Opens a file and finds its last whole version; `None` if it does not exist or cannot be
/// continued.
fn open_transcript(
    place: &DocumentDirectory,
    document: Document,
    head: &[u8],
) -> Result<Option<OpenTranscript>, DocumentError> {
    let Some(mut file) = place.open_for_writing(document.file_name())? else {
        return Ok(None);
    };
    let failed = |error| place.to_error(document.file_name(), error);
    let found = tail::read_at(&mut file, 0, head.len() as u64).map_err(failed)?;
    if head_state(document, head, &found) == DocumentState::Other
        && !is_manifest_of(place.id(), &found)
    {
        return Ok(None);
    }
    let manifest = found != head;
    let tail = tail::read_tail(&mut file, document, head.len() as u64).map_err(failed)?;
    Ok(tail.map(|tail| OpenTranscript {
        file,
        tail,
        manifest,
    }))
}

/// Cuts a torn end off and appends; returns true if that changed anything.
fn write_at_end(mut file: &File, at: u64, text: &[u8]) -> io::Result<bool> {
    let torn = file.metadata()?.len() != at;
    if torn {
        file.set_len(at)?;
    }
    if !text.is_empty() {
        file.seek(SeekFrom::Start(at))?;
        file.write_all(text)?;
    }
    Ok(torn || !text.is_empty())
}

/// Makes the appended part durable, then writes the manifest, which counts it.
fn write_manifest(mut file: &File, manifest: Option<&Arc<[u8]>>, changed: bool) -> io::Result<()> {
    if changed {
        file.sync_data()?;
    }
    if let Some(manifest) = manifest {
        file.seek(SeekFrom::Start(0))?;
        file.write_all(manifest)?;
        file.sync_data()?;
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

/// The pieces of a document after a version. The component must advance with each: no cursor may
/// come again.
struct TranscriptPieces<'a> {
    tenant: &'a Tenant,
    id: &'a str,
    what: &'static str,
    after: u64,
    /// Cursor of the next piece, which the first has none of; `None` after the last.
    next: Option<Option<String>>,
    /// The cursors so far.
    seen: BTreeSet<String>,
    /// The version that the pieces so far reach.
    reached: u64,
    /// Bytes of the pieces before the last one, and including it.
    bytes_before: u64,
    bytes: u64,
}

impl TranscriptPieces<'_> {
    /// Returns the next piece, which may be empty; `None` after the last.
    async fn next_piece(&mut self) -> Result<Option<String>, DocumentError> {
        self.bytes_before = self.bytes;
        let Some(cursor) = self.next.take() else {
            return Ok(None);
        };
        let (tenant, what) = (self.tenant, self.what);
        let piece = tenant
            .render(self.id, what, None, self.after, cursor)
            .await?;
        let cursor = piece.cursor.as_ref();
        if cursor.is_some_and(|cursor| !self.seen.insert(cursor.clone())) {
            return Err(DocumentError::Component(
                "a piece of a transcript leads nowhere",
            ));
        }
        self.next = piece.cursor.map(Some);
        self.reached = piece.version;
        self.bytes += piece.text.len() as u64;
        Ok(Some(piece.text))
    }
}
