//! Propagation of an end through a tree, from its top. The end passes from each thread to its
//! children, page by page, in commits of their own; the head of each thread remembers that its
//! children have still to be told.

use crate::error::Error;
use crate::history::Entry;
use crate::ledger::Path;
use crate::plan::{Change, Loaded, Moment};
use crate::runner::signal::stop;
use crate::runner::{Decision, Mail};
use crate::thread::{Head, Intent, Status};

/// Propagates an end to a thread: at once, or once its step is done if the thread is held. A thread
/// that has ended, or has the same intent already, is left as it is.
pub fn tell(
    loaded: &Loaded,
    round: Option<&Entry>,
    mail: Vec<Mail>,
    intent: Intent,
    moment: Moment<'_>,
) -> Result<Decision, Error> {
    let head = &loaded.head.value;
    if head.status.is_end() {
        return through(loaded, intent, moment);
    }
    // The thread may have a stronger intent from before.
    let intent = head.intent.unwrap_or(intent).max(intent);
    let mut change = Change::with(loaded, mail, moment);
    if head.status == Status::Running && intent == Intent::Cancel {
        if head.intent.is_some() {
            return Ok(Decision::Repeat);
        }
        ends_later(&mut change);
        return Ok(Decision::Commit(Box::new(change.into_head_plan()?)));
    }
    Ok(Decision::Commit(Box::new(stop(change, round, intent)?)))
}

/// Propagates through a thread that has ended: its children may not have ended.
fn through(loaded: &Loaded, intent: Intent, moment: Moment<'_>) -> Result<Decision, Error> {
    if loaded.chain.value.children == 0 || !is_news(&loaded.head.value, intent) {
        return Ok(Decision::Repeat);
    }
    let mut change = Change::new(loaded, moment);
    pass_through(&mut change, intent);
    Ok(Decision::Commit(Box::new(change.into_head_plan()?)))
}

/// Passes a person's signal to the children of a thread that has ended. It closes the work of other
/// threads, so a full store has room for it; but only for the first of its kind, or repeated
/// signals would fill the margin.
pub(in crate::runner) fn pass_through(change: &mut Change<'_>, intent: Intent) {
    change.closing = is_news(&change.head, intent);
    pass_on(change, intent);
}

/// Returns true if `intent` is stronger than the one that a thread that has ended has passed on, or
/// has still to pass on.
fn is_news(head: &Head, intent: Intent) -> bool {
    let passed = match head.status {
        Status::Killed => Some(Intent::Kill),
        Status::Cancelled => Some(Intent::Cancel),
        _ => None,
    };
    passed.max(head.sweep) < Some(intent)
}

/// Requests that the thread ends once its step is done: its account admits nothing more, and its
/// children are to be told.
pub(in crate::runner) fn ends_later(change: &mut Change<'_>) {
    // Only the first request ends something: later ones may not fill the margin of a full store.
    change.closing = change.head.intent.is_none();
    change.head.intent.get_or_insert(Intent::Cancel);
    if change.chain.has_account() {
        change.record(&mut Path::freeze);
    }
    pass_on(change, Intent::Cancel);
}

/// Marks the children of the thread as still to be told.
pub(in crate::runner) fn pass_on(change: &mut Change<'_>, intent: Intent) {
    if change.chain.children > 0 {
        change.head.sweep = change.head.sweep.max(Some(intent));
    }
}

/// Applies the intent that another thread gave this one, if the thread is not held or is to end at
/// once.
pub fn end(
    loaded: &Loaded,
    round: Option<&Entry>,
    mail: Vec<Mail>,
    moment: Moment<'_>,
) -> Result<Decision, Error> {
    let head = &loaded.head.value;
    let Some(intent) = head.intent.filter(|_| !head.status.is_end()) else {
        return Ok(Decision::Repeat);
    };
    if head.status == Status::Running && intent == Intent::Cancel {
        return Ok(Decision::Repeat);
    }
    let change = Change::with(loaded, mail, moment);
    Ok(Decision::Commit(Box::new(stop(change, round, intent)?)))
}

/// Records that all children were told `intent`.
pub fn swept(loaded: &Loaded, intent: Intent, moment: Moment<'_>) -> Result<Decision, Error> {
    if loaded.head.value.sweep != Some(intent) {
        return Ok(Decision::Repeat);
    }
    let mut change = Change::new(loaded, moment);
    change.head.sweep = None;
    change.head.due = due(&change.head);
    change.closing = true;
    Ok(Decision::Commit(Box::new(change.into_head_plan()?)))
}

/// Returns the due time of a thread whose children were all told.
fn due(head: &Head) -> Option<u64> {
    let at = match head.status {
        Status::Running => head.expiry,
        Status::Waiting => head.wait.as_ref().map(|wait| wait.until),
        Status::Created => return Some(0),
        Status::Suspended | Status::Idle if head.mail() > 0 => return Some(0),
        _ => None,
    };
    at.map(|at| at.millis())
}
