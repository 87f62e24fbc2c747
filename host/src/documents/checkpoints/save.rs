//! One save: `state.json`, its copy, the copies that are no longer kept, and what becomes of them
//! at the end of a thread.

use super::copies::{
    COPIES_DIR, CheckpointCopy, CopyName, RemovalReason, choose_base, select_removals,
};
use super::merge_patch::make_merge_patch;
use super::settings::{CheckpointSettings, CompletionAction};
use crate::documents::files::{DocumentDirectory, FileReplacement, MissingDirectory, TEMPORARY};
use crate::documents::{DocumentError, DocumentState, ThreadDocuments, run_blocking};
use crate::wit;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::SystemTime;
use threadkeep_units::status::has_ended;

/// The file of the newest checkpoint.
pub const STATE_FILE: &str = "state.json";

/// Largest checkpoint that is read: far more than the window of any model has.
pub const STATE_BYTES_MAX: u64 = 64 << 20;

/// The result of a save whose `state.json` is written.
#[derive(Debug)]
pub struct SavedCheckpoint {
    /// The version that it is of.
    pub version: u64,
    /// The thread as it was.
    pub thread: wit::Thread,
    /// The reason why its copies are not as the settings say, if they are not. The checkpoint
    /// itself is written.
    pub copies_problem: Option<DocumentError>,
}

impl ThreadDocuments {
    /// Writes `state.json` of a thread as it is now, keeps a copy of it and removes those that the
    /// settings do not keep. The checkpoints of a thread that has ended are then archived, removed
    /// or kept.
    ///
    /// # Errors
    /// If `state.json` cannot be written; the one before, if there is one, is whole. A copy that
    /// cannot be written is named in the answer.
    pub async fn save_checkpoint(
        &self,
        thread: &str,
        settings: &CheckpointSettings,
    ) -> Result<SavedCheckpoint, DocumentError> {
        let _turn = self.acquire_permit(thread).await;
        let opened = self.open_directory(thread, MissingDirectory::Make).await?;
        let (place, thread) = opened.ok_or(DocumentError::Abandoned)?;
        let (text, version) = self.render_checkpoint(&thread.id, None).await?;
        let save = CheckpointSave {
            place,
            version,
            text,
            has_ended: has_ended(&thread.status),
            now: self.now(),
            settings: settings.clone(),
        };
        let copies_problem = run_blocking(move || save.perform()).await?;
        Ok(SavedCheckpoint {
            version,
            thread,
            copies_problem,
        })
    }

    /// Saves the checkpoint of a thread that is suspended or has ended, by the tenant's settings:
    /// for commands that stop a thread without a driver.
    ///
    /// # Errors
    /// If the settings are not valid, or the checkpoint or its copy cannot be written.
    pub async fn save_stopped(&self, thread: &str) -> Result<(), DocumentError> {
        let found = self.tenant().get(thread).await?;
        let stopped = found.status == "suspended" || has_ended(&found.status);
        if !stopped {
            return Ok(());
        }
        self.save_by_settings(thread).await
    }

    /// Saves the checkpoint of a thread whose `state.json` was changed, or is overdue.
    pub(in crate::documents) async fn repair_checkpoint(
        &self,
        thread: &str,
    ) -> Result<(), DocumentError> {
        let checked = {
            let _turn = self.acquire_permit(thread).await;
            let opened = self.open_directory(thread, MissingDirectory::Leave).await?;
            let Some((place, _)) = opened else {
                return Ok(());
            };
            self.check_checkpoint(&place).await?
        };
        match checked.is_overdue || checked.state == DocumentState::Other {
            true => self.save_by_settings(thread).await,
            false => Ok(()),
        }
    }

    async fn save_by_settings(&self, thread: &str) -> Result<(), DocumentError> {
        let documents = self.clone();
        let settings = run_blocking(move || {
            let settings = documents.checkpoint_settings();
            settings.map_err(DocumentError::Settings)
        })
        .await?;
        let saved = self.save_checkpoint(thread, &settings).await?;
        saved.copies_problem.map_or(Ok(()), Err)
    }

    /// Returns the version that `state.json` of a thread is of; `None` if there is none, or it is
    /// no checkpoint.
    ///
    /// # Errors
    /// If it cannot be read, or is no regular file.
    pub async fn saved_version(&self, thread: &str) -> Result<Option<u64>, DocumentError> {
        #[derive(serde::Deserialize)]
        struct StateMark {
            history_version: u64,
        }
        let _turn = self.acquire_permit(thread).await;
        let opened = self.open_directory(thread, MissingDirectory::Leave).await?;
        let Some((place, _)) = opened else {
            return Ok(None);
        };
        let bytes = run_blocking(move || place.read(STATE_FILE, STATE_BYTES_MAX)).await?;
        let mark = bytes.and_then(|bytes| serde_json::from_slice::<StateMark>(&bytes).ok());
        Ok(mark.map(|mark| mark.history_version))
    }

    /// Renders the checkpoint of a version (`None`: the newest) as a whole.
    pub(super) async fn render_checkpoint(
        &self,
        thread: &str,
        at: Option<u64>,
    ) -> Result<(String, u64), DocumentError> {
        let (mut text, mut cursor) = (String::new(), None);
        loop {
            let piece = self.tenant().render(thread, "checkpoint", at, 0, cursor);
            let piece = piece.await?;
            text.push_str(&piece.text);
            cursor = piece.cursor;
            if cursor.is_none() {
                return Ok((text, piece.version));
            }
        }
    }
}

/// A checkpoint on its way to the disk. It blocks.
struct CheckpointSave {
    place: Arc<DocumentDirectory>,
    version: u64,
    text: String,
    has_ended: bool,
    now: SystemTime,
    settings: CheckpointSettings,
}

impl CheckpointSave {
    /// Writes `state.json`; returns why its copies are not as they should be, if they are not.
    fn perform(self) -> Result<Option<DocumentError>, DocumentError> {
        write_file(&self.place, STATE_FILE, self.text.as_bytes())?;
        Ok(self.tend_copies().err())
    }

    fn tend_copies(&self) -> Result<(), DocumentError> {
        let copies = self.place.open_inner(COPIES_DIR, MissingDirectory::Make)?;
        let copies = Arc::new(copies.ok_or(DocumentError::Abandoned)?);
        self.write_copy(&copies)?;
        for (name, _) in select_removals(&list_copies(&copies)?, &self.settings, self.now) {
            copies.remove(&name.file_name())?;
        }
        if self.has_ended {
            self.complete(&copies)?;
        }
        Ok(())
    }

    /// Writes the copy of this version, in the place of an earlier one of it.
    fn write_copy(&self, copies: &Arc<DocumentDirectory>) -> Result<(), DocumentError> {
        let there = list_copies(copies)?;
        let patch = match self.settings.incremental {
            true => self.make_patch(copies, &there),
            false => None,
        };
        let (base, content) = match &patch {
            Some((base, patch)) => (Some(*base), patch.as_bytes()),
            None => (None, self.text.as_bytes()),
        };
        let name = CopyName {
            version: self.version,
            base,
            compressed: self.settings.compress,
        };
        let file = name.file_name();
        match name.compressed {
            true => {
                let content = compress(content).map_err(|error| copies.to_error(&file, error))?;
                write_file(copies, &file, &content)?;
            }
            false => write_file(copies, &file, content)?,
        }
        let same = there.iter().map(|copy| copy.name);
        for other in same.filter(|other| other.version == name.version && *other != name) {
            copies.remove(&other.file_name())?;
        }
        Ok(())
    }

    /// Makes the copy a merge patch, with the version that it is against. A full copy that cannot
    /// be read, or that is no checkpoint any more, is nothing to build on.
    fn make_patch(
        &self,
        copies: &DocumentDirectory,
        there: &[CheckpointCopy],
    ) -> Option<(u64, String)> {
        let base = choose_base(there, self.version)?;
        let bytes = read_copy(copies, base).ok()??;
        let old: Value = serde_json::from_slice(&bytes).ok()?;
        let new: Value = serde_json::from_str(&self.text).ok()?;
        let patch = make_merge_patch(&old, &new);
        let text = serde_json::to_string_pretty(&patch).ok()? + "\n";
        Some((base.version, text))
    }

    /// Archives, removes or keeps the checkpoints of a thread that has ended. Interrupted, it is
    /// done by the next save or repair.
    fn complete(&self, copies: &DocumentDirectory) -> Result<(), DocumentError> {
        match self.settings.completion {
            CompletionAction::Keep => return Ok(()),
            CompletionAction::Delete => {
                for copy in list_copies(copies)? {
                    copies.remove(&copy.name.file_name())?;
                }
                self.place.remove(STATE_FILE)?;
            }
            CompletionAction::Archive => {
                let name = &self.settings.archive_dir;
                let archive = self.place.open_inner(name, MissingDirectory::Make)?;
                let archive = archive.ok_or(DocumentError::Abandoned)?;
                for copy in list_copies(copies)? {
                    copies.move_to(&copy.name.file_name(), &archive)?;
                }
                self.place.move_to(STATE_FILE, &archive)?;
                archive.sync()?;
            }
        }
        copies.sync()?;
        self.place.remove_inner(COPIES_DIR);
        self.place.sync()
    }
}

/// Writes a file, in the place of one of its name.
fn write_file(
    place: &Arc<DocumentDirectory>,
    name: &str,
    content: &[u8],
) -> Result<(), DocumentError> {
    let mut replacement = FileReplacement::begin(Arc::clone(place), name)?;
    replacement.write(content)?;
    replacement.commit()
}

/// Lists the copies in their directory.
pub(super) fn list_copies(
    copies: &DocumentDirectory,
) -> Result<Vec<CheckpointCopy>, DocumentError> {
    let files = copies.list_files()?.into_iter();
    let copies = files.filter_map(|(name, seen)| {
        Some(CheckpointCopy {
            name: CopyName::parse(&name)?,
            modified: modified_time(&seen),
        })
    });
    Ok(copies.collect())
}

/// Returns the time of a file's last change; where the system has none, the file counts as old.
fn modified_time(seen: &cap_std::fs::Metadata) -> SystemTime {
    let modified = seen.modified();
    modified.map_or(SystemTime::UNIX_EPOCH, cap_std::time::SystemTime::into_std)
}

/// Lists the files that saves left behind which were interrupted.
pub(super) fn list_left_behind(place: &DocumentDirectory) -> Result<Vec<String>, DocumentError> {
    let files = place.list_files()?.into_iter().map(|(name, _)| name);
    let left = files.filter(|name| {
        let name = name.strip_suffix(TEMPORARY);
        name.is_some_and(|name| name == STATE_FILE || CopyName::parse(name).is_some())
    });
    Ok(left.collect())
}

/// A file of a thread that is to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileRemoval {
    /// Directory below that of the thread; `None` for that itself.
    pub dir: Option<&'static str>,
    /// Name of the file.
    pub name: String,
    /// Reason why it is removed.
    pub reason: RemovalReason,
}

/// Selects the files of a thread that are to be removed.
pub(super) fn select_thread_removals(
    place: &DocumentDirectory,
    has_ended: bool,
    settings: &CheckpointSettings,
    now: SystemTime,
) -> Result<Vec<FileRemoval>, DocumentError> {
    let mut removals = Vec::new();
    let mut add = |dir, name, reason| removals.push(FileRemoval { dir, name, reason });
    let ended = has_ended && settings.completion == CompletionAction::Delete;
    for name in list_left_behind(place)? {
        add(None, name, RemovalReason::LeftBehind);
    }
    if ended && place.check_file(STATE_FILE)?.is_some() {
        add(None, STATE_FILE.to_owned(), RemovalReason::Ended);
    }
    let Some(copies) = place.open_inner(COPIES_DIR, MissingDirectory::Leave)? else {
        return Ok(removals);
    };
    for name in list_left_behind(&copies)? {
        add(Some(COPIES_DIR), name, RemovalReason::LeftBehind);
    }
    let there = list_copies(&copies)?;
    let selected: Vec<(CopyName, RemovalReason)> = match ended {
        true => there
            .iter()
            .map(|copy| (copy.name, RemovalReason::Ended))
            .collect(),
        false => select_removals(&there, settings, now),
    };
    for (name, reason) in selected {
        add(Some(COPIES_DIR), name.file_name(), reason);
    }
    Ok(removals)
}

fn compress(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content)?;
    encoder.finish()
}

/// Decompresses at most [`STATE_BYTES_MAX`] bytes.
///
/// # Errors
/// If it is torn, no gzip, or larger.
pub(super) fn decompress(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut decoder = GzDecoder::new(content).take(STATE_BYTES_MAX + 1);
    decoder.read_to_end(&mut bytes)?;
    match bytes.len() as u64 > STATE_BYTES_MAX {
        true => Err(io::Error::other("it is too large")),
        false => Ok(bytes),
    }
}

/// Reads a copy; `None` if it is not there.
fn read_copy(place: &DocumentDirectory, name: CopyName) -> Result<Option<Vec<u8>>, DocumentError> {
    let file = name.file_name();
    let Some(bytes) = place.read(&file, STATE_BYTES_MAX)? else {
        return Ok(None);
    };
    match name.compressed {
        true => decompress(&bytes)
            .map(Some)
            .map_err(|error| place.to_error(&file, error)),
        false => Ok(Some(bytes)),
    }
}
