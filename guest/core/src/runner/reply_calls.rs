//! The calls of a reply: each is run at once, refused, handed out or left open as a wait.

use super::children::{ChildSnapshot, PerformedCall, PreparedCall, WaitRequest, perform_call};
use super::finish_reason::{FinishReason, incomplete_reply_cause};
use super::open_calls::cut_to_fit;
use super::transition::RunTransition;
use super::{BAD_ROUNDS_MAX, BUILTIN_ANSWERS_BYTES_MAX, CALLS_MAX, REFUSAL_BYTES_MAX};
use crate::error::{Error, cut};
use crate::history::{Event, ToolResult, ToolResultState, ToolUse, escaped_bytes};
use crate::json;
use crate::money::NanoUsd;
use crate::plan::ThreadChange;
use crate::settings::{PinnedSettings, is_builtin_tool};
use crate::thread::{CallConsent, RoundCall, StatusCause, ToolRound};

/// State of the calls of a reply while they are decided.
#[derive(Default)]
struct ReplyCalls {
    /// Calls that have no result yet.
    open: Vec<RoundCall>,
    /// Longest time of a call that a driver runs, in milliseconds.
    timeout: u64,
    /// The children of the call that waits, if one does.
    waiting: Option<WaitRequest>,
    /// Children that were spawned.
    spawned: Vec<ChildSnapshot>,
    /// Number of calls of the built-in tools.
    builtin_calls: usize,
    /// Bytes of the answers, as JSON text.
    bytes: usize,
    /// Cause that stops the run: the first cap that did not allow a call, or that the reply is not
    /// whole.
    stop: Option<StatusCause>,
    /// Reason why no call of the reply is run: the reply is not whole.
    not_run: Option<String>,
    /// Patterns of calls that the operator wants to be approved.
    approvals: Vec<String>,
}

/// Handles a reply with calls. Calls that cannot be run, and calls of the built-in tools, get their
/// result at once; the others are handed out; those that need consent stay open; a wait comes last.
pub(super) fn open_round(
    change: &mut ThreadChange<'_>,
    pin: &PinnedSettings,
    asked: Vec<(u32, Option<PreparedCall>)>,
    (word, approvals): (&str, Vec<String>),
) -> Result<RunTransition, Error> {
    let mut calls = ReplyCalls {
        not_run: not_run_reason(word),
        approvals,
        ..ReplyCalls::default()
    };
    for (place, (index, prepared)) in asked.into_iter().enumerate() {
        decide_call(change, pin, (place, index), prepared, &mut calls)?;
    }
    // The model can repeat a cut reply with less in it. A reply that was withheld, or that ended in
    // an unknown way, needs a person.
    let withheld = matches!(
        FinishReason::parse(word),
        FinishReason::ContentFilter | FinishReason::Unknown
    );
    if withheld && let Some(cause) = incomplete_reply_cause(word, "") {
        calls.stop = Some(cause);
    }
    change.head.round = (!calls.open.is_empty()).then_some(ToolRound {
        version: change.version(),
        calls: calls.open,
    });
    let ran = change.head.round.is_some() || calls.builtin_calls > 0;
    change.head.bad_rounds = if ran { 0 } else { change.head.bad_rounds + 1 };
    if change.head.bad_rounds >= BAD_ROUNDS_MAX {
        let message = format!(
            "the model made {BAD_ROUNDS_MAX} rounds in a row in which no call could be run"
        );
        change.head.bad_rounds = 0;
        calls.stop = Some(StatusCause::new("error", "bad_tool_rounds", message));
    }
    if let Some(cause) = calls.stop {
        return Ok(RunTransition::Suspend(cause));
    }
    let (waiting, spawned) = (calls.waiting, calls.spawned);
    let wait = waiting.map(|waiting| waiting.with_reply_changes(change, spawned));
    Ok(RunTransition::Continue {
        wait,
        decided: Vec::new(),
        tool_millis: calls.timeout,
    })
}

/// Decides one call of a reply.
fn decide_call(
    change: &mut ThreadChange<'_>,
    pin: &PinnedSettings,
    (place, index): (usize, u32),
    prepared: Option<PreparedCall>,
    calls: &mut ReplyCalls,
) -> Result<(), Error> {
    let Some(Event::ToolUse(used)) = change.events.get(index as usize).cloned() else {
        return Ok(());
    };
    let tool = pin.find_tool(&used.name);
    let refused = calls
        .not_run
        .clone()
        .or_else(|| call_refusal_text(pin, &used, place));
    // Each answer gets half of the rest, so that the last one has room, too.
    let share = (BUILTIN_ANSWERS_BYTES_MAX.saturating_sub(calls.bytes) / 2).max(REFUSAL_BYTES_MAX);
    let result = match (refused, prepared) {
        (Some(text), _) => (
            cut(&text, REFUSAL_BYTES_MAX).to_owned(),
            ToolResultState::Denied,
        ),
        // The thread is to end: nothing more is performed, and calls without a result are
        // interrupted.
        (None, Some(_)) if change.head.intent.is_some() => {
            calls.open.push(new_round_call(index, true));
            return Ok(());
        }
        (None, prepared) if is_to_be_asked(pin, &used, prepared.as_ref(), &calls.approvals) => {
            calls.open.push(RoundCall {
                consent: Some(CallConsent::Asked),
                ..new_round_call(index, true)
            });
            return Ok(());
        }
        (None, None) if tool.is_some_and(|tool| is_builtin_tool(&tool.name)) => {
            let message = format!("nobody prepared the call of {}", used.name);
            return Err(Error::corrupt(message));
        }
        (None, None) => {
            calls.timeout = calls.timeout.max(tool.map_or(0, |tool| tool.timeout));
            let idempotent = tool.is_some_and(|tool| tool.idempotent);
            calls.open.push(new_round_call(index, idempotent));
            return Ok(());
        }
        (None, Some(PreparedCall::Wait(waiting))) if calls.waiting.is_none() => {
            calls.waiting = Some(waiting);
            calls.open.push(RoundCall {
                waits: true,
                ..new_round_call(index, true)
            });
            return Ok(());
        }
        (None, Some(prepared)) => perform_prepared(change, prepared, share, calls)?,
    };
    let (text, state) = result;
    let text = cut_to_fit(text, share);
    calls.bytes += escaped_bytes(&text);
    change.push_event(Event::ToolResult(ToolResult {
        version: change.version(),
        index,
        name: used.name,
        text,
        failed: state == ToolResultState::Denied,
        state,
        cost: NanoUsd::ZERO,
        blocks: Vec::new(),
    }));
    Ok(())
}

/// Returns true if a person has to decide about a call, which can be performed: nobody is asked
/// about one that cannot.
fn is_to_be_asked(
    pin: &PinnedSettings,
    used: &ToolUse,
    prepared: Option<&PreparedCall>,
    approvals: &[String],
) -> bool {
    let tool = pin.find_tool(&used.name);
    !matches!(prepared, Some(PreparedCall::Answer(_, true)))
        && tool.is_some_and(|tool| pin.asks_for_consent(tool, approvals))
}

/// Performs a call of the built-in tools; returns the text and the state of its result.
fn perform_prepared(
    change: &mut ThreadChange<'_>,
    prepared: PreparedCall,
    room: usize,
    calls: &mut ReplyCalls,
) -> Result<(String, ToolResultState), Error> {
    calls.builtin_calls += 1;
    let performed = perform_call(change, prepared, room, &mut calls.spawned)?;
    Ok(match performed {
        PerformedCall::Answered(text, false) => (text, ToolResultState::Done),
        PerformedCall::Answered(text, true) => (text, ToolResultState::Denied),
        PerformedCall::Stops(text, cause) => {
            calls.stop.get_or_insert(cause);
            (text, ToolResultState::Denied)
        }
    })
}

fn new_round_call(index: u32, idempotent: bool) -> RoundCall {
    RoundCall {
        index,
        idempotent,
        waits: false,
        consent: None,
    }
}

/// Returns the reason, as a sentence for the model, why no call of a reply with this finish word is
/// run. The part that is missing may have changed the purpose of the others.
fn not_run_reason(word: &str) -> Option<String> {
    Some(match FinishReason::parse(word) {
        FinishReason::Stop | FinishReason::ToolUse => return None,
        FinishReason::Length => {
            "not run: the reply was cut at its most output tokens: call again, with less in one \
             reply"
                .to_owned()
        }
        FinishReason::ContentFilter => "not run: the provider withheld the reply".to_owned(),
        FinishReason::Unknown => {
            format!("not run: the provider ended the reply with {word:?}")
        }
    })
}

/// Returns the reason, as a sentence for the model, why a call cannot be run.
fn call_refusal_text(pin: &PinnedSettings, call: &ToolUse, place: usize) -> Option<String> {
    let names = || {
        pin.tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect::<Vec<_>>()
    };
    if place >= CALLS_MAX {
        return Some(format!("not run: at most {CALLS_MAX} calls in one reply"));
    }
    if pin.find_tool(&call.name).is_none() {
        let name = cut(&call.name, 64);
        return Some(
            match (
                names().as_slice(),
                threadkeep_units::nearest::nearest(name, names()),
            ) {
                ([], _) => format!("there is no tool {name:?}: you have no tools, answer in text"),
                (names, None) => {
                    format!("there is no tool {name:?}: you have {}", names.join(", "))
                }
                (names, Some(near)) => {
                    format!(
                        "there is no tool {name:?}, did you mean {near:?}? You have {}",
                        names.join(", ")
                    )
                }
            },
        );
    }
    match json::parse(&call.arguments) {
        Ok(json::JsonValue::Object(_)) => None,
        Ok(_) => Some("the arguments are not a JSON object: call again with {...}".into()),
        Err(e) => Some(format!(
            "the arguments are not JSON ({e}): call again with a JSON object"
        )),
    }
}
