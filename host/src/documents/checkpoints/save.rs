//! Saves of checkpoints, as [`DocumentFiles`](crate::thread_files::DocumentFiles) makes them, and
//! by settings.

use super::check::check_checkpoint;
use crate::documents::{DocumentError, DocumentState, TenantFiles, ThreadDocuments, run_blocking};
use crate::thread_files::{CheckpointSettings, DocumentedThread, MissingDirectory};
use threadkeep_units::status::has_ended;

/// The result of a save whose `state.json` is written.
#[derive(Debug)]
pub struct SavedCheckpoint {
    /// The version that it is of.
    pub version: u64,
    /// The thread as it was.
    pub thread: DocumentedThread,
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
        let settings = settings.clone();
        let save =
            move |files: &TenantFiles<'_>, thread: &str| files.save_checkpoint(thread, &settings);
        let saved = self.run_on_files(thread, save).await?;
        Ok(SavedCheckpoint {
            version: saved.version,
            thread: saved.thread,
            copies_problem: saved.copies_problem.map(DocumentError::from),
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
        let is_wrong = |files: &TenantFiles<'_>, thread: &str| {
            let opened = files.open_directory(thread, MissingDirectory::Leave)?;
            let Some((place, _)) = opened else {
                return Ok(false);
            };
            let checked = check_checkpoint(files, &place)?;
            Ok(checked.is_overdue || checked.state == DocumentState::Other)
        };
        match self.run_on_files(thread, is_wrong).await? {
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
        self.run_on_files(thread, |files, thread| files.saved_version(thread))
            .await
    }
}
