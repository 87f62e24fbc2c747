//! Signals: messages, cancel, kill, raised caps. Where somebody holds the thread they change its head alone and take
//! effect at its next commit; a kill fences at once.

use super::round::name_of;
use super::start::ended;
use super::stop::{count_time, end_by, interrupt, settle};
use super::{Decision, MAIL_MAX};
use crate::error::Error;
use crate::hash::sha256;
use crate::history::{Entry, Event, Message, Reason};
use crate::json;
use crate::limits::Limits;
use crate::plan::{Change, Expect, Loaded, Moment, Write};
use crate::thread::{Intent, Status};
use crate::{id, key};

/// What is sent to a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signal {
    /// A user's message.
    Message(Message),
    /// End the run when its step is done.
    Cancel,
    /// End the run now.
    Kill,
    /// Lift caps: those that are set.
    Raise(Limits),
}

impl Signal {
    /// A digest of what it says, so that a repeated one is known.
    pub fn digest(&self) -> String {
        match self {
            Self::Message(message) => sha256(&["message", &json::text(message)]),
            Self::Cancel => sha256(&["cancel"]),
            Self::Kill => sha256(&["kill"]),
            Self::Raise(limits) => sha256(&["raise", &json::text(limits)]),
        }
    }
}

/// Decide about a signal that was not seen before. `ceiling` is the operator's upper bound of caps.
pub fn signal(
    loaded: &Loaded,
    round: Option<&Entry>,
    name: &str,
    signal: Signal,
    ceiling: Limits,
    moment: Moment<'_>,
) -> Result<Decision, Error> {
    let head = &loaded.head.value;
    if head.status.is_end() {
        return Err(ended(loaded, "it has ended and takes no more signals"));
    }
    let mut change = Change::new(loaded, moment);
    let value = signal.digest();
    let seen = key::join(&[&loaded.root(), name]);
    change.extra.push(Write::Put {
        collection: key::SEEN,
        key: seen,
        expect: Expect::Absent,
        value,
    });
    let held = head.status == Status::Running;
    let plan = match signal {
        Signal::Message(message) if held => {
            mail_write(&mut change, &message)?;
            change.into_head_plan()
        }
        // Never between a call and its result: the message waits until the open calls have theirs.
        Signal::Message(message) if change.head.round.is_some() => {
            mail_write(&mut change, &message)?;
            change.head.due = Some(0);
            change.into_head_plan()
        }
        Signal::Message(message) => {
            change.push(Event::Message(message));
            change.head.due = Some(0);
            change.into_plan(Reason::UserMessage)?
        }
        Signal::Cancel if held => {
            // Only the first one ends something: more of them may not fill the margin.
            change.closing = change.head.intent.is_none();
            change.head.intent = Some(Intent::Cancel);
            change.into_head_plan()
        }
        Signal::Cancel => stop(change, round, "cancel")?,
        Signal::Kill => stop(change, round, "kill")?,
        Signal::Raise(limits) => {
            raise(&mut change, limits, ceiling)?;
            if held {
                change.into_head_plan()
            } else {
                change.into_plan(Reason::Changed)?
            }
        }
    };
    Ok(Decision::Commit(Box::new(plan)))
}

fn stop(
    mut change: Change<'_>,
    round: Option<&Entry>,
    by: &str,
) -> Result<crate::plan::Plan, Error> {
    change.head.token += 1;
    count_time(&mut change);
    settle(&mut change, None, true);
    interrupt(&mut change, |_| true, &|index| name_of(round, index));
    let idle = change.head.status == Status::Idle;
    if idle {
        // An idle chat does not count as a user of its account; ending it must not count it out once more.
        change.chain.account.users += 1;
    }
    end_by(&mut change, by);
    change.into_plan(Reason::Cancelled)
}

fn raise(change: &mut Change<'_>, limits: Limits, ceiling: Limits) -> Result<(), Error> {
    let raised = change.head.limits.overridden_by(limits);
    if let Some((name, asked, most)) = raised.above(ceiling) {
        let problem = format!("is above the {most} that the operator's policy allows");
        return Err(Error::invalid(format!("limits.{name}"), &asked, problem));
    }
    // The entry that says so is this commit's, or the next one's if somebody holds the thread: see `into_plan`.
    change.head.limits = raised;
    if change.thread.pin.is_none() {
        // Its caps are resolved once more at its first start.
        let asked = change.thread.overrides.limits;
        change.thread.overrides.limits = asked.overridden_by(limits);
    }
    change.chain.account.limit = raised.spend;
    Ok(())
}

/// Put a message into the inbox of a thread that somebody holds.
pub(super) fn mail_write(change: &mut Change<'_>, message: &Message) -> Result<(), Error> {
    if change.head.mail() >= MAIL_MAX {
        return Err(Error::Busy {
            thread: change.thread.id.clone(),
            holder: change.head.holder.clone().unwrap_or_default(),
            expiry: change.head.expiry.unwrap_or(change.head.updated),
        });
    }
    let root = id::key(&change.thread.chain);
    let key = key::join(&[&root, &key::number(change.head.mail_to)]);
    let value = json::text(message);
    change.extra.push(Write::Put {
        collection: key::INBOX,
        key,
        expect: Expect::Absent,
        value,
    });
    change.head.mail_to += 1;
    Ok(())
}
