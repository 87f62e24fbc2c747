//! The document writer: it observes commits, and brings the documents of changed threads up to date
//! in the background. Checkpoints are saved when the settings of the tenant say so.

use super::ThreadDocuments;
use super::background_queue::{BackgroundQueue, FlushReport};
use super::checkpoints::CheckpointWriter;
use super::pacing::WorkPacing;
use crate::driver::{CommitNotice, CommitObserver};
use crate::thread_files::SaveOccasion;
use std::sync::Arc;
use std::time::Duration;
use threadkeep_storage::locks::SleepingMutex;
use tokio::time::Instant;

/// Least time between two refreshes of a thread whose run goes on: short for a person who reads
/// along, and few refreshes beside a run whose model answers at once. Where a run stops, and where
/// somebody waits for the documents, a refresh begins at once.
const REFRESH_GAP: Duration = Duration::from_millis(200);

/// Writes documents in the background. If it is dropped, what was queued is still written.
pub struct DocumentWriter {
    refreshes: BackgroundQueue,
    pacing: Arc<SleepingMutex<WorkPacing>>,
    checkpoints: CheckpointWriter,
}

impl DocumentWriter {
    /// Makes a writer that works on the current tokio runtime. It reads the tenant's settings of
    /// checkpoints once, from its library, which may block; where they are
    /// not valid no checkpoint is saved, and each flush says so.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(documents: ThreadDocuments) -> Self {
        let checkpoints = CheckpointWriter::new(documents.clone());
        let pacing = Arc::new(SleepingMutex::new(WorkPacing::new(REFRESH_GAP)));
        let begun = Arc::clone(&pacing);
        let refreshes = BackgroundQueue::spawn(move |thread| {
            let documents = documents.clone();
            begun.lock().note_begin(&thread);
            async move { documents.refresh(&thread).await.map(drop) }
        });
        Self {
            refreshes,
            pacing,
            checkpoints,
        }
    }

    /// Queues a thread that has stopped or was changed from elsewhere: its documents are then
    /// brought up to date, and its checkpoint is saved. Never blocks.
    pub fn enqueue(&self, thread: &str) {
        self.on_commit(&CommitNotice::new(thread));
    }

    /// Waits until the documents of everything that was committed before this call are written, or
    /// have failed. Each failure is returned once.
    pub async fn flush(&self) -> FlushReport {
        let mut report = self.checkpoints.flush().await;
        // A checkpoint that must be saved and cannot ends its thread, which is a change.
        report.merge(self.refreshes.flush().await);
        report
    }
}

impl CommitObserver for DocumentWriter {
    fn on_commit(&self, commit: &CommitNotice<'_>) {
        let thread = commit.thread.to_ascii_lowercase();
        let now = Instant::now();
        let begin = match SaveOccasion::of_commit(commit.reason, commit.step) {
            SaveOccasion::Step(_) => self.pacing.lock().next_begin(&thread, now),
            SaveOccasion::Stop => now,
        };
        self.refreshes.enqueue(&thread, begin);
        self.checkpoints.observe(&thread, commit);
    }

    fn wants_reasons(&self) -> bool {
        self.checkpoints.needs_reasons()
    }
}
