//! One step of one run: performed, then submitted.

use super::answered_calls::{count_answered, report_answered};
use super::conversation::ThreadConversation;
use super::hand_off::report_hand_off;
use super::outside_calls::{delta_event, partial_text, perform_tool_call};
use super::run_admission::RunAdmission;
use super::{
    DriveError, Driver, DurableReply, EventSink, RunEvent, StopLevel, StopReceiver, ThreadCosts,
    ThreadResumption,
};
use crate::ceilings::{PendingSettlement, RunPermit};
use crate::component::convert;
use crate::models::{
    BoxFuture, CompletionRequest, FailureKind, ModelCompletion, ModelFailure, ModelProvider,
    OnDelta, ReplyDelta,
};
use crate::wit::{self, llm, runner};
use futures_util::future::join_all;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use threadkeep_storage::locks::SleepingMutex;

/// Interval at which a step under way asks the component whether to go on.
const POLL: Duration = Duration::from_secs(1);
/// Longest interval for a wait, after its first polls: nothing is in flight that a late answer
/// would cost money for, and ten thousand waits that each poll every second would keep a core busy.
const POLL_WAIT_MAX: Duration = Duration::from_secs(10);
/// Polls between two writes of a partial text.
const POLLS_PER_PARTIAL: u32 = 2;
/// Repetitions of a submit before the run fails: with the pauses, for a quarter of a minute; the
/// tenant itself repeats each call as well.
const SUBMIT_REPEATS_MAX: u32 = 12;
/// The pause before the first repetition; it doubles.
const SUBMIT_PAUSE: Duration = Duration::from_millis(40);
/// The longest pause between repetitions.
const SUBMIT_PAUSE_MAX: Duration = Duration::from_secs(2);

/// A run whose lease this driver has.
pub(super) struct Run<'a> {
    pub(super) driver: &'a Driver,
    /// The thread that the run is in.
    pub(super) thread: String,
    pub(super) agent: Option<String>,
    pub(super) token: u64,
    /// Its permit admits every model and tool call.
    pub(super) admission: &'a mut RunAdmission,
    pub(super) sink: EventSink,
    pub(super) stop: StopReceiver,
    pub(super) conversation: ThreadConversation,
    /// The last step whose wait for money was reported: a step keeps its number while it waits on.
    pub(super) reported_wait: Option<u64>,
    /// The successor that the run begins in, until that was reported.
    pub(super) resumption: Option<ThreadResumption>,
}

/// Reason why a step was not performed to its end.
enum StepInterruption {
    /// A cancel, or a stop by the caller: the component must be told.
    Stopped,
    /// Another holder has the thread: nothing more to submit.
    Fenced,
}

/// Schedule of the polls of a step under way.
struct PollSchedule {
    count: u32,
    gap: Duration,
    gap_max: Duration,
    /// Bytes of the partial text at the last write.
    written: usize,
}

impl PollSchedule {
    fn new(gap_max: Duration) -> Self {
        Self {
            count: 0,
            gap: POLL,
            gap_max,
            written: 0,
        }
    }

    /// Advances the poll counter; returns the partial text to persist, or an empty string if none
    /// is due or nothing new arrived.
    fn next_partial(&mut self, partial: &SleepingMutex<String>) -> String {
        self.count += 1;
        self.gap = (self.gap * 2).min(self.gap_max);
        if !self.count.is_multiple_of(POLLS_PER_PARTIAL) {
            return String::new();
        }
        let text = partial_text(partial);
        if text.len() == self.written {
            return String::new();
        }
        self.written = text.len();
        text
    }
}

/// A provider that records whether it was asked: a call that waits for its slot has sent nothing.
struct ObservedProvider<'a> {
    provider: &'a dyn ModelProvider,
    asked: AtomicBool,
}

impl<'a> ObservedProvider<'a> {
    fn new(provider: &'a dyn ModelProvider) -> Self {
        Self {
            provider,
            asked: AtomicBool::new(false),
        }
    }

    fn was_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}

impl ModelProvider for ObservedProvider<'_> {
    fn complete<'a>(
        &'a self,
        request: &'a CompletionRequest,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<ModelCompletion, ModelFailure>> {
        self.asked.store(true, Ordering::Relaxed);
        self.provider.complete(request, on_delta)
    }
}

impl Run<'_> {
    /// Goes on with the thread that a step names: nothing of the other thread's conversation is
    /// held for it. Does nothing for the thread that the run is in.
    pub(super) async fn follow(&mut self, thread: &str) {
        if self.thread == thread {
            return;
        }
        let from = std::mem::replace(&mut self.thread, thread.to_owned());
        self.driver.hand_offs.record(&from, thread);
        // The caller may have written the id in other letters.
        if from.eq_ignore_ascii_case(thread) {
            return;
        }
        self.conversation = ThreadConversation::default();
        self.reported_wait = None;
        self.driver.notify_change(&from);
        let event = match self.resumption.take() {
            Some(resumed) => {
                // The link that had ended may be a later one than the one that was named.
                self.driver.notify_change(&resumed.old_thread_id);
                RunEvent::Resumed(Box::new(resumed))
            }
            None => report_hand_off(&self.driver.tenant, from, thread).await,
        };
        self.sink.emit(event);
        self.sink = self.sink.follow_thread(thread);
        self.watch_permit();
        self.admission.move_to(&self.driver.shared, thread);
        // Only for the work after its replies: the run goes on if the read fails.
        if let Ok(record) = self.driver.tenant.get(thread).await {
            self.agent = record.agent;
        }
    }

    /// Sends the notices of the permit to the run's sink.
    pub(super) fn watch_permit(&mut self) {
        let receiver = self.sink.notice_receiver();
        self.admission.permit.set_notice_receiver(receiver);
    }

    fn permit(&self) -> &RunPermit {
        &self.admission.permit
    }

    /// Performs a step, submits its result, and returns the next step.
    pub(super) async fn perform(&mut self, step: runner::Step) -> Result<runner::Step, DriveError> {
        let outcome = match step.kind.as_str() {
            "call-llm" => self.call_llm(&step).await?,
            "call-tools" => self.call_tools(&step).await?,
            _ => self.perform_wait(&step).await?,
        };
        let replied = matches!(outcome, runner::Outcome::Completion(_));
        let failed = match &outcome {
            runner::Outcome::Failure(failure) => Some(failure.message.clone()),
            _ => None,
        };
        let reply = match &outcome {
            runner::Outcome::Completion(reply) if self.sink.has_listener() => Some(reply.clone()),
            _ => None,
        };
        let next = self.submit(&step, outcome).await?;
        let tenant = &self.driver.tenant;
        if replied {
            // No other holder writes between a step and its result, so the result is the next
            // version.
            let replied = DurableReply {
                thread: self.thread.clone(),
                agent: self.agent.clone(),
                version: step.version + 1,
            };
            for work in &self.driver.post_run_work {
                work.queue_reply(&replied, &self.sink);
            }
        }
        if next.concerns_others {
            self.driver.tree_changed.notify_one();
        }
        // Only for listeners: the run goes on if the read fails. The summary of a thread that is
        // handed off is no turn of it.
        let is_turn = replied && !step_phase(&step).summarizes() && self.sink.has_listener();
        if is_turn && let Ok(thread) = tenant.get(&self.thread).await {
            self.sink.emit(RunEvent::Turn {
                costs: ThreadCosts::from_thread(&thread),
                context: thread.context,
                window: thread.window,
            });
        }
        let answered = reply.map_or(0, |reply| count_answered(&reply, &next));
        if answered > 0 {
            report_answered(tenant, &self.sink, &self.thread, step.version + 1).await;
        }
        self.follow(&next.thread).await;
        if let (Some(message), "wait") = (failed, next.kind.as_str()) {
            let millis = next.until.map_or(0, |until| self.millis_until(until));
            self.sink.emit(RunEvent::Retry { millis, message });
        }
        Ok(next)
    }

    /// Submits the result of a step. Its cost is paid: a store that is busy, or cannot be reached
    /// for a while, is no reason to lose the result, and a submit may always be repeated.
    async fn submit(
        &self,
        step: &runner::Step,
        outcome: runner::Outcome,
    ) -> Result<runner::Step, DriveError> {
        let (tenant, have) = (&self.driver.tenant, self.conversation.version_to_report());
        let mut pause = SUBMIT_PAUSE;
        for _ in 0..SUBMIT_REPEATS_MAX {
            let outcome = outcome.clone();
            let given = tenant.submit(&self.thread, self.token, step.version, outcome, have);
            match given.await {
                Err(error) if error.is_transient() => {
                    tracing::debug!(thread = self.thread, %error, "a result is given again");
                }
                given => return self.map_submit_error(given),
            }
            tokio::time::sleep(pause / 2 + crate::tenant::jitter(pause / 2)).await;
            pause = (pause * 2).min(SUBMIT_PAUSE_MAX);
        }
        let given = tenant.submit(&self.thread, self.token, step.version, outcome, have);
        self.map_submit_error(given.await)
    }

    fn map_submit_error(
        &self,
        given: Result<runner::Step, crate::error::CallError>,
    ) -> Result<runner::Step, DriveError> {
        given.map_err(|error| match error {
            crate::error::CallError::Refused(wit::Error::Fenced(_)) => {
                DriveError::Fenced(self.thread.clone())
            }
            error => DriveError::Call(error),
        })
    }

    async fn call_llm(&mut self, step: &runner::Step) -> Result<runner::Outcome, DriveError> {
        let Some(asked) = &step.request else {
            let kind = FailureKind::Permanent;
            let none = ModelFailure::new(kind, "no_request", "the step has no request").not_sent();
            return Ok(runner::Outcome::Failure(convert::failure_to_wit(&none)));
        };
        if self.stop.level() >= StopLevel::Cancel {
            // A wait may have been answered while the driver was being stopped.
            let stopped = llm_failure(FailureKind::Cancelled, "stopped", "nothing was sent");
            return Ok(runner::Outcome::Stopped(llm::LlmError {
                sent: false,
                ..stopped
            }));
        }
        let (tenant, conversation) = (&self.driver.tenant, &mut self.conversation);
        let extended = conversation.extend_or_refuse(tenant, &self.thread, step.version, asked);
        if let Some(unread) = extended.await? {
            return Ok(runner::Outcome::Failure(convert::failure_to_wit(&unread)));
        }
        let (provider, name) = match self.driver.models.provider(&asked.model) {
            Ok(found) => found,
            Err(failed) => return Ok(runner::Outcome::Failure(convert::failure_to_wit(&failed))),
        };
        conversation.complete_request(tenant, name, asked).await;
        let request = &self.conversation.request;
        let partial = SleepingMutex::new(String::new());
        let phase = step_phase(step);
        if let Some((tokens, window)) = phase.hand_off {
            self.sink.emit(RunEvent::HandingOff {
                thread: self.thread.clone(),
                tokens,
                window,
            });
        }
        let on_delta = |delta: ReplyDelta| {
            if let Some(event) = delta_event(delta, &partial).filter(|_| !phase.summarizes()) {
                self.sink.emit(event);
            }
        };
        let provider = ObservedProvider::new(&*provider);
        let left = self.time_until(step.deadline);
        let call = self
            .permit()
            .complete_unsettled(&provider, request, &on_delta, left);
        let answer = self
            .perform_with_polls(call, StopLevel::Cancel, &partial, POLL)
            .await;
        Ok(match await_settlement(answer).await {
            Ok(Ok(completion)) => runner::Outcome::Completion(convert::completion_to_wit(
                &completion.without_empty_texts(),
            )),
            Ok(Err(mut failed)) => {
                if failed.partial.is_empty() {
                    failed.partial = partial_text(&partial);
                }
                runner::Outcome::Failure(convert::failure_to_wit(&failed))
            }
            Err(StepInterruption::Stopped) => {
                let stopped =
                    llm_failure(FailureKind::Cancelled, "stopped", "the request was dropped");
                runner::Outcome::Stopped(llm::LlmError {
                    sent: provider.was_asked(),
                    partial: partial_text(&partial),
                    ..stopped
                })
            }
            Err(StepInterruption::Fenced) => return Err(DriveError::Fenced(self.thread.clone())),
        })
    }

    async fn call_tools(&mut self, step: &runner::Step) -> Result<runner::Outcome, DriveError> {
        // A round that went on past its step's deadline could run while another holder claims the
        // thread.
        let left = self.time_until(step.deadline);
        let passed = (self.permit(), &self.sink);
        let calls = step.calls.iter();
        let round = calls.map(|call| perform_tool_call(self.driver, passed, call, left));
        let round = join_all(round);
        let partial = SleepingMutex::default();
        match self
            .perform_with_polls(round, StopLevel::Now, &partial, POLL)
            .await
        {
            Ok(round) => {
                let (outcomes, settling): (Vec<_>, Vec<_>) = round.into_iter().unzip();
                join_all(settling.into_iter().map(PendingSettlement::wait)).await;
                Ok(runner::Outcome::Outcomes(outcomes))
            }
            Err(StepInterruption::Stopped) => {
                let stopped = llm_failure(
                    FailureKind::Cancelled,
                    "stopped",
                    "the calls were abandoned",
                );
                Ok(runner::Outcome::Stopped(llm::LlmError {
                    sent: false,
                    ..stopped
                }))
            }
            Err(StepInterruption::Fenced) => Err(DriveError::Fenced(self.thread.clone())),
        }
    }

    async fn perform_wait(&mut self, step: &runner::Step) -> Result<runner::Outcome, DriveError> {
        let left = step
            .until
            .map_or(Duration::ZERO, |until| self.time_until(until));
        self.report_money_wait(step.version, left).await;
        let (wait, partial) = (tokio::time::sleep(left), SleepingMutex::default());
        let waited = self.perform_with_polls(wait, StopLevel::Cancel, &partial, POLL_WAIT_MAX);
        match waited.await {
            Ok(()) => Ok(runner::Outcome::Waited),
            Err(StepInterruption::Stopped) => {
                let stopped = llm_failure(FailureKind::Cancelled, "stopped", "the wait was ended");
                Ok(runner::Outcome::Stopped(llm::LlmError {
                    sent: false,
                    ..stopped
                }))
            }
            Err(StepInterruption::Fenced) => Err(DriveError::Fenced(self.thread.clone())),
        }
    }

    /// Reports, once a step, that the run waits for money held by other calls.
    async fn report_money_wait(&mut self, step: u64, left: Duration) {
        if self.reported_wait == Some(step) {
            return;
        }
        self.reported_wait = Some(step);
        // Only for listeners: the run waits all the same.
        let Ok(thread) = self.driver.tenant.get(&self.thread).await else {
            return;
        };
        let held = thread.cause.filter(|cause| cause.code == "money_held");
        if let Some(cause) = held {
            let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            self.sink.emit(RunEvent::Waiting {
                millis,
                message: cause.message,
            });
        }
    }

    /// Performs `work` while polling whether to go on and persisting its partial text. The work is
    /// dropped when the component says so, or when the stop reaches `level`. The first poll comes
    /// after a second, each later one after twice the time, at most `gap_max`. Neither the work nor
    /// a stop waits for the answer of a poll.
    async fn perform_with_polls<T>(
        &self,
        work: impl Future<Output = T>,
        level: StopLevel,
        partial: &SleepingMutex<String>,
        gap_max: Duration,
    ) -> Result<T, StepInterruption> {
        let mut work = std::pin::pin!(work);
        let mut stop = self.stop.clone();
        let mut asking = PollSchedule::new(gap_max);
        loop {
            let verdict = tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                () = stop.wait_for_level(level) => return Err(StepInterruption::Stopped),
                verdict = self.poll_progress(&mut asking, partial) => verdict,
            };
            match verdict.as_deref() {
                Some("fenced") => return Err(StepInterruption::Fenced),
                Some("stop") if level == StopLevel::Cancel => {
                    return Err(StepInterruption::Stopped);
                }
                _ => {}
            }
        }
    }

    /// Polls the component, when a poll is due, and persists the text so far. A failed poll is no
    /// reason to lose the work: the next one asks again, and `submit` decides. A poll that is
    /// dropped while under way writes nothing once the thread has moved on.
    async fn poll_progress(
        &self,
        asking: &mut PollSchedule,
        partial: &SleepingMutex<String>,
    ) -> Option<String> {
        tokio::time::sleep(asking.gap).await;
        let text = Some(asking.next_partial(partial)).filter(|text| !text.is_empty());
        let tenant = &self.driver.tenant;
        let news = tenant.progress(&self.thread, self.token, text).await;
        news.ok().map(|news| news.verdict)
    }

    fn time_until(&self, time: wit::Instant) -> Duration {
        convert::time_from_wit(time)
            .saturating_duration_since(self.driver.tenant.context().clock.now())
    }

    fn millis_until(&self, time: wit::Instant) -> u64 {
        u64::try_from(self.time_until(time).as_millis()).unwrap_or(u64::MAX)
    }
}

/// The phase of a run, as one of its steps says it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StepPhase {
    /// The tokens of the next request and those of the window, where the step is to ask for the
    /// summary of a thread that is handed off.
    hand_off: Option<(u64, u64)>,
}

impl StepPhase {
    pub(super) fn summarizes(self) -> bool {
        self.hand_off.is_some()
    }
}

/// Reads the fields of a step's `more` that this driver knows.
pub(super) fn step_phase(step: &runner::Step) -> StepPhase {
    let more: serde_json::Value = serde_json::from_str(&step.more).unwrap_or_default();
    let number = |name: &str| more[name].as_u64().unwrap_or_default();
    let summarizes = more["phase"] == "summarizing";
    StepPhase {
        hand_off: summarizes.then(|| (number("tokens"), number("window"))),
    }
}

/// Returns the answer once its totals are written, which no stop interrupts.
async fn await_settlement<T>(
    answered: Result<(T, PendingSettlement), StepInterruption>,
) -> Result<T, StepInterruption> {
    let (answer, settling) = answered?;
    settling.wait().await;
    Ok(answer)
}

pub(super) fn llm_failure(kind: FailureKind, code: &str, message: &str) -> llm::LlmError {
    convert::failure_to_wit(&ModelFailure::new(kind, code, message))
}
