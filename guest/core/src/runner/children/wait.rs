//! Waiting for children: a call that stays open, of a thread that nobody holds meanwhile.

use super::ANSWER_BYTES_MAX;
use super::answers::{Child, answer_children};
use crate::error::Error;
use crate::history::{Entry, Event, Reason, State, ToolResult};
use crate::limits::Limits;
use crate::money::Nanos;
use crate::plan::{Change, Loaded, Moment};
use crate::runner::admit::{Try, admit, hand_out};
use crate::runner::claim::cancelled;
use crate::runner::mail::take_mail;
use crate::runner::round::fit;
use crate::runner::stop::{let_go, suspend};
use crate::runner::{Decision, Kit};
use crate::settings::Pin;
use crate::thread::{Status, StepKind, WAIT_MAX, WaitFor};

/// What a call of `wait_threads` waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Is the first end enough?
    pub any: bool,
    /// Milliseconds.
    pub timeout: u64,
    /// Is it for all its children, those of the same reply too?
    pub all: bool,
    /// The children, as they are now.
    pub children: Vec<Child>,
}

impl Waiting {
    /// The same beside the other calls of its reply: children as those have left them, with the
    /// spawned ones if it is for all, at most the newest.
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

    /// Spawn numbers of those that have not stopped.
    fn left(&self, ceiling: Limits) -> Vec<u64> {
        let left = self.children.iter();
        let left = left.filter(|child| !child.has_stopped(ceiling));
        left.map(|child| child.number).collect()
    }

    /// Has one of them stopped that can be read? One that cannot be read is not the first end.
    fn has_ended_child(&self, ceiling: Limits) -> bool {
        let mut children = self.children.iter();
        children.any(|child| child.is_readable() && child.has_stopped(ceiling))
    }

    /// What the model is told.
    fn answer(&self, late: bool) -> String {
        let children = answer_children(&self.children, 0, ANSWER_BYTES_MAX);
        format!(r#"{{"threads":{children},"timed_out":{late}}}"#)
    }
}

/// What follows a reply or its results: the calls outside, then the wait, then the next attempt.
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

/// Wait, or answer the call if there is nothing to wait for any more; true if it was answered.
fn wait(change: &mut Change<'_>, pin: &Pin, waiting: &Waiting) -> bool {
    let until = match &change.head.wait {
        Some(wait) => wait.until,
        None => change.now().plus_millis(waiting.timeout),
    };
    let left = waiting.left(change.ceiling());
    let enough = left.is_empty() || waiting.any && waiting.has_ended_child(change.ceiling());
    let late = change.now() >= until;
    if enough || late {
        answer(change, waiting.answer(!enough));
        take_mail(change);
        admit(change, pin, Try::default());
        return true;
    }
    if let Some(cause) = change.store_full() {
        suspend(change, cause);
        return false;
    }
    if change.head.status != Status::Waiting {
        let_go(change, Status::Waiting);
    }
    change.head.due = Some(until.millis());
    change.head.wait = Some(WaitFor {
        numbers: left,
        any: waiting.any,
        until,
    });
    false
}

fn answer(change: &mut Change<'_>, text: String) {
    change.head.wait = None;
    let Some(round) = change.head.round.take() else {
        return;
    };
    for call in round.calls {
        change.push(Event::ToolResult(ToolResult {
            version: round.version,
            index: call.index,
            name: "wait_threads".to_owned(),
            text: fit(text.clone(), ANSWER_BYTES_MAX),
            failed: false,
            state: State::Done,
            cost: Nanos::ZERO,
        }));
    }
}

/// A waiting thread is looked at: it goes on under this holder, or waits further.
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
    if wait(&mut change, pin, &waiting) || change.head.status == Status::Suspended {
        let plan = change.into_plan(Reason::ToolResults)?;
        return Ok(Decision::Commit(Box::new(plan)));
    }
    // Not yet: nobody holds it, and it is not due before it must be.
    let before = &loaded.head.value;
    change.head.token = before.token;
    change.head.lost = before.lost;
    change.head.holder = None;
    change.head.request = None;
    if change.head == *before {
        return Ok(Decision::Repeat);
    }
    Ok(Decision::Commit(Box::new(change.into_head_plan()?)))
}
