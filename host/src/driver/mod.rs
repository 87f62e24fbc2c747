//! The driver: performs the steps that the component hands out (model calls, tool rounds, waits)
//! for many threads at once.
//!
//! It decides nothing: the answer to `submit` is the next step. Everything that it emits as done is
//! durable. Dropping the future of [`Driver::run`] drops the request in flight and leaves a thread
//! that [`Driver::recover_lost`] closes, as does the next run that meets it.

mod after;
mod begin;
mod conversation;
mod events;
mod nonce;
mod perform;
mod queue;
mod stop;
mod tree;

pub(crate) use after::Work;
pub use after::{AFTER_QUEUE_MAX, AFTER_TIME_MAX, AfterRun, Replied};
pub use events::{Costs, Ended, RunEvent, Sink, Why};
pub use nonce::fresh_nonce;
pub(crate) use queue::Shared;
pub use queue::{LOST_MAX, OnBusy, WAITERS_MAX};
pub use stop::{Stop, StopLevel, Stopper, stopper};
pub use tree::TREE_RUNS_MAX;

use crate::ceilings::{Guard, Permit, Refusal};
use crate::error::CallError;
use crate::models::{Failure, Llm};
use crate::policy::{Policy, Preset};
use crate::tenant::{Recovered, Tenant};
use crate::tools::Tools;
use crate::wit::{self, runner};
use begin::{Admitted, not_held};
use conversation::Conversation;
use queue::{Holding, by_whom};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Attempts at reading how a run ended: a store that fails so often will fail its next user too.
const ENDED_READS_MAX: u32 = 4;
/// The pause after the first failed attempt; it doubles.
const ENDED_PAUSE: Duration = Duration::from_millis(100);

/// Finds the provider of a model.
pub trait Models: Send + Sync {
    /// The provider, and the name by which it knows the model.
    ///
    /// # Errors
    /// A failure that the runner can act on: an unknown model or a provider that is not set up is
    /// `permanent`.
    fn provider(&self, model: &str) -> Result<(Arc<dyn Llm>, String), Failure>;
}

/// Notified of every durable change of a thread, after it; must not block.
pub trait Observer: Send + Sync {
    /// A commit on `thread` was made.
    fn committed(&self, thread: &str);
}

/// Performs runs of one tenant. Cheap to clone.
#[derive(Clone)]
pub struct Driver {
    tenant: Tenant,
    models: Arc<dyn Models>,
    tools: Arc<dyn Tools>,
    observer: Option<Arc<dyn Observer>>,
    guard: Arc<Guard>,
    after: Vec<Arc<Work>>,
    on_busy: OnBusy,
    shared: Arc<Shared>,
    /// Notified when a thread has propagated to others: there may be more to do in its tree.
    nudge: Arc<Notify>,
    /// Set once the first run of the tree has begun.
    began: Arc<AtomicBool>,
}

/// Reason why a run could not be performed to its end. The thread is as its last commit left it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// A call of the component gave no answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Another holder has taken the thread over, or killed it.
    #[error("{0} is held by somebody else now, or its run was ended")]
    Fenced(String),
    /// The operator's policy allows no more runs, still so at the end of the time that
    /// [`OnBusy::Queue`] names. Nothing was written.
    #[error("{0}")]
    Ceiling(Refusal),
    /// The run did not reach the head of the queue within the time that [`OnBusy::Queue`] names.
    /// Nothing was written.
    #[error("{thread} {}; waited {} s for it", by_whom(.lease.as_ref()), .waited.as_secs())]
    Waited {
        /// The thread.
        thread: String,
        /// The current lease, if the thread has one.
        lease: Option<wit::Lease>,
        /// The time that was allowed.
        waited: Duration,
    },
    /// [`WAITERS_MAX`] runs wait for the thread in this process. Nothing was written.
    #[error("{WAITERS_MAX} runs wait for {0} already")]
    QueueFull(String),
    /// The run was stopped while it waited in the queue. Nothing was written.
    #[error("the wait for {0} was given up")]
    GivenUp(String),
}

impl Driver {
    /// A driver whose runs are held under `<nonce>/<n>`. The nonce must be unique to this driver
    /// (clone the driver instead of making another), and locked where other processes may recover
    /// what it leaves (`authority::HolderLock`). It has no ceilings until it is given a guard.
    pub fn new(
        tenant: Tenant,
        models: Arc<dyn Models>,
        tools: Arc<dyn Tools>,
        nonce: &str,
    ) -> Self {
        Self::sharing(tenant, models, tools, Shared::new(nonce))
    }

    /// One of several drivers of a process over one store.
    pub(crate) fn sharing(
        tenant: Tenant,
        models: Arc<dyn Models>,
        tools: Arc<dyn Tools>,
        shared: Arc<Shared>,
    ) -> Self {
        let clock = Arc::clone(&tenant.context().clock);
        Self {
            guard: Arc::new(Guard::new(Policy::preset(Preset::Local), clock)),
            tenant,
            models,
            tools,
            observer: None,
            after: Vec::new(),
            on_busy: OnBusy::Refuse,
            shared,
            nudge: Arc::default(),
            began: Arc::default(),
        }
    }

    /// Holds every run to the ceilings of this guard, which all drivers of the tenant share.
    #[must_use]
    pub fn within(mut self, guard: Arc<Guard>) -> Self {
        self.guard = guard;
        self
    }

    /// Notifies `observer` of every durable change.
    #[must_use]
    pub fn observed(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Sets what a run does about a thread that has a lease; by default the run is refused.
    #[must_use]
    pub fn on_busy(mut self, on_busy: OnBusy) -> Self {
        self.on_busy = on_busy;
        self
    }

    /// Does `work` after each run, on its own task. A stream of events ends once the work after its
    /// run is done.
    #[must_use]
    pub fn after_run(self, work: Arc<dyn AfterRun>) -> Self {
        self.doing(Arc::new(Work::new(work, AFTER_TIME_MAX)))
    }

    /// As [`Self::after_run`], with a queue that other drivers share.
    #[must_use]
    pub(crate) fn doing(mut self, work: Arc<Work>) -> Self {
        self.after.push(work);
        self
    }

    /// Waits until the work after all runs that have stopped or ended so far is done, or has
    /// failed.
    pub async fn after_runs_done(&self) {
        for work in &self.after {
            work.flush().await;
        }
    }

    /// The tenant whose threads the driver runs.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Begins a run, or resumes one in place, and performs it until it is idle, suspended or ended,
    /// with all that it spawns: at most [`TREE_RUNS_MAX`] threads of its tree side by side. Returns
    /// once none of them can go on.
    ///
    /// `input` is a JSON message of a user, or `None` to try again.
    ///
    /// # Errors
    /// If the component refuses to start the run, if it had to wait too long in the queue, or if it
    /// cannot be performed to its end.
    pub async fn run(
        &self,
        thread: &str,
        input: Option<String>,
        sink: &Sink,
        stop: &Stop,
    ) -> Result<Ended, DriveError> {
        self.tree(None, (thread, input), sink, stop).await
    }

    /// Takes over a thread that waits, or whose holder is gone, and performs it without the threads
    /// that it spawns.
    ///
    /// # Errors
    /// `busy` while the holder lives; else as [`Driver::run`].
    pub async fn claim(
        &self,
        thread: &str,
        proof: runner::Proof,
        sink: &Sink,
        stop: &Stop,
    ) -> Result<Ended, DriveError> {
        let permit = self.guard.begin().map_err(DriveError::Ceiling)?;
        self.claim_with(permit, (thread, proof), sink, stop).await
    }

    /// As [`Self::claim`], with a permit obtained before.
    async fn claim_with(
        &self,
        permit: Permit,
        (thread, proof): (&str, runner::Proof),
        sink: &Sink,
        stop: &Stop,
    ) -> Result<Ended, DriveError> {
        let mut holding = self.shared.holding();
        let driver = self.marked(&holding);
        holding.may_hold();
        let claimed = driver.tenant.claim(thread, &holding.holder, proof).await;
        let handle = claimed.inspect_err(|error| not_held(error, &mut holding))?;
        let begun = (handle, Admitted::at_once(permit));
        driver.held(begun, &mut holding, sink, stop).await
    }

    /// Closes the runs of this process whose futures were dropped, or that could not be performed
    /// to their end, as `recover` does for a process that died. While one of their threads cannot
    /// be read, all of them stay recorded as lost.
    ///
    /// # Errors
    /// If the component gives no answer.
    pub async fn recover_lost(&self) -> Result<Vec<String>, CallError> {
        Ok(self.close_lost().await?.closed)
    }

    pub(crate) async fn close_lost(&self) -> Result<Recovered, CallError> {
        let lost = self.shared.lost();
        let (holders, quiet): (Vec<String>, Vec<bool>) = lost.into_iter().unzip();
        let recovered = self.tenant.recover_all(&holders).await?;
        if !recovered.unreadable.is_empty() {
            return Ok(recovered);
        }
        // The last call of a run may still be under way and take the lease only now.
        let over = holders.into_iter().zip(quiet).filter(|(_, quiet)| *quiet);
        let over: Vec<String> = over.map(|(holder, _)| holder).collect();
        self.shared.forget(&over);
        Ok(recovered)
    }

    /// The same driver for one run: every call of it counts as one of the run.
    fn marked(&self, holding: &Holding) -> Self {
        Self {
            tenant: self.tenant.marked(&holding.calls),
            ..self.clone()
        }
    }

    /// Performs a run that has its lease. Without `release`, dropping the lease records the run as
    /// lost.
    async fn held(
        &self,
        (handle, mut admitted): (runner::Handle, Admitted),
        holding: &mut Holding,
        sink: &Sink,
        stop: &Stop,
    ) -> Result<Ended, DriveError> {
        admitted.permit.tell(sink.notes());
        let done = self.perform(handle, &admitted.permit, sink, stop).await;
        if matches!(done, Ok(_) | Err(DriveError::Fenced(_))) {
            holding.release();
        }
        if let Ok(ended) = &done
            && ended.status != "waiting"
        {
            self.after.iter().for_each(|work| work.ended(ended, sink));
        }
        done
    }

    async fn perform(
        &self,
        handle: runner::Handle,
        permit: &Permit,
        sink: &Sink,
        stop: &Stop,
    ) -> Result<Ended, DriveError> {
        let thread = handle.thread.id.clone();
        self.committed(&thread);
        sink.emit(RunEvent::Started {
            thread: thread.clone(),
            run: handle.thread.run.number,
            version: handle.step.version,
        });
        let mut run = perform::Run {
            driver: self,
            thread: thread.clone(),
            agent: handle.thread.agent.clone(),
            token: handle.token,
            permit,
            sink,
            stop: stop.clone(),
            conversation: Conversation::default(),
            told_wait: None,
        };
        let mut step = handle.step;
        // A thread that was never run has no descendants.
        if !self.began.swap(true, Ordering::Relaxed) && step.version > 1 {
            self.nudge.notify_one();
        }
        while step.kind != "finished" {
            step = run.perform(step).await?;
            self.committed(&thread);
        }
        let ended = Ended::of(&self.ended(&thread).await?);
        sink.emit(match ended.status.as_str() {
            "waiting" => RunEvent::Waits { thread },
            _ => RunEvent::Ended(Box::new(ended.clone())),
        });
        Ok(ended)
    }

    /// Reads the thread of a run that is over. The end is durable, so a failed read is repeated
    /// before the run is reported as failed.
    async fn ended(&self, thread: &str) -> Result<wit::Thread, CallError> {
        let mut pause = ENDED_PAUSE;
        for _ in 1..ENDED_READS_MAX {
            match self.tenant.get(thread).await {
                Ok(found) => return Ok(found),
                Err(error) => tracing::warn!(%thread, %error, "how a run ended cannot be read"),
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        self.tenant.get(thread).await
    }

    fn committed(&self, thread: &str) {
        if let Some(observer) = &self.observer {
            observer.committed(thread);
        }
    }
}
