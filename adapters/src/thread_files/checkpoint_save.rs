//! One save of a checkpoint: `state.json`, its copy, the copies that are no longer kept, and what
//! becomes of them at the end of a thread. It blocks.

use super::ThreadFileError;
use super::checkpoint_copies::{
    COPIES_DIR, CheckpointCopy, CopyName, RemovalReason, choose_base, select_removals,
};
use super::checkpoint_settings::{CheckpointSettings, CompletionAction};
use super::document_directory::{
    DocumentDirectory, FileReplacement, MissingDirectory, is_abandoned, temporary_target,
};
use super::merge_patch::make_merge_patch;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::SystemTime;
use threadkeep_storage::directory::{EntryDetails, TreePlace};

/// The file of the newest checkpoint.
pub const STATE_FILE: &str = "state.json";

/// Largest checkpoint that is read: far more than the window of any model has.
pub const STATE_BYTES_MAX: u64 = 64 << 20;

/// A checkpoint on its way to the disk. It blocks.
pub struct CheckpointSave {
    /// The directory of its thread.
    pub place: Arc<DocumentDirectory>,
    /// The version that it is of.
    pub version: u64,
    /// Its text.
    pub text: String,
    /// True if the thread goes on no more.
    pub has_ended: bool,
    /// The time by the tenant's clock.
    pub now: SystemTime,
    /// The tenant's settings.
    pub settings: CheckpointSettings,
}

impl CheckpointSave {
    /// Writes `state.json`; returns why its copies are not as they should be, if they are not.
    ///
    /// # Errors
    /// If `state.json` cannot be written; the one before, if there is one, is whole.
    pub fn perform(self) -> Result<Option<ThreadFileError>, ThreadFileError> {
        write_file(&self.place, STATE_FILE, self.text.as_bytes())?;
        Ok(self.tend_copies().err())
    }

    fn tend_copies(&self) -> Result<(), ThreadFileError> {
        let copies = self.place.open_inner(COPIES_DIR, MissingDirectory::Make)?;
        let copies = Arc::new(copies.ok_or(ThreadFileError::Vanished)?);
        copies.remove_abandoned(self.now)?;
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
    fn write_copy(&self, copies: &Arc<DocumentDirectory>) -> Result<(), ThreadFileError> {
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
    fn complete(&self, copies: &DocumentDirectory) -> Result<(), ThreadFileError> {
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
                let archive = archive.ok_or(ThreadFileError::Vanished)?;
                for copy in list_copies(copies)? {
                    let from = TreePlace {
                        directory: Some(COPIES_DIR),
                        name: &copy.name.file_name(),
                    };
                    self.place.move_to(from, name)?;
                }
                let newest = TreePlace {
                    directory: None,
                    name: STATE_FILE,
                };
                self.place.move_to(newest, name)?;
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
) -> Result<(), ThreadFileError> {
    let mut replacement = FileReplacement::begin(Arc::clone(place), name)?;
    replacement.write(content)?;
    replacement.commit()
}

/// Lists the copies in their directory.
pub fn list_copies(copies: &DocumentDirectory) -> Result<Vec<CheckpointCopy>, ThreadFileError> {
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
fn modified_time(seen: &EntryDetails) -> SystemTime {
    seen.modified.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Lists the files that saves left behind which were interrupted. One that names its writer may
/// still be written, unless it is old.
pub fn list_left_behind(
    place: &DocumentDirectory,
    now: SystemTime,
) -> Result<Vec<String>, ThreadFileError> {
    let files = place.list_files()?.into_iter();
    let left = files.filter(|(name, seen)| {
        temporary_target(name).is_some_and(|(target, names_writer)| {
            let is_ours = target == STATE_FILE || CopyName::parse(target).is_some();
            is_ours && (!names_writer || is_abandoned(seen, now))
        })
    });
    Ok(left.map(|(name, _)| name).collect())
}

/// A file of a thread that is to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRemoval {
    /// Directory below that of the thread; `None` for that itself.
    pub dir: Option<&'static str>,
    /// Name of the file.
    pub name: String,
    /// Reason why it is removed.
    pub reason: RemovalReason,
}

/// Selects the files of a thread that are to be removed.
pub fn select_thread_removals(
    place: &DocumentDirectory,
    has_ended: bool,
    settings: &CheckpointSettings,
    now: SystemTime,
) -> Result<Vec<FileRemoval>, ThreadFileError> {
    let mut removals = Vec::new();
    let mut add = |dir, name, reason| removals.push(FileRemoval { dir, name, reason });
    let ended = has_ended && settings.completion == CompletionAction::Delete;
    for name in list_left_behind(place, now)? {
        add(None, name, RemovalReason::LeftBehind);
    }
    if ended && place.check_file(STATE_FILE)?.is_some() {
        add(None, STATE_FILE.to_owned(), RemovalReason::Ended);
    }
    let Some(copies) = place.open_inner(COPIES_DIR, MissingDirectory::Leave)? else {
        return Ok(removals);
    };
    for name in list_left_behind(&copies, now)? {
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

/// Removes files of a thread.
pub fn remove_files(
    place: &DocumentDirectory,
    removals: &[FileRemoval],
) -> Result<(), ThreadFileError> {
    for removal in removals {
        match removal.dir {
            None => place.remove(&removal.name)?,
            Some(dir) => {
                if let Some(inner) = place.open_inner(dir, MissingDirectory::Leave)? {
                    inner.remove(&removal.name)?;
                }
            }
        }
    }
    Ok(())
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
pub fn decompress(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut decoder = GzDecoder::new(content).take(STATE_BYTES_MAX + 1);
    decoder.read_to_end(&mut bytes)?;
    match bytes.len() as u64 > STATE_BYTES_MAX {
        true => Err(io::Error::other("it is too large")),
        false => Ok(bytes),
    }
}

/// Reads a copy; `None` if it is not there.
fn read_copy(
    place: &DocumentDirectory,
    name: CopyName,
) -> Result<Option<Vec<u8>>, ThreadFileError> {
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
