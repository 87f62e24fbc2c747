//! Calls that need consent: which do, what a decision about one does, and the stop for decisions.
//!
//! A call that needs consent stays open and is not handed out. The other calls of its reply come
//! first; then the run stops for the decisions that are missing. A decision is a signal. Where a
//! driver holds the thread it is kept in the head and in a record, and the next commit of the run
//! applies it; else its own commit does. An approval is used up by the commit that hands the call
//! out, which then counts as one that may not be run twice: so the tool runs at most once.

use super::call_decision::CallDecision;
use super::children::{
    ANSWER_BYTES_MAX, DecidedCall, PerformedCall, PreparedCall, WaitRequest, perform_call,
};
use super::ending::suspend;
use super::open_calls::{cut_to_fit, tool_name_of};
use super::{BUILTIN_ANSWERS_BYTES_MAX, CommitDecision};
use crate::error::{Error, cut};
use crate::history::{
    CommitReason, DecisionEvent, Entry, Event, ToolResult, ToolResultState, call_id,
};
use crate::json;
use crate::key;
use crate::money::NanoUsd;
use crate::plan::{StoreWrite, ThreadChange, WriteCondition};
use crate::settings::is_builtin_tool;
use crate::thread::{
    APPROVAL_NEEDED, CallConsent, DecisionRecord, DecisionVerdict, Head, RecordFormat, RoundCall,
    StatusCause, ThreadStatus, ToolRound,
};

/// Most bytes, as JSON text, of the answers that one commit records beside the results of a round.
const ANSWERS_BYTES_MAX: usize = 256 << 10;
/// Most bytes of the message of the cause for which a run stops for decisions.
const CAUSE_BYTES_MAX: usize = 1_000;
/// Most bytes of a tool's own reason in that message.
const REASON_BYTES_MAX: usize = 200;

/// Returns the key of the record of the decision about a call.
pub fn decision_key(root: &str, thread: &str, (version, index): (u64, u32)) -> String {
    key::join(&[root, thread, &call_id(version, index)])
}

fn decision_event(
    (version, index): (u64, u32),
    decision: DecisionVerdict,
    text: Option<String>,
) -> Event {
    Event::Decision(DecisionEvent {
        version,
        index,
        decision,
        note: text.filter(|_| decision != DecisionVerdict::Answer),
    })
}

/// Takes a decision about a call of which none was taken before.
pub(super) fn take_decision(
    mut change: ThreadChange<'_>,
    round: Option<&Entry>,
    decision: &CallDecision,
) -> Result<CommitDecision, Error> {
    let at = find_undecided(&change.head, decision)?;
    let held = change.head.status == ThreadStatus::Running;
    write_record(&mut change, decision, held);
    if held {
        if let Some(round) = &mut change.head.round {
            round.calls[at].consent = Some(decision.verdict.as_consent());
        }
        return Ok(CommitDecision::Commit(change.into_head_plan()?));
    }
    change.push_event(decision_event(
        (decision.version, decision.index),
        decision.verdict,
        decision.text.clone(),
    ));
    let reason = match decision.verdict {
        DecisionVerdict::Approve => {
            if let Some(round) = &mut change.head.round {
                round.calls[at].consent = Some(CallConsent::Approved);
            }
            CommitReason::Changed
        }
        DecisionVerdict::Deny | DecisionVerdict::Answer => {
            let events = round.map(|entry| entry.events.as_slice());
            let name = tool_name_of(events, decision.index);
            let text = decision.text.clone();
            let place = (decision.version, decision.index);
            push_decided_result(&mut change, place, name, (decision.verdict, text));
            close_call(&mut change.head, at);
            CommitReason::ToolResults
        }
    };
    let cause = change.head.cause.as_ref();
    if cause.is_some_and(|cause| cause.code == APPROVAL_NEEDED) {
        let events = round.map(|entry| entry.events.as_slice());
        let name = |index| tool_name_of(events, index);
        change.head.cause = Some(approval_cause(&change, &name));
        if change.head.undecided_calls().next().is_none() {
            change.head.mark_due();
        }
    }
    Ok(CommitDecision::Commit(change.into_plan(reason)?))
}

/// Compares a decision with the one that was taken about its call: the same is done already.
pub(super) fn repeat_decision(
    thread: &str,
    decision: &CallDecision,
    earlier: &DecisionRecord,
) -> Result<CommitDecision, Error> {
    earlier.format.refuse_newer(thread, "decision")?;
    if earlier.digest == decision.digest() {
        return Ok(CommitDecision::Repeat);
    }
    let (verdict, taken) = (decision.verdict, earlier.decision);
    let words = match (verdict == taken, taken) {
        (false, _) => "",
        (true, DecisionVerdict::Answer) => " with another text",
        (true, _) => " with another note",
    };
    Err(Error::conflict(
        "decision",
        verdict.as_str().to_owned(),
        format!("{}{words}", taken.as_str()),
    ))
}

/// Returns the place of the call in the open round, if it waits for a decision.
fn find_undecided(head: &Head, decision: &CallDecision) -> Result<usize, Error> {
    let round = head.round.as_ref();
    let round = round.filter(|round| round.version == decision.version);
    let open = round.and_then(|round| {
        let mut calls = round.calls.iter();
        calls.position(|call| call.index == decision.index)
    });
    let call = decision.call_id();
    let waiting = undecided_ids(head);
    let refuse = |problem: &str| {
        let waiting = match waiting.as_slice() {
            [] => "no call waits for a decision".to_owned(),
            ids => format!("these wait for one: {}", ids.join(", ")),
        };
        let nearest = waiting_alone(head);
        let error = Error::invalid(
            "signal.decision.call",
            &call,
            format!("{problem}: {waiting}"),
        );
        Err(error.with_nearest(nearest.as_deref()))
    };
    match (open, round) {
        (Some(at), Some(round)) if round.calls[at].is_undecided() => Ok(at),
        (Some(_), _) => refuse("is a call that needs no decision, or has one"),
        (None, _) if decision.version > head.version => refuse("is a call that was not made yet"),
        (None, _) => refuse("is no open call: it has its result, or was never made"),
    }
}

/// Ids of the calls of a thread that wait for a decision.
pub(super) fn undecided_ids(head: &Head) -> Vec<String> {
    let version = head.round.as_ref().map_or(0, |round| round.version);
    let calls = head.undecided_calls();
    calls.map(|call| call_id(version, call.index)).collect()
}

/// The id of the call that waits for a decision, if it is the only one.
fn waiting_alone(head: &Head) -> Option<String> {
    let mut ids = undecided_ids(head);
    match ids.len() {
        1 => ids.pop(),
        _ => None,
    }
}

/// Writes the record of a decision. `parked` is true if no entry has the decision yet: then the
/// record keeps its note or answer for the commit that writes the event.
fn write_record(change: &mut ThreadChange<'_>, decision: &CallDecision, parked: bool) {
    let record = DecisionRecord {
        format: RecordFormat::CURRENT,
        decision: decision.verdict,
        digest: decision.digest(),
        parked,
        text: decision.text.clone().filter(|_| parked),
    };
    let place = (decision.version, decision.index);
    put_record(change, place, &record, WriteCondition::Absent);
}

fn put_record(
    change: &mut ThreadChange<'_>,
    place: (u64, u32),
    record: &DecisionRecord,
    expect: WriteCondition,
) {
    let loaded = change.loaded_thread();
    change.extra.push(StoreWrite::Put {
        collection: key::DECISION,
        key: decision_key(&loaded.chain_key(), &loaded.key(), place),
        expect,
        value: json::to_text(record),
    });
}

fn close_call(head: &mut Head, at: usize) {
    if let Some(round) = &mut head.round {
        round.calls.remove(at);
    }
    head.round.take_if(|round| round.calls.is_empty());
}

/// Adds the result of a call that was denied or answered.
fn push_decided_result(
    change: &mut ThreadChange<'_>,
    (version, index): (u64, u32),
    name: String,
    (verdict, text): (DecisionVerdict, Option<String>),
) {
    let answered = verdict == DecisionVerdict::Answer;
    let text = match (answered, text) {
        (true, Some(text)) => text,
        (true, None) => "the answer that a person gave is lost: ask again".to_owned(),
        (false, Some(note)) => format!("denied: {note}"),
        (false, None) => "denied: a person did not allow this call".to_owned(),
    };
    let state = match answered {
        true => ToolResultState::Done,
        false => ToolResultState::Denied,
    };
    change.push_event(Event::ToolResult(ToolResult {
        version,
        index,
        name,
        text,
        failed: !answered,
        state,
        cost: NanoUsd::ZERO,
        blocks: Vec::new(),
    }));
}

/// State of the open round while its decisions are applied.
struct DecidedRound {
    version: u64,
    /// Calls that stay open.
    open: Vec<RoundCall>,
    /// Most bytes of the answer of a person, and of that of a built-in tool.
    shares: (usize, usize),
    /// Children that were spawned.
    spawned: Vec<super::ChildSnapshot>,
    /// The children of the call that waits, if one does.
    wait: Option<WaitRequest>,
    /// Cause that stops the run: a cap did not allow an approved call.
    stop: Option<StatusCause>,
}

/// Applies the decisions about calls of the open round: approved ones are open to be handed out, or
/// performed if they are of the built-in tools; the others get their result. `name_of` gives the
/// tool of a call, `wait` is the open wait. Returns the cause that stops the run, if one does.
pub(super) fn apply_decisions(
    change: &mut ThreadChange<'_>,
    name_of: &dyn Fn(u32) -> String,
    mut decided: Vec<DecidedCall>,
    wait: &mut Option<WaitRequest>,
) -> Result<Option<StatusCause>, Error> {
    let to_apply = |call: &RoundCall| call.was_not_run() && !call.is_undecided();
    let open = change.head.round.as_ref();
    let count = open.map_or(0, |round| {
        round.calls.iter().filter(|call| to_apply(call)).count()
    });
    let Some(open) = change.head.round.take_if(|_| count > 0) else {
        return Ok(None);
    };
    let mut round = DecidedRound {
        version: open.version,
        open: Vec::with_capacity(open.calls.len()),
        shares: (
            ANSWERS_BYTES_MAX / count,
            (BUILTIN_ANSWERS_BYTES_MAX / count).min(ANSWER_BYTES_MAX),
        ),
        spawned: Vec::new(),
        wait: wait.take(),
        stop: None,
    };
    for call in open.calls {
        if !to_apply(&call) {
            round.open.push(call);
            continue;
        }
        let found = decided.iter().position(|one| one.index == call.index);
        let known = found.map(|at| decided.swap_remove(at));
        apply_decision(change, call, known, name_of(call.index), &mut round)?;
    }
    change.head.round = (!round.open.is_empty()).then_some(ToolRound {
        version: round.version,
        calls: round.open,
    });
    let spawned = round.spawned;
    *wait = round
        .wait
        .map(|wait| wait.with_reply_changes(change, spawned));
    Ok(round.stop)
}

fn apply_decision(
    change: &mut ThreadChange<'_>,
    call: RoundCall,
    known: Option<DecidedCall>,
    name: String,
    round: &mut DecidedRound,
) -> Result<(), Error> {
    let place = (round.version, call.index);
    let (record, prepared) = known.map_or((None, None), |one| (one.record, one.prepared));
    let parked = record.filter(|record| record.parked);
    let text = parked.as_ref().and_then(|record| record.text.clone());
    if let Some(record) = parked {
        change.push_event(decision_event(place, record.decision, text.clone()));
        let taken = DecisionRecord {
            parked: false,
            text: None,
            ..record
        };
        put_record(change, place, &taken, WriteCondition::Any);
    }
    match call.consent {
        Some(CallConsent::Denied) => {
            push_decided_result(change, place, name, (DecisionVerdict::Deny, text));
        }
        Some(CallConsent::Answered) => {
            let text = text.map(|text| cut_to_fit(text, round.shares.0));
            push_decided_result(change, place, name, (DecisionVerdict::Answer, text));
        }
        _ => match prepared {
            Some(prepared) => perform_approved(change, call.index, name, prepared, round)?,
            None if is_builtin_tool(&name) => {
                let message = format!("the approved call of {name} was not read before the commit");
                return Err(Error::corrupt(message));
            }
            None => round.open.push(RoundCall {
                idempotent: false,
                consent: Some(CallConsent::Given),
                ..call
            }),
        },
    }
    Ok(())
}

/// Performs an approved call of the built-in tools. A wait becomes the open wait of the round.
fn perform_approved(
    change: &mut ThreadChange<'_>,
    index: u32,
    name: String,
    prepared: PreparedCall,
    round: &mut DecidedRound,
) -> Result<(), Error> {
    let prepared = match prepared {
        PreparedCall::Wait(request) if round.wait.is_none() => {
            round.wait = Some(request);
            round.open.push(RoundCall {
                index,
                idempotent: true,
                waits: true,
                consent: Some(CallConsent::Given),
            });
            return Ok(());
        }
        prepared => prepared,
    };
    let room = round.shares.1;
    let (text, failed) = match perform_call(change, prepared, room, &mut round.spawned)? {
        PerformedCall::Answered(text, failed) => (text, failed),
        PerformedCall::Stops(text, cause) => {
            round.stop.get_or_insert(cause);
            (text, true)
        }
    };
    let state = match failed {
        true => ToolResultState::Denied,
        false => ToolResultState::Done,
    };
    change.push_event(Event::ToolResult(ToolResult {
        version: round.version,
        index,
        name,
        text: cut_to_fit(text, room),
        failed,
        state,
        cost: NanoUsd::ZERO,
        blocks: Vec::new(),
    }));
    Ok(())
}

/// Stops the run until the calls of the open round are decided.
pub(super) fn suspend_for_decisions(
    change: &mut ThreadChange<'_>,
    name_of: &dyn Fn(u32) -> String,
) {
    let cause = approval_cause(change, name_of);
    suspend(change, cause);
    if change.head.awaits_decision() {
        // Mail enters the history after the results of the calls, so it makes nothing due before.
        change.head.due = None;
    }
}

/// Returns the cause for which a run stops for decisions. It names the calls that are still to be
/// decided about.
fn approval_cause(change: &ThreadChange<'_>, name_of: &dyn Fn(u32) -> String) -> StatusCause {
    let calls: Vec<String> = change
        .head
        .undecided_calls()
        .map(|call| describe_call(change, call.index, name_of))
        .collect();
    let verb = match calls.len() {
        0 => {
            let message = "every call is decided about: resume to go on";
            return StatusCause::new("approval", APPROVAL_NEEDED, message);
        }
        1 => "waits for a decision",
        _ => "wait for a decision",
    };
    let mut names = calls.join(", ");
    let kept = cut(&names, CAUSE_BYTES_MAX).len();
    if kept < names.len() {
        names.truncate(kept);
        names.push_str(" ...");
    }
    let message = format!("{names} {verb}: approve, deny or answer");
    StatusCause::new("approval", APPROVAL_NEEDED, message)
}

/// Names a call for a person: its id, its tool, and the reason that the tool gave in this commit.
fn describe_call(change: &ThreadChange<'_>, index: u32, name_of: &dyn Fn(u32) -> String) -> String {
    let version = change.head.round.as_ref().map_or(0, |round| round.version);
    let asked = change.events.iter().find_map(|event| match event {
        Event::ConsentAsked(asked) if (asked.version, asked.index) == (version, index) => {
            Some(cut(&asked.text, REASON_BYTES_MAX))
        }
        _ => None,
    });
    let (id, name) = (call_id(version, index), name_of(index));
    match asked {
        Some(reason) if !reason.is_empty() => format!("{id} ({name}: {reason})"),
        _ => format!("{id} ({name})"),
    }
}
