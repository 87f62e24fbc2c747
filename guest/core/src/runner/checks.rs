//! Checks that several operations of the runner share: who may start, hold or write, and with what.

use super::OPEN_MILLIS_MAX;
use super::consent::undecided_ids;
use crate::error::{self, Error, ErrorKind};
use crate::limits::ThreadCaps;
use crate::plan::{DecisionContext, LoadedThread, ThreadChange};
use crate::settings::PinnedSettings;
use crate::thread::{Head, ThreadStatus, UsageCounters, find_reached_cap};
use crate::time::{NANOS_MAX, UnixTime};

/// Advice about a thread that has ended.
pub(super) const ENDED_ADVICE: &str = "it has ended: `resume` goes on with it in a successor";

/// Advice about a thread whose history is not whole.
const INCOMPLETE_ADVICE: &str = "its history is not whole: the import that made it was not \
                                 finished, so repeat that import with this id";

/// Returns the pin of a thread that must have one by now.
pub(super) fn require_pin<'a>(
    loaded: &LoadedThread,
    pin: Option<&'a PinnedSettings>,
) -> Result<&'a PinnedSettings, Error> {
    let id = &loaded.thread.value.id;
    pin.ok_or_else(|| Error::corrupt(format!("{id} has no pin")))
}

/// Returns the error for a request that the status of a thread does not allow. What is meant for a
/// thread that was continued belongs to the next link of its chain, whose id the caller needs.
pub(super) fn refused_error(loaded: &LoadedThread, advice: &str) -> Error {
    let thread = &loaded.thread.value;
    match &thread.next {
        Some(next) => Error::continued_by(&thread.id, next),
        None => ErrorKind::Refused {
            thread: thread.id.clone(),
            status: loaded.head.value.status.to_string(),
            advice: advice.to_owned(),
        }
        .into(),
    }
}

/// Checks that the history that the thread was made for is whole: nothing may build on a part of
/// it.
///
/// # Errors
/// `ErrorKind::Refused`.
pub(super) fn check_complete(loaded: &LoadedThread) -> Result<(), Error> {
    match loaded.head.value.incomplete {
        true => Err(refused_error(loaded, INCOMPLETE_ADVICE)),
        false => Ok(()),
    }
}

/// Checks that a caller may take the thread, under the operator's caps. `begins` is true if a new
/// run begins although the thread is suspended.
pub(super) fn check_may_start(
    loaded: &LoadedThread,
    begins: bool,
    ceiling: ThreadCaps,
) -> Result<(), Error> {
    let mut head = Head::clone(&loaded.head.value);
    if begins {
        begin_run(&mut head);
    }
    match head.status {
        ThreadStatus::Created | ThreadStatus::Idle => {}
        ThreadStatus::Suspended if head.awaits_decision() => {
            let ids = undecided_ids(&head).join(", ");
            let advice = format!("approve, deny or answer {}", error::cut(&ids, 500));
            return Err(refused_error(loaded, &advice));
        }
        ThreadStatus::Suspended => {
            if let Some(cause) = find_reached_cap(&head, ceiling) {
                return Err(Error::exceeded_by(cause));
            }
        }
        ThreadStatus::Running => return Err(busy_error(loaded)),
        ThreadStatus::Waiting => {
            return Err(refused_error(loaded, "claim it: it goes on by itself"));
        }
        ThreadStatus::Completed
        | ThreadStatus::Error
        | ThreadStatus::Cancelled
        | ThreadStatus::Killed
        | ThreadStatus::Continued => {
            return Err(refused_error(loaded, ENDED_ADVICE));
        }
    }
    if head.intent.is_some() {
        let advice = "the thread that spawned it has ended it: `recover` lets that take effect";
        return Err(refused_error(loaded, advice));
    }
    if loaded.account().frozen {
        let owner = loaded.chain.value.draws_on(&loaded.thread.value.chain);
        let advice = format!("its account, that of {owner}, is frozen: `kill` ends the thread");
        return Err(refused_error(loaded, &advice));
    }
    Ok(())
}

pub(super) fn busy_error(loaded: &LoadedThread) -> Error {
    let head = &loaded.head.value;
    ErrorKind::Busy {
        thread: loaded.thread.value.id.clone(),
        holder: head.holder.clone().unwrap_or_default(),
        expiry: head.expiry.unwrap_or(head.updated),
    }
    .into()
}

/// Counts a new run: what is capped for each run begins anew. The count of lost steps goes on.
pub(super) fn begin_run(head: &mut Head) {
    head.run += 1;
    head.counters = UsageCounters {
        run_turns: 0,
        run_tokens: 0,
        run_duration: 0,
        ..head.counters
    };
    head.bad_rounds = 0;
}

/// Returns the longest timeout of the tools that are offered, in milliseconds.
pub(super) fn slowest_tool_millis(pin: &PinnedSettings) -> u64 {
    let slowest = pin.tools.iter().map(|tool| tool.timeout).max();
    slowest.unwrap_or(crate::settings::TOOL_MILLIS_DEFAULT)
}

/// Returns true if a person's message begins a new run of this thread in its current status. It
/// does for a suspended chat, as for one that is idle: otherwise a chat at a cap of the operator's,
/// which the user cannot raise, could never go on. A run that has used nothing yet goes on.
pub(super) fn message_begins_run(loaded: &LoadedThread) -> bool {
    let head = &loaded.head.value;
    let used = &head.counters;
    let unused = (used.run_turns, used.run_tokens, used.run_duration) == (0, 0, 0);
    loaded.thread.value.directive.is_none() && head.status == ThreadStatus::Suspended && !unused
}

/// Begins a new run of a suspended chat, if [`message_begins_run`] says so, for a message that
/// arrives while it is not held.
pub(super) fn begin_chat_run(change: &mut ThreadChange<'_>) {
    if message_begins_run(change.loaded_thread()) {
        begin_run(&mut change.head);
    }
}

/// Checks that the deadline is a time, after now, and at most [`OPEN_MILLIS_MAX`] away.
pub(super) fn check_deadline(deadline: UnixTime, moment: DecisionContext<'_>) -> Result<(), Error> {
    if deadline.nanos > NANOS_MAX {
        return Err(Error::invalid(
            "deadline.nanos",
            &deadline.nanos.to_string(),
            "must be below 1000000000: whole seconds belong into `seconds`",
        ));
    }
    if deadline > moment.now && deadline <= moment.now.plus_millis(OPEN_MILLIS_MAX) {
        return Ok(());
    }
    let now = moment.now.rfc3339();
    let problem = format!("must be after now, {now}, and at most an hour away");
    Err(Error::invalid("deadline", &deadline.rfc3339(), problem))
}

/// Checks that the holder of this token may write: an external loop holds the thread, with this
/// token.
pub(super) fn check_loop_token(loaded: &LoadedThread, token: u64) -> Result<(), Error> {
    let head = &loaded.head.value;
    if token != head.token {
        return Err(Error::fenced_by(token, head.token));
    }
    match head.status {
        ThreadStatus::Running if head.is_external_loop() => Ok(()),
        ThreadStatus::Running => Err(refused_error(
            loaded,
            "a driver runs it: its steps are submitted",
        )),
        status if status.is_terminal() => Err(refused_error(loaded, ENDED_ADVICE)),
        _ => Err(refused_error(loaded, "its hold is over: open it again")),
    }
}
