//! Signals: messages, cancel, kill, raised caps. While a thread is held they change its head alone
//! and take effect at its next commit; a kill fences the holder at once.

use super::Decision;
use super::admit::cap_reached;
use super::children::{ends_later, pass_through};
use super::mail::{Mail, mail_write, take_mail};
use super::round::name_of;
use super::start::{begin_chat_run, ended};
use super::stop::{count_time, end_by, interrupt, settle};
use crate::error::Error;
use crate::hash::sha256;
use crate::history::{Entry, Event, Message, Reason};
use crate::json;
use crate::ledger::Refusal;
use crate::limits::Limits;
use crate::money::NanoUsd;
use crate::plan::{Change, Expect, Loaded, Moment, Write};
use crate::thread::{Cause, Intent, Status};
use crate::{id, key};

/// A signal to a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signal {
    /// A user's message.
    Message(Message),
    /// Ends the run when its step is done.
    Cancel,
    /// Ends the run now.
    Kill,
    /// Lifts caps.
    Raise(Raise),
}

/// Caps to be lifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raise {
    /// The caps that are set.
    pub caps: Limits,
    /// True to raise the accounts above as well where they lack room for the spend.
    pub through: bool,
}

impl Signal {
    /// What it tells a thread to end by, if it does.
    pub fn intent(&self) -> Option<Intent> {
        match self {
            Self::Cancel => Some(Intent::Cancel),
            Self::Kill => Some(Intent::Kill),
            Self::Message(_) | Self::Raise(_) => None,
        }
    }

    /// Returns a digest of the signal, to recognize a repeated one.
    pub fn digest(&self) -> String {
        match self {
            Self::Message(message) => sha256(&["message", &json::text(message)]),
            Self::Cancel => sha256(&["cancel"]),
            Self::Kill => sha256(&["kill"]),
            Self::Raise(raise) if raise.through => {
                sha256(&["raise", "through", &json::text(&raise.caps)])
            }
            Self::Raise(raise) => sha256(&["raise", &json::text(&raise.caps)]),
        }
    }
}

/// Decides about a signal that was not seen before; `mail` is the inbox that waits.
pub fn signal(
    loaded: &Loaded,
    round: Option<&Entry>,
    mail: Vec<Mail>,
    (name, signal): (&str, Signal),
    moment: Moment<'_>,
) -> Result<Decision, Error> {
    let head = &loaded.head.value;
    if head.status.is_end() {
        return after_the_end(loaded, (name, signal), moment);
    }
    let mut change = Change::with(loaded, mail, moment);
    remember(&mut change, name, &signal);
    let held = head.status == Status::Running;
    let plan = match signal {
        Signal::Message(message) if held => {
            mail_write(&mut change, &message)?;
            change.into_head_plan()?
        }
        // No message stands between a call and its result: it waits until the open calls have
        // theirs.
        Signal::Message(message) if change.head.round.is_some() => {
            mail_write(&mut change, &message)?;
            if head.status != Status::Waiting {
                change.head.due = Some(0);
            }
            change.into_head_plan()?
        }
        Signal::Message(message) => {
            begin_chat_run(&mut change);
            // Messages that were sent before stand before it.
            take_mail(&mut change);
            change.push(Event::Message(message));
            change.head.due = Some(0);
            change.into_plan(Reason::UserMessage)?
        }
        Signal::Cancel if held => {
            ends_later(&mut change);
            change.into_head_plan()?
        }
        Signal::Cancel => stop(change, round, Intent::Cancel)?,
        Signal::Kill => stop(change, round, Intent::Kill)?,
        Signal::Raise(asked) => {
            raise(&mut change, asked)?;
            if held {
                change.into_head_plan()?
            } else {
                go_on_if_lifted(&mut change, asked.caps);
                change.into_plan(Reason::Changed)?
            }
        }
    };
    Ok(Decision::Commit(Box::new(plan)))
}

/// Decides about a signal to a thread that has ended. Two still have an effect: an end for the
/// threads under it, and money for those that draw on its account.
fn after_the_end(
    loaded: &Loaded,
    (name, signal): (&str, Signal),
    moment: Moment<'_>,
) -> Result<Decision, Error> {
    let mut change = Change::new(loaded, moment);
    remember(&mut change, name, &signal);
    let chain = &loaded.chain.value;
    match signal {
        Signal::Cancel if chain.children > 0 => pass_through(&mut change, Intent::Cancel),
        Signal::Kill if chain.children > 0 => pass_through(&mut change, Intent::Kill),
        Signal::Raise(asked)
            if chain.has_account() && chain.account.is_open() && asked.caps.spend.is_some() =>
        {
            raise(&mut change, asked)?;
        }
        _ => return Err(ended(loaded, "it has ended and takes no more signals")),
    }
    Ok(Decision::Commit(Box::new(change.into_head_plan()?)))
}

/// Records the name of a signal, so that it is taken once.
fn remember(change: &mut Change<'_>, name: &str, signal: &Signal) {
    let root = id::key(&change.thread.chain);
    change.extra.push(Write::Put {
        collection: key::SEEN,
        key: key::join(&[&root, name]),
        expect: Expect::Absent,
        value: signal.digest(),
    });
}

/// Ends the thread in this commit, whoever holds it.
pub(super) fn stop(
    mut change: Change<'_>,
    round: Option<&Entry>,
    by: Intent,
) -> Result<crate::plan::Plan, Error> {
    change.head.token += 1;
    count_time(&mut change);
    settle(&mut change, None, true, "");
    interrupt(&mut change, |_| true, &|index| name_of(round, index));
    end_by(&mut change, by);
    change.into_plan(Reason::Cancelled)
}

fn raise(change: &mut Change<'_>, asked: Raise) -> Result<(), Error> {
    let Raise { caps, through } = asked;
    // A cap that is not asked for may stay above the operator's bound; the bound still applies.
    let ceiling = change.ceiling();
    if let Some((name, asked, most)) = ceiling.overridden_by(caps).above(ceiling) {
        let problem = format!("is above the {most} that the operator's policy allows");
        return Err(Error::invalid(format!("limits.{name}"), &asked, problem));
    }
    caps.check("limits")?;
    check_within(change, caps)?;
    if let Some(spend) = caps.spend.filter(|_| change.chain.has_account()) {
        let raised = change.on_account(&mut |path| path.raise(spend, through, ceiling.spend));
        raised.map_err(|refusal| not_raised(change, spend, refusal))?;
    }
    // The event is in this commit's entry, or in the next one if the thread is held: see
    // `into_plan`.
    change.head.limits = change.head.limits.overridden_by(caps);
    if change.thread.pin.is_none() {
        // The caps are resolved once more at the first start.
        let before = change.thread.overrides.limits;
        change.thread.overrides.limits = before.overridden_by(caps);
    }
    Ok(())
}

/// Makes a suspended thread due if these caps lift its cause and no cap holds it any more. The
/// money is checked when it goes on.
fn go_on_if_lifted(change: &mut Change<'_>, caps: Limits) {
    let cause = change.head.cause.as_ref();
    let cause = cause.filter(|_| change.head.status == Status::Suspended);
    let lifted = cause.is_some_and(|cause| match cause.code.as_str() {
        "turns_exceeded" => caps.turns.is_some(),
        "tokens_exceeded" => caps.tokens.is_some(),
        "spend_exceeded" => caps.spend.is_some(),
        "spawns_exceeded" => caps.spawns.is_some(),
        "depth_exceeded" => caps.depth.is_some(),
        "duration_exceeded" => caps.duration.is_some(),
        _ => false,
    });
    if lifted && cap_reached(&change.head, change.ceiling()).is_none() {
        change.head.due = Some(0);
    }
}

/// Refuses caps above the parent's for a child that has not begun: they are lowered to the parent's
/// at its first start, so a higher cap would be accepted and lost.
fn check_within(change: &Change<'_>, caps: Limits) -> Result<(), Error> {
    let Some(within) = &change.thread.overrides.within else {
        return Ok(());
    };
    let most = within.limits;
    match most.overridden_by(caps).above(most) {
        Some((name, asked, most)) if change.thread.pin.is_none() => {
            let parent = change.thread.parent.as_deref().unwrap_or_default();
            let problem = format!("is above the {most} of {parent}, which spawned it");
            Err(Error::invalid(format!("limits.{name}"), &asked, problem))
        }
        _ => Ok(()),
    }
}

/// Returns the error for a raise that the accounts refuse.
fn not_raised(change: &Change<'_>, spend: NanoUsd, refusal: Refusal) -> Error {
    let above = change.chain.above.first().map_or("", String::as_str);
    match refusal {
        Refusal::Short { need, room } => {
            let message = format!(
                "{need} USD more are asked of {above} and {room} USD are left there: raise it first, or raise through"
            );
            let (need, room) = (need.get(), room.get());
            Error::Exceeded(Cause::bound(
                "budget",
                "spend_exceeded",
                message,
                need,
                room,
            ))
        }
        refusal => Error::invalid("limits.spend", &spend.to_string(), refusal.to_string()),
    }
}
