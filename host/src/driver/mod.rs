//! The driver: performs the steps that the component hands out (model calls, tool rounds, waits)
//! for many threads at once.
//!
//! It decides nothing: the answer to `submit` is the next step. Everything that it emits as done is
//! durable. Dropping the future of [`Driver::run`] drops the request in flight and leaves a thread
//! that [`Driver::recover_lost`] closes, as does the next run that meets it.
//!
//! A run may go on in another thread than it began in: each step names its thread, and the driver
//! follows it with conversation, sink, place in the queue and tree.

mod answered_calls;
mod conversation;
mod events;
mod hand_off;
mod inner_run;
mod kept_conversations;
mod nonce;
mod observer;
mod outside_calls;
mod perform;
mod post_run_work;
mod queue;
mod result_blobs;
mod run_admission;
mod stop;
mod tree;

pub use events::{EndedRun, EventSink, RunEvent, StopCause, ThreadCosts, ThreadResumption};
pub use inner_run::{InnerRun, InnerRunReport};
pub use nonce::fresh_nonce;
pub use observer::{CommitNotice, CommitObserver};
pub(crate) use post_run_work::PostRunWork;
pub use post_run_work::{AFTER_QUEUE_MAX, AFTER_TIME_MAX, AfterRun, DurableReply};
pub(crate) use queue::DriverShared;
pub use queue::{LOST_MAX, OnBusy, WAITERS_MAX};
pub use stop::{StopLevel, StopReceiver, StopSender, stop_channel};
pub use tree::TREE_RUNS_MAX;

use crate::ceilings::{CeilingGuard, CeilingRefusal, RunPermit};
use crate::error::CallError;
use crate::models::{ModelFailure, ModelProvider};
use crate::policy::{Policy, PolicyPreset};
use crate::tenant::{RecoveryReport, Tenant};
use crate::tools::ToolSet;
use crate::wit::{self, llm, runner};
use conversation::ThreadConversation;
use hand_off::HandOffLog;
use kept_conversations::ConversationEnd;
use queue::{RunLease, describe_holder};
use run_admission::{RunAdmission, RunBeginning, release_if_refused};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Attempts at reading how a run ended: a store that fails so often will fail its next user too.
const END_READS_MAX: u32 = 4;
/// The pause after the first failed attempt; it doubles.
const END_READ_PAUSE: Duration = Duration::from_millis(100);

/// Finds the provider of a model.
pub trait ModelProviders: Send + Sync {
    /// The provider, and the name by which it knows the model.
    ///
    /// # Errors
    /// A failure that the runner can act on: an unknown model or a provider that is not set up is
    /// `permanent`.
    fn provider(&self, model: &str) -> Result<(Arc<dyn ModelProvider>, String), ModelFailure>;
}

/// Performs runs of one tenant. Cheap to clone.
#[derive(Clone)]
pub struct Driver {
    tenant: Tenant,
    models: Arc<dyn ModelProviders>,
    tools: Arc<dyn ToolSet>,
    observer: Option<Arc<dyn CommitObserver>>,
    guard: Arc<CeilingGuard>,
    post_run_work: Vec<Arc<PostRunWork>>,
    on_busy: OnBusy,
    shared: Arc<DriverShared>,
    /// Notified when a thread has propagated to others: there may be more to do in its tree.
    tree_changed: Arc<Notify>,
    /// Set once the first run of the tree has begun.
    has_begun: Arc<AtomicBool>,
    /// The runs that went on in another thread.
    hand_offs: HandOffLog,
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
    Ceiling(CeilingRefusal),
    /// The run did not reach the head of the queue within the time that [`OnBusy::Queue`] names.
    /// Nothing was written.
    #[error("{thread} {}; waited {} s for it", describe_holder(.lease.as_ref()), .waited.as_secs())]
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
        models: Arc<dyn ModelProviders>,
        tools: Arc<dyn ToolSet>,
        nonce: &str,
    ) -> Self {
        Self::with_shared_state(tenant, models, tools, DriverShared::new(nonce))
    }

    /// One of several drivers of a process over one store.
    pub(crate) fn with_shared_state(
        tenant: Tenant,
        models: Arc<dyn ModelProviders>,
        tools: Arc<dyn ToolSet>,
        shared: Arc<DriverShared>,
    ) -> Self {
        let clock = Arc::clone(&tenant.context().clock);
        Self {
            guard: Arc::new(CeilingGuard::new(
                Policy::preset(PolicyPreset::Local),
                clock,
            )),
            tenant,
            models,
            tools,
            observer: None,
            post_run_work: Vec::new(),
            on_busy: OnBusy::Refuse,
            shared,
            tree_changed: Arc::default(),
            has_begun: Arc::default(),
            hand_offs: HandOffLog::default(),
        }
    }

    /// Keeps the conversations of the threads that were run last, at most this many bytes of
    /// messages and images: the next run of such a thread reads only what is new. For chats, whose
    /// threads are run again and again; without it nothing is kept. It holds for all
    /// drivers that share their holders with this one: its clones, and those of its project.
    #[must_use]
    pub fn with_kept_conversations(self, bytes_max: usize) -> Self {
        self.shared.kept.set_bytes_max(bytes_max);
        self
    }

    /// Holds every run to the ceilings of this guard, which all drivers of the tenant share.
    #[must_use]
    pub fn with_guard(mut self, guard: Arc<CeilingGuard>) -> Self {
        self.guard = guard;
        self
    }

    /// Notifies `observer` of every durable change.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn CommitObserver>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Sets what a run does about a thread that has a lease; by default the run is refused.
    #[must_use]
    pub fn with_on_busy(mut self, on_busy: OnBusy) -> Self {
        self.on_busy = on_busy;
        self
    }

    /// Does `work` after each run, on its own task. A stream of events ends once the work after its
    /// run is done.
    #[must_use]
    pub fn with_after_run(self, work: Arc<dyn AfterRun>) -> Self {
        self.with_post_run_work(Arc::new(PostRunWork::new(work, AFTER_TIME_MAX)))
    }

    /// As [`Self::with_after_run`], with a queue that other drivers share.
    #[must_use]
    pub(crate) fn with_post_run_work(mut self, work: Arc<PostRunWork>) -> Self {
        self.post_run_work.push(work);
        self
    }

    /// Waits until the work after all runs that have stopped or ended so far is done, or has
    /// failed.
    pub async fn wait_for_post_run_work(&self) {
        for work in &self.post_run_work {
            work.flush().await;
        }
    }

    /// The tenant whose threads the driver runs.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Begins a run, or resumes one in place, and performs it until it is idle, suspended or ended,
    /// with all that it spawns: at most [`TREE_RUNS_MAX`] threads of its tree side by side. Returns
    /// once none of them can go on. The run may end in another thread than it began in:
    /// [`EndedRun::thread`].
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
        sink: &EventSink,
        stop: &StopReceiver,
    ) -> Result<EndedRun, DriveError> {
        let beginning = RunBeginning::start(thread, input);
        self.run_tree(None, beginning, sink, stop).await
    }

    /// Goes on with a thread, named by any link of its chain: in place, as [`Driver::run`] does, or
    /// in a successor if it has ended, which [`RunEvent::Resumed`] reports. `input` may be `None`
    /// where the conversation ends with something to answer.
    ///
    /// # Errors
    /// As [`Driver::run`].
    pub async fn resume(
        &self,
        thread: &str,
        input: Option<String>,
        sink: &EventSink,
        stop: &StopReceiver,
    ) -> Result<EndedRun, DriveError> {
        let beginning = RunBeginning::resume(thread, input);
        self.run_tree(None, beginning, sink, stop).await
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
        sink: &EventSink,
        stop: &StopReceiver,
    ) -> Result<EndedRun, DriveError> {
        let permit = self.guard.admit_run().map_err(DriveError::Ceiling)?;
        self.claim_with_permit(permit, (thread, proof), sink, stop)
            .await
    }

    /// As [`Self::claim`], with a permit obtained before.
    async fn claim_with_permit(
        &self,
        permit: RunPermit,
        (thread, proof): (&str, runner::Proof),
        sink: &EventSink,
        stop: &StopReceiver,
    ) -> Result<EndedRun, DriveError> {
        let mut holding = self.shared.new_run_lease();
        let driver = self.with_call_marker(&holding);
        holding.mark_held();
        let claimed = driver.tenant.claim(thread, &holding.holder, proof).await;
        let handle = claimed.inspect_err(|error| release_if_refused(error, &mut holding))?;
        let begun = (handle, RunAdmission::from_permit(permit));
        let leased = driver.perform_leased(thread, begun, &mut holding, sink, stop);
        leased.await
    }

    /// Closes the runs of this process whose futures were dropped, or that could not be performed
    /// to their end, as `recover` does for a process that died. While one of their threads cannot
    /// be read, all of them stay recorded as lost.
    ///
    /// # Errors
    /// If the component gives no answer.
    pub async fn recover_lost(&self) -> Result<Vec<String>, CallError> {
        Ok(self.close_lost_runs().await?.closed)
    }

    pub(crate) async fn close_lost_runs(&self) -> Result<RecoveryReport, CallError> {
        let lost = self.shared.lost_runs();
        let (holders, quiet): (Vec<String>, Vec<bool>) = lost.into_iter().unzip();
        let recovered = self.tenant.recover_all(&holders).await?;
        if !recovered.unreadable.is_empty() {
            return Ok(recovered);
        }
        // The last call of a run may still be under way and take the lease only now.
        let over = holders.into_iter().zip(quiet).filter(|(_, quiet)| *quiet);
        let over: Vec<String> = over.map(|(holder, _)| holder).collect();
        self.shared.forget_lost(&over);
        Ok(recovered)
    }

    /// The same driver for one run: every call of it counts as one of the run.
    fn with_call_marker(&self, holding: &RunLease) -> Self {
        Self {
            tenant: self.tenant.with_call_marker(&holding.call_marker),
            ..self.clone()
        }
    }

    /// Performs a run that has its lease; `thread` is the one that was asked for. Without
    /// `release`, dropping the lease records the run as lost.
    async fn perform_leased(
        &self,
        thread: &str,
        (handle, mut admission): (runner::Handle, RunAdmission),
        holding: &mut RunLease,
        sink: &EventSink,
        stop: &StopReceiver,
    ) -> Result<EndedRun, DriveError> {
        let begun = (handle, &mut admission);
        let done = self.perform_steps(thread, begun, sink, stop).await;
        if matches!(done, Ok(_) | Err(DriveError::Fenced(_))) {
            holding.release();
        }
        if let Ok(ended) = &done
            && ended.status != "waiting"
        {
            let sink = sink.follow_thread(&ended.thread);
            self.post_run_work
                .iter()
                .for_each(|work| work.queue_ended_run(ended, &sink));
        }
        done
    }

    async fn perform_steps(
        &self,
        thread: &str,
        (handle, admission): (runner::Handle, &mut RunAdmission),
        sink: &EventSink,
        stop: &StopReceiver,
    ) -> Result<EndedRun, DriveError> {
        let runner::Handle {
            thread: record,
            token,
            mut step,
        } = handle;
        let mut run = perform::Run {
            driver: self,
            thread: thread.to_owned(),
            agent: record.agent,
            token,
            admission,
            sink: sink.clone(),
            stop: stop.clone(),
            conversation: ThreadConversation::default(),
            reported_wait: None,
            resumption: ThreadResumption::from_step(&step),
        };
        run.watch_permit();
        run.follow(&record.id).await;
        self.notify_step(&step).await;
        run.sink.emit(RunEvent::Started {
            thread: record.id.clone(),
            run: record.run.number.into(),
            version: step.version,
        });
        run.follow(&step.thread).await;
        let first = ConversationEnd {
            version: record.version,
            hash: record.hash,
        };
        run.conversation = self.begin_conversation(&record.id, first, &step).await;
        // A thread that was never run has no descendants.
        if !self.has_begun.swap(true, Ordering::Relaxed) && step.version > 1 {
            self.tree_changed.notify_one();
        }
        while step.kind != "finished" {
            step = run.perform(step).await?;
            self.notify_step(&step).await;
        }
        let ended = EndedRun::from_thread(&self.read_ended_thread(&run.thread).await?);
        // A thread that has ended is not run again: another goes on in its place.
        if ended.outcome.is_none() {
            let conversation = std::mem::take(&mut run.conversation);
            self.shared.kept.keep(&run.thread, conversation);
        }
        run.sink.emit(match ended.status.as_str() {
            "waiting" => RunEvent::Waits { thread: run.thread },
            _ => RunEvent::Ended(Box::new(ended.clone())),
        });
        Ok(ended)
    }

    /// Returns the conversation that a run begins with: what is kept of it, or nothing. `first` is
    /// the newest entry of the thread that was begun.
    async fn begin_conversation(
        &self,
        begun: &str,
        first: ConversationEnd,
        step: &runner::Step,
    ) -> ThreadConversation {
        let is_whole = |request: &llm::Request| request.since == 0;
        let mut conversation = if step.request.as_ref().is_some_and(is_whole) {
            ThreadConversation::default()
        } else {
            let kept = &self.shared.kept;
            let reclaimed = kept.reclaim_verified(&self.tenant, &step.thread).await;
            reclaimed.unwrap_or_default()
        };
        // Another thread's entry says nothing of this one, and a summary is asked for by a request
        // that is not the conversation.
        let hands_out = step.thread == begun && step.version == first.version;
        let is_turn = step.kind == "call-llm" && !perform::step_phase(step).summarizes();
        conversation.begin_run((hands_out && is_turn).then_some(first));
        conversation
    }

    /// Reads the thread of a run that is over. The end is durable, so a failed read is repeated
    /// before the run is reported as failed.
    async fn read_ended_thread(&self, thread: &str) -> Result<wit::Thread, CallError> {
        let mut pause = END_READ_PAUSE;
        for _ in 1..END_READS_MAX {
            match self.tenant.get(thread).await {
                Ok(found) => return Ok(found),
                Err(error) => tracing::warn!(%thread, %error, "how a run ended cannot be read"),
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        self.tenant.get(thread).await
    }
}
