//! Removes copies that the settings do not keep, and what interrupted saves left behind.

use crate::authority::THREADS_PATH;
use crate::documents::{DocumentError, FAILURES_MAX, TenantFiles, ThreadDocuments};
use crate::tenant::PAGE_THREADS_MAX;
use crate::thread_files::{
    CheckpointSettings, DocumentRecords, MissingDirectory, RemovalReason, remove_files,
    select_thread_removals,
};
use crate::wit::registry;
use threadkeep_units::status::has_ended;

/// A file that is removed, or is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrunedFile {
    /// The thread.
    pub thread: String,
    /// Its path in the project, such as `.ai/threads/a/checkpoints.d/3.json`.
    pub path: String,
    /// Reason why it is removed.
    pub reason: RemovalReason,
}

/// A thread whose files could not be looked at or removed.
#[derive(Debug)]
#[non_exhaustive]
pub struct PruneFailure {
    /// The thread.
    pub thread: String,
    /// The error.
    pub error: DocumentError,
}

/// The result of a pruning.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct PruneReport {
    /// The files, in the order of threads.
    pub files: Vec<PrunedFile>,
    /// The first failures.
    pub failed: Vec<PruneFailure>,
    /// Number of further failures.
    pub left_out: u64,
}

impl ThreadDocuments {
    /// Removes the files of a thread's checkpoints that its settings do not keep; with `dry_run`
    /// it only names them.
    ///
    /// # Errors
    /// If its files cannot be looked at or removed.
    pub async fn prune(
        &self,
        thread: &str,
        settings: &CheckpointSettings,
        dry_run: bool,
    ) -> Result<Vec<PrunedFile>, DocumentError> {
        let settings = settings.clone();
        let prune = move |files: &TenantFiles<'_>, thread: &str| {
            let opened = files.open_directory(thread, MissingDirectory::Leave)?;
            let Some((place, thread)) = opened else {
                return Ok(Vec::new());
            };
            let (now, has_ended) = (files.records.now(), has_ended(&thread.status));
            let removals = select_thread_removals(&place, has_ended, &settings, now)?;
            if !dry_run {
                remove_files(&place, &removals)?;
            }
            let pruned = removals.into_iter().map(|removal| {
                let dir = removal.dir.map(|dir| format!("{dir}/")).unwrap_or_default();
                PrunedFile {
                    path: format!("{THREADS_PATH}/{}/{dir}{}", thread.id, removal.name),
                    thread: thread.id.clone(),
                    reason: removal.reason,
                }
            });
            Ok(pruned.collect())
        };
        self.run_on_files(thread, prune).await
    }

    /// Prunes the checkpoints of every thread.
    ///
    /// # Errors
    /// If the threads cannot be listed. A thread whose files cannot be removed is named in the
    /// answer.
    pub async fn prune_all(
        &self,
        settings: &CheckpointSettings,
        dry_run: bool,
    ) -> Result<PruneReport, DocumentError> {
        let (mut report, mut cursor) = (PruneReport::default(), None);
        loop {
            let filter = registry::Filter::default();
            let page = self.tenant().list(filter, PAGE_THREADS_MAX, cursor).await?;
            for row in page.threads {
                match self.prune(&row.id, settings, dry_run).await {
                    Ok(files) => report.files.extend(files),
                    Err(error) if report.failed.len() < FAILURES_MAX => {
                        let thread = row.id;
                        report.failed.push(PruneFailure { thread, error });
                    }
                    Err(_) => report.left_out += 1,
                }
            }
            cursor = page.cursor;
            if cursor.is_none() {
                return Ok(report);
            }
        }
    }
}
