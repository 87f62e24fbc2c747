//! The permit of a run, through which all its model calls and tool calls pass.

use super::bounds::{self, Arrived};
use super::guard::{Guard, Held, Settling};
use super::{Refusal, Used};
use crate::models::{Completion, Failure, FailureKind, Llm, OnDelta, Request, Usage};
use crate::policy::UnknownBill;
use crate::tools::{ToolResult, Tools};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// A run that may pass calls through the host. Dropping it ends the run.
pub struct Permit {
    guard: Arc<Guard>,
    ends: Option<Instant>,
    told: Option<Told>,
    _room: Option<OwnedSemaphorePermit>,
}

/// Receives notes. It must not block.
type Told = Box<dyn Fn(Note) + Send + Sync>;

/// Notices about a call while it is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
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
pub struct Called {
    /// The result that the model is shown.
    pub result: ToolResult,
    /// True if the call was dropped while it was under way: its effects are unknown.
    pub interrupted: bool,
}

impl Permit {
    pub(super) fn new(guard: &Arc<Guard>, room: Option<OwnedSemaphorePermit>) -> Self {
        let longest = guard.ceilings().run_time_max;
        Self {
            guard: Arc::clone(guard),
            ends: longest.and_then(|longest| Instant::now().checked_add(longest)),
            told: None,
            _room: room,
        }
    }

    /// Sets the receiver of notices about calls under way. It must not block.
    pub fn tell(&mut self, told: impl Fn(Note) + Send + Sync + 'static) {
        self.told = Some(Box::new(told));
    }

    /// Makes a model call, if it is admitted: one request, as [`Llm::complete`]. The wait for a
    /// slot and the reply take at most `longest` together. The reply is within
    /// `models::REPLY_BYTES_MAX`, its usage within what is believed.
    ///
    /// # Errors
    /// The provider's failure, `ceiling_<name>`, `timeout`, or `reply_too_large`.
    pub async fn complete(
        &self,
        llm: &dyn Llm,
        request: &Request,
        on_delta: OnDelta<'_>,
        longest: Duration,
    ) -> Result<Completion, Failure> {
        let (answer, settling) = self.ask(llm, request, on_delta, longest).await;
        settling.wait().await;
        answer
    }

    /// As [`Self::complete`], but ends once the reply is there; the caller waits for the totals.
    pub(crate) async fn ask(
        &self,
        llm: &dyn Llm,
        request: &Request,
        on_delta: OnDelta<'_>,
        longest: Duration,
    ) -> (Result<Completion, Failure>, Settling) {
        let sent = AtomicBool::new(false);
        let ceiling = self.guard.ceilings().call_time_max;
        let longest = ceiling.into_iter().fold(longest, Duration::min);
        let answered = self.answered(llm, request, on_delta, (longest, &sent));
        let (answer, settling) = match tokio::time::timeout(longest, answered).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(failure)) => (Err(failure), Settling::DONE),
            Err(_) => {
                let seconds = longest.as_secs();
                let message = format!(
                    "the model's reply was not whole after {seconds} s, the time of this call"
                );
                let late = Failure::new(FailureKind::Transient, "timeout", message);
                (Err(late), Settling::DONE)
            }
        };
        let answer = answer.map_err(|failure| Failure {
            sent: failure.sent && sent.load(Ordering::Relaxed),
            ..failure
        });
        (answer, settling)
    }

    /// The bounded reply, or the failure without one. `sent` is set before a request may be sent.
    async fn answered(
        &self,
        llm: &dyn Llm,
        request: &Request,
        on_delta: OnDelta<'_>,
        (longest, sent): (Duration, &AtomicBool),
    ) -> Result<(Result<Completion, Failure>, Settling), Failure> {
        let dropped = |refusal: Refusal| Failure {
            sent: true,
            ..refusal.failure()
        };
        let held = self.admit_model(request, longest).await;
        let mut held = held.map_err(|refusal| refusal.failure())?;
        let arrived = Arrived::default();
        let on_delta = |delta| arrived.pass(delta, on_delta);
        let began = Instant::now();
        let asked = async {
            held.sent();
            sent.store(true, Ordering::Relaxed);
            llm.complete(request, &on_delta).await
        };
        let answer = self.in_time(asked).await.map_err(dropped)?;
        let answer = self.believed(bounds::answer(answer), request);
        let prices = self.guard.prices_of(&request.model);
        let estimate = self.guard.policy().unknown_bill == UnknownBill::Estimate;
        let under_way = estimate.then(|| began.elapsed());
        let came = (&answer, &arrived);
        let actual = bounds::came_to(&held.most, request, prices.as_ref(), came, under_way);
        Ok((answer, held.settle(actual)))
    }

    /// The reply with the believed part of its usage; a reduction is logged and noted.
    fn believed(
        &self,
        mut answer: Result<Completion, Failure>,
        request: &Request,
    ) -> Result<Completion, Failure> {
        let usage = match &mut answer {
            Ok(completion) => &mut completion.usage,
            Err(failure) => &mut failure.usage,
        };
        if let Some(usage) = usage {
            let reported = *usage;
            *usage = bounds::believed(reported, request);
            if *usage != reported {
                let (model, counted) = (&request.model, *usage);
                tracing::warn!(%model, ?reported, ?counted, "a provider's usage cannot be");
                self.note(Note::Disbelieved { reported, counted });
            }
        }
        answer
    }

    /// Makes a tool call, if it is admitted. The wait for a slot and the result take at most
    /// `longest` together. The result is within `tools::RESULT_BYTES_MAX`.
    pub async fn call(
        &self,
        tools: &dyn Tools,
        name: &str,
        arguments: &str,
        longest: Duration,
    ) -> Called {
        let (called, settling) = self.use_tool(tools, (name, arguments), longest).await;
        settling.wait().await;
        called
    }

    /// As [`Self::call`], but ends once the result is there; the caller waits for the totals.
    pub(crate) async fn use_tool(
        &self,
        tools: &dyn Tools,
        (name, arguments): (&str, &str),
        longest: Duration,
    ) -> (Called, Settling) {
        let sent = AtomicBool::new(false);
        let called = self.called(tools, (name, arguments), (longest, &sent));
        let why = match tokio::time::timeout(longest, called).await {
            Ok(Ok((result, settling))) => {
                let interrupted = false;
                return (
                    Called {
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
        let called = Called {
            result: ToolResult::failed(format!("{what}: {why}")),
            interrupted,
        };
        (called, Settling::DONE)
    }

    async fn called(
        &self,
        tools: &dyn Tools,
        (name, arguments): (&str, &str),
        (longest, sent): (Duration, &AtomicBool),
    ) -> Result<(ToolResult, Settling), Refusal> {
        let mut held = self.admit_tool(name, arguments, longest).await?;
        let asked = async {
            held.sent();
            sent.store(true, Ordering::Relaxed);
            tools.call(name, arguments).await
        };
        let result = bounds::result(self.in_time(asked).await?);
        let actual = Used {
            tool_bytes: (arguments.len() + result.content.len()) as u64,
            ..held.most
        };
        Ok((result, held.settle(actual)))
    }

    async fn admit_model(&self, request: &Request, longest: Duration) -> Result<Held, Refusal> {
        let guard = &self.guard;
        if !guard.policy().grants_model(&request.model) {
            let message = format!("the model {} is not granted", request.model);
            return Err(guard.refusal("models", &message));
        }
        let (prices, most) = (guard.prices_of(&request.model), guard.ceilings());
        if prices.is_none() && most.spend_nanos_max.is_some() && !most.unpriced {
            let message = format!(
                "the model {} has no price that the operator knows, and money is bounded",
                request.model
            );
            return Err(guard.refusal("unpriced", &message));
        }
        self.wait_for_turn(longest).await?;
        let need = bounds::most_of_model(request, prices.as_ref());
        guard.hold(need).await
    }

    async fn admit_tool(
        &self,
        name: &str,
        arguments: &str,
        longest: Duration,
    ) -> Result<Held, Refusal> {
        let guard = &self.guard;
        if !guard.policy().grants_tool(name) {
            let message = format!("the tool {name} is not granted");
            return Err(guard.refusal("tools", &message));
        }
        let (bytes, most) = (arguments.len() as u64, guard.ceilings().argument_bytes_max);
        let unit = "bytes of one call's arguments";
        guard.room("argument_bytes", unit, (0, bytes), most)?;
        self.wait_for_turn(longest).await?;
        guard.hold(bounds::most_of_tool(arguments)).await
    }

    /// Waits for a slot of the call rate, for a call that has the time `has`. A call that is
    /// dropped while it waits gives its slot back.
    async fn wait_for_turn(&self, has: Duration) -> Result<(), Refusal> {
        self.in_time(std::future::ready(())).await?;
        let wait = self.guard.take_turn(has)?;
        if wait.is_zero() {
            return Ok(());
        }
        let mut turn = Turn {
            guard: &self.guard,
            came: false,
        };
        let message = "too many calls for the ceiling calls_per_minute";
        let message = self.guard.refusal("calls_per_minute", message).message;
        self.note(Note::Waits { wait, message });
        self.in_time(tokio::time::sleep(wait)).await?;
        turn.came = true;
        Ok(())
    }

    fn note(&self, note: Note) {
        if let Some(told) = &self.told {
            told(note);
        }
    }

    /// Runs `work`, dropped if it is not done when the time of the run is over.
    async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T, Refusal> {
        let over = || {
            self.guard
                .refusal("run_time", "the time of the run is over")
        };
        match self.ends {
            None => Ok(work.await),
            Some(ends) if ends <= Instant::now() => Err(over()),
            Some(ends) => tokio::time::timeout_at(ends, work)
                .await
                .map_err(|_| over()),
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("ends", &self.ends)
            .finish_non_exhaustive()
    }
}

/// A slot of the call rate that was reserved in advance.
struct Turn<'a> {
    guard: &'a Guard,
    came: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.came {
            self.guard.give_turn_back();
        }
    }
}
