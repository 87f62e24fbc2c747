//! The ends and stops of a run: suspended, cancelled, killed, finished. Each leaves no holder, no
//! step and no hold. The outcome is chosen elsewhere: see [`super::outcome`].

use super::mail::take_mail;
use super::open_calls::{interrupt_calls, tool_name_of};
use super::settlement::{charge_external_holds, count_time, settle_attempt};
use crate::error::Error;
use crate::history::{
    CancelledEvent, CommitReason, Entry, Event, Message, SuspendedEvent, cut_escaped,
};
use crate::ledger::AccountPath;
use crate::plan::{CommitPlan, StoreWrite, ThreadChange};
use crate::thread::{ChildWait, EndIntent, RESULT_BYTES_MAX, StatusCause, ThreadStatus};
use crate::{id, key};

/// Suspends the run: it needs a person or a driver, and can go on in place.
pub(super) fn suspend(change: &mut ThreadChange<'_>, cause: StatusCause) {
    // A history that is not whole is gone on with as if nothing had happened.
    if cause.reason == "error" && !change.head.incomplete {
        push_error_message(change, &cause);
    }
    change.push_event(Event::Suspended(SuspendedEvent {
        cause: cause.clone(),
    }));
    release_lease(change, ThreadStatus::Suspended);
    change.head.cause = Some(cause);
    change.closing = true;
}

/// Suspends the run with its wait open. It goes on when it is resumed, or by itself once the
/// children have stopped.
pub(super) fn suspend_in_wait(change: &mut ThreadChange<'_>, cause: StatusCause, wait: ChildWait) {
    change.push_event(Event::Suspended(SuspendedEvent {
        cause: cause.clone(),
    }));
    release_lease(change, ThreadStatus::Suspended);
    change.closing = true;
    change.head.cause = Some(cause);
    // Mail is taken after the wait: it is no reason to start the thread before.
    change.head.due = None;
    change.head.wait = Some(wait);
}

/// Ends the thread by a cancel or a kill. Messages that were sent to the thread until now enter its
/// history; its children are to be ended, too.
pub(super) fn terminate(change: &mut ThreadChange<'_>, intent: EndIntent) {
    take_mail(change);
    let (status, code) = match intent {
        EndIntent::Kill => (ThreadStatus::Killed, "killed"),
        EndIntent::Cancel => (ThreadStatus::Cancelled, "cancelled"),
    };
    let by = intent.as_str();
    change.push_event(Event::Message(Message::synthetic("(stopped by user)")));
    change.push_event(Event::Cancelled(CancelledEvent { by: by.to_owned() }));
    release_lease(change, status);
    change.head.cause = Some(StatusCause::new(code, code, format!("ended by a {by}")));
    if change.chain.has_account() {
        change.apply_settled(&mut AccountPath::freeze);
    }
    mark_sweep(change, intent);
    record_end(change, status);
}

/// Finishes a run that went well: a chat becomes idle, a directive's thread ends with its last text
/// as result.
pub(super) fn finish_run(change: &mut ThreadChange<'_>, text: &str) {
    if change.thread.directive.is_none() {
        return become_idle(change);
    }
    let kept = cut_escaped(text, RESULT_BYTES_MAX);
    let result = if kept.len() == text.len() {
        kept.to_owned()
    } else {
        format!("{kept} (cut: the whole is in the transcript)")
    };
    complete_thread(change, Some(crate::json::to_text(&result)));
}

/// Makes the thread idle: it takes the next input.
pub(super) fn become_idle(change: &mut ThreadChange<'_>) {
    change.closing = true;
    change.head.cause = None;
    release_lease(change, ThreadStatus::Idle);
    change.stop_drawing();
}

/// Ends the thread well. `result` is JSON.
pub(super) fn complete_thread(change: &mut ThreadChange<'_>, result: Option<String>) {
    change.head.cause = None;
    release_lease(change, ThreadStatus::Completed);
    change.thread_mut().result = result;
    record_end(change, ThreadStatus::Completed);
}

/// Ends the thread by an error of its host. `result` is JSON.
pub(super) fn fail_thread(change: &mut ThreadChange<'_>, cause: StatusCause, result: String) {
    push_error_message(change, &cause);
    release_lease(change, ThreadStatus::Error);
    change.head.cause = Some(cause);
    change.thread_mut().result = Some(result);
    record_end(change, ThreadStatus::Error);
}

fn push_error_message(change: &mut ThreadChange<'_>, cause: &StatusCause) {
    let text = format!("(error: {})", cause.message);
    change.push_event(Event::Message(Message::synthetic(text)));
}

fn record_end(change: &mut ThreadChange<'_>, status: ThreadStatus) {
    change.closing = true;
    change.thread_mut().outcome = Some(status);
    change.head.intent = None;
    change.head.round = None;
    change.head.phase = None;
    change.stop_drawing();
}

/// Releases the lease: leaves no holder, no step, and nothing due (but waiting mail makes a thread
/// due at once, if it can be started).
pub(super) fn release_lease(change: &mut ThreadChange<'_>, status: ThreadStatus) {
    charge_external_holds(change);
    let head = &mut change.head;
    let mail = head.mail_count() > 0 && !status.is_terminal() && !head.incomplete;
    head.status = status;
    head.holder = None;
    head.expiry = None;
    head.request = None;
    head.step = None;
    head.wait = None;
    head.due = mail.then_some(0);
    let key = id::key(&change.thread.id);
    change.extra.push(StoreWrite::Delete {
        collection: key::PARTIAL,
        key,
    });
}

/// Ends the thread in this commit, whoever holds it.
pub(super) fn end_thread_now(
    mut change: ThreadChange<'_>,
    round: Option<&Entry>,
    by: EndIntent,
) -> Result<Box<CommitPlan>, Error> {
    abandon_step(&mut change, round);
    terminate(&mut change, by);
    change.into_plan(CommitReason::Cancelled)
}

/// Ends the thread by an error in this commit, whoever holds it. Its children go on. `result` is
/// JSON.
pub(super) fn fail_thread_now(
    mut change: ThreadChange<'_>,
    round: Option<&Entry>,
    (cause, result): (StatusCause, String),
) -> Result<Box<CommitPlan>, Error> {
    abandon_step(&mut change, round);
    take_mail(&mut change);
    fail_thread(&mut change, cause, result);
    change.into_plan(CommitReason::Error)
}

/// Fences the holder, charges the attempt under way and gives open calls their results.
fn abandon_step(change: &mut ThreadChange<'_>, round: Option<&Entry>) {
    change.head.token += 1;
    count_time(change);
    settle_attempt(change, None, true, "");
    let events = round.map(|entry| entry.events.as_slice());
    let name = |index| tool_name_of(events, index);
    interrupt_calls(change, |_| true, &name);
}

/// Requests that the thread ends once its step is done: its account admits nothing more, and its
/// children are to be told.
pub(super) fn request_cancel(change: &mut ThreadChange<'_>) {
    // Only the first request ends something: later ones may not fill the margin of a full store.
    change.closing = change.head.intent.is_none();
    change.head.intent.get_or_insert(EndIntent::Cancel);
    if change.chain.has_account() {
        change.apply_settled(&mut AccountPath::freeze);
    }
    mark_sweep(change, EndIntent::Cancel);
}

/// Marks the children that the thread has now as still to be told.
pub(super) fn mark_sweep(change: &mut ThreadChange<'_>, intent: EndIntent) {
    let last = change.chain.last_child_number();
    if last > 0 {
        change.head.sweep = change.head.sweep.max(Some(intent));
        change.head.sweep_to = Some(last);
    }
}
