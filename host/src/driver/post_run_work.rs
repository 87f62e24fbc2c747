//! Work after a run, or after each of its replies: titles, embeddings, notices, the log of usage. A
//! failure concerns only the work itself and never blocks or changes a run.
//!
//! Each kind of work has its own queue and task, so a slow one delays only itself. The queue is not
//! durable: it is lost with the process.

use super::events::{EndedRun, EventSink, RunEvent};
use crate::models::BoxFuture;
use futures_util::FutureExt;
use std::error::Error;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Largest number of runs that wait for one kind of work. Work beyond it is left undone and
/// reported: work that cannot keep up with hundreds of runs at once must not fill the memory with
/// them.
pub const AFTER_QUEUE_MAX: usize = 1_024;

/// Longest time of one piece of work, so that a hung one does not stop its queue for ever.
pub const AFTER_TIME_MAX: Duration = Duration::from_secs(600);

/// A reply of a model that is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DurableReply {
    /// The thread.
    pub thread: String,
    /// The agent that owns the thread, if any.
    pub agent: Option<String>,
    /// The version of the entry that holds the reply.
    pub version: u64,
}

/// Work to be done when a run has stopped or ended, or after each reply.
pub trait AfterRun: Send + Sync {
    /// The name of the work in events and logs.
    fn name(&self) -> &str;

    /// Does the work. A failure or a panic is a warning and [`RunEvent::AfterFailed`], nothing
    /// else.
    fn after_run<'a>(
        &'a self,
        ended: &'a EndedRun,
    ) -> BoxFuture<'a, Result<(), Box<dyn Error + Send + Sync>>>;

    /// True if the work is also to be done after each reply of a model. Without this
    /// [`AfterRun::after_reply`] is never called.
    fn wants_replies(&self) -> bool {
        false
    }

    /// Does the work after one reply, while the run may go on.
    fn after_reply<'a>(
        &'a self,
        _replied: &'a DurableReply,
    ) -> BoxFuture<'a, Result<(), Box<dyn Error + Send + Sync>>> {
        Box::pin(async { Ok(()) })
    }
}

/// The occasion of a piece of work.
enum WorkOccasion {
    Run(Box<EndedRun>),
    Reply(DurableReply),
}

impl WorkOccasion {
    fn thread(&self) -> &str {
        match self {
            Self::Run(ended) => &ended.thread,
            Self::Reply(replied) => &replied.thread,
        }
    }
}

/// One kind of work with its queue.
pub(crate) struct PostRunWork {
    work: Arc<dyn AfterRun>,
    time_max: Duration,
    /// Started when the first piece is queued: only then is a runtime known.
    task: OnceLock<QueueTask>,
    queued: AtomicU64,
}

struct QueueTask {
    queue: mpsc::Sender<(WorkOccasion, EventSink)>,
    done: watch::Receiver<u64>,
}

impl PostRunWork {
    /// Makes the queue of this kind of work. Its task ends, with an empty queue, after this is
    /// dropped.
    pub(crate) fn new(work: Arc<dyn AfterRun>, time_max: Duration) -> Self {
        Self {
            work,
            time_max,
            task: OnceLock::new(),
            queued: AtomicU64::new(0),
        }
    }

    /// Queues a run that has stopped or ended. Never blocks. Called on a tokio runtime.
    pub(super) fn queue_ended_run(&self, ended: &EndedRun, sink: &EventSink) {
        self.enqueue(WorkOccasion::Run(Box::new(ended.clone())), sink);
    }

    /// Queues a reply, if the work wants replies. Never blocks. Called on a tokio runtime.
    pub(super) fn queue_reply(&self, replied: &DurableReply, sink: &EventSink) {
        if self.work.wants_replies() {
            self.enqueue(WorkOccasion::Reply(replied.clone()), sink);
        }
    }

    fn enqueue(&self, occasion: WorkOccasion, sink: &EventSink) {
        match self.task().queue.try_send((occasion, sink.clone())) {
            Ok(()) => {
                self.queued.fetch_add(1, Ordering::SeqCst);
            }
            Err(refused) => {
                let (occasion, sink) = refused.into_inner();
                let name = self.work.name();
                report_failure(name, occasion.thread(), &sink, "too much of it waits");
            }
        }
    }

    fn task(&self) -> &QueueTask {
        self.task.get_or_init(|| {
            let (queue, waiting) = mpsc::channel(AFTER_QUEUE_MAX);
            let (count, done) = watch::channel(0);
            let work = Arc::clone(&self.work);
            tokio::spawn(perform_queued(work, waiting, count, self.time_max));
            QueueTask { queue, done }
        })
    }

    /// Waits until everything queued before this call is done or has failed.
    pub(crate) async fn flush(&self) {
        let Some(task) = self.task.get() else { return };
        let queued = self.queued.load(Ordering::SeqCst);
        // The task lives as long as the queue; if its runtime is gone, no more work will be done.
        let _ = task.done.clone().wait_for(|done| *done >= queued).await;
    }
}

async fn perform_queued(
    work: Arc<dyn AfterRun>,
    mut waiting: mpsc::Receiver<(WorkOccasion, EventSink)>,
    count: watch::Sender<u64>,
    time_max: Duration,
) {
    while let Some((occasion, sink)) = waiting.recv().await {
        let once = AssertUnwindSafe(async {
            match &occasion {
                WorkOccasion::Run(ended) => work.after_run(ended).await,
                WorkOccasion::Reply(replied) => work.after_reply(replied).await,
            }
        });
        let message = match tokio::time::timeout(time_max, once.catch_unwind()).await {
            Ok(Ok(Ok(()))) => None,
            Ok(Ok(Err(error))) => Some(error.to_string()),
            Ok(Err(_)) => Some("it panicked".to_owned()),
            Err(_) => Some(format!("it took longer than {} s", time_max.as_secs())),
        };
        if let Some(message) = message {
            report_failure(work.name(), occasion.thread(), &sink, &message);
        }
        count.send_modify(|done| *done += 1);
    }
}

fn report_failure(name: &str, thread: &str, sink: &EventSink, message: &str) {
    tracing::warn!(work = name, thread, message, "work after a run failed");
    sink.emit(RunEvent::AfterFailed {
        work: name.to_owned(),
        message: message.to_owned(),
    });
}

#[cfg(test)]
mod tests {
    use super::super::ThreadCosts;
    use super::*;

    struct StubWork(&'static str);

    impl AfterRun for StubWork {
        fn name(&self) -> &str {
            self.0
        }

        fn after_run<'a>(
            &'a self,
            _: &'a EndedRun,
        ) -> BoxFuture<'a, Result<(), Box<dyn Error + Send + Sync>>> {
            match self.0 {
                "panics" => panic!("on purpose"),
                "hangs" => Box::pin(std::future::pending()),
                "fails" => Box::pin(async { Err("no network".into()) }),
                _ => Box::pin(async { Ok(()) }),
            }
        }
    }

    fn sample_ended_run() -> EndedRun {
        EndedRun {
            thread: "t".to_owned(),
            status: "completed".to_owned(),
            outcome: None,
            cause: None,
            result: None,
            costs: ThreadCosts::default(),
            version: 1,
        }
    }

    async fn collect_failures(act: &'static str, time_max: Duration) -> Vec<String> {
        let (sink, mut events) = EventSink::channel();
        let work = PostRunWork::new(Arc::new(StubWork(act)), time_max);
        work.queue_ended_run(&sample_ended_run(), &sink);
        work.queue_ended_run(&sample_ended_run(), &sink);
        work.flush().await;
        let mut said = Vec::new();
        while let Ok(RunEvent::AfterFailed { work, message }) = events.try_recv() {
            said.push(format!("{work}: {message}"));
        }
        said
    }

    #[tokio::test]
    async fn each_failure_is_reported_and_work_continues() {
        let long = Duration::from_secs(600);
        assert!(collect_failures("works", long).await.is_empty());
        for (act, time_max, told) in [
            ("fails", long, "fails: no network"),
            ("panics", long, "panics: it panicked"),
            ("hangs", Duration::ZERO, "hangs: it took longer than 0 s"),
        ] {
            assert_eq!(collect_failures(act, time_max).await, [told, told]);
        }
    }

    #[tokio::test]
    async fn waiting_work_is_bounded() {
        let (sink, mut events) = EventSink::channel();
        let work = PostRunWork::new(Arc::new(StubWork("hangs")), Duration::from_secs(600));
        // The task takes one more out as soon as it runs; here it does not run yet.
        for _ in 0..=AFTER_QUEUE_MAX {
            work.queue_ended_run(&sample_ended_run(), &sink);
        }
        let told = events.try_recv().expect("the last one is told of");
        assert!(
            matches!(told, RunEvent::AfterFailed { message, .. } if message.contains("too much"))
        );
        assert!(events.try_recv().is_err());
    }
}
