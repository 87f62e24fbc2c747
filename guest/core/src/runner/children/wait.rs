//! Waits for children: a call stays open while the thread is released.
//!
//! The thread is `waiting`: no driver holds it, its step is `finished`, and a claim goes on with
//! it. A claim that comes too early writes nothing. Where no child that it waits for goes on, a
//! claim suspends it with its children, the wait open. Only a caller revives the top of a tree.

use super::ANSWER_BYTES_MAX;
use super::child_snapshot::{ChildSnapshot, children_to_json};
use crate::error::{self, Error};
use crate::history::{Event, ToolResult, ToolResultState};
use crate::limits::ThreadCaps;
use crate::money::NanoUsd;
use crate::plan::{ThreadChange, WaitStanding};
use crate::runner::LEASE_GRACE_MILLIS;
use crate::runner::ending::release_lease;
use crate::runner::open_calls::cut_to_fit;
use crate::thread::{ChildWait, StatusCause, ThreadStatus, WAIT_MAX};
use crate::time::UnixTime;

/// A call of `wait_threads`, with its children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitRequest {
    /// True if the first child that stops is enough.
    pub any: bool,
    /// Longest time of the wait in milliseconds.
    pub timeout: u64,
    /// True if it waits for all children, including those that the same reply spawns.
    pub all: bool,
    /// The children in their current state.
    pub children: Vec<ChildSnapshot>,
}

impl WaitRequest {
    /// Updates the wait by the other calls of its reply: the heads as those calls have changed
    /// them, and the spawned children if it waits for all, at most the newest.
    pub(in crate::runner) fn with_reply_changes(
        mut self,
        change: &ThreadChange<'_>,
        spawned: Vec<ChildSnapshot>,
    ) -> Self {
        for child in &mut self.children {
            if let Some(head) = change.changed_head(child.id()) {
                child.set_head(head);
            }
        }
        if self.all {
            self.children.extend(spawned);
            let older = self.children.len().saturating_sub(WAIT_MAX);
            self.children.drain(..older);
        }
        self
    }

    /// Spawn numbers of the children that do not answer the wait.
    fn pending_numbers(&self, ceiling: ThreadCaps) -> Vec<u64> {
        let left = self.children.iter();
        let left = left.filter(|child| child.wait_standing(ceiling) != WaitStanding::Answers);
        left.map(|child| child.number).collect()
    }

    /// Returns true if the wait has everything it waits for. A child that cannot be read does not
    /// count as the first that stops.
    fn is_satisfied(&self, left: &[u64]) -> bool {
        let readable = self.children.iter().filter(|child| child.is_readable());
        left.is_empty() || self.any && left.len() < readable.count()
    }

    /// Returns true if a child is suspended for want of shared money.
    fn is_short_of_money(&self, ceiling: ThreadCaps) -> bool {
        let interrupted = self.children.iter();
        let mut interrupted =
            interrupted.filter(|child| child.wait_standing(ceiling) == WaitStanding::Interrupted);
        interrupted.any(|child| child.cause().is_some_and(|cause| cause.reason == "budget"))
    }

    /// Returns the child that holds up the wait, if none of them goes on by itself. A child without
    /// money is preferred, because that needs a person.
    fn blocking_child(&self, ceiling: ThreadCaps) -> Option<(&ChildSnapshot, &StatusCause)> {
        let standing = |child: &ChildSnapshot| child.wait_standing(ceiling);
        if self
            .children
            .iter()
            .any(|child| standing(child) == WaitStanding::GoesOn)
        {
            return None;
        }
        let interrupted = self.children.iter();
        let interrupted = interrupted.filter(|child| standing(child) == WaitStanding::Interrupted);
        let causes = interrupted.filter_map(|child| child.cause().map(|cause| (child, cause)));
        causes.min_by_key(|(_, cause)| cause.reason != "budget")
    }

    /// Returns the wait as the head keeps it.
    fn to_child_wait(&self, left: Vec<u64>, until: UnixTime) -> ChildWait {
        ChildWait {
            numbers: left,
            any: self.any,
            until,
            short: false,
            renewed: false,
        }
    }

    /// Returns the answer for the model.
    fn answer_text(&self, late: bool) -> String {
        let children = children_to_json(&self.children, 0, ANSWER_BYTES_MAX);
        format!(r#"{{"threads":{children},"timed_out":{late}}}"#)
    }
}

/// Returns the error for an open wait whose children the caller did not load.
pub(in crate::runner) fn missing_wait_error() -> Error {
    Error::corrupt("the children of an open wait are missing")
}

/// The outcome of a look at a wait.
pub(in crate::runner) enum WaitOutcome {
    /// The call has its result.
    Answered,
    /// All its children were interrupted: it is to be suspended with them, its wait open.
    Blocked(StatusCause, ChildWait),
    /// The store has no room for a wait.
    StoreFull(StatusCause),
    /// The thread is released until its children stop or its time is over.
    Released,
}

/// Begins the wait of a run, or answers it at once if there is nothing to wait for.
pub(in crate::runner) fn begin_wait(
    change: &mut ThreadChange<'_>,
    waiting: &WaitRequest,
) -> WaitOutcome {
    let ceiling = change.ceiling();
    let left = waiting.pending_numbers(ceiling);
    if waiting.is_satisfied(&left) {
        return answer_wait(change, waiting.answer_text(false));
    }
    if let Some(cause) = change.store_full_cause() {
        return WaitOutcome::StoreFull(cause);
    }
    let until = change.now().plus_millis(waiting.timeout);
    release_for_wait(change, waiting, left, until);
    // Children without money: the wait is checked again as soon as they could be revived, or could
    // not.
    let stuck = waiting.blocking_child(ceiling);
    if stuck.is_some_and(|(_, cause)| cause.reason == "budget") {
        change.head.due = Some(0);
    }
    WaitOutcome::Released
}

/// Checks the wait of a waiting thread, under a new holder.
pub(in crate::runner) fn check_wait(
    change: &mut ThreadChange<'_>,
    waiting: &WaitRequest,
) -> WaitOutcome {
    let (now, wait) = (change.now(), change.head.wait.as_ref());
    let until = wait.map_or(now.plus_millis(waiting.timeout), |wait| wait.until);
    let renewed = wait.is_some_and(|wait| wait.renewed);
    let left = waiting.pending_numbers(change.ceiling());
    if waiting.is_satisfied(&left) {
        return answer_wait(change, waiting.answer_text(false));
    }
    if let Some(cause) = blocked_cause(waiting, change.ceiling()) {
        let until = change.head.wait.as_ref().map_or(now, |wait| wait.until);
        return WaitOutcome::Blocked(cause, waiting.to_child_wait(left, until));
    }
    let missed = renewed || now > until.plus_millis(LEASE_GRACE_MILLIS);
    if now >= until && !missed {
        return answer_wait(change, waiting.answer_text(true));
    }
    if let Some(cause) = change.store_full_cause() {
        return WaitOutcome::StoreFull(cause);
    }
    // The driver of a tree checks a wait when its time is over. If none did, no driver ran its
    // children in that time either: the wait has its time again.
    let until = match missed {
        true => now.plus_millis(waiting.timeout),
        false => until,
    };
    release_for_wait(change, waiting, left, until);
    WaitOutcome::Released
}

/// Releases the thread until the deadline, or until the remaining children have stopped.
fn release_for_wait(
    change: &mut ThreadChange<'_>,
    waiting: &WaitRequest,
    left: Vec<u64>,
    until: UnixTime,
) {
    if change.head.status != ThreadStatus::Waiting {
        release_lease(change, ThreadStatus::Waiting);
    }
    let short = waiting.is_short_of_money(change.ceiling());
    change.head.due = Some(until.millis());
    change.head.wait = Some(ChildWait {
        short,
        ..waiting.to_child_wait(left, until)
    });
}

/// Returns the cause for suspending a thread whose children were all interrupted, if they were.
fn blocked_cause(waiting: &WaitRequest, ceiling: ThreadCaps) -> Option<StatusCause> {
    let (child, why) = waiting.blocking_child(ceiling)?;
    let message = format!(
        "it waits for {}, which is suspended: {}",
        child.id(),
        error::cut(&why.message, 1_000)
    );
    Some(StatusCause {
        message,
        ..why.clone()
    })
}

/// Gives the call of the wait its result.
fn answer_wait(change: &mut ThreadChange<'_>, text: String) -> WaitOutcome {
    change.head.wait = None;
    let round = change.head.round.take();
    let version = round.as_ref().map_or(0, |round| round.version);
    for call in round.into_iter().flat_map(|round| round.calls) {
        change.push_event(Event::ToolResult(ToolResult {
            version,
            index: call.index,
            name: "wait_threads".to_owned(),
            text: cut_to_fit(text.clone(), ANSWER_BYTES_MAX),
            failed: false,
            state: ToolResultState::Done,
            cost: NanoUsd::ZERO,
            blocks: Vec::new(),
        }));
    }
    WaitOutcome::Answered
}
