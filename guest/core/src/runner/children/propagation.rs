//! Propagation of an end through a tree, from its top. The end passes from each thread to its
//! children, page by page, in commits of their own; the head of each thread remembers that its
//! children have still to be told.
//!
//! The commits are separate because a commit of the thread that passes the end on holds the
//! accounts above both. A natural end passes nothing on. The cursor of a sweep names the end that
//! was passed on, so a kill that overtakes a cancel begins anew.

use crate::error::Error;
use crate::history::{CommitReason, Entry};
use crate::plan::{CommitPlan, DecisionContext, LoadedThread, ThreadChange, is_to_be_resumed};
use crate::runner::CommitDecision;
use crate::runner::ending::{end_thread_now, mark_sweep, request_cancel};
use crate::runner::mail::take_mail;
use crate::thread::{DUE_NEW, EndIntent, Head, InboxMessage, ThreadStatus};

/// Propagates an end to a thread: at once, or once its step is done if the thread is held. A thread
/// that has ended, or has the same intent already, is left as it is.
pub fn propagate_intent(
    loaded: &LoadedThread,
    round: Option<&Entry>,
    mail: Vec<InboxMessage>,
    intent: EndIntent,
    moment: DecisionContext<'_>,
) -> Result<CommitDecision, Error> {
    let head = &loaded.head.value;
    if head.status.is_terminal() {
        return propagate_past_end(loaded, mail, intent, moment);
    }
    // The thread may have a stronger intent from before.
    let intent = head.intent.unwrap_or(intent).max(intent);
    let mut change = ThreadChange::with_mail(loaded, mail, moment);
    if head.status == ThreadStatus::Running && intent == EndIntent::Cancel {
        if head.intent.is_some() {
            return Ok(CommitDecision::Repeat);
        }
        request_cancel(&mut change);
        return Ok(CommitDecision::Commit(change.into_head_plan()?));
    }
    Ok(CommitDecision::Commit(end_thread_now(
        change, round, intent,
    )?))
}

/// Propagates through a thread that has ended: its children may not have ended.
fn propagate_past_end(
    loaded: &LoadedThread,
    mail: Vec<InboxMessage>,
    intent: EndIntent,
    moment: DecisionContext<'_>,
) -> Result<CommitDecision, Error> {
    if is_to_be_resumed(&loaded.head.value) {
        let change = ThreadChange::with_mail(loaded, mail, moment);
        return Ok(CommitDecision::Commit(drop_resumption(change, intent)?));
    }
    if loaded.chain.value.last_child_number() == 0
        || !is_stronger_intent(&loaded.head.value, intent)
    {
        return Ok(CommitDecision::Repeat);
    }
    let mut change = ThreadChange::new(loaded, moment);
    pass_to_children(&mut change, intent);
    Ok(CommitDecision::Commit(change.into_head_plan()?))
}

/// Passes a person's signal to the children of a thread that has ended. It closes the work of other
/// threads, so a full store has room for it; but only for the first of its kind, or repeated
/// signals would fill the margin.
pub(in crate::runner) fn pass_to_children(change: &mut ThreadChange<'_>, intent: EndIntent) {
    change.closing = is_stronger_intent(&change.head, intent);
    mark_sweep(change, intent);
}

/// Ends that a thread which has ended is to be resumed: the messages that it was to be resumed with
/// enter its history, it stays as it has ended, and the end is passed to its children.
pub(in crate::runner) fn drop_resumption(
    mut change: ThreadChange<'_>,
    intent: EndIntent,
) -> Result<Box<CommitPlan>, Error> {
    take_mail(&mut change);
    change.closing = true;
    change.head.due = None;
    mark_sweep(&mut change, intent);
    change.into_plan(CommitReason::Cancelled)
}

/// Returns true if `intent` is stronger than the one that a thread that has ended has passed on, or
/// has still to pass on.
fn is_stronger_intent(head: &Head, intent: EndIntent) -> bool {
    let passed = match head.status {
        ThreadStatus::Killed => Some(EndIntent::Kill),
        ThreadStatus::Cancelled => Some(EndIntent::Cancel),
        _ => None,
    };
    passed.max(head.sweep) < Some(intent)
}

/// Applies the intent that another thread gave this one, if the thread is not held or is to end at
/// once.
pub fn apply_intent(
    loaded: &LoadedThread,
    round: Option<&Entry>,
    mail: Vec<InboxMessage>,
    moment: DecisionContext<'_>,
) -> Result<CommitDecision, Error> {
    let head = &loaded.head.value;
    let Some(intent) = head.intent.filter(|_| !head.status.is_terminal()) else {
        return Ok(CommitDecision::Repeat);
    };
    if head.status == ThreadStatus::Running && intent == EndIntent::Cancel {
        return Ok(CommitDecision::Repeat);
    }
    let change = ThreadChange::with_mail(loaded, mail, moment);
    Ok(CommitDecision::Commit(end_thread_now(
        change, round, intent,
    )?))
}

/// Records that all children up to the number `last` were told `intent`. If the thread has got
/// another intent or more children since, nothing changes.
pub fn finish_propagation(
    loaded: &LoadedThread,
    (intent, last): (EndIntent, Option<u64>),
    moment: DecisionContext<'_>,
) -> Result<CommitDecision, Error> {
    let head = &loaded.head.value;
    if (head.sweep, head.sweep_to) != (Some(intent), last) {
        return Ok(CommitDecision::Repeat);
    }
    let mut change = ThreadChange::new(loaded, moment);
    change.head.sweep = None;
    change.head.sweep_to = None;
    change.head.due = due_after_sweep(&change.head);
    change.closing = true;
    Ok(CommitDecision::Commit(change.into_head_plan()?))
}

/// Returns the due time of a thread whose children were all told.
fn due_after_sweep(head: &Head) -> Option<u64> {
    let at = match head.status {
        ThreadStatus::Running => head.expiry,
        ThreadStatus::Waiting => head.wait.as_ref().map(|wait| wait.until),
        ThreadStatus::Created => return Some(DUE_NEW),
        ThreadStatus::Continued => None,
        // One that has ended is to be resumed with its mail.
        _ if head.mail_count() > 0 => return Some(0),
        _ => None,
    };
    at.map(|at| at.millis())
}
