//! A bounded pool of threads for component calls. Threads start when they are needed and end with the pool.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// The pool was closed, or the job panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the call was abandoned")]
pub(crate) struct Abandoned;

/// See the module's documentation.
pub(crate) struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    queue: Mutex<Queue>,
    ready: Condvar,
    threads_max: usize,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Pool {
    /// A pool of at most `threads_max` threads (at least one).
    pub(crate) fn new(threads_max: usize) -> Self {
        let queue = Mutex::new(Queue::default());
        Self {
            inner: Arc::new(Inner {
                queue,
                ready: Condvar::new(),
                threads_max: threads_max.max(1),
            }),
        }
    }

    /// Run a job on the pool. Dropping the future does not stop it.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Abandoned> {
        let (answer, answered) = oneshot::channel();
        self.push(Box::new(move || {
            // Nobody may be waiting any more.
            let _ = answer.send(job());
        }));
        answered.await.map_err(|_| Abandoned)
    }

    fn push(&self, job: Job) {
        let mut queue = self.inner.lock();
        queue.jobs.push_back(job);
        if queue.jobs.len() > queue.idle && queue.threads < self.inner.threads_max {
            let inner = Arc::clone(&self.inner);
            let name = format!("threadkeep-call-{}", queue.threads);
            if std::thread::Builder::new()
                .name(name)
                .spawn(move || inner.work())
                .is_ok()
            {
                queue.threads += 1;
            }
        }
        drop(queue);
        self.inner.ready.notify_one();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.inner.lock().closed = true;
        self.inner.ready.notify_all();
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            // A panic drops the answer's sender, so that the caller hears of it; the thread lives on.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            queue.idle += 1;
            queue = self
                .ready
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn runs_jobs_side_by_side_and_survives_a_panic() {
        let pool = Pool::new(2);
        assert_eq!(
            pool.run(|| panic!("on purpose")).await.map(|(): ()| ()),
            Err(Abandoned)
        );
        let (left, right) = (Arc::new(std::sync::Barrier::new(2)), ());
        let other = Arc::clone(&left);
        let both = tokio::join!(
            pool.run(move || left.wait().is_leader()),
            pool.run(move || other.wait().is_leader())
        );
        assert_ne!(both.0, both.1);
        let () = right;
    }

    #[tokio::test]
    async fn never_more_threads_than_allowed() {
        let pool = Pool::new(2);
        let (running, most) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
        let job = || {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            pool.run(move || {
                let now = {
                    let mut running = running.lock().unwrap();
                    *running += 1;
                    *running
                };
                let mut most = most.lock().unwrap();
                *most = now.max(*most);
                drop(most);
                std::thread::yield_now();
                *running.lock().unwrap() -= 1;
            })
        };
        futures_util::future::join_all((0..64).map(|_| job())).await;
        assert!(*most.lock().unwrap() <= 2);
    }
}
