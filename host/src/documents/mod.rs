//! Documents: readable files made from records, off the commit path.
//!
//! These are `.ai/threads/<thread id>/thread.json`, `transcript.md` and `transcript.jsonl`. Records
//! are the truth; a document is current or older than the head. Any other content is found by
//! [`ThreadDocuments::check`] and fixed by [`ThreadDocuments::repair`]. There is no record of how
//! far a document reaches: each document shows that itself. The file's end is compared with the
//! records before anything is appended; an edit in the middle is found only by `check`.
//!
//! `state.json` and its copies are made on other occasions: [`checkpoints`]; `check` compares it,
//! too. The component alone decides the content of a document. How they are written is
//! [`DocumentFiles`]'s, which blocks and is shared with hosts without a runtime; here it gets the
//! threads of a runtime, a bound of their number, and one of them for each thread's documents.

mod background_queue;
mod blob_files;
pub mod checkpoints;
mod pacing;
mod tenant_records;
mod usage;
mod writer;

#[doc(hidden)]
pub use crate::thread_files::WriteFault;
pub use crate::thread_files::{Document, DocumentState, RefreshReport, USAGE_FILE};
pub use background_queue::FlushReport;
pub use blob_files::{BLOBS_DIR, blob_file_name};
pub use usage::{UsageLog, read_usage_cache, usage_log_bytes, write_usage_cache};
pub use writer::DocumentWriter;

use crate::authority::AuthorityError;
use crate::error::CallError;
use crate::library::LibraryError;
use crate::tenant::{PAGE_THREADS_MAX, Tenant};
use crate::thread_files::{DocumentFiles, MissingDirectory, ThreadFileError};
use crate::wit::{self, Instant, registry};
use cap_std::fs::Dir;
use checkpoints::{CheckpointSettings, check_checkpoint};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tenant_records::TenantRecords;
use threadkeep_storage::directory::GrantedDirectory;
use threadkeep_units::time::rfc3339_seconds;
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// Number of locks that keep two refreshes of one thread apart inside a process. Two threads may
/// share a lock and wait for each other; with this many that is rare, and the table never grows.
const STRIPES: usize = 64;
/// Most threads whose documents are processed at once; the others wait. Each keeps a thread of the
/// runtime busy with files, and more than this write no faster to one disk.
const CONCURRENT_MAX: usize = 8;
/// Random bytes of the name of a writer.
const WRITER_BYTES: usize = 8;

/// Most failures that a report names; the others are counted.
pub const FAILURES_MAX: usize = 100;

/// The states of the documents of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentStates {
    /// `thread.json`.
    pub thread: DocumentState,
    /// `transcript.jsonl`.
    pub jsonl: DocumentState,
    /// `transcript.md`.
    pub markdown: DocumentState,
    /// `state.json`, which is there once a checkpoint was saved.
    pub checkpoint: DocumentState,
    /// True if `state.json` is older than its thread, which has stopped, and no save of it is under
    /// way: that save has failed, and nothing brings it up to date.
    pub is_checkpoint_overdue: bool,
}

/// The result of [`ThreadDocuments::repair_all`].
#[derive(Debug, Default)]
pub struct RepairReport {
    /// Number of threads whose documents are right now.
    pub threads: u64,
    /// The first [`FAILURES_MAX`] threads whose documents are not, with the errors.
    pub failed: Vec<(String, DocumentError)>,
    /// Number of further threads.
    pub left_out: u64,
}

impl RepairReport {
    fn add_failure(&mut self, thread: String, error: DocumentError) {
        if self.failed.len() < FAILURES_MAX {
            self.failed.push((thread, error));
        } else {
            self.left_out += 1;
        }
    }
}

/// An error of writing or checking a document. The records are unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// A call of the component failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A directory or file cannot be used: a link, not a regular file, a full disk.
    #[error("a document cannot be had: {0}")]
    Authority(#[from] AuthorityError),
    /// The tenant's settings of checkpoints are not valid, or cannot be read.
    #[error("checkpoints are not saved: {0}")]
    Settings(LibraryError),
    /// The id cannot be a path inside `.ai/threads`.
    #[error("{0:?} cannot be the directory of a thread in .ai/threads")]
    Id(String),
    /// Another process writes the documents of this thread and does not finish.
    #[error(
        "another process keeps the directory .ai/threads/{0} locked and writes its documents: end \
         that process, or try again"
    )]
    Busy(String),
    /// The component returned something that is not a document.
    #[error("the component is wrong: {0}")]
    Component(&'static str),
    /// More threads changed than the queue holds; this thread's documents stay old until its next
    /// change.
    #[error("too many threads changed at once; `repair` brings their documents up to date")]
    TooMany,
    /// The work was dropped: the runtime is shutting down, or this crate's code panicked.
    #[error("the work on a document was abandoned")]
    Abandoned,
}

impl From<ThreadFileError> for DocumentError {
    fn from(error: ThreadFileError) -> Self {
        match error {
            ThreadFileError::Authority(error) => Self::Authority(error),
            ThreadFileError::Id(id) => Self::Id(id),
            ThreadFileError::Busy(thread) => Self::Busy(thread),
            ThreadFileError::Component(problem) => Self::Component(problem),
            ThreadFileError::Vanished => Self::Abandoned,
        }
    }
}

/// Writes and checks the documents of a tenant's threads. Cheap to clone.
#[derive(Clone)]
pub struct ThreadDocuments {
    inner: Arc<DocumentsState>,
}

struct DocumentsState {
    tenant: Tenant,
    threads: GrantedDirectory,
    /// Name of this writer, for directories that cannot be locked.
    writer: String,
    fault: Option<WriteFault>,
    stripes: [Arc<Mutex<()>>; STRIPES],
    permits: Arc<Semaphore>,
}

impl ThreadDocuments {
    /// Makes the documents of a tenant in `threads`, its directory `.ai/threads`.
    pub fn new(tenant: Tenant, threads: Dir) -> Self {
        Self::with_fault(tenant, threads, None)
    }

    /// As [`ThreadDocuments::new`], with a fault that a test plants at the writing of whole files.
    #[doc(hidden)]
    pub fn with_fault(tenant: Tenant, threads: Dir, fault: Option<WriteFault>) -> Self {
        let mut writer = [0; WRITER_BYTES];
        // Without random bytes, writers that cannot lock a directory are not told apart.
        let _ = getrandom::fill(&mut writer);
        Self {
            inner: Arc::new(DocumentsState {
                tenant,
                threads: GrantedDirectory::new(threads),
                writer: writer.iter().map(|byte| format!("{byte:02x}")).collect(),
                fault,
                stripes: std::array::from_fn(|_| Arc::default()),
                permits: Arc::new(Semaphore::new(CONCURRENT_MAX)),
            }),
        }
    }

    /// The tenant whose threads they are of.
    fn tenant(&self) -> &Tenant {
        &self.inner.tenant
    }

    /// Reads the tenant's settings of checkpoints from its library, which may block.
    ///
    /// # Errors
    /// If they are not valid, or cannot be read.
    pub fn checkpoint_settings(&self) -> Result<CheckpointSettings, LibraryError> {
        CheckpointSettings::load(&*self.inner.tenant.context().library)
    }

    /// Brings the documents of a thread up to its head. Each document is written even if another
    /// one fails.
    ///
    /// # Errors
    /// The first failure. Every document is then unchanged, up to date, or torn at its end, which
    /// the next refresh repairs.
    pub async fn refresh(&self, thread: &str) -> Result<RefreshReport, DocumentError> {
        self.run_on_files(thread, |files, thread| files.refresh(thread, false))
            .await
    }

    /// Rebuilds the documents of a thread, whatever their files hold now. A `state.json` that was
    /// changed, or whose last save has failed, is saved anew.
    ///
    /// # Errors
    /// As [`ThreadDocuments::refresh`] and [`ThreadDocuments::save_checkpoint`].
    pub async fn repair(&self, thread: &str) -> Result<RefreshReport, DocumentError> {
        let report = self.run_on_files(thread, |files, thread| files.refresh(thread, true));
        let report = report.await?;
        self.repair_checkpoint(thread).await?;
        Ok(report)
    }

    /// Rebuilds the documents of every thread.
    ///
    /// # Errors
    /// If the threads cannot be listed. A thread whose documents cannot be written is named in the
    /// answer.
    pub async fn repair_all(&self) -> Result<RepairReport, DocumentError> {
        let (mut repaired, mut cursor) = (RepairReport::default(), None);
        loop {
            let tenant = &self.inner.tenant;
            let page = tenant
                .list(
                    registry::Filter::default(),
                    PAGE_THREADS_MAX,
                    cursor.clone(),
                )
                .await?;
            for thread in page.threads {
                match self.repair(&thread.id).await {
                    Ok(_) => repaired.threads += 1,
                    Err(error) => repaired.add_failure(thread.id, error),
                }
            }
            for thread in page.unreadable {
                let error = CallError::Refused(wit::Error::Corrupt(thread.clone().into()));
                repaired.add_failure(thread.thread, error.into());
            }
            cursor = page.cursor;
            if cursor.is_none() {
                return Ok(repaired);
            }
        }
    }

    /// Compares the documents of a thread with its records. Reads them whole and writes nothing.
    ///
    /// # Errors
    /// If the records or the files cannot be read, or an entry is not a regular file.
    pub async fn check(&self, thread: &str) -> Result<DocumentStates, DocumentError> {
        let check = |files: &TenantFiles<'_>, thread: &str| {
            let opened = files.open_directory(thread, MissingDirectory::Leave)?;
            let Some((place, thread)) = opened else {
                return Ok(DocumentStates {
                    thread: DocumentState::Missing,
                    jsonl: DocumentState::Missing,
                    markdown: DocumentState::Missing,
                    checkpoint: DocumentState::Missing,
                    is_checkpoint_overdue: false,
                });
            };
            let states = files.check(&place, &thread)?;
            let checkpoint = check_checkpoint(files, &place)?;
            Ok(DocumentStates {
                thread: states.thread,
                jsonl: states.jsonl,
                markdown: states.markdown,
                checkpoint: checkpoint.state,
                is_checkpoint_overdue: checkpoint.is_overdue,
            })
        };
        self.run_on_files(thread, check).await
    }

    /// Does work on the files of a thread, on a thread of the runtime that may block. Nothing else
    /// of this process works on them meanwhile, even if the caller waits no longer.
    async fn run_on_files<T: Send + 'static>(
        &self,
        thread: &str,
        work: impl FnOnce(&TenantFiles<'_>, &str) -> Result<T, DocumentError> + Send + 'static,
    ) -> Result<T, DocumentError> {
        let turn = self.acquire_permit(thread).await;
        let (inner, thread) = (Arc::clone(&self.inner), thread.to_owned());
        let records = TenantRecords::new(&inner.tenant);
        run_blocking(move || {
            let files = DocumentFiles {
                records: &records,
                threads: &inner.threads,
                writer: &inner.writer,
                fault: inner.fault.clone(),
            };
            let done = work(&files, &thread);
            drop(turn);
            done
        })
        .await
    }

    /// Waits until no other task works on the documents of this thread, and for one of the permits.
    async fn acquire_permit(
        &self,
        thread: &str,
    ) -> (OwnedMutexGuard<()>, Option<OwnedSemaphorePermit>) {
        let mut hasher = DefaultHasher::new();
        thread.to_ascii_lowercase().hash(&mut hasher);
        let stripe = hasher.finish() % STRIPES as u64;
        let stripe = Arc::clone(&self.inner.stripes[stripe as usize]);
        let turn = stripe.lock_owned().await;
        // The semaphore is never closed.
        let permit = Arc::clone(&self.inner.permits).acquire_owned().await;
        (turn, permit.ok())
    }
}

/// The files of a tenant's documents.
type TenantFiles<'a> = DocumentFiles<'a, TenantRecords>;

/// Runs blocking file work off the async runtime's own threads.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DocumentError> + Send + 'static,
) -> Result<T, DocumentError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(_) => Err(DocumentError::Abandoned),
    }
}

/// Formats a time for people and documents: RFC 3339 in UTC, to the second.
pub fn format_rfc3339(time: Instant) -> String {
    rfc3339_seconds(time.seconds)
}
