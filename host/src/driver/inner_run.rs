//! A run that the component's own loop performs (`runner.run`), over this driver's models and
//! tools: for a host that wants one call that returns where it got to.
//!
//! Its calls pass through a permit as those of [`Driver::run`] do, so policy and ceilings hold. The
//! loop performs one step after the other and takes a cancel with its next commit; nothing is
//! streamed into partial records. [`Driver::run`] is the better choice for most.

use super::conversation::ThreadConversation;
use super::outside_calls::{delta_event, partial_text, perform_tool_call};
use super::perform::llm_failure;
use super::queue::RunLease;
use super::{DriveError, Driver, EventSink};
use crate::ceilings::{PendingSettlement, RunPermit};
use crate::component::convert;
use crate::error::CallError;
use crate::models::{BoxFuture, FailureKind};
use crate::tenant::InnerCalls;
use crate::wit::{self, llm};
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::time::Duration;
use threadkeep_storage::locks::SleepingMutex;

/// A run under one holder, performed by one call of the component's loop after another. Dropping it
/// while a thread may have its lease leaves that to [`Driver::recover_lost`].
pub struct InnerRun {
    driver: Driver,
    permit: RunPermit,
    lease: RunLease,
    sink: EventSink,
}

/// The answer of one call: how far the run came.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct InnerRunReport {
    /// The thread that is the tip of the chain now.
    pub thread: String,
    /// Its status.
    pub status: String,
    /// The reason to call again, if the run is not finished: `steps`, `time`, `holder` or `person`.
    pub more_for: Option<String>,
    /// When to call again, if that is known.
    pub until: Option<wit::Instant>,
    /// The whole answer, JSON, as `runner.run` documents it.
    pub json: String,
}

#[derive(serde::Deserialize)]
struct RunAnswer {
    thread: String,
    status: String,
    #[serde(rename = "for")]
    more_for: Option<String>,
    until: Option<AnswerTime>,
}

#[derive(serde::Deserialize)]
struct AnswerTime {
    seconds: i64,
    nanos: u32,
}

impl InnerRunReport {
    fn parse(json: String) -> Result<Self, DriveError> {
        let answer: RunAnswer = serde_json::from_str(&json).map_err(|error| {
            let problem = format!("the answer of runner.run is not what wit/ says: {error}");
            DriveError::Call(CallError::Trapped(problem))
        })?;
        Ok(Self {
            thread: answer.thread,
            status: answer.status,
            more_for: answer.more_for,
            until: answer.until.map(|time| wit::Instant {
                seconds: time.seconds,
                nanos: time.nanos,
            }),
            json,
        })
    }
}

impl Driver {
    /// Admits a run that the component's own loop performs. Its events go to `sink`.
    ///
    /// # Errors
    /// `Ceiling` if the maximal number of runs is under way.
    pub fn begin_inner_run(&self, sink: &EventSink) -> Result<InnerRun, DriveError> {
        let mut permit = self.guard.admit_run().map_err(DriveError::Ceiling)?;
        permit.set_notice_receiver(sink.notice_receiver());
        let lease = self.shared.new_run_lease();
        Ok(InnerRun {
            driver: self.with_call_marker(&lease),
            permit,
            lease,
            sink: sink.clone(),
        })
    }
}

impl InnerRun {
    /// The holder of the run's threads.
    pub fn holder(&self) -> &str {
        &self.lease.holder
    }

    /// Performs at most `steps` steps (1 to 1,000) of a thread and all that it spawns. Call it
    /// again after [`InnerRunReport::more_for`] or an error, with an input only if that has an
    /// `id`. Dropping the future drops the model or tool call under way.
    ///
    /// # Errors
    /// If the component refuses, or gives no answer: what was committed stands.
    pub async fn perform_steps(
        &mut self,
        thread: &str,
        input: Option<String>,
        steps: u32,
    ) -> Result<InnerRunReport, DriveError> {
        self.lease.mark_held();
        let calls = PermittedCalls {
            run: self,
            top: thread,
            changed: SleepingMutex::new(BTreeSet::from([thread.to_owned()])),
        };
        let holder = (self.holder(), self.holder());
        let called = self
            .driver
            .tenant
            .run_inside(thread, input, holder, steps, &calls);
        let called = called.await;
        let mut changed = calls.changed.into_inner();
        let report = called
            .map_err(DriveError::Call)
            .and_then(InnerRunReport::parse);
        changed.extend(report.as_ref().ok().map(|report| report.thread.clone()));
        for thread in &changed {
            self.driver.notify_change(thread);
        }
        let report = report?;
        if matches!(report.more_for.as_deref(), None | Some("person")) {
            self.lease.release();
        }
        Ok(report)
    }
}

/// The model and tool calls of one call of the loop.
struct PermittedCalls<'a> {
    run: &'a InnerRun,
    /// The thread that was asked for: events of others are those of children.
    top: &'a str,
    /// The threads that have made calls.
    changed: SleepingMutex<BTreeSet<String>>,
}

impl PermittedCalls<'_> {
    /// Notes that a thread has made a call; returns the sink for its events.
    fn note_thread(&self, thread: &str) -> EventSink {
        self.changed.lock().insert(thread.to_owned());
        match thread.eq_ignore_ascii_case(self.top) {
            true => self.run.sink.clone(),
            false => self.run.sink.for_child(thread),
        }
    }

    /// Makes a model call; the error is what the component is told in place of a completion.
    async fn complete_request(
        &self,
        request: &llm::Request,
    ) -> Result<llm::Completion, llm::LlmError> {
        let sink = self.note_thread(&request.thread);
        let driver = &self.run.driver;
        let mut conversation = ThreadConversation::default();
        let (thread, version) = (&request.thread, request.attempt);
        let extended = conversation.extend_or_refuse(&driver.tenant, thread, version, request);
        match extended.await {
            Ok(None) => {}
            Ok(Some(failure)) => return Err(convert::failure_to_wit(&failure)),
            Err(error) => return Err(not_sent("history_unreadable", &error.to_string())),
        }
        let found = driver.models.provider(&request.model);
        let (provider, name) = found.map_err(|failure| convert::failure_to_wit(&failure))?;
        conversation
            .complete_request(&driver.tenant, name, request)
            .await;
        let partial = SleepingMutex::new(String::new());
        let on_delta = |delta| {
            if let Some(event) = delta_event(delta, &partial) {
                sink.emit(event);
            }
        };
        let now = driver.tenant.context().clock.now();
        let longest = convert::time_from_wit(request.deadline).saturating_duration_since(now);
        let request = &conversation.request;
        let called = self
            .run
            .permit
            .complete(&*provider, request, &on_delta, longest);
        match called.await {
            Ok(completion) => Ok(convert::completion_to_wit(
                &completion.without_empty_texts(),
            )),
            Err(mut failure) => {
                if failure.partial.is_empty() {
                    failure.partial = partial_text(&partial);
                }
                Err(convert::failure_to_wit(&failure))
            }
        }
    }
}

impl InnerCalls for PermittedCalls<'_> {
    fn complete(
        &self,
        request: llm::Request,
    ) -> BoxFuture<'_, Result<llm::Completion, llm::LlmError>> {
        Box::pin(async move { self.complete_request(&request).await })
    }

    fn call_tools(&self, calls: Vec<wit::ToolCall>) -> BoxFuture<'_, Vec<wit::ToolOutcome>> {
        Box::pin(async move {
            let run = self.run;
            let round = calls.iter().map(async |call| {
                let sink = self.note_thread(&call.thread);
                perform_tool_call(&run.driver, (&run.permit, &sink), call, Duration::MAX).await
            });
            let (outcomes, settling): (Vec<_>, Vec<_>) = join_all(round).await.into_iter().unzip();
            join_all(settling.into_iter().map(PendingSettlement::wait)).await;
            outcomes
        })
    }
}

/// The failure of a request that was never sent.
fn not_sent(code: &str, message: &str) -> llm::LlmError {
    llm::LlmError {
        sent: false,
        ..llm_failure(FailureKind::Permanent, code, message)
    }
}
