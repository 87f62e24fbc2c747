//! Saves of checkpoints: rendered, then written as [`CheckpointSave`] does, and by settings.

use crate::documents::{DocumentError, DocumentState, ThreadDocuments, run_blocking};
use crate::thread_files::{
    CheckpointSave, CheckpointSettings, MissingDirectory, STATE_BYTES_MAX, STATE_FILE,
};
use crate::wit;
use threadkeep_units::status::has_ended;

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
        let copies_problem = run_blocking(move || Ok(save.perform()?)).await?;
        Ok(SavedCheckpoint {
            version,
            thread,
            copies_problem: copies_problem.map(DocumentError::from),
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
        let bytes = run_blocking(move || Ok(place.read(STATE_FILE, STATE_BYTES_MAX)?)).await?;
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
