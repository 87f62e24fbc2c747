//! Waits for children: a call stays open while the thread is released.

use super::ANSWER_BYTES_MAX;
use super::answers::{Child, answer_children};
use crate::error::{self, Error};
use crate::history::{Entry, Event, Reason, State, Suspended, ToolResult};
use crate::limits::Limits;
use crate::money::NanoUsd;
use crate::plan::{Change, Loaded, Moment, Standing};
use crate::runner::admit::{Try, admit, hand_out};
use crate::runner::claim::cancelled;
use crate::runner::mail::take_mail;
use crate::runner::round::fit;
use crate::runner::stop::{let_go, suspend};
use crate::runner::{Decision, Kit, LEASE_GRACE_MILLIS};
use crate::settings::Pin;
use crate::thread::{Cause, Status, StepKind, WAIT_MAX, WaitFor};
use crate::time::Instant;

/// A call of `wait_threads`, with its children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// True if the first child that stops is enough.
    pub any: bool,
    /// Longest time of the wait in milliseconds.
    pub timeout: u64,
    /// True if it waits for all children, including those that the same reply spawns.
    pub all: bool,
    /// The children in their current state.
    pub children: Vec<Child>,
}

impl Waiting {
    /// Updates the wait by the other calls of its reply: the heads as those calls have changed
    /// them, and the spawned children if it waits for all, at most the newest.
    pub(in crate::runner) fn beside(mut self, change: &Change<'_>, spawned: Vec<Child>) -> Self {
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
    fn left(&self, ceiling: Limits) -> Vec<u64> {
        let left = self.children.iter();
        let left = left.filter(|child| child.standing(ceiling) != Standing::Answers);
        left.map(|child| child.number).collect()
    }

    /// Returns true if the wait has everything it waits for. A child that cannot be read does not
    /// count as the first that stops.
    fn is_over(&self, left: &[u64]) -> bool {
        let readable = self.children.iter().filter(|child| child.is_readable());
        left.is_empty() || self.any && left.len() < readable.count()
    }

    /// Returns true if a child is suspended for want of shared money.
    fn is_short(&self, ceiling: Limits) -> bool {
        let interrupted = self.children.iter();
        let mut interrupted =
            interrupted.filter(|child| child.standing(ceiling) == Standing::Interrupted);
        interrupted.any(|child| child.cause().is_some_and(|cause| cause.reason == "budget"))
    }

    /// Returns the child that holds up the wait, if none of them goes on by itself. A child without
    /// money is preferred, because that needs a person.
    fn interrupted(&self, ceiling: Limits) -> Option<(&Child, &Cause)> {
        let standing = |child: &Child| child.standing(ceiling);
        if self
            .children
            .iter()
            .any(|child| standing(child) == Standing::Moves)
        {
            return None;
        }
        let interrupted = self.children.iter();
        let interrupted = interrupted.filter(|child| standing(child) == Standing::Interrupted);
        let causes = interrupted.filter_map(|child| child.cause().map(|cause| (child, cause)));
        causes.min_by_key(|(_, cause)| cause.reason != "budget")
    }

    /// Returns the answer for the model.
    fn answer(&self, late: bool) -> String {
        let children = answer_children(&self.children, 0, ANSWER_BYTES_MAX);
        format!(r#"{{"threads":{children},"timed_out":{late}}}"#)
    }
}

/// Hands out the next step after a reply or its results: the calls that a driver runs, then the
/// wait, then the next attempt.
pub(in crate::runner) fn go_on(
    change: &mut Change<'_>,
    pin: &Pin,
    waiting: Option<&Waiting>,
    timeout: u64,
) -> Result<(), Error> {
    let Some(round) = &change.head.round else {
        take_mail(change);
        admit(change, pin, Try::default());
        return Ok(());
    };
    if round.calls.iter().any(|call| !call.waits) {
        hand_out(change, StepKind::CallTools, timeout);
        return Ok(());
    }
    let missing = || Error::Corrupt("what an open wait waits for is not there".into());
    let waiting = waiting.ok_or_else(missing)?;
    wait(change, pin, waiting);
    Ok(())
}

/// Begins the wait of a run, or goes on if there is nothing to wait for.
fn wait(change: &mut Change<'_>, pin: &Pin, waiting: &Waiting) {
    let ceiling = change.ceiling();
    let left = waiting.left(ceiling);
    if waiting.is_over(&left) {
        return answer(change, pin, waiting.answer(false));
    }
    if let Some(cause) = change.store_full() {
        return suspend(change, cause);
    }
    let until = change.now().plus_millis(waiting.timeout);
    wait_until(change, waiting, left, until);
    // Children without money: the wait is checked again as soon as they could be revived, or could
    // not.
    let stuck = waiting.interrupted(ceiling);
    if stuck.is_some_and(|(_, cause)| cause.reason == "budget") {
        change.head.due = Some(0);
    }
}

/// Releases the thread until the deadline, or until the remaining children have stopped.
fn wait_until(change: &mut Change<'_>, waiting: &Waiting, left: Vec<u64>, until: Instant) {
    if change.head.status != Status::Waiting {
        let_go(change, Status::Waiting);
    }
    let short = waiting.is_short(change.ceiling());
    change.head.due = Some(until.millis());
    change.head.wait = Some(WaitFor {
        numbers: left,
        any: waiting.any,
        until,
        short,
        renewed: false,
    });
}

/// Suspends a thread whose children were all interrupted, its wait open; returns false if they were
/// not. It goes on when it is resumed, or by itself once the children have stopped.
fn suspend_with_child(change: &mut Change<'_>, waiting: &Waiting, left: Vec<u64>) -> bool {
    let Some((child, why)) = waiting.interrupted(change.ceiling()) else {
        return false;
    };
    let message = format!(
        "it waits for {}, which is suspended: {}",
        child.id(),
        error::cut(&why.message, 1_000)
    );
    let cause = Cause {
        message,
        ..why.clone()
    };
    let until = change.head.wait.as_ref().map(|wait| wait.until);
    change.push(Event::Suspended(Suspended {
        cause: cause.clone(),
    }));
    let_go(change, Status::Suspended);
    change.closing = true;
    change.head.cause = Some(cause);
    // Mail is taken after the wait: it is no reason to start the thread before.
    change.head.due = None;
    change.head.wait = Some(WaitFor {
        numbers: left,
        any: waiting.any,
        until: until.unwrap_or(change.now()),
        short: false,
        renewed: false,
    });
    true
}

/// Answers the call of the wait with `text`, and goes on with the run.
fn answer(change: &mut Change<'_>, pin: &Pin, text: String) {
    change.head.wait = None;
    let round = change.head.round.take();
    let version = round.as_ref().map_or(0, |round| round.version);
    for call in round.into_iter().flat_map(|round| round.calls) {
        change.push(Event::ToolResult(ToolResult {
            version,
            index: call.index,
            name: "wait_threads".to_owned(),
            text: fit(text.clone(), ANSWER_BYTES_MAX),
            failed: false,
            state: State::Done,
            cost: NanoUsd::ZERO,
        }));
    }
    take_mail(change);
    admit(change, pin, Try::default());
}

/// Checks a waiting thread: it goes on under this holder, or waits further.
pub(in crate::runner) fn woken(
    loaded: &Loaded,
    pin: &Pin,
    round: Option<&Entry>,
    (holder, kit): (&str, Kit),
    moment: Moment<'_>,
) -> Result<Decision, Error> {
    let mut change = Change::with(loaded, kit.mail, moment);
    if change.head.intent.is_some() {
        return cancelled(change, round);
    }
    let missing = || Error::Corrupt("what an open wait waits for is not there".into());
    let waiting = kit.waiting.ok_or_else(missing)?;
    change.head.token += 1;
    change.head.lost = 0;
    change.head.holder = Some(holder.to_owned());
    change.head.request = Some(format!("claim:{holder}"));
    let reason = match look(&mut change, pin, &waiting) {
        Looked::GoesOn => Reason::ToolResults,
        Looked::Suspended => Reason::Suspended,
        Looked::Waits => {
            // The wait goes on: the thread is not held, and not due before it must be.
            let before = &loaded.head.value;
            change.head.token = before.token;
            change.head.lost = before.lost;
            change.head.holder = None;
            change.head.request = None;
            if change.head == *before {
                return Ok(Decision::Repeat);
            }
            return Ok(Decision::Commit(Box::new(change.into_head_plan()?)));
        }
    };
    Ok(Decision::Commit(Box::new(change.into_plan(reason)?)))
}

/// Outcome of the check of a wait.
enum Looked {
    /// The call has its result.
    GoesOn,
    /// It is suspended with its children, or because the store is full.
    Suspended,
    /// The wait goes on.
    Waits,
}

fn look(change: &mut Change<'_>, pin: &Pin, waiting: &Waiting) -> Looked {
    let (now, wait) = (change.now(), change.head.wait.as_ref());
    let until = wait.map_or(now.plus_millis(waiting.timeout), |wait| wait.until);
    let renewed = wait.is_some_and(|wait| wait.renewed);
    let left = waiting.left(change.ceiling());
    if waiting.is_over(&left) {
        answer(change, pin, waiting.answer(false));
        return Looked::GoesOn;
    }
    if suspend_with_child(change, waiting, left.clone()) {
        return Looked::Suspended;
    }
    let missed = renewed || now > until.plus_millis(LEASE_GRACE_MILLIS);
    if now >= until && !missed {
        answer(change, pin, waiting.answer(true));
        return Looked::GoesOn;
    }
    if let Some(cause) = change.store_full() {
        suspend(change, cause);
        return Looked::Suspended;
    }
    // The driver of a tree checks a wait when its time is over. If none did, no driver ran its
    // children in that time either: the wait has its time again.
    let until = match missed {
        true => now.plus_millis(waiting.timeout),
        false => until,
    };
    wait_until(change, waiting, left, until);
    Looked::Waits
}
