//! Conversions between WIT and core, exhaustive in both directions. No other module converts.
//!
//! The large conversions are kept out of line: several exports use each of them, and the component
//! must stay small.

mod damage;
mod errors;
mod history;
mod imports;
mod ledger;
mod registry;
mod thread;

pub use damage::{recovery, statistics, sweep_page_to_wit, unreadable_to_wit};
pub use ledger::{account, admission, bill, branches, charges, estimate};

pub use errors::{error, not_built_error};
pub use history::{
    append_to_wit, change_texts, cursor, entry_to_wit, events, expected_version, opened_to_wit,
    piece_to_wit, snapshot,
};
pub use imports::{item, key, library_error, op, record_damage, storage_error};
pub use registry::{draft, filter, row_page};
pub use thread::thread;

use self::thread::limits_in;
use crate::component::exports::threadkeep::threads as exported;
use crate::component::threadkeep::threads::{llm, types};
use crate::service::Error;
use crate::service::due::{DuePage, DueThread};
use crate::service::progress::ProgressVerdict;
use crate::service::runner::StepHandle;
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::history::{call_id, parse_user};
use threadkeep_core::json::{self, ObjectWriter};
use threadkeep_core::ledger::Usage;
use threadkeep_core::limits::{CAP_MAX, COUNT_CAP_MAX};
use threadkeep_core::money::NanoUsd;
use threadkeep_core::plan::{due_calls, is_revival};
use threadkeep_core::runner::{
    CallDecision, CapRaise, DecisionInputs, HolderProof, HostFailure, LlmCompletion, LlmFailure,
    ReplyBlock, Signal, StepCall, StepOutcome, StepSubmission, ToolOutcome, ToolState,
    parse_failure, parse_result_content,
};
use threadkeep_core::thread::{DUE_NEW, StepKind};
use threadkeep_core::time::{NANOS_MAX, UnixTime};

pub fn instant(time: UnixTime) -> types::Instant {
    types::Instant {
        seconds: time.seconds,
        nanos: time.nanos,
    }
}

/// Reads a time of the clock, whose nanoseconds end with the second.
pub fn instant_in(time: types::Instant) -> UnixTime {
    UnixTime {
        seconds: time.seconds,
        nanos: time.nanos.min(NANOS_MAX),
    }
}

/// Reads a time of a caller as it is; core refuses one that is no time.
pub fn deadline_in(time: types::Instant) -> UnixTime {
    UnixTime {
        seconds: time.seconds,
        nanos: time.nanos,
    }
}

fn usage(usage: Usage) -> types::Usage {
    let Usage {
        input,
        output,
        read,
        write,
        reasoning,
    } = usage;
    types::Usage {
        input,
        output,
        read,
        write,
        reasoning,
    }
}

fn usage_in(usage: types::Usage) -> Usage {
    let types::Usage {
        input,
        output,
        read,
        write,
        reasoning,
    } = usage;
    Usage {
        input,
        output,
        read,
        write,
        reasoning,
    }
}

#[inline(never)]
pub fn handle_to_wit(handed: StepHandle) -> exported::runner::Handle {
    exported::runner::Handle {
        thread: thread(&handed.loaded, handed.details()),
        token: handed.loaded.head.value.token,
        step: step(&handed),
    }
}

#[inline(never)]
pub fn step(handed: &StepHandle) -> exported::runner::Step {
    let step = &handed.step;
    exported::runner::Step {
        kind: step.kind.map_or("finished", StepKind::as_str).to_owned(),
        thread: handed.loaded.thread.value.id.clone(),
        version: step.version,
        deadline: instant(step.deadline),
        request: (step.kind == Some(StepKind::CallLlm)).then(|| request(handed)),
        calls: tool_calls(handed),
        until: step.until.map(instant),
        concerns_others: handed.concerns_others,
        more: match (&handed.summary, &handed.more) {
            (Some(_), _) => summarizing(handed),
            (None, Some(more)) => more.clone(),
            (None, None) => "{}".to_owned(),
        },
    }
}

#[inline(never)]
pub fn tool_calls(handed: &StepHandle) -> Vec<types::ToolCall> {
    let images = handed.pin.as_deref().is_some_and(|pin| pin.model.images);
    let calls = handed.step.calls.iter();
    let call_to_wit = |call: &StepCall| types::ToolCall {
        thread: handed.loaded.thread.value.id.clone(),
        version: call.version,
        index: call.index,
        id: call_id(call.version, call.index),
        origin: "model".to_owned(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
        idempotent: call.idempotent,
        approved: call.approved,
        timeout: call.timeout.min(COUNT_CAP_MAX) as u32,
        images,
    };
    calls.map(call_to_wit).collect()
}

/// Returns what a step says that asks for a summary: how full the window of the thread is.
fn summarizing(handed: &StepHandle) -> String {
    let (tokens, window) = (handed.loaded.head.value.context, handed.window());
    let mut more = String::new();
    ObjectWriter::new(&mut more)
        .add("phase", "summarizing")
        .add("tokens", &tokens)
        .add("window", &window.unwrap_or_default())
        .finish();
    more
}

/// Builds the request of a model call. Prompt and tools go only with the first request of a driver
/// that holds nothing yet. A request for a summary is whole, and has no tools.
#[inline(never)]
pub fn request(handed: &StepHandle) -> llm::Request {
    let pin = handed.pin.as_deref();
    let mut request = llm::Request {
        thread: handed.loaded.thread.value.id.clone(),
        attempt: handed.step.version,
        options: "{}".to_owned(),
        model: String::new(),
        system: String::new(),
        tools: Vec::new(),
        messages: handed.messages.clone(),
        since: handed.since,
        output: handed.step.output,
        images: false,
        session: None,
        hash: handed.step.hash.clone(),
        deadline: instant(handed.step.deadline),
    };
    let Some(pin) = pin else { return request };
    if let Some(summary) = &handed.summary {
        request.model = handed.summary_model();
        request.system.clone_from(&summary.system);
        request.messages = vec![summary.message.clone()];
        return request;
    }
    request.model.clone_from(&pin.model.name);
    request.images = pin.model.images;
    request
        .session
        .clone_from(&handed.loaded.head.value.session);
    if handed.since == 0 || handed.messages.is_empty() {
        request.system.clone_from(&pin.prompt);
        let tools = pin.tools.iter().map(|tool| types::Tool {
            name: tool.name.clone(),
            description: tool.description.clone(),
            schema: tool.schema.clone(),
        });
        request.tools = tools.collect();
    }
    request
}

pub fn proof(proof: exported::runner::Proof) -> Result<HolderProof, Error> {
    Ok(match proof {
        exported::runner::Proof::None => HolderProof::None,
        exported::runner::Proof::Watched(seen) => HolderProof::Watched {
            step: seen.step.unwrap_or(0),
            partial: seen.partial.unwrap_or(0),
        },
        exported::runner::Proof::Dead => HolderProof::Dead,
        exported::runner::Proof::Other(text) => return Err(other_kind_error("proof", &text)),
    })
}

/// Returns the error for a case `other`, whose JSON has a `kind` that this version does not know,
/// as it knows none.
#[inline(never)]
fn other_kind_error(field: &str, text: &str) -> Error {
    let kind = match json::parse(text) {
        Ok(value) => value
            .get("kind")
            .and_then(|kind| kind.as_str().map(str::to_owned)),
        Err(_) => None,
    };
    match kind {
        Some(kind) => {
            let problem = format!("is no kind of {field} that this version of the component knows");
            CoreError::invalid(format!("{field}.kind"), &kind, problem).into()
        }
        None => CoreError::invalid(field, text, "is no JSON object with a kind").into(),
    }
}

#[inline(never)]
pub fn submission(
    token: u64,
    version: u64,
    outcome: exported::runner::Outcome,
) -> Result<StepSubmission, Error> {
    let outcome = match outcome {
        exported::runner::Outcome::Completion(completion) => model_outcome(Ok(completion)),
        exported::runner::Outcome::Failure(failed) => model_outcome(Err(failed)),
        exported::runner::Outcome::Outcomes(outcomes) => round_outcome(outcomes)?,
        exported::runner::Outcome::Waited => StepOutcome::Waited,
        exported::runner::Outcome::Stopped(failed) => StepOutcome::Stopped(failure(failed)),
        exported::runner::Outcome::Other(text) => return Err(other_kind_error("outcome", &text)),
    };
    Ok(StepSubmission {
        token,
        version,
        outcome,
        inputs: DecisionInputs::default(),
    })
}

/// Converts what a model call came to.
#[inline(never)]
pub fn model_outcome(answer: Result<llm::Completion, llm::LlmError>) -> StepOutcome {
    match answer {
        Ok(completion) => StepOutcome::Completion(completion_in(completion)),
        Err(failed) => StepOutcome::Failure(failure(failed)),
    }
}

/// Converts what a round of tools came to.
#[inline(never)]
pub fn round_outcome(outcomes: Vec<types::ToolOutcome>) -> Result<StepOutcome, Error> {
    let outcomes = outcomes.into_iter().enumerate();
    let outcomes = outcomes.map(|(place, outcome)| tool_outcome(place, outcome));
    Ok(StepOutcome::ToolOutcomes(
        outcomes.collect::<Result<_, _>>()?,
    ))
}

fn completion_in(completion: llm::Completion) -> LlmCompletion {
    let llm::Completion {
        blocks,
        finish,
        usage,
        session,
        id,
        model,
    } = completion;
    let (blocks, unreadable) = ReplyBlock::parse_all(&blocks);
    LlmCompletion {
        blocks,
        finish,
        usage: usage.map(usage_in),
        session,
        id,
        model,
        unreadable,
    }
}

#[inline(never)]
fn failure(error: llm::LlmError) -> LlmFailure {
    let llm::LlmError {
        kind,
        code,
        message,
        retry,
        sent,
        refused,
        usage,
        partial,
    } = error;
    LlmFailure {
        kind,
        code,
        message,
        retry: retry.map(|millis| millis.min(CAP_MAX)),
        sent,
        refused,
        usage: usage.map(usage_in),
        partial,
    }
}

fn tool_outcome(place: usize, outcome: types::ToolOutcome) -> Result<ToolOutcome, Error> {
    let state = match outcome.state.as_str() {
        "done" => ToolState::Done,
        "interrupted" => ToolState::Interrupted,
        "needs-consent" => ToolState::NeedsConsent,
        state => {
            let names = ["done", "interrupted", "needs-consent"];
            return Err(CoreError::invalid_name(
                format!("outcomes[{place}].state"),
                state,
                "is not a state of a call",
                &names,
            )
            .into());
        }
    };
    let given = |text: String| Some(text).filter(|text| !matches!(text.trim(), "" | "[]"));
    let content = parse_result_content(place, &outcome.content)?;
    Ok(ToolOutcome {
        version: outcome.version,
        index: outcome.index,
        state,
        failed: outcome.failed,
        content: content.text,
        blocks: content.blocks,
        cost: NanoUsd::new(outcome.cost),
        patches: given(outcome.patches),
        operations: given(outcome.operations),
    })
}

pub fn verdict_to_wit(news: ProgressVerdict) -> exported::runner::News {
    let (verdict, message) = match news {
        ProgressVerdict::Continue => ("go-on", ""),
        ProgressVerdict::Stop => ("stop", "a cancel waits"),
        ProgressVerdict::Fenced => (
            "fenced",
            "somebody else holds the thread, or its run is over",
        ),
    };
    exported::runner::News {
        verdict: verdict.to_owned(),
        message: message.to_owned(),
    }
}

pub fn signal(signal: exported::runner::SignalKind) -> Result<Signal, Error> {
    Ok(match signal {
        exported::runner::SignalKind::Message(text) => Signal::Message(parse_user(&text)?),
        exported::runner::SignalKind::Decision(text) => {
            Signal::Decision(CallDecision::parse(&text)?)
        }
        exported::runner::SignalKind::Cancel => Signal::Cancel,
        exported::runner::SignalKind::Kill => Signal::Kill,
        exported::runner::SignalKind::Raise(raised) => Signal::Raise(CapRaise {
            caps: limits_in(raised.caps),
            through: raised.through,
        }),
        exported::runner::SignalKind::Fail(text) => {
            let (text, failure) = parse_failure("signal.fail", text)?;
            Signal::Fail(HostFailure { failure, text })
        }
        exported::runner::SignalKind::Other(text) => return Err(other_kind_error("signal", &text)),
    })
}

#[inline(never)]
fn due(due: &DueThread) -> exported::runner::Due {
    let head = &due.loaded.head.value;
    let since = head.due.filter(|millis| *millis > DUE_NEW);
    exported::runner::Due {
        thread: due.loaded.thread.value.id.clone(),
        status: head.status.to_string(),
        since: since.map(|millis| instant(UnixTime::from_millis(millis))),
        sighting: exported::runner::Sighting {
            step: head.step.as_ref().map(|step| step.version),
            partial: (due.partial > 0).then_some(due.partial),
        },
        holder: head.holder.clone(),
        calls: due_calls(head)
            .into_iter()
            .map(|call| call.as_str().to_owned())
            .collect(),
        revive: is_revival(head),
    }
}

pub fn due_page(page: &DuePage) -> exported::runner::DuePage {
    exported::runner::DuePage {
        threads: page.threads.iter().map(due).collect(),
        next: page.next.map(instant),
        cursor: page.cursor.clone(),
    }
}
