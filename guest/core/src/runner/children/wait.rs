//! Waits for children: a call stays open while the thread is released.

use super::ANSWER_BYTES_MAX;
use super::child_snapshot::{ChildSnapshot, children_to_json};
use crate::error::{self, Error};
use crate::history::{CommitReason, Entry, Event, SuspendedEvent, ToolResult, ToolResultState};
use crate::limits::ThreadCaps;
use crate::money::NanoUsd;
use crate::plan::{DecisionContext, LoadedThread, ThreadChange, WaitStanding};
use crate::runner::admit::{AttemptNeeds, admit_attempt, hand_out_step};
use crate::runner::claim::apply_waiting_intent;
use crate::runner::mail::take_mail;
use crate::runner::round::cut_to_fit;
use crate::runner::stop::{release_lease, suspend};
use crate::runner::{CommitDecision, DecisionInputs, LEASE_GRACE_MILLIS};
use crate::settings::PinnedSettings;
use crate::thread::{ChildWait, StatusCause, StepKind, ThreadStatus, WAIT_MAX};
use crate::time::Instant;

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
            .any(|child| standing(child) == WaitStanding::Moves)
        {
            return None;
        }
        let interrupted = self.children.iter();
        let interrupted = interrupted.filter(|child| standing(child) == WaitStanding::Interrupted);
        let causes = interrupted.filter_map(|child| child.cause().map(|cause| (child, cause)));
        causes.min_by_key(|(_, cause)| cause.reason != "budget")
    }

    /// Returns the answer for the model.
    fn answer_text(&self, late: bool) -> String {
        let children = children_to_json(&self.children, 0, ANSWER_BYTES_MAX);
        format!(r#"{{"threads":{children},"timed_out":{late}}}"#)
    }
}

/// Hands out the next step after a reply or its results: the calls that a driver runs, then the
/// wait, then the next attempt.
pub(in crate::runner) fn next_step(
    change: &mut ThreadChange<'_>,
    pin: &PinnedSettings,
    waiting: Option<&WaitRequest>,
    timeout: u64,
) -> Result<(), Error> {
    let Some(round) = &change.head.round else {
        take_mail(change);
        admit_attempt(change, pin, AttemptNeeds::default());
        return Ok(());
    };
    if round.calls.iter().any(|call| !call.waits) {
        hand_out_step(change, StepKind::CallTools, timeout);
        return Ok(());
    }
    let missing = || Error::Corrupt("what an open wait waits for is not there".into());
    let waiting = waiting.ok_or_else(missing)?;
    begin_wait(change, pin, waiting);
    Ok(())
}

/// Begins the wait of a run, or goes on if there is nothing to wait for.
fn begin_wait(change: &mut ThreadChange<'_>, pin: &PinnedSettings, waiting: &WaitRequest) {
    let ceiling = change.ceiling();
    let left = waiting.pending_numbers(ceiling);
    if waiting.is_satisfied(&left) {
        return answer_wait(change, pin, waiting.answer_text(false));
    }
    if let Some(cause) = change.store_full_cause() {
        return suspend(change, cause);
    }
    let until = change.now().plus_millis(waiting.timeout);
    release_for_wait(change, waiting, left, until);
    // Children without money: the wait is checked again as soon as they could be revived, or could
    // not.
    let stuck = waiting.blocking_child(ceiling);
    if stuck.is_some_and(|(_, cause)| cause.reason == "budget") {
        change.head.due = Some(0);
    }
}

/// Releases the thread until the deadline, or until the remaining children have stopped.
fn release_for_wait(
    change: &mut ThreadChange<'_>,
    waiting: &WaitRequest,
    left: Vec<u64>,
    until: Instant,
) {
    if change.head.status != ThreadStatus::Waiting {
        release_lease(change, ThreadStatus::Waiting);
    }
    let short = waiting.is_short_of_money(change.ceiling());
    change.head.due = Some(until.millis());
    change.head.wait = Some(ChildWait {
        numbers: left,
        any: waiting.any,
        until,
        short,
        renewed: false,
    });
}

/// Suspends a thread whose children were all interrupted, its wait open; returns false if they were
/// not. It goes on when it is resumed, or by itself once the children have stopped.
fn suspend_with_child(
    change: &mut ThreadChange<'_>,
    waiting: &WaitRequest,
    left: Vec<u64>,
) -> bool {
    let Some((child, why)) = waiting.blocking_child(change.ceiling()) else {
        return false;
    };
    let message = format!(
        "it waits for {}, which is suspended: {}",
        child.id(),
        error::cut(&why.message, 1_000)
    );
    let cause = StatusCause {
        message,
        ..why.clone()
    };
    let until = change.head.wait.as_ref().map(|wait| wait.until);
    change.push_event(Event::Suspended(SuspendedEvent {
        cause: cause.clone(),
    }));
    release_lease(change, ThreadStatus::Suspended);
    change.closing = true;
    change.head.cause = Some(cause);
    // Mail is taken after the wait: it is no reason to start the thread before.
    change.head.due = None;
    change.head.wait = Some(ChildWait {
        numbers: left,
        any: waiting.any,
        until: until.unwrap_or(change.now()),
        short: false,
        renewed: false,
    });
    true
}

/// Answers the call of the wait with `text`, and goes on with the run.
fn answer_wait(change: &mut ThreadChange<'_>, pin: &PinnedSettings, text: String) {
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
        }));
    }
    take_mail(change);
    admit_attempt(change, pin, AttemptNeeds::default());
}

/// Checks a waiting thread: it goes on under this holder, or waits further.
pub(in crate::runner) fn resume_wait(
    loaded: &LoadedThread,
    pin: &PinnedSettings,
    round: Option<&Entry>,
    (holder, kit): (&str, DecisionInputs),
    moment: DecisionContext<'_>,
) -> Result<CommitDecision, Error> {
    let mut change = ThreadChange::with_mail(loaded, kit.mail, moment);
    if change.head.intent.is_some() {
        return apply_waiting_intent(change, round);
    }
    let missing = || Error::Corrupt("what an open wait waits for is not there".into());
    let waiting = kit.waiting.ok_or_else(missing)?;
    change.head.token += 1;
    change.head.lost = 0;
    change.head.holder = Some(holder.to_owned());
    change.head.request = Some(format!("claim:{holder}"));
    let reason = match check_wait(&mut change, pin, &waiting) {
        WaitOutcome::GoesOn => CommitReason::ToolResults,
        WaitOutcome::Suspended => CommitReason::Suspended,
        WaitOutcome::Waits => {
            // The wait goes on: the thread is not held, and not due before it must be.
            let before = &loaded.head.value;
            change.head.token = before.token;
            change.head.lost = before.lost;
            change.head.holder = None;
            change.head.request = None;
            if change.head == *before {
                return Ok(CommitDecision::Repeat);
            }
            return Ok(CommitDecision::Commit(Box::new(change.into_head_plan()?)));
        }
    };
    Ok(CommitDecision::Commit(Box::new(change.into_plan(reason)?)))
}

/// Outcome of the check of a wait.
enum WaitOutcome {
    /// The call has its result.
    GoesOn,
    /// It is suspended with its children, or because the store is full.
    Suspended,
    /// The wait goes on.
    Waits,
}

fn check_wait(
    change: &mut ThreadChange<'_>,
    pin: &PinnedSettings,
    waiting: &WaitRequest,
) -> WaitOutcome {
    let (now, wait) = (change.now(), change.head.wait.as_ref());
    let until = wait.map_or(now.plus_millis(waiting.timeout), |wait| wait.until);
    let renewed = wait.is_some_and(|wait| wait.renewed);
    let left = waiting.pending_numbers(change.ceiling());
    if waiting.is_satisfied(&left) {
        answer_wait(change, pin, waiting.answer_text(false));
        return WaitOutcome::GoesOn;
    }
    if suspend_with_child(change, waiting, left.clone()) {
        return WaitOutcome::Suspended;
    }
    let missed = renewed || now > until.plus_millis(LEASE_GRACE_MILLIS);
    if now >= until && !missed {
        answer_wait(change, pin, waiting.answer_text(true));
        return WaitOutcome::GoesOn;
    }
    if let Some(cause) = change.store_full_cause() {
        suspend(change, cause);
        return WaitOutcome::Suspended;
    }
    // The driver of a tree checks a wait when its time is over. If none did, no driver ran its
    // children in that time either: the wait has its time again.
    let until = match missed {
        true => now.plus_millis(waiting.timeout),
        false => until,
    };
    release_for_wait(change, waiting, left, until);
    WaitOutcome::Waits
}
