//! The queue of commits: group commit without a dedicated thread.
//!
//! A caller that comes when no commit is under way writes at once, on its own thread. A caller that
//! comes meanwhile queues. When the writer is done, the first in the queue writes. Everything that
//! has queued up joins the transaction that is being written, until its COMMIT begins. No caller
//! waits for a timer.

use std::collections::VecDeque;
use std::sync::Arc;
use threadkeep_storage::locks::{SleepingCondvar, SleepingMutex};

use rusqlite::Connection;

use super::super::{CommitOp, StorageError};
use super::checkpoint::WriteAheadLog;
use super::maintenance::MaintenanceThread;
use super::transaction::{BatchMember, BatchSource, CommitResult, TransactionWriter};

/// Most commits in one transaction: measured, more than 64 gains nothing.
const BATCH_COMMITS_MAX: usize = 64;
/// Most bytes in one transaction, unless one commit is larger: bounds what is written in one go,
/// and so how long its members wait.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// Most commits that wait: bounds the memory of their copies. Further ones are refused as
/// unavailable.
const QUEUE_COMMITS_MAX: usize = 1_024;
/// Most bytes that wait, for the same reason.
const QUEUE_BYTES_MAX: usize = 256 << 20;

/// The writing end of a store with its queue; see the documentation of the module.
#[derive(Debug)]
pub(super) struct CommitWriter {
    queue: SleepingMutex<CommitQueue>,
    transactions: SleepingMutex<TransactionWriter>,
    log: Arc<WriteAheadLog>,
    keeper: Arc<MaintenanceThread>,
}

#[derive(Debug, Default)]
struct CommitQueue {
    /// True while a caller writes.
    busy: bool,
    waiting: VecDeque<Arc<CommitJob>>,
    bytes: usize,
}

/// A commit that waits.
#[derive(Debug)]
struct CommitJob {
    ops: Vec<CommitOp>,
    closing: bool,
    bytes: usize,
    state: SleepingMutex<JobState>,
    changed: SleepingCondvar,
}

#[derive(Debug)]
enum JobState {
    Waiting,
    /// The waiting thread is to write next.
    Leading,
    Answered(CommitResult),
}

impl CommitWriter {
    pub(super) fn new(
        transactions: TransactionWriter,
        log: WriteAheadLog,
        keeper: Arc<MaintenanceThread>,
    ) -> Self {
        Self {
            queue: SleepingMutex::default(),
            transactions: SleepingMutex::new(transactions),
            log: Arc::new(log),
            keeper,
        }
    }

    /// Commits `ops`, alone or with others.
    pub(super) fn commit(&self, ops: &[CommitOp], closing: bool) -> CommitResult {
        if let Some(turn) = self.try_begin_write() {
            return turn.write(BatchMember { ops, closing });
        }
        let job = Arc::new(CommitJob::new(ops, closing));
        match self.enqueue(&job)? {
            Some(turn) => turn.write(BatchMember { ops, closing }),
            None => match job.wait_for_answer() {
                Some(answer) => answer,
                None => WriterGuard { writer: self }.write(job.member()),
            },
        }
    }

    /// Runs `question` on the connection that writes, which has the pages it wrote in its cache;
    /// `None` if it is busy or the question fails.
    pub(super) fn query_if_free<T>(
        &self,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Option<T> {
        let transactions = self.transactions.try_lock()?;
        transactions.query(question)
    }

    fn try_begin_write(&self) -> Option<WriterGuard<'_>> {
        let mut queue = self.queue.lock();
        if queue.busy {
            return None;
        }
        queue.busy = true;
        Some(WriterGuard { writer: self })
    }

    /// Queues a job, unless the right to write has become free meanwhile.
    fn enqueue(&self, job: &Arc<CommitJob>) -> Result<Option<WriterGuard<'_>>, StorageError> {
        let mut queue = self.queue.lock();
        if !queue.busy {
            queue.busy = true;
            return Ok(Some(WriterGuard { writer: self }));
        }
        if queue.waiting.len() >= QUEUE_COMMITS_MAX || queue.bytes + job.bytes > QUEUE_BYTES_MAX {
            let message = format!("{} commits are waiting", queue.waiting.len());
            return Err(StorageError::Unavailable { message });
        }
        queue.bytes += job.bytes;
        queue.waiting.push_back(Arc::clone(job));
        Ok(None)
    }

    /// Commits a member and those of the queue that join it. The outcomes of the others are
    /// delivered when the second value is dropped.
    fn run_batch(&self, first: BatchMember<'_>) -> (CommitResult, JoinedJobs) {
        let transactions = self.transactions.lock();
        let mut joined = JoinedJobs {
            jobs: Vec::new(),
            answers: Vec::new(),
        };
        let bytes = ops_bytes(first.ops);
        let mut joining = QueueBatchSource {
            queue: &self.queue,
            joined: &mut joined,
            bytes,
        };
        let answers = transactions.run_batch(first, &mut joining);
        let bytes = joining.bytes;
        drop(transactions);
        let ops = joined.jobs.iter().map(|job| job.ops.len()).sum::<usize>() + first.ops.len();
        if self.log.count_written(ops, bytes) {
            self.keeper.request_checkpoint(&self.log);
        }
        let mut answers = answers.unwrap_or_else(|error| {
            self.refuse_waiting(&error);
            vec![Err(error); joined.jobs.len() + 1]
        });
        joined.answers = answers.split_off(1.min(answers.len()));
        (
            answers.pop().unwrap_or_else(|| Err(unanswered_error())),
            joined,
        )
    }

    /// Answers all waiting callers that no commit is possible now: they have waited as long, and
    /// would wait as long again.
    fn refuse_waiting(&self, error: &StorageError) {
        let mut queue = self.queue.lock();
        while let Some(job) = queue.pop_job() {
            job.set_state(JobState::Answered(Err(error.clone())));
        }
    }
}

impl Drop for CommitWriter {
    fn drop(&mut self) {
        // Before the connection that writes, which is then the last and removes the log.
        self.log.close();
    }
}

impl CommitQueue {
    fn pop_job(&mut self) -> Option<Arc<CommitJob>> {
        let job = self.waiting.pop_front()?;
        self.bytes -= job.bytes;
        Some(job)
    }
}

/// The right to write. When it ends, also by a panic, it passes to the first in the queue.
struct WriterGuard<'a> {
    writer: &'a CommitWriter,
}

impl WriterGuard<'_> {
    /// Commits the caller's own commit, and others in the queue.
    fn write(self, own: BatchMember<'_>) -> CommitResult {
        let (answer, joined) = self.writer.run_batch(own);
        // The right to write ends before the others wake: the next leader may begin at once.
        drop(self);
        drop(joined);
        answer
    }
}

impl Drop for WriterGuard<'_> {
    fn drop(&mut self) {
        let mut queue = self.writer.queue.lock();
        match queue.pop_job() {
            Some(next) => next.set_state(JobState::Leading),
            None => queue.busy = false,
        }
    }
}

/// Takes the commits that join a transaction from the queue.
struct QueueBatchSource<'a> {
    queue: &'a SleepingMutex<CommitQueue>,
    joined: &'a mut JoinedJobs,
    /// Bytes of all members.
    bytes: usize,
}

impl BatchSource for QueueBatchSource<'_> {
    fn take_new(&mut self) -> usize {
        let mut queue = self.queue.lock();
        let jobs = &mut self.joined.jobs;
        while let Some(next) = queue.waiting.front()
            && jobs.len() + 1 < BATCH_COMMITS_MAX
            && self.bytes + next.bytes <= BATCH_BYTES_MAX
            && let Some(job) = queue.pop_job()
        {
            self.bytes += job.bytes;
            jobs.push(job);
        }
        jobs.len()
    }

    fn member(&self, index: usize) -> Option<BatchMember<'_>> {
        self.joined.jobs.get(index).map(|job| job.member())
    }
}

/// Jobs that joined a transaction. When this is dropped, also by a panic, each gets its outcome.
struct JoinedJobs {
    jobs: Vec<Arc<CommitJob>>,
    answers: Vec<CommitResult>,
}

impl Drop for JoinedJobs {
    fn drop(&mut self) {
        let mut answers = std::mem::take(&mut self.answers).into_iter();
        for job in &self.jobs {
            let answer = answers.next().unwrap_or_else(|| Err(unanswered_error()));
            job.set_state(JobState::Answered(answer));
        }
    }
}

impl CommitJob {
    fn new(ops: &[CommitOp], closing: bool) -> Self {
        let state = SleepingMutex::new(JobState::Waiting);
        Self {
            ops: ops.to_vec(),
            closing,
            bytes: ops_bytes(ops),
            state,
            changed: SleepingCondvar::new(),
        }
    }

    fn member(&self) -> BatchMember<'_> {
        BatchMember {
            ops: &self.ops,
            closing: self.closing,
        }
    }

    /// Waits for the outcome, or for the right to write (`None`).
    fn wait_for_answer(&self) -> Option<CommitResult> {
        let waiting = |state: &mut JobState| matches!(state, JobState::Waiting);
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, waiting);
        match &*state {
            JobState::Answered(answer) => Some(answer.clone()),
            JobState::Waiting | JobState::Leading => None,
        }
    }

    fn set_state(&self, state: JobState) {
        *self.state.lock() = state;
        self.changed.notify_one();
    }
}

fn ops_bytes(ops: &[CommitOp]) -> usize {
    let bytes = |op: &CommitOp| match op {
        CommitOp::Check { key, .. } | CommitOp::Delete { key } => key.name.len(),
        CommitOp::Put { key, value, .. } => key.name.len() + value.len(),
        CommitOp::Append {
            partition, value, ..
        } => partition.len() + value.len(),
        CommitOp::Trim { partition, .. } => partition.len(),
    };
    ops.iter().map(bytes).sum()
}

/// The error of a member whose writer panicked.
fn unanswered_error() -> StorageError {
    StorageError::OutcomeUnknown {
        message: "the writer ended without an answer".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{CommitOutcome, RecordExpectation, RecordKey, StorageBackend};
    use super::super::{SqliteOptions, SqliteStore};
    use super::*;
    use crate::authority::ProjectDir;

    fn put_op(name: &str) -> Vec<CommitOp> {
        vec![CommitOp::Put {
            key: RecordKey::new("thread", name),
            expect: RecordExpectation::Absent,
            value: "1".to_owned(),
        }]
    }

    /// One more joins at each look, and nothing of those before is visible.
    struct GradualBatch<'a> {
        store: &'a SqliteStore,
        ops: Vec<Vec<CommitOp>>,
        come: usize,
    }

    impl BatchSource for GradualBatch<'_> {
        fn take_new(&mut self) -> usize {
            let page = self.store.scan("thread", "", "", 10, false);
            assert!(page.expect("read").items.is_empty(), "nothing is committed");
            self.come = (self.come + 1).min(self.ops.len());
            self.come
        }

        fn member(&self, index: usize) -> Option<BatchMember<'_>> {
            let ops = self.ops[..self.come].get(index)?;
            Some(BatchMember {
                ops,
                closing: false,
            })
        }
    }

    #[test]
    fn queued_commits_join_open_transaction() {
        let temp = tempfile::TempDir::new().expect("a temporary directory");
        let project = ProjectDir::open_ambient(temp.path()).expect("it opens");
        let dir = project.threads_dir_or_create().expect("made");
        let store = SqliteStore::open(&dir, "a.db", SqliteOptions::local()).expect("opened");
        let writer = store.writer.as_ref().expect("it can be written");
        let mut comers = GradualBatch {
            store: &store,
            ops: vec![put_op("b"), put_op("a"), put_op("c")],
            come: 0,
        };
        let first = BatchMember {
            ops: &put_op("a"),
            closing: false,
        };
        let transactions = writer.transactions.lock();
        let answers = transactions.run_batch(first, &mut comers).expect("begun");
        drop(transactions);
        let committed: Vec<bool> = answers
            .iter()
            .map(|answer| matches!(answer, Ok(CommitOutcome::Committed)))
            .collect();
        assert_eq!(committed, [true, true, false, true], "{answers:?}");
        assert!(
            matches!(answers[2], Ok(CommitOutcome::Conflict)),
            "{answers:?}"
        );
        let page = store.scan("thread", "", "", 10, false).expect("read");
        assert_eq!(page.items.len(), 3);
    }
}
