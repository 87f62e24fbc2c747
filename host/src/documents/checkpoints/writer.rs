//! Saves checkpoints in the background: at most one a second for a thread, the newest; at once when
//! a run has stopped or ended. A save that fails is tried again; one that must succeed and does not
//! ends the thread by an error.

use super::save::SavedCheckpoint;
use crate::documents::background_queue::{BackgroundQueue, FlushReport};
use crate::documents::pacing::WorkPacing;
use crate::documents::{DocumentError, ThreadDocuments};
use crate::driver::CommitNotice;
use crate::error::CallError;
use crate::library::LibraryError;
use crate::thread_files::{
    CHECKPOINT_FAILED, CheckpointSettings, SaveOccasion, TriggerSet, describe_checkpoint_failure,
    triggers_of_stop,
};
use crate::wit;
use crate::wit::runner::SignalKind;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use threadkeep_storage::locks::SleepingMutex;
use tokio::time::Instant;

/// Least time between two saves of a thread whose run goes on.
const SAVE_GAP: Duration = Duration::from_secs(1);

/// Saves the checkpoints of the threads whose commits it is told of.
pub(in crate::documents) struct CheckpointWriter {
    queue: BackgroundQueue,
    settings: Arc<Result<CheckpointSettings, LibraryError>>,
    pending: Arc<SleepingMutex<PendingSaves>>,
}

impl CheckpointWriter {
    /// Makes a writer that works on the current tokio runtime.
    pub fn new(documents: ThreadDocuments) -> Self {
        let settings = Arc::new(documents.checkpoint_settings());
        let pending = Arc::<SleepingMutex<PendingSaves>>::default();
        let (own_settings, own_pending) = (Arc::clone(&settings), Arc::clone(&pending));
        let queue = BackgroundQueue::spawn(move |thread| {
            let (documents, settings) = (documents.clone(), Arc::clone(&own_settings));
            let occasion = own_pending.lock().take(&thread);
            async move {
                let settings = settings.as_ref().as_ref();
                let settings = settings.map_err(|error| DocumentError::Settings(error.clone()))?;
                CheckpointTask {
                    documents: &documents,
                    settings,
                    thread: &thread,
                }
                .save(occasion)
                .await
            }
        });
        Self {
            queue,
            settings,
            pending,
        }
    }

    /// Queues a save of the thread, in lower case, if the settings ask for one on this occasion.
    pub fn observe(&self, thread: &str, commit: &CommitNotice<'_>) {
        let occasion = SaveOccasion::of_commit(commit.reason, commit.step);
        let begin = match (&*self.settings, occasion) {
            (Ok(settings), SaveOccasion::Step(triggers)) => {
                if !triggers.meets(settings.enabled) {
                    return;
                }
                self.pending
                    .lock()
                    .pacing
                    .next_begin(thread, Instant::now())
            }
            // The settings are not valid, so nothing is saved. The save at the stop reports it.
            (Err(_), SaveOccasion::Step(_)) => return,
            (_, SaveOccasion::Stop) => Instant::now(),
        };
        self.pending.lock().add(thread, occasion);
        self.queue.enqueue(thread, begin);
    }

    /// Returns true if the reasons of commits must be known to tell which of them are saved.
    pub fn needs_reasons(&self) -> bool {
        let settings = self.settings.as_ref().as_ref();
        settings.is_ok_and(CheckpointSettings::needs_reasons)
    }

    /// Waits until every save that was asked for is made, or has failed.
    pub async fn flush(&self) -> FlushReport {
        self.queue.flush().await
    }
}

/// The occasions of the queued saves, and the times at which the last ones began.
struct PendingSaves {
    occasions: HashMap<String, QueuedSave>,
    pacing: WorkPacing,
}

impl Default for PendingSaves {
    fn default() -> Self {
        Self {
            occasions: HashMap::new(),
            pacing: WorkPacing::new(SAVE_GAP),
        }
    }
}

/// The occasions of a queued save.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct QueuedSave {
    /// Triggers of a run that goes on.
    triggers: TriggerSet,
    /// True if the run has stopped or ended since.
    stopped: bool,
}

impl PendingSaves {
    fn add(&mut self, thread: &str, occasion: SaveOccasion) {
        let queued = self.occasions.entry(thread.to_owned()).or_default();
        match occasion {
            SaveOccasion::Step(triggers) => queued.triggers = queued.triggers.union(triggers),
            SaveOccasion::Stop => queued.stopped = true,
        }
    }

    /// Takes the occasions of a save that begins.
    fn take(&mut self, thread: &str) -> QueuedSave {
        self.pacing.note_begin(thread);
        self.occasions.remove(thread).unwrap_or_default()
    }
}

/// One save of a thread, with its repetitions.
struct CheckpointTask<'a> {
    documents: &'a ThreadDocuments,
    settings: &'a CheckpointSettings,
    thread: &'a str,
}

impl CheckpointTask<'_> {
    async fn save(&self, occasion: QueuedSave) -> Result<(), DocumentError> {
        let error = match self.save_with_retries().await {
            Ok(saved) => return saved.copies_problem.map_or(Ok(()), Err),
            Err(error) => error,
        };
        // A thread that cannot be read cannot be ended by an error.
        let Ok(thread) = self.documents.tenant().get(self.thread).await else {
            return Err(error);
        };
        let stop = match occasion.stopped {
            true => {
                let cause = thread.cause.as_ref().map(|cause| cause.reason.as_str());
                triggers_of_stop(&thread.status, cause)
            }
            false => TriggerSet::EMPTY,
        };
        let triggers = occasion.triggers.union(stop);
        if triggers.meets(self.settings.required) && is_of_files(&error) {
            self.fail_thread(&thread, &error).await;
        }
        Err(error)
    }

    async fn save_with_retries(&self) -> Result<SavedCheckpoint, DocumentError> {
        let mut attempt = 1;
        loop {
            let saved = self.documents.save_checkpoint(self.thread, self.settings);
            match saved.await {
                Err(error) if attempt < self.settings.attempts_max => {
                    tracing::debug!(thread = self.thread, %error, "a checkpoint is saved again");
                }
                saved => return saved,
            }
            tokio::time::sleep(self.settings.backoff.pause(attempt)).await;
            attempt += 1;
        }
    }

    /// Ends the thread by an error. One that has ended already stays as it is.
    async fn fail_thread(&self, thread: &wit::Thread, error: &DocumentError) {
        let signal = SignalKind::Fail(describe_checkpoint_failure(error));
        let key = format!("{CHECKPOINT_FAILED}-{}", thread.version);
        let mut tip = thread.id.clone();
        match self
            .documents
            .tenant()
            .signal_tip(&mut tip, &key, signal)
            .await
        {
            Ok(_) => {
                if let Err(error) = self.documents.refresh(&tip).await {
                    tracing::warn!(thread = tip, %error, "documents were not written");
                }
            }
            Err(CallError::Refused(wit::Error::Refused(_))) => {}
            Err(failed) => {
                tracing::warn!(thread = self.thread, %failed, "a thread could not be ended");
            }
        }
    }
}

/// Returns true for an error of the file system: a thread whose records cannot be read is not
/// ended for it.
fn is_of_files(error: &DocumentError) -> bool {
    matches!(error, DocumentError::Authority(_) | DocumentError::Id(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread_files::SaveTrigger;

    #[test]
    fn occasions_of_a_queued_save_add_up() {
        let mut pending = PendingSaves::default();
        let set = |trigger| {
            let mut set = TriggerSet::EMPTY;
            set.insert(trigger);
            set
        };
        pending.add("a", SaveOccasion::Step(set(SaveTrigger::PreTurn)));
        pending.add("a", SaveOccasion::Step(set(SaveTrigger::PostLlm)));
        pending.add("b", SaveOccasion::Stop);
        let taken = pending.take("a");
        assert!(taken.triggers.contains(SaveTrigger::PreTurn));
        assert!(taken.triggers.contains(SaveTrigger::PostLlm));
        assert!(!taken.triggers.contains(SaveTrigger::PostTools) && !taken.stopped);
        assert!(pending.take("b").stopped);
        assert_eq!(pending.take("b"), QueuedSave::default());
    }
}
