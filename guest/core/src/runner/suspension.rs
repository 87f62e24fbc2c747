//! The need of a suspended thread, in a form that a program reads: decisions, a higher cap, or a
//! start.

use crate::error::cut;
use crate::history::{Entry, Event, call_id};
use crate::json::ObjectWriter;
use crate::json::record;
use crate::thread::{Head, ThreadStatus, raise_floor};

/// Most bytes of the arguments of a call that are shown: a person reads them before deciding. The
/// history has all of them.
const ARGUMENTS_BYTES_MAX: usize = 2_000;

/// A call that waits for a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WaitingCall {
    call: String,
    name: Option<String>,
    arguments: Option<String>,
    /// Bytes of all of the arguments, if only their beginning is shown; else 0.
    arguments_bytes: u64,
}

record!(write WaitingCall {
    call, name or nothing, arguments or nothing, arguments_bytes or nothing
});

/// Amount of what is told of the calls that wait for a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeedsDetail {
    /// Their ids.
    Ids,
    /// Their ids and names.
    Names,
    /// Their ids and names, and the beginning of their arguments.
    Arguments,
}

/// A cap that has to be raised.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CapToRaise {
    cap: String,
    above: u64,
}

record!(write CapToRaise { cap, above });

/// Returns what a suspended thread waits for, as JSON; `None` for one that is not suspended, unless
/// calls of it wait for decisions meanwhile. `round` is the entry that holds its open calls:
/// without it they are named by their ids alone.
///
/// `{"calls": [{"call", "name", "arguments"}]}`, `{"raise": {"cap", "above"}}` or
/// `{"start": code}`.
pub fn suspension_needs(head: &Head, round: Option<&Entry>, detail: NeedsDetail) -> Option<String> {
    let calls = waiting_calls(head, round, detail);
    let suspended = head.status == ThreadStatus::Suspended;
    if !suspended && calls.is_empty() {
        return None;
    }
    let code = head.cause.as_ref().map_or("", |cause| cause.code.as_str());
    let mut text = String::new();
    let mut fields = ObjectWriter::new(&mut text);
    match (calls.is_empty(), raise_floor(head)) {
        (_, Some(above)) => {
            let cap = code.strip_suffix("_exceeded").unwrap_or(code).to_owned();
            fields.add("raise", &CapToRaise { cap, above });
            if !calls.is_empty() {
                fields.add("calls", &calls);
            }
        }
        (false, None) => {
            fields.add("calls", &calls);
        }
        (true, None) => {
            fields.add("start", code);
        }
    }
    fields.finish();
    Some(text)
}

fn waiting_calls(head: &Head, round: Option<&Entry>, detail: NeedsDetail) -> Vec<WaitingCall> {
    let version = head.round.as_ref().map_or(0, |round| round.version);
    let entry = round.filter(|entry| entry.version == version);
    let calls = head.undecided_calls().map(|call| {
        let event = entry.and_then(|entry| entry.events.get(call.index as usize));
        let used = match event {
            Some(Event::ToolUse(used)) => Some(used),
            _ => None,
        };
        let all = used.map_or("", |used| used.arguments.as_str());
        let shown = match (detail, used) {
            (NeedsDetail::Arguments, Some(_)) => Some(cut(all, ARGUMENTS_BYTES_MAX)),
            _ => None,
        };
        let is_cut = shown.is_some_and(|shown| shown.len() < all.len());
        WaitingCall {
            call: call_id(version, call.index),
            name: used.map(|used| used.name.clone()),
            arguments: shown.map(str::to_owned),
            arguments_bytes: if is_cut { all.len() as u64 } else { 0 },
        }
    });
    calls.collect()
}
