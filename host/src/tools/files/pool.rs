//! The threads of file calls: a few of their own, for all grants that share a pool.
//!
//! A disk or a mount may answer late or never. The runtime's blocking threads are needed for work
//! that must not wait (documents, usage logs, name resolution), so file calls use none of them.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use threadkeep_storage::locks::{SleepingCondvar, SleepingMutex};

/// Most threads of a pool, and so most calls that read files at the same time; further calls wait
/// for a thread. A disk serves a few at once well, and hundreds of runs must not have a thread
/// each: three hundred had a hundred and thirty of the runtime's.
pub const CALLS_MAX: usize = 8;

/// Time that a thread waits for the next call before it ends.
const IDLE_TIME: Duration = Duration::from_secs(5);

/// A few threads for file calls, started on demand. Clones are cheap and share the threads.
#[derive(Debug, Clone, Default)]
pub struct FilePool(Arc<PoolState>);

#[derive(Debug, Default)]
struct PoolState {
    queue: SleepingMutex<JobQueue>,
    changed: SleepingCondvar,
}

type FileJob = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct JobQueue {
    jobs: VecDeque<FileJob>,
    threads: usize,
    /// Number of threads that wait for a job.
    idle: usize,
}

impl std::fmt::Debug for JobQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobQueue")
            .field("jobs", &self.jobs.len())
            .field("threads", &self.threads)
            .field("idle", &self.idle)
            .finish()
    }
}

impl FilePool {
    /// Makes a pool without threads.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs a job once a thread is free, first come, first served.
    ///
    /// # Errors
    /// If there is no thread and none can be started.
    pub(super) fn submit(&self, job: FileJob) -> io::Result<()> {
        let mut queue = self.0.queue.lock();
        queue.jobs.push_back(job);
        if queue.jobs.len() <= queue.idle || queue.threads == CALLS_MAX {
            self.0.changed.notify_one();
            return Ok(());
        }
        let state = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name("threadkeep-files".to_owned());
        match thread.spawn(move || state.run_jobs()) {
            Ok(_) => queue.threads += 1,
            Err(error) if queue.threads == 0 => {
                queue.jobs.pop_back();
                return Err(error);
            }
            // The existing threads will take the job.
            Err(_) => {}
        }
        Ok(())
    }
}

impl PoolState {
    /// Runs jobs on this thread until none has come for a while.
    fn run_jobs(&self) {
        while let Some(job) = self.next_job() {
            // A panic drops the job's sender, so the caller sees that there is no answer.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    /// Waits for the next job; `None` ends the thread.
    fn next_job(&self) -> Option<FileJob> {
        let mut queue = self.queue.lock();
        if queue.jobs.is_empty() {
            queue.idle += 1;
            let is_empty = |queue: &mut JobQueue| queue.jobs.is_empty();
            self.changed.wait_while_for(&mut queue, is_empty, IDLE_TIME);
            queue.idle -= 1;
        }
        let job = queue.jobs.pop_front();
        if job.is_none() {
            queue.threads -= 1;
        }
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    /// Symptom: tenants whose files answered late took all blocking threads of the process, and no
    /// document or usage log could be written. Cause: each grant had eight of them. Fix: all grants
    /// share a few threads of their own. Kind: more calls than threads, and a call that panics.
    #[test]
    fn many_calls_share_a_few_threads() {
        let pool = FilePool::new();
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let gate = Arc::new(SleepingMutex::new(()));
        let shut = gate.lock();
        let (done, ended) = channel();
        const JOBS: usize = 5 * CALLS_MAX;
        for number in 0..JOBS {
            let (running, most, gate) =
                (Arc::clone(&running), Arc::clone(&most), Arc::clone(&gate));
            let done = done.clone();
            let job = move || {
                let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                drop(gate.lock());
                running.fetch_sub(1, Ordering::SeqCst);
                done.send(number).unwrap();
                assert!(number % 7 != 0, "a call that panics takes no thread along");
            };
            pool.submit(Box::new(job)).unwrap();
        }
        while running.load(Ordering::SeqCst) < CALLS_MAX {
            std::thread::yield_now();
        }
        assert_eq!(pool.0.queue.lock().threads, CALLS_MAX);
        drop(shut);
        let mut numbers: Vec<usize> = ended.iter().take(JOBS).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..JOBS).collect::<Vec<_>>());
        assert_eq!(most.load(Ordering::SeqCst), CALLS_MAX);
    }
}
