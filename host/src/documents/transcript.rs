//! A transcript: what its records give, put into its file or compared with it.
//!
//! Appending needs no memory of its own. The file's end names a version, the records give the text
//! of that version, and the rest is appended only if they agree. Otherwise the whole file is
//! rebuilt. What is written where is [`crate::thread_files::TranscriptFile`]'s.

use super::blob_files::write_blob_files;
use super::{Document, DocumentError, DocumentState, run_blocking};
use crate::tenant::Tenant;
use crate::thread_files::{DocumentDirectory, OpenTranscript, TranscriptFile};
use crate::thread_path::ThreadPath;
use std::collections::BTreeSet;
use std::sync::Arc;

/// One transcript of one thread, while its directory is locked.
pub(super) struct Transcript<'a> {
    tenant: &'a Tenant,
    file: TranscriptFile,
    /// The version of the thread's head when the head of the file was made, or an older one.
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
        Self {
            tenant,
            file: TranscriptFile::new_markdown(place),
            version,
            path: path.clone(),
        }
    }

    /// `transcript.jsonl`: the manifest line as the records give it, then events.
    pub(super) async fn new_jsonl(
        tenant: &'a Tenant,
        place: &Arc<DocumentDirectory>,
        path: &ThreadPath,
    ) -> Result<Self, DocumentError> {
        let piece = tenant.render(place.id(), "manifest", None, 0, None).await?;
        Ok(Self {
            tenant,
            file: TranscriptFile::new_jsonl(place, &piece.text)?,
            version: piece.version,
            path: path.clone(),
        })
    }

    /// Brings the file up to the head. Returns true if there was a file that had to be rebuilt.
    pub(super) async fn refresh(&self) -> Result<bool, DocumentError> {
        let file = self.file.clone();
        let (there, open) = run_blocking(move || Ok((file.is_there()?, file.open()?))).await?;
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
        let file = self.file.clone();
        let mut replacement = run_blocking(move || Ok(file.begin_replacement()?)).await?;
        let mut pieces = self.pieces(0);
        while let Some(text) = pieces.next_piece().await? {
            self.write_blob_files(&text).await?;
            replacement = run_blocking(move || {
                replacement.write(text.as_bytes())?;
                Ok(replacement)
            })
            .await?;
        }
        run_blocking(move || Ok(replacement.commit()?)).await
    }

    /// Compares the whole file with its records.
    pub(super) async fn check(&self) -> Result<DocumentState, DocumentError> {
        let file = self.file.clone();
        let begun = run_blocking(move || Ok(file.begin_comparison()?)).await?;
        let mut comparison = match begun {
            Ok(comparison) => comparison,
            Err(state) => return Ok(state),
        };
        let mut pieces = self.pieces(0);
        loop {
            let after = pieces.reached;
            let text = pieces.next_piece().await?;
            let found;
            (comparison, found) = run_blocking(move || {
                let found = comparison.compare_piece(text.as_deref(), after)?;
                Ok((comparison, found))
            })
            .await?;
            if let Some(state) = found {
                return Ok(state);
            }
        }
    }

    /// Appends the missing part and returns true, if the file's end agrees with the records; else
    /// changes nothing and returns false.
    async fn append_missing(&self, open: OpenTranscript) -> Result<bool, DocumentError> {
        let version = open.version();
        if version > self.version {
            return Ok(false);
        }
        let mut pieces = self.pieces(self.path.version_before(version));
        let first = pieces.next_piece().await?.unwrap_or_default();
        let Some((mut append, mut text)) = open.continue_after(&first) else {
            return Ok(false);
        };
        self.write_blob_files(&first).await?;
        loop {
            append = run_blocking(move || {
                append.write(&text)?;
                Ok(append)
            })
            .await?;
            let Some(more) = pieces.next_piece().await? else {
                break;
            };
            self.write_blob_files(&more).await?;
            text = more.into_bytes();
        }
        run_blocking(move || Ok(append.finish()?)).await?;
        Ok(true)
    }

    /// Writes the files of the blobs that a piece names, before the piece itself.
    async fn write_blob_files(&self, piece: &str) -> Result<(), DocumentError> {
        match self.file.document() {
            Document::Jsonl => write_blob_files(self.tenant, self.file.place(), piece).await,
            Document::Markdown | Document::Thread => Ok(()),
        }
    }

    fn pieces(&self, after: u64) -> TranscriptPieces<'_> {
        TranscriptPieces {
            tenant: self.tenant,
            id: self.file.place().id(),
            what: self.file.document().component_name(),
            after,
            next: Some(None),
            seen: BTreeSet::new(),
            reached: after,
        }
    }
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
}

impl TranscriptPieces<'_> {
    /// Returns the next piece, which may be empty; `None` after the last.
    async fn next_piece(&mut self) -> Result<Option<String>, DocumentError> {
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
        Ok(Some(piece.text))
    }
}
