//! The permit of a run, through which all its model calls and tool calls pass.

use super::bounds::{self, ArrivedBytes};
use super::guard::{CeilingGuard, PendingSettlement, UsageHold};
use super::{CeilingRefusal, UsageTotals};
use crate::models::{
    CompletionRequest, FailureKind, ModelCompletion, ModelFailure, ModelProvider, OnDelta, Usage,
};
use crate::policy::UnknownBill;
use crate::tools::{ToolRequest, ToolResult, ToolSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// A run that may pass calls through the host. Dropping it ends the run.
pub struct RunPermit {
    guard: Arc<CeilingGuard>,
    deadline: Option<Instant>,
    notice_receiver: Option<NoticeReceiver>,
    _room: Option<OwnedSemaphorePermit>,
}

/// Receives notes. It must not block.
type NoticeReceiver = Box<dyn Fn(CallNotice) + Send + Sync>;

/// Notices about a call while it is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallNotice {
    /// The call came too early for the ceiling `calls_per_minute` and waits for its slot.
    Waits {
        /// The time until the slot.
        wait: Duration,
        /// A sentence for a person: the ceiling, and the policy that sets it.
        message: String,
    },
    /// The provider reports more tokens than such a call can come to.
    Disbelieved {
        /// The reported usage.
        reported: Usage,
        /// The usage that is counted instead.
        counted: Usage,
    },
}

/// The outcome of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCallOutcome {
    /// The result that the model is shown.
    pub result: ToolResult,
    /// True if the call was dropped while it was under way: its effects are unknown.
    pub interrupted: bool,
}

impl RunPermit {
    pub(super) fn new(guard: &Arc<CeilingGuard>, room: Option<OwnedSemaphorePermit>) -> Self {
        let longest = guard.ceilings().run_time_max;
        Self {
            guard: Arc::clone(guard),
            deadline: longest.and_then(|longest| Instant::now().checked_add(longest)),
            notice_receiver: None,
            _room: room,
        }
    }

    /// Sets the receiver of notices about calls under way. It must not block.
    pub fn set_notice_receiver(&mut self, told: impl Fn(CallNotice) + Send + Sync + 'static) {
        self.notice_receiver = Some(Box::new(told));
    }

    /// Makes a model call, if it is admitted: one request, as [`ModelProvider::complete`]. The wait
    /// for a slot and the reply take at most `longest` together. The reply is within
    /// `models::REPLY_BYTES_MAX`, its usage within what is believed.
    ///
    /// # Errors
    /// The provider's failure, `ceiling_<name>`, `timeout`, or `reply_too_large`.
    pub async fn complete(
        &self,
        llm: &dyn ModelProvider,
        request: &CompletionRequest,
        on_delta: OnDelta<'_>,
        longest: Duration,
    ) -> Result<ModelCompletion, ModelFailure> {
        let (answer, settling) = self
            .complete_unsettled(llm, request, on_delta, longest)
            .await;
        settling.wait().await;
        answer
    }

    /// As [`Self::complete`], but ends once the reply is there; the caller waits for the totals.
    pub(crate) async fn complete_unsettled(
        &self,
        llm: &dyn ModelProvider,
        request: &CompletionRequest,
        on_delta: OnDelta<'_>,
        longest: Duration,
    ) -> (Result<ModelCompletion, ModelFailure>, PendingSettlement) {
        let sent = AtomicBool::new(false);
        let ceiling = self.guard.ceilings().call_time_max;
        let longest = ceiling.into_iter().fold(longest, Duration::min);
        let answered = self.request_completion(llm, request, on_delta, (longest, &sent));
        let (answer, settling) = match tokio::time::timeout(longest, answered).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(failure)) => (Err(failure), PendingSettlement::DONE),
            Err(_) => {
                let seconds = longest.as_millis().div_ceil(1_000);
                let message = format!(
                    "the model's reply was not whole after {seconds} s, the time of this call"
                );
                let late = ModelFailure::new(FailureKind::Transient, "timeout", message);
                (Err(late), PendingSettlement::DONE)
            }
        };
        let answer = answer.map_err(|failure| ModelFailure {
            sent: failure.sent && sent.load(Ordering::Relaxed),
            ..failure
        });
        (answer, settling)
    }

    /// The bounded reply, or the failure without one. `sent` is set before a request may be sent.
    async fn request_completion(
        &self,
        llm: &dyn ModelProvider,
        request: &CompletionRequest,
        on_delta: OnDelta<'_>,
        (longest, sent): (Duration, &AtomicBool),
    ) -> Result<(Result<ModelCompletion, ModelFailure>, PendingSettlement), ModelFailure> {
        let dropped = |refusal: CeilingRefusal| ModelFailure {
            sent: true,
            ..refusal.to_failure()
        };
        let held = self.admit_model(request, longest).await;
        let mut held = held.map_err(|refusal| refusal.to_failure())?;
        let arrived = ArrivedBytes::default();
        let on_delta = |delta| arrived.count_and_forward(delta, on_delta);
        let began = Instant::now();
        let asked = async {
            held.mark_sent();
            sent.store(true, Ordering::Relaxed);
            llm.complete(request, &on_delta).await
        };
        let answer = self.run_within_deadline(asked).await.map_err(dropped)?;
        let answer = self.clamp_reported_usage(bounds::bound_completion(answer), request);
        let prices = self.guard.prices_of(&request.model);
        let estimate = self.guard.policy().unknown_bill == UnknownBill::Estimate;
        let under_way = estimate.then(|| began.elapsed());
        let came = (&answer, &arrived);
        let actual =
            bounds::actual_model_usage(&held.most, request, prices.as_ref(), came, under_way);
        Ok((answer, held.settle(actual)))
    }

    /// The reply with the believed part of its usage; a reduction is logged and noted.
    fn clamp_reported_usage(
        &self,
        mut answer: Result<ModelCompletion, ModelFailure>,
        request: &CompletionRequest,
    ) -> Result<ModelCompletion, ModelFailure> {
        let usage = match &mut answer {
            Ok(completion) => &mut completion.usage,
            Err(failure) => &mut failure.usage,
        };
        if let Some(usage) = usage {
            let reported = *usage;
            *usage = bounds::clamp_usage(reported, request);
            if *usage != reported {
                let (model, counted) = (&request.model, *usage);
                tracing::warn!(%model, ?reported, ?counted, "a provider's usage cannot be");
                self.send_notice(CallNotice::Disbelieved { reported, counted });
            }
        }
        answer
    }

    /// Makes a tool call, if it is admitted. The wait for a slot and the result take at most
    /// `longest` together. The result is within `tools::RESULT_BYTES_MAX`, its cost within
    /// `tools::TOOL_COST_NANOS_MAX`.
    pub async fn call_tool(
        &self,
        tools: &dyn ToolSet,
        name: &str,
        arguments: &str,
        longest: Duration,
    ) -> ToolCallOutcome {
        let request = ToolRequest {
            name,
            arguments,
            approved: false,
        };
        let (called, settling) = self.call_tool_unsettled(tools, request, longest).await;
        settling.wait().await;
        called
    }

    /// As [`Self::call_tool`], but ends once the result is there; the caller waits for the totals.
    pub(crate) async fn call_tool_unsettled(
        &self,
        tools: &dyn ToolSet,
        request: ToolRequest<'_>,
        longest: Duration,
    ) -> (ToolCallOutcome, PendingSettlement) {
        let sent = AtomicBool::new(false);
        let called = self.run_tool_call(tools, request, (longest, &sent));
        let why = match tokio::time::timeout(longest, called).await {
            Ok(Ok((result, settling))) => {
                let interrupted = false;
                return (
                    ToolCallOutcome {
                        result,
                        interrupted,
                    },
                    settling,
                );
            }
            Ok(Err(refusal)) => format!("{} ({})", refusal.message, refusal.code()),
            Err(_) => format!("there was no answer within {} s", longest.as_secs()),
        };
        // The text that the model reads.
        let interrupted = sent.load(Ordering::Relaxed);
        let what = if interrupted { "dropped" } else { "not run" };
        let called = ToolCallOutcome {
            result: ToolResult::failure(format!("{what}: {why}")),
            interrupted,
        };
        (called, PendingSettlement::DONE)
    }

    async fn run_tool_call(
        &self,
        tools: &dyn ToolSet,
        request: ToolRequest<'_>,
        (longest, sent): (Duration, &AtomicBool),
    ) -> Result<(ToolResult, PendingSettlement), CeilingRefusal> {
        let ToolRequest {
            name,
            arguments,
            approved,
        } = request;
        // The component asks a person before it hands such a call out.
        if !approved && self.guard.policy().needs_approval(name) {
            let message = format!("the tool {name} needs a person's approval");
            return Err(self.guard.policy_refusal("approvals", &message));
        }
        let mut held = self.admit_tool(name, arguments, longest).await?;
        let asked = async {
            held.mark_sent();
            sent.store(true, Ordering::Relaxed);
            match approved {
                true => tools.call_approved(name, arguments).await,
                false => tools.call(name, arguments).await,
            }
        };
        let result = bounds::bound_tool_result(name, self.run_within_deadline(asked).await?);
        let actual = UsageTotals {
            spend_nanos: result.cost_nanos,
            tool_bytes: (arguments.len() as u64) + bounds::tool_result_bytes(&result),
            ..held.most
        };
        Ok((result, held.settle(actual)))
    }

    async fn admit_model(
        &self,
        request: &CompletionRequest,
        longest: Duration,
    ) -> Result<UsageHold, CeilingRefusal> {
        let guard = &self.guard;
        if !guard.policy().grants_model(&request.model) {
            let message = format!("the model {} is not granted", request.model);
            return Err(guard.policy_refusal("models", &message));
        }
        let (prices, most) = (guard.prices_of(&request.model), guard.ceilings());
        if prices.is_none() && most.spend_nanos_max.is_some() && !most.unpriced {
            let message = format!(
                "the model {} has no price that the operator knows, and money is bounded",
                request.model
            );
            return Err(guard.policy_refusal("unpriced", &message));
        }
        self.wait_for_slot(longest).await?;
        let need = bounds::max_model_usage(request, prices.as_ref());
        guard.hold_usage(need).await
    }

    async fn admit_tool(
        &self,
        name: &str,
        arguments: &str,
        longest: Duration,
    ) -> Result<UsageHold, CeilingRefusal> {
        let guard = &self.guard;
        if !guard.policy().grants_tool(name) {
            let message = format!("the tool {name} is not granted");
            return Err(guard.policy_refusal("tools", &message));
        }
        let (bytes, most) = (arguments.len() as u64, guard.ceilings().argument_bytes_max);
        let unit = "bytes of one call's arguments";
        guard.check_ceiling("argument_bytes", unit, (0, bytes), most)?;
        self.wait_for_slot(longest).await?;
        guard.hold_usage(bounds::max_tool_usage(arguments)).await
    }

    /// Waits for a slot of the call rate, for a call that has the time `has`. A call that is
    /// dropped while it waits gives its slot back.
    async fn wait_for_slot(&self, has: Duration) -> Result<(), CeilingRefusal> {
        self.run_within_deadline(std::future::ready(())).await?;
        let wait = self.guard.reserve_slot(has)?;
        if wait.is_zero() {
            return Ok(());
        }
        let mut turn = RateSlot {
            guard: &self.guard,
            used: false,
        };
        let message = "too many calls for the ceiling calls_per_minute";
        let message = self
            .guard
            .policy_refusal("calls_per_minute", message)
            .message;
        self.send_notice(CallNotice::Waits { wait, message });
        self.run_within_deadline(tokio::time::sleep(wait)).await?;
        turn.used = true;
        Ok(())
    }

    fn send_notice(&self, note: CallNotice) {
        if let Some(told) = &self.notice_receiver {
            told(note);
        }
    }

    /// Runs `work`, dropped if it is not done when the time of the run is over.
    async fn run_within_deadline<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, CeilingRefusal> {
        let over = || {
            self.guard
                .policy_refusal("run_time", "the time of the run is over")
        };
        match self.deadline {
            None => Ok(work.await),
            Some(ends) if ends <= Instant::now() => Err(over()),
            Some(ends) => tokio::time::timeout_at(ends, work)
                .await
                .map_err(|_| over()),
        }
    }
}

impl fmt::Debug for RunPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("ends", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// A slot of the call rate that was reserved in advance.
struct RateSlot<'a> {
    guard: &'a CeilingGuard,
    used: bool,
}

impl Drop for RateSlot<'_> {
    fn drop(&mut self) {
        if !self.used {
            self.guard.return_slot();
        }
    }
}
