//! The document writer: it observes commits and refreshes the documents of changed threads in the
//! background.
//!
//! Many commits of one thread become one refresh: a thread is queued at most once, at most one
//! refresh of it is under way, and a refresh writes the newest state. A notification never blocks,
//! and a failure never reaches the run; failures are kept until a flush takes them. Work that is
//! lost when the process ends is done by the thread's next refresh, or by `repair`.

use super::{DocumentError, FAILURES_MAX, ThreadDocuments};
use crate::driver::{CommitNotice, CommitObserver};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tokio::sync::{Notify, watch};
use tokio::task::{Id, JoinError, JoinSet};

/// Most refreshes under way at the same time: enough to overlap the waits for the disk, too few to
/// crowd out runs.
const REFRESHES_MAX: usize = 4;

/// Most threads in the queue. An id has at most 200 bytes, so this bounds memory at a few
/// megabytes. The documents of further threads stay old until their next change, and
/// [`DocumentWriter::flush`] reports that.
const WAITING_MAX: usize = 10_000;

/// The failures that a flush returns.
#[derive(Debug, Default)]
pub struct FlushReport {
    /// Threads whose newest refresh failed since the last flush, with the errors: at most
    /// [`FAILURES_MAX`].
    pub failed: Vec<(String, DocumentError)>,
    /// Number of further failures.
    pub left_out: u64,
}

/// Refreshes documents in the background. If it is dropped, the background task finishes the queue
/// and then ends.
pub struct DocumentWriter {
    shared: Arc<SharedQueue>,
}

impl DocumentWriter {
    /// Makes a writer that works on the current tokio runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(documents: ThreadDocuments) -> Self {
        Self::spawn(move |thread| {
            let documents = documents.clone();
            async move { documents.refresh(&thread).await.map(drop) }
        })
    }

    fn spawn<R, F>(refresh: R) -> Self
    where
        R: Fn(String) -> F + Send + 'static,
        F: Future<Output = Result<(), DocumentError>> + Send + 'static,
    {
        let shared = Arc::new(SharedQueue::default());
        tokio::spawn(run_worker(WorkerGuard(Arc::clone(&shared)), refresh));
        Self { shared }
    }

    /// Queues a thread, whose documents are then brought up to date. Never blocks.
    pub fn enqueue(&self, thread: &str) {
        let thread = thread.to_ascii_lowercase();
        self.shared.state.lock().enqueue(&thread);
        self.shared.wake.notify_one();
    }

    /// Waits until the documents of everything that was committed before this call are written, or
    /// have failed. Each failure is returned once.
    pub async fn flush(&self) -> FlushReport {
        let mut steps = self.shared.steps.subscribe();
        let until = self.shared.state.lock().notification_count;
        while !self.shared.state.lock().is_done(until) {
            // The sender lives as long as `self`.
            if steps.changed().await.is_err() {
                break;
            }
        }
        self.shared.state.lock().take_failures()
    }
}

impl CommitObserver for DocumentWriter {
    fn on_commit(&self, commit: &CommitNotice<'_>) {
        self.enqueue(commit.thread);
    }
}

impl Drop for DocumentWriter {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.wake.notify_one();
    }
}

#[derive(Default)]
struct SharedQueue {
    state: Mutex<RefreshQueue>,
    /// Wakes the background task.
    wake: Notify,
    /// Changes after each refresh and at the end.
    steps: watch::Sender<()>,
}

#[derive(Default)]
struct RefreshQueue {
    /// Threads to refresh, in the order of their first notification, each with its number.
    queue: VecDeque<(u64, String)>,
    queued: HashSet<String>,
    under_way: BTreeMap<String, u64>,
    /// Number of notifications so far.
    notification_count: u64,
    failed: BTreeMap<String, DocumentError>,
    left_out: u64,
    /// True once the writer was dropped.
    closed: bool,
    /// True once the background task is gone.
    ended: bool,
}

impl RefreshQueue {
    fn enqueue(&mut self, thread: &str) {
        self.notification_count += 1;
        if self.queued.contains(thread) {
            return;
        }
        if self.ended || self.queue.len() >= WAITING_MAX {
            let why = match self.ended {
                true => DocumentError::Abandoned,
                false => DocumentError::TooMany,
            };
            return self.add_failure(thread, why);
        }
        self.queued.insert(thread.to_owned());
        self.queue
            .push_back((self.notification_count, thread.to_owned()));
    }

    /// Takes the next thread to refresh, which is then under way.
    fn start_next(&mut self) -> Option<String> {
        if self.under_way.len() >= REFRESHES_MAX {
            return None;
        }
        let free = |(_, thread): &(u64, String)| !self.under_way.contains_key(thread);
        let at = self.queue.iter().position(free)?;
        let (number, thread) = self.queue.remove(at)?;
        self.queued.remove(&thread);
        self.under_way.insert(thread.clone(), number);
        Some(thread)
    }

    fn finish(&mut self, thread: &str, result: Result<(), DocumentError>) {
        self.under_way.remove(thread);
        match result {
            Ok(()) => drop(self.failed.remove(thread)),
            Err(error) => self.add_failure(thread, error),
        }
    }

    fn add_failure(&mut self, thread: &str, error: DocumentError) {
        if self.failed.len() < FAILURES_MAX || self.failed.contains_key(thread) {
            self.failed.insert(thread.to_owned(), error);
        } else {
            self.left_out += 1;
        }
    }

    /// Returns true if every notification up to `until` is done.
    fn is_done(&self, until: u64) -> bool {
        let waiting = self.queue.front().map(|(number, _)| *number);
        let mut open = self.under_way.values().copied().chain(waiting);
        self.ended || open.all(|number| number > until)
    }

    fn end_all(&mut self) {
        self.ended = true;
        let left = std::mem::take(&mut self.queue)
            .into_iter()
            .map(|(_, thread)| thread);
        let left = left.chain(std::mem::take(&mut self.under_way).into_keys());
        for thread in left.collect::<Vec<_>>() {
            self.add_failure(&thread, DocumentError::Abandoned);
        }
        self.queued.clear();
    }

    fn take_failures(&mut self) -> FlushReport {
        FlushReport {
            failed: std::mem::take(&mut self.failed).into_iter().collect(),
            left_out: std::mem::take(&mut self.left_out),
        }
    }
}

/// The background task's guard: however the task ends, flushes stop waiting for it.
struct WorkerGuard(Arc<SharedQueue>);

impl Drop for WorkerGuard {
    fn drop(&mut self) {
        self.0.state.lock().end_all();
        self.0.steps.send_replace(());
    }
}

async fn run_worker<R, F>(worker: WorkerGuard, refresh: R)
where
    R: Fn(String) -> F + Send + 'static,
    F: Future<Output = Result<(), DocumentError>> + Send + 'static,
{
    let shared = &worker.0;
    let (mut running, mut names) = (JoinSet::new(), HashMap::new());
    loop {
        // The guard must not live across an await.
        while let Some(thread) = { shared.state.lock().start_next() } {
            let handle = running.spawn(refresh(thread.clone()));
            names.insert(handle.id(), thread);
        }
        if running.is_empty() && shared.state.lock().closed {
            return;
        }
        tokio::select! {
            () = shared.wake.notified() => {}
            Some(done) = running.join_next_with_id() => finish_refresh(shared, &mut names, done),
        }
    }
}

fn finish_refresh(
    shared: &SharedQueue,
    names: &mut HashMap<Id, String>,
    done: Result<(Id, Result<(), DocumentError>), JoinError>,
) {
    let (id, result) = match done {
        Ok((id, result)) => (id, result),
        Err(error) => (error.id(), Err(DocumentError::Abandoned)),
    };
    if let Some(thread) = names.remove(&id) {
        if let Err(error) = &result {
            tracing::warn!(thread, %error, "documents were not written");
        }
        shared.state.lock().finish(&thread, result);
    }
    shared.steps.send_replace(());
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::Semaphore;

    struct RefreshLog {
        done: Mutex<Vec<String>>,
        gate: Semaphore,
    }

    impl RefreshLog {
        fn done_threads(&self) -> Vec<String> {
            self.done.lock().clone()
        }
    }

    /// Makes a writer whose refreshes wait for the gate if the thread's name begins with `slow`,
    /// and fail or panic by name.
    fn test_writer() -> (DocumentWriter, Arc<RefreshLog>) {
        let log = Arc::new(RefreshLog {
            done: Mutex::default(),
            gate: Semaphore::new(0),
        });
        let own = Arc::clone(&log);
        let writer = DocumentWriter::spawn(move |thread| {
            let log = Arc::clone(&own);
            async move {
                if thread.starts_with("slow") {
                    log.gate.acquire().await.unwrap().forget();
                }
                assert!(!thread.starts_with("panic"), "on purpose");
                log.done.lock().push(thread.clone());
                match thread.starts_with("bad") {
                    true => Err(DocumentError::Busy(thread)),
                    false => Ok(()),
                }
            }
        });
        (writer, log)
    }

    #[tokio::test]
    async fn many_commits_become_one_refresh() {
        let (writer, log) = test_writer();
        writer.enqueue("slow");
        while writer.shared.state.lock().under_way.is_empty() {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            writer.enqueue("Slow");
            writer.enqueue("quick");
        }
        log.gate.add_permits(2);
        assert!(writer.flush().await.failed.is_empty());
        let done = log.done_threads();
        let count = |name: &str| done.iter().filter(|done| *done == name).count();
        assert_eq!(
            count("slow"),
            2,
            "the one under way, and one for all that came after"
        );
        assert!(count("quick") <= 100 && count("quick") >= 1);
    }

    #[tokio::test]
    async fn failures_are_kept_until_asked_for_or_made_good() {
        let (writer, log) = test_writer();
        for name in ["bad-1", "panic-1", "good"] {
            writer.enqueue(name);
        }
        let flushed = writer.flush().await;
        let names: Vec<&str> = flushed
            .failed
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(names, ["bad-1", "panic-1"]);
        assert!(writer.flush().await.failed.is_empty(), "handed over once");
        for n in 0..FAILURES_MAX + 7 {
            writer.enqueue(&format!("bad-{n}"));
        }
        let flushed = writer.flush().await;
        assert_eq!((flushed.failed.len(), flushed.left_out), (FAILURES_MAX, 7));
        assert_eq!(log.done_threads().len(), 2 + FAILURES_MAX + 7);
    }

    #[tokio::test]
    async fn a_success_makes_an_earlier_failure_good() {
        let mut state = RefreshQueue::default();
        state.enqueue("a");
        assert_eq!(state.start_next().as_deref(), Some("a"));
        state.finish("a", Err(DocumentError::Abandoned));
        assert_eq!(state.failed.len(), 1);
        state.finish("a", Ok(()));
        assert!(state.take_failures().failed.is_empty());
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut state = RefreshQueue::default();
        for n in 0..WAITING_MAX + FAILURES_MAX + 5 {
            state.enqueue(&format!("t-{n}"));
            state.enqueue("t-0");
        }
        assert_eq!(state.queue.len(), WAITING_MAX);
        let flushed = state.take_failures();
        assert_eq!((flushed.failed.len(), flushed.left_out), (FAILURES_MAX, 5));
        assert!(
            flushed
                .failed
                .iter()
                .all(|(_, e)| matches!(e, DocumentError::TooMany))
        );
        for _ in 0..REFRESHES_MAX {
            assert!(state.start_next().is_some());
        }
        assert!(state.start_next().is_none(), "enough are under way");
    }

    #[tokio::test]
    async fn dropping_writes_what_waits() {
        let (writer, log) = test_writer();
        for n in 0..20 {
            writer.enqueue(&format!("t-{n}"));
        }
        let shared = Arc::clone(&writer.shared);
        drop(writer);
        let mut steps = shared.steps.subscribe();
        while !shared.state.lock().ended {
            steps.changed().await.unwrap();
        }
        assert_eq!(log.done_threads().len(), 20);
        assert!(shared.state.lock().failed.is_empty());
    }

    #[test]
    fn a_flush_does_not_wait_for_a_runtime_that_is_gone() {
        let runtime = || {
            tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap()
        };
        let first = runtime();
        let (writer, _log) = first.block_on(async { test_writer() });
        writer.enqueue("slow");
        drop(first);
        writer.enqueue("late");
        let flushed = runtime().block_on(writer.flush());
        assert_eq!(flushed.failed.len(), 2);
    }
}
