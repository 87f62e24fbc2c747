//! The guard of a tenant, shared by all its drivers, and the permit of each run.

use super::rate::Bucket;
use super::{Book, Ceilings, InMemory, Refusal, Tariff, Used};
use crate::authority::Environment;
use crate::clock::Clock;
use crate::library::models::ModelTable;
use crate::models::{Block, Completion, Failure, Llm, OnDelta, REPLY_BYTES_MAX, Request};
use crate::policy::Policy;
use crate::tools::{RESULT_BYTES_MAX, ToolResult, Tools};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Holds what one tenant may pass through the host. Share it between all drivers of the tenant.
pub struct Guard {
    policy: Policy,
    built_in: Option<ModelTable>,
    book: Box<dyn Book>,
    rate: Option<Mutex<Bucket>>,
    runs: Mutex<u64>,
    clock: Arc<dyn Clock>,
}

/// What a call may come to, as it stands in the book until it is settled. One that never is stays.
#[derive(Debug, Clone, Copy, Default)]
struct Hold {
    spend: u64,
    bytes: u64,
    unpriced: u64,
}

/// What came of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    /// What the model is shown.
    pub result: ToolResult,
    /// True if the call was dropped while it was under way: nobody knows what it did.
    pub interrupted: bool,
}

impl Called {
    fn done(result: ToolResult) -> Self {
        Self {
            result,
            interrupted: false,
        }
    }

    fn dropped(why: String) -> Self {
        Self {
            result: ToolResult::failed(why),
            interrupted: true,
        }
    }
}

impl Guard {
    /// A guard that begins to count now, in memory. The clock is the host's: the rate goes by it.
    pub fn new(policy: Policy, clock: Arc<dyn Clock>) -> Self {
        Self::over(policy, clock, Box::new(InMemory::default()))
    }

    /// A guard that goes on with a book.
    pub fn over(policy: Policy, clock: Arc<dyn Clock>, book: Box<dyn Book>) -> Self {
        let per_minute = policy.ceilings.calls_per_minute_max;
        Self {
            rate: per_minute.map(|most| Mutex::new(Bucket::new(most, clock.now()))),
            built_in: ModelTable::built_in(Environment::default()).ok(),
            policy,
            book,
            runs: Mutex::new(0),
            clock,
        }
    }

    /// The policy that it holds to.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What was used so far: a snapshot that an [`InMemory`] book of a later process may begin with.
    ///
    /// # Errors
    /// If the book cannot be read.
    pub fn used(&self) -> Result<Used, Refusal> {
        self.book.used()
    }

    /// Let a run begin.
    ///
    /// # Errors
    /// If as many as may be are under way.
    pub fn begin(self: &Arc<Self>) -> Result<Permit, Refusal> {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        self.room("runs", "runs", *runs, 1, self.ceilings().runs_max)?;
        *runs += 1;
        let longest = self.ceilings().run_time_max;
        Ok(Permit {
            guard: Arc::clone(self),
            ends: longest.and_then(|longest| Instant::now().checked_add(longest)),
        })
    }

    fn ceilings(&self) -> &Ceilings {
        &self.policy.ceilings
    }

    fn refusal(&self, ceiling: &'static str, message: &str) -> Refusal {
        Refusal {
            ceiling,
            message: format!("{message}, by the operator's policy, {}", self.policy.name),
            retry_after: None,
        }
    }

    /// Refuse what would pass a ceiling. What no number can hold passes every one.
    fn room(
        &self,
        ceiling: &'static str,
        unit: &str,
        used: u64,
        need: u64,
        most: Option<u64>,
    ) -> Result<(), Refusal> {
        let Some(most) = most else { return Ok(()) };
        if used.checked_add(need).is_some_and(|after| after <= most) {
            return Ok(());
        }
        let message = format!(
            "the ceiling {ceiling} is reached: {used} of {most} {unit} are used, and {need} more may be needed"
        );
        Err(self.refusal(ceiling, &message))
    }

    /// What the operator pays for a model: by the policy, else by the built-in table. A tenant's own file has no say.
    fn tariff(&self, model: &str) -> Option<Tariff> {
        let own = self.policy.models.as_ref();
        let own = own
            .and_then(|models| models.get(model))
            .and_then(Option::as_ref);
        let built_in = || self.built_in.as_ref()?.model(model)?.prices.as_ref();
        own.or_else(built_in).and_then(Tariff::of)
    }

    /// A turn of the bucket.
    fn turn(&self) -> Result<Duration, Refusal> {
        let Some(rate) = &self.rate else {
            return Ok(Duration::ZERO);
        };
        let mut bucket = rate.lock().unwrap_or_else(PoisonError::into_inner);
        bucket
            .take(self.clock.now())
            .map_err(|retry_after| Refusal {
                retry_after,
                ..self.refusal("calls_per_minute", "too many calls wait for their turn")
            })
    }

    /// Put the worst case of a model call into the book.
    fn hold_model(&self, request: &Request) -> Result<Hold, Refusal> {
        let ceilings = self.ceilings();
        let tariff = self.tariff(&request.model);
        if tariff.is_none() && ceilings.spend_nanos_max.is_some() && !ceilings.unpriced {
            let message = format!(
                "the model {} has no price that the operator knows, and money is bounded",
                request.model
            );
            return Err(self.refusal("unpriced", &message));
        }
        let request_bytes = request_bytes(request);
        let spend = tariff.map_or(0, |tariff| tariff.worst(request_bytes, request.output_max));
        let bytes = request_bytes.saturating_add(REPLY_BYTES_MAX as u64);
        let mut hold = Hold::default();
        self.book.change(&mut |used| {
            self.room(
                "spend",
                "nano-USD",
                used.spend_nanos,
                spend,
                ceilings.spend_nanos_max,
            )?;
            self.room(
                "model_calls",
                "calls",
                used.model_calls,
                1,
                ceilings.model_calls_max,
            )?;
            self.room(
                "model_bytes",
                "bytes",
                used.model_bytes,
                bytes,
                ceilings.model_bytes_max,
            )?;
            used.model_calls = used.model_calls.saturating_add(1);
            hold = Hold {
                spend: add(&mut used.spend_nanos, spend),
                bytes: add(&mut used.model_bytes, bytes),
                unpriced: add(&mut used.unpriced_calls, u64::from(tariff.is_none())),
            };
            Ok(())
        })?;
        Ok(hold)
    }

    /// Replace the worst case by what was reported. Where nobody knows what it cost, the worst case stays.
    fn settle_model(&self, hold: Hold, request: &Request, answer: &Result<Completion, Failure>) {
        let (usage, bytes, sent) = match answer {
            Ok(completion) => (completion.usage, reply_bytes(completion), true),
            Err(failure) => (failure.usage, failure.partial.len() as u64, failure.sent),
        };
        let tariff = self.tariff(&request.model);
        let spend = match (usage, tariff) {
            (Some(usage), Some(tariff)) => tariff.cost(&usage),
            (Some(_) | None, _) if sent => hold.spend,
            _ => 0,
        };
        let bytes = match sent {
            true => request_bytes(request).saturating_add(bytes),
            false => 0,
        };
        self.settle(|used| {
            replace(&mut used.spend_nanos, hold.spend, spend);
            replace(&mut used.model_bytes, hold.bytes, bytes);
            if !sent {
                used.model_calls = used.model_calls.saturating_sub(1);
                used.unpriced_calls = used.unpriced_calls.saturating_sub(hold.unpriced);
            }
        });
    }

    /// Put the worst case of a tool call into the book.
    fn hold_tool(&self, arguments: &str) -> Result<Hold, Refusal> {
        let ceilings = self.ceilings();
        let bytes = (arguments.len() as u64).saturating_add(RESULT_BYTES_MAX as u64);
        let mut hold = Hold::default();
        self.book.change(&mut |used| {
            self.room(
                "tool_calls",
                "calls",
                used.tool_calls,
                1,
                ceilings.tool_calls_max,
            )?;
            self.room(
                "tool_bytes",
                "bytes",
                used.tool_bytes,
                bytes,
                ceilings.tool_bytes_max,
            )?;
            used.tool_calls = used.tool_calls.saturating_add(1);
            hold.bytes = add(&mut used.tool_bytes, bytes);
            Ok(())
        })?;
        Ok(hold)
    }

    /// A book that cannot be written keeps the worst case, and refuses the next call.
    fn settle(&self, settle: impl Fn(&mut Used)) {
        let settled = self.book.change(&mut |used| {
            settle(used);
            Ok(())
        });
        if let Err(refusal) = settled {
            tracing::warn!(%refusal, "a call stays in the book with the most that it could cost");
        }
    }
}

/// A run that may pass calls through the host. Dropping it ends the run.
pub struct Permit {
    guard: Arc<Guard>,
    ends: Option<Instant>,
}

impl Permit {
    /// Make a model call, if it may be made: one request, as [`Llm::complete`].
    ///
    /// # Errors
    /// The provider's failure, or `ceiling_<name>`.
    pub async fn complete(
        &self,
        llm: &dyn Llm,
        request: &Request,
        on_delta: OnDelta<'_>,
    ) -> Result<Completion, Failure> {
        let admitted = self.admit_model(request).await;
        let hold = admitted.map_err(|refusal| refusal.failure())?;
        match self.in_time(llm.complete(request, on_delta)).await {
            Ok(answer) => {
                self.guard.settle_model(hold, request, &answer);
                answer
            }
            Err(refusal) => Err(Failure {
                sent: true,
                ..refusal.failure()
            }),
        }
    }

    /// Make a tool call, if it may be made, in at most `longest`.
    pub async fn call(
        &self,
        tools: &dyn Tools,
        name: &str,
        arguments: &str,
        longest: Duration,
    ) -> Called {
        let hold = match self.admit_tool(name, arguments).await {
            Ok(hold) => hold,
            Err(refusal) => return Called::done(refused(&refusal)),
        };
        let called = tokio::time::timeout(longest, tools.call(name, arguments));
        match self.in_time(called).await {
            Ok(Ok(result)) => {
                let bytes = (arguments.len() as u64).saturating_add(result.content.len() as u64);
                self.guard
                    .settle(|used| replace(&mut used.tool_bytes, hold.bytes, bytes));
                Called::done(result)
            }
            Ok(Err(_)) => {
                let seconds = longest.as_secs();
                Called::dropped(format!("the tool did not answer within {seconds} s"))
            }
            Err(over) => Called::dropped(format!("dropped: {} ({})", over.message, over.code())),
        }
    }

    async fn admit_model(&self, request: &Request) -> Result<Hold, Refusal> {
        let guard = &self.guard;
        if !guard.policy.grants_model(&request.model) {
            let message = format!("the model {} is not granted", request.model);
            return Err(guard.refusal("models", &message));
        }
        self.wait_for_turn().await?;
        guard.hold_model(request)
    }

    async fn admit_tool(&self, name: &str, arguments: &str) -> Result<Hold, Refusal> {
        let guard = &self.guard;
        if !guard.policy.grants_tool(name) {
            let message = format!("the tool {name} is not granted");
            return Err(guard.refusal("tools", &message));
        }
        let (bytes, most) = (arguments.len() as u64, guard.ceilings().argument_bytes_max);
        guard.room(
            "argument_bytes",
            "bytes of one call's arguments",
            0,
            bytes,
            most,
        )?;
        self.wait_for_turn().await?;
        guard.hold_tool(arguments)
    }

    async fn wait_for_turn(&self) -> Result<(), Refusal> {
        self.in_time(std::future::ready(())).await?;
        let wait = self.guard.turn()?;
        match wait.is_zero() {
            true => Ok(()),
            false => self.in_time(tokio::time::sleep(wait)).await,
        }
    }

    /// What is not done when the time of the run is over is dropped.
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

impl Drop for Permit {
    fn drop(&mut self) {
        let mut runs = self
            .guard
            .runs
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *runs = runs.saturating_sub(1);
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("ends", &self.ends)
            .finish_non_exhaustive()
    }
}

/// What the model reads.
fn refused(refusal: &Refusal) -> ToolResult {
    ToolResult::failed(format!("not run: {} ({})", refusal.message, refusal.code()))
}

/// Add as much as fits; what was added.
fn add(total: &mut u64, more: u64) -> u64 {
    let added = more.min(u64::MAX - *total);
    *total += added;
    added
}

fn replace(total: &mut u64, held: u64, actual: u64) {
    *total = total.saturating_sub(held).saturating_add(actual);
}

fn request_bytes(request: &Request) -> u64 {
    let tools = request
        .tools
        .iter()
        .map(|tool| tool.name.len() + tool.description.len() + tool.schema.len());
    let messages = request.messages.iter().map(String::len);
    (request.system.len() + tools.sum::<usize>() + messages.sum::<usize>()) as u64
}

fn reply_bytes(completion: &Completion) -> u64 {
    let bytes = completion.blocks.iter().map(|block| match block {
        Block::Text { text } => text.len(),
        Block::Thinking { text, raw } => text.len() + raw.as_ref().map_or(0, String::len),
        Block::ToolUse {
            id,
            name,
            arguments,
        } => id.len() + name.len() + arguments.len(),
    });
    bytes.sum::<usize>() as u64
}
