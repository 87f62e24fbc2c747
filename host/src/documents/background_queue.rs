//! A queue of threads whose files are to be written, and the background task that writes them.
//!
//! Many requests for one thread become one piece of work: a thread is queued at most once, and at
//! most one piece of work for it is under way. A request never blocks, and a failure never reaches
//! the run; failures are kept until a flush takes them. Work that is lost when the process ends is
//! done by the thread's next change, or by `repair`.

use super::{DocumentError, FAILURES_MAX};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use threadkeep_storage::locks::SleepingMutex;
use tokio::sync::{Notify, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

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

/// Does a kind of work for threads in the background. If it is dropped, its task finishes the queue
/// and then ends.
pub(super) struct BackgroundQueue {
    shared: Arc<SharedQueue>,
}

impl BackgroundQueue {
    /// Makes a queue that works on the current tokio runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn spawn<R, F>(refresh: R) -> Self
    where
        R: Fn(String) -> F + Send + 'static,
        F: Future<Output = Result<(), DocumentError>> + Send + 'static,
    {
        let shared = Arc::new(SharedQueue::default());
        tokio::spawn(run_worker(WorkerGuard(Arc::clone(&shared)), refresh));
        Self { shared }
    }

    /// Queues a thread, in lower case, for work that begins at this time or, if somebody waits for
    /// it, before. A thread that is queued already keeps its place and the earlier time. Never
    /// blocks.
    pub fn enqueue(&self, thread: &str, begin: Instant) {
        self.shared.state.lock().enqueue(thread, begin);
        self.shared.wake.notify_one();
    }

    /// Waits until the work that was requested before this call is done, or has failed. Each
    /// failure is returned once.
    pub async fn flush(&self) -> FlushReport {
        let mut steps = self.shared.steps.subscribe();
        let until = {
            let mut state = self.shared.state.lock();
            state.hurry_until = state.notification_count;
            state.notification_count
        };
        self.shared.wake.notify_one();
        while !self.shared.state.lock().is_done(until) {
            // The sender lives as long as `self`.
            if steps.changed().await.is_err() {
                break;
            }
        }
        self.shared.state.lock().take_failures()
    }
}

impl FlushReport {
    /// Adds the failures of another queue.
    pub(super) fn merge(&mut self, other: Self) {
        self.failed.extend(other.failed);
        self.left_out += other.left_out;
    }
}

impl Drop for BackgroundQueue {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.wake.notify_one();
    }
}

#[derive(Default)]
struct SharedQueue {
    state: SleepingMutex<RefreshQueue>,
    /// Wakes the background task.
    wake: Notify,
    /// Changes after each refresh and at the end.
    steps: watch::Sender<()>,
}

#[derive(Default)]
struct RefreshQueue {
    /// Threads to refresh, in the order of their first notification.
    queue: VecDeque<QueuedThread>,
    queued: HashSet<String>,
    under_way: BTreeMap<String, u64>,
    /// Number of notifications so far.
    notification_count: u64,
    /// Notifications up to this one are awaited: their work begins at once.
    hurry_until: u64,
    failed: BTreeMap<String, DocumentError>,
    left_out: u64,
    /// True once the writer was dropped.
    closed: bool,
    /// True once the background task is gone.
    ended: bool,
}

/// A thread in the queue.
struct QueuedThread {
    /// Number of its first notification.
    number: u64,
    thread: String,
    /// Time at which its work is to begin.
    begin: Instant,
}

impl RefreshQueue {
    fn enqueue(&mut self, thread: &str, begin: Instant) {
        self.notification_count += 1;
        if self.queued.contains(thread) {
            let queued = self.queue.iter_mut().find(|queued| queued.thread == thread);
            if let Some(queued) = queued {
                queued.begin = queued.begin.min(begin);
            }
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
        self.queue.push_back(QueuedThread {
            number: self.notification_count,
            thread: thread.to_owned(),
            begin,
        });
    }

    /// Takes the next thread to refresh, which is then under way.
    fn start_next(&mut self, now: Instant) -> Option<String> {
        if self.under_way.len() >= REFRESHES_MAX {
            return None;
        }
        let ready = |queued: &QueuedThread| {
            let due = queued.begin <= now || queued.number <= self.hurry_until || self.closed;
            due && !self.under_way.contains_key(&queued.thread)
        };
        let at = self.queue.iter().position(ready)?;
        let QueuedThread { number, thread, .. } = self.queue.remove(at)?;
        self.queued.remove(&thread);
        self.under_way.insert(thread.clone(), number);
        Some(thread)
    }

    /// Returns the time at which the next thread is due that is not yet under way.
    fn next_begin(&self) -> Option<Instant> {
        let waiting = self.queue.iter();
        let waiting = waiting.filter(|queued| !self.under_way.contains_key(&queued.thread));
        waiting.map(|queued| queued.begin).min()
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
        let waiting = self.queue.front().map(|queued| queued.number);
        let mut open = self.under_way.values().copied().chain(waiting);
        self.ended || open.all(|number| number > until)
    }

    fn end_all(&mut self) {
        self.ended = true;
        let left = std::mem::take(&mut self.queue)
            .into_iter()
            .map(|queued| queued.thread);
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
        while let Some(thread) = { shared.state.lock().start_next(Instant::now()) } {
            let handle = running.spawn(refresh(thread.clone()));
            names.insert(handle.id(), thread);
        }
        if running.is_empty() && shared.state.lock().closed {
            return;
        }
        let next = { shared.state.lock().next_begin() };
        let later = next.filter(|begin| *begin > Instant::now());
        tokio::select! {
            () = shared.wake.notified() => {}
            () = sleep_until(later), if later.is_some() => {}
            Some(done) = running.join_next_with_id() => finish_refresh(shared, &mut names, done),
        }
    }
}

async fn sleep_until(time: Option<Instant>) {
    if let Some(time) = time {
        tokio::time::sleep_until(time).await;
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
            tracing::warn!(thread, %error, "files of a thread were not written");
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
        done: SleepingMutex<Vec<String>>,
        gate: Semaphore,
    }

    impl RefreshLog {
        fn done_threads(&self) -> Vec<String> {
            self.done.lock().clone()
        }
    }

    /// Makes a writer whose refreshes wait for the gate if the thread's name begins with `slow`,
    /// and fail or panic by name.
    fn test_writer() -> (BackgroundQueue, Arc<RefreshLog>) {
        let log = Arc::new(RefreshLog {
            done: SleepingMutex::default(),
            gate: Semaphore::new(0),
        });
        let own = Arc::clone(&log);
        let writer = BackgroundQueue::spawn(move |thread| {
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
        writer.enqueue("slow", Instant::now());
        while writer.shared.state.lock().under_way.is_empty() {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            writer.enqueue("slow", Instant::now());
            writer.enqueue("quick", Instant::now());
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
            writer.enqueue(name, Instant::now());
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
            writer.enqueue(&format!("bad-{n}"), Instant::now());
        }
        let flushed = writer.flush().await;
        assert_eq!((flushed.failed.len(), flushed.left_out), (FAILURES_MAX, 7));
        assert_eq!(log.done_threads().len(), 2 + FAILURES_MAX + 7);
    }

    #[tokio::test]
    async fn a_success_makes_an_earlier_failure_good() {
        let mut state = RefreshQueue::default();
        state.enqueue("a", Instant::now());
        assert_eq!(state.start_next(Instant::now()).as_deref(), Some("a"));
        state.finish("a", Err(DocumentError::Abandoned));
        assert_eq!(state.failed.len(), 1);
        state.finish("a", Ok(()));
        assert!(state.take_failures().failed.is_empty());
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut state = RefreshQueue::default();
        for n in 0..WAITING_MAX + FAILURES_MAX + 5 {
            state.enqueue(&format!("t-{n}"), Instant::now());
            state.enqueue("t-0", Instant::now());
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
            assert!(state.start_next(Instant::now()).is_some());
        }
        assert!(
            state.start_next(Instant::now()).is_none(),
            "enough are under way"
        );
    }

    #[tokio::test]
    async fn dropping_writes_what_waits() {
        let (writer, log) = test_writer();
        for n in 0..20 {
            writer.enqueue(&format!("t-{n}"), Instant::now());
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
        writer.enqueue("slow", Instant::now());
        drop(first);
        writer.enqueue("late", Instant::now());
        let flushed = runtime().block_on(writer.flush());
        assert_eq!(flushed.failed.len(), 2);
    }
}
