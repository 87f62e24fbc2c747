//! Conversions between WIT and core, exhaustive in both directions. No other module converts.
//!
//! The large conversions are kept out of line: several exports use each of them, and the component
//! must stay small.

mod damage;
mod errors;
mod imports;
mod ledger;

pub use damage::{recovery, sweep_page_to_wit, unreadable};
pub use ledger::{account, admission, bill, branches, charges, estimate};

pub use errors::error;
pub use imports::{item, key, library_error, op, storage_error};

use crate::component::exports::threadkeep::threads as exported;
use crate::component::threadkeep::threads::{llm, types};
use crate::service::Error;
use crate::service::history::{AppendOutcome, StoredEntry};
use crate::service::runner::{DueThread, ProgressVerdict, StepHandle};
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::history::{Entry, call_id, parse_user};
use threadkeep_core::json;
use threadkeep_core::ledger::Usage;
use threadkeep_core::limits::{CAP_MAX, ThreadCaps};
use threadkeep_core::money::NanoUsd;
use threadkeep_core::plan::{DueCall, LoadedThread, is_revival};
use threadkeep_core::runner::{
    CapRaise, DecisionInputs, HolderProof, LlmCompletion, LlmFailure, ReplyBlock, Signal,
    StepOutcome, StepSubmission, ToolOutcome, ToolState, parse_result_content,
};
use threadkeep_core::thread::{
    CauseDetail, CreatorOverrides, Head, StatusCause, StepKind, ThreadDraft, ThreadStatus,
    raise_floor,
};
use threadkeep_core::time::UnixTime;

pub fn instant(time: UnixTime) -> types::Instant {
    types::Instant {
        seconds: time.seconds,
        nanos: time.nanos,
    }
}

pub fn instant_in(time: types::Instant) -> UnixTime {
    UnixTime {
        seconds: time.seconds,
        nanos: time.nanos.min(999_999_999),
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

fn limits(limits: &ThreadCaps) -> types::Limits {
    let ThreadCaps {
        turns,
        tokens,
        spend,
        spawns,
        depth,
        duration,
    } = *limits;
    types::Limits {
        turns,
        tokens,
        spend: spend.map(NanoUsd::get),
        spawns,
        depth,
        duration,
    }
}

fn limits_in(limits: types::Limits) -> ThreadCaps {
    let types::Limits {
        turns,
        tokens,
        spend,
        spawns,
        depth,
        duration,
    } = limits;
    ThreadCaps {
        turns,
        tokens,
        spend: spend.map(NanoUsd::new),
        spawns,
        depth,
        duration,
    }
}

fn cause(cause: &StatusCause, raise_above: Option<u64>) -> types::Cause {
    let retry = cause.retry_millis();
    let StatusCause {
        reason,
        code,
        message,
        value,
        maximum,
        detail,
    } = cause.clone();
    let CauseDetail { failure, account } = detail.map(|detail| *detail).unwrap_or_default();
    types::Cause {
        reason,
        code,
        message,
        value,
        maximum,
        failure,
        retry,
        raise_above,
        account,
    }
}

fn lease(loaded: &LoadedThread) -> Option<types::Lease> {
    let head = &loaded.head.value;
    let holder = head.holder.clone()?;
    let expiry = instant(head.expiry.unwrap_or(head.updated));
    Some(types::Lease {
        thread: loaded.thread.value.id.clone(),
        holder,
        expiry,
    })
}

#[inline(never)]
pub fn thread(loaded: &LoadedThread) -> types::Thread {
    let (record, head) = (&loaded.thread.value, &loaded.head.value);
    let used = &head.counters;
    types::Thread {
        id: record.id.clone(),
        directive: record.directive.clone(),
        parent: record.parent.clone(),
        chain: record.chain.clone(),
        previous: record.previous.clone(),
        next: record.next.clone(),
        status: head.status.to_string(),
        cause: head.cause.as_ref().map(|why| cause(why, raise_floor(head))),
        agent: record.agent.clone(),
        task: record.task.clone(),
        title: record.title.clone(),
        model: record.model.clone(),
        limits: limits(&head.limits),
        capabilities: record.capabilities.clone(),
        inputs: record.inputs.clone(),
        outcome: record
            .outcome
            .map(|status: ThreadStatus| status.to_string()),
        result: record.result.clone(),
        cost: types::Cost {
            turns: used.turns,
            usage: usage(used.usage),
            spend: used.spend.get(),
            duration: used.duration,
        },
        run: types::Run {
            number: head.run,
            lease: lease(loaded),
            step: head.step.as_ref().map(|step| step.kind.as_str().to_owned()),
            version: head.step.as_ref().map_or(0, |step| step.version),
        },
        version: head.version,
        created: instant(record.created),
        updated: instant(head.updated),
    }
}

#[inline(never)]
pub fn draft(draft: exported::registry::Draft) -> ThreadDraft {
    ThreadDraft {
        id: draft.id,
        directive: draft.directive,
        agent: draft.agent,
        task: draft.task,
        title: draft.title,
        overrides: CreatorOverrides {
            model: draft.model,
            limits: limits_in(draft.limits),
            capabilities: draft.capabilities,
            within: None,
        },
        inputs: draft.inputs,
    }
}

/// Returns the first filter that is set, as the name of an index and a value. Ids are looked up by
/// their key.
pub fn filter(filter: exported::registry::Filter) -> Option<(&'static str, String)> {
    let by_key = |id: String| threadkeep_core::id::key(&id);
    filter
        .status
        .map(|value| ("status", value))
        .or(filter.parent.map(|value| ("parent", by_key(value))))
        .or(filter.directive.map(|value| ("directive", value)))
        .or(filter.agent.map(|value| ("agent", value)))
        .or(filter.task.map(|value| ("task", value)))
        .or(filter.chain.map(|value| ("chain", by_key(value))))
}

pub fn opened_to_wit(loaded: &LoadedThread) -> exported::history::Opened {
    exported::history::Opened {
        version: loaded.head.value.version,
        token: loaded.head.value.token,
    }
}

pub fn append_to_wit(written: &AppendOutcome) -> exported::history::Written {
    exported::history::Written {
        version: written.version,
        status: written.status.to_string(),
        mail: written.mail.iter().map(json::to_text).collect(),
    }
}

pub fn entry(line: StoredEntry) -> types::Entry {
    types::Entry {
        version: line.entry.version,
        reason: line.entry.reason.as_str().to_owned(),
        time: instant(line.entry.time),
        hash: Entry::hash_of(&line.text),
        body: line.text,
    }
}

#[inline(never)]
pub fn events(line: &StoredEntry) -> Vec<types::Event> {
    (0_u32..)
        .zip(&line.entry.events)
        .map(|(index, event)| types::Event {
            version: line.entry.version,
            index,
            kind: event.kind().to_owned(),
            time: instant(line.entry.time),
            body: json::to_text(event),
        })
        .collect()
}

#[inline(never)]
pub fn handle_to_wit(handed: StepHandle) -> exported::runner::Handle {
    exported::runner::Handle {
        thread: thread(&handed.loaded),
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
        calls: step
            .calls
            .iter()
            .map(|call| types::ToolCall {
                thread: handed.loaded.thread.value.id.clone(),
                version: call.version,
                index: call.index,
                id: call_id(call.version, call.index),
                origin: "model".to_owned(),
                name: call.name.clone(),
                arguments: call.arguments.clone(),
                idempotent: call.idempotent,
                timeout: call.timeout,
            })
            .collect(),
        until: step.until.map(instant),
        concerns_others: handed.concerns_others,
    }
}

/// Builds the request of a model call. Prompt and tools go only with the first request of a driver
/// that holds nothing yet.
#[inline(never)]
fn request(handed: &StepHandle) -> llm::Request {
    let pin = handed.pin.as_deref();
    let whole = handed.since == 0 || handed.messages.is_empty();
    llm::Request {
        thread: handed.loaded.thread.value.id.clone(),
        attempt: handed.step.version,
        options: "{}".to_owned(),
        model: pin.map(|pin| pin.model.name.clone()).unwrap_or_default(),
        system: pin
            .filter(|_| whole)
            .map(|pin| pin.prompt.clone())
            .unwrap_or_default(),
        tools: pin
            .filter(|_| whole)
            .map(|pin| pin.tools.iter())
            .into_iter()
            .flatten()
            .map(|tool| types::Tool {
                name: tool.name.clone(),
                description: tool.description.clone(),
                schema: tool.schema.clone(),
            })
            .collect(),
        messages: handed.messages.clone(),
        since: handed.since,
        output: handed.step.output,
        session: handed.loaded.head.value.session.clone(),
        hash: handed.step.hash.clone(),
    }
}

pub fn proof(proof: exported::runner::Proof) -> HolderProof {
    match proof {
        exported::runner::Proof::None => HolderProof::None,
        exported::runner::Proof::Watched(seen) => HolderProof::Watched {
            step: seen.step,
            partial: seen.partial,
        },
        exported::runner::Proof::Dead => HolderProof::Dead,
    }
}

#[inline(never)]
pub fn submission(
    token: u64,
    version: u64,
    outcome: exported::runner::Outcome,
) -> Result<StepSubmission, Error> {
    let outcome = match outcome {
        exported::runner::Outcome::Completion(completion) => {
            StepOutcome::Completion(completion_in(completion))
        }
        exported::runner::Outcome::Failure(failed) => StepOutcome::Failure(failure(failed)),
        exported::runner::Outcome::Outcomes(outcomes) => StepOutcome::ToolOutcomes(
            outcomes
                .into_iter()
                .enumerate()
                .map(|(place, outcome)| tool_outcome(place, outcome))
                .collect::<Result<_, _>>()?,
        ),
        exported::runner::Outcome::Waited => StepOutcome::Waited,
        exported::runner::Outcome::Stopped(failed) => StepOutcome::Stopped(failure(failed)),
    };
    Ok(StepSubmission {
        token,
        version,
        outcome,
        inputs: DecisionInputs::default(),
    })
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
fn failure(error: llm::Error) -> LlmFailure {
    let llm::Error {
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
        state => {
            let names = ["done", "interrupted"];
            return Err(CoreError::invalid_name(
                "outcome.state",
                state,
                "is not a state of a call",
                &names,
            )
            .into());
        }
    };
    if !outcome.patches.is_empty() || !outcome.operations.is_empty() {
        let problem = "patches and operations are not supported by this version yet";
        return Err(CoreError::invalid("outcome.patches", "", problem).into());
    }
    Ok(ToolOutcome {
        version: outcome.version,
        index: outcome.index,
        state,
        failed: outcome.failed,
        content: parse_result_content(place, &outcome.content)?,
        cost: NanoUsd::new(outcome.cost),
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
        exported::runner::SignalKind::Decision(_) => {
            let problem = "decisions are not supported by this version yet: no call awaits consent";
            return Err(CoreError::invalid("signal", "decision", problem).into());
        }
        exported::runner::SignalKind::Cancel => Signal::Cancel,
        exported::runner::SignalKind::Kill => Signal::Kill,
        exported::runner::SignalKind::Raise(raised) => Signal::Raise(CapRaise {
            caps: limits_in(raised.caps),
            through: raised.through,
        }),
    })
}

#[inline(never)]
pub fn due(due: &DueThread) -> exported::runner::Due {
    let head = &due.loaded.head.value;
    exported::runner::Due {
        thread: due.loaded.thread.value.id.clone(),
        status: head.status.to_string(),
        since: instant(UnixTime::from_millis(head.due.unwrap_or(0))),
        sighting: exported::runner::Sighting {
            step: head.step.as_ref().map_or(0, |step| step.version),
            partial: due.partial,
        },
        holder: head.holder.clone(),
        sweep: head.sweep.is_some() || (head.intent.is_some() && !is_running(head)),
        call: DueCall::for_thread(head).as_str().to_owned(),
        revive: is_revival(head),
    }
}

fn is_running(head: &Head) -> bool {
    head.status == ThreadStatus::Running
}
