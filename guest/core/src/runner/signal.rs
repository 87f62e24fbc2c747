//! Signals: messages, cancel, kill, fail, raised caps, decisions. While a thread is held they
//! change its head alone and take effect at its next commit; a kill or a fail fences the holder at
//! once.

use super::CommitDecision;
use super::call_decision::CallDecision;
use super::checks::{begin_chat_run, refused_error};
use super::children::{drop_resumption, pass_to_children};
use super::consent::{repeat_decision, take_decision};
use super::ending::{end_thread_now, fail_thread_now, request_cancel};
use super::external_loop::LoopFailure;
use super::mail::{push_inbox_message, take_mail};
use super::message_ids::remember_message;
use crate::error::Error;
use crate::hash::sha256;
use crate::history::{CommitReason, Entry, Event, Message};
use crate::json;
use crate::ledger::LedgerRefusal;
use crate::limits::ThreadCaps;
use crate::money::NanoUsd;
use crate::plan::{
    CommitPlan, DecisionContext, LoadedThread, StoreWrite, ThreadChange, WriteCondition,
    is_to_be_resumed,
};
use crate::thread::{
    CauseDetail, DecisionRecord, EndIntent, InboxMessage, StatusCause, ThreadStatus,
    find_reached_cap,
};
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
    Raise(CapRaise),
    /// Decides about a call that needs consent.
    Decision(CallDecision),
    /// Ends the thread now, by an error of its host.
    Fail(HostFailure),
}

/// An error of the host that ends a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFailure {
    /// The error.
    pub failure: LoopFailure,
    /// Its JSON text, which becomes the result of the thread.
    pub text: String,
}

/// Caps to be lifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapRaise {
    /// The caps that are set.
    pub caps: ThreadCaps,
    /// True to raise the accounts above as well where they lack room for the spend.
    pub through: bool,
}

impl Signal {
    /// The end that the signal tells a thread, if it tells one.
    pub fn intent(&self) -> Option<EndIntent> {
        match self {
            Self::Cancel => Some(EndIntent::Cancel),
            Self::Kill => Some(EndIntent::Kill),
            Self::Message(_) | Self::Raise(_) | Self::Decision(_) | Self::Fail(_) => None,
        }
    }

    /// Returns a digest of the signal, to recognize a repeated one.
    pub fn digest(&self) -> String {
        match self {
            Self::Message(message) => sha256(&["message", &json::to_text(message)]),
            Self::Cancel => sha256(&["cancel"]),
            Self::Kill => sha256(&["kill"]),
            Self::Raise(raise) if raise.through => {
                sha256(&["raise", "through", &json::to_text(&raise.caps)])
            }
            Self::Raise(raise) => sha256(&["raise", &json::to_text(&raise.caps)]),
            Self::Decision(decision) => decision.digest(),
            Self::Fail(failed) => sha256(&["fail", &failed.text]),
        }
    }
}

/// Decides about a signal that was not seen before; `mail` is the inbox that waits, `earlier` the
/// record of the decision about the same call, where the signal is one.
pub fn signal(
    loaded: &LoadedThread,
    round: Option<&Entry>,
    (mail, earlier): (Vec<InboxMessage>, Option<DecisionRecord>),
    (name, signal): (&str, Signal),
    moment: DecisionContext<'_>,
) -> Result<CommitDecision, Error> {
    let head = &loaded.head.value;
    if loaded.thread.value.next.is_some() {
        // What lies under the chain is told by its tip.
        return Err(refused_error(loaded, ""));
    }
    if let (Signal::Decision(decision), Some(earlier)) = (&signal, &earlier) {
        return repeat_decision(&loaded.thread.value.id, decision, earlier);
    }
    if head.status.is_terminal() {
        return signal_ended_thread(loaded, mail, (name, signal), moment);
    }
    let mut change = ThreadChange::with_mail(loaded, mail, moment);
    remember_signal(&mut change, name, &signal);
    if let Signal::Message(message) = &signal {
        remember_message(&mut change, message);
    }
    let held = head.status == ThreadStatus::Running;
    let plan = match signal {
        // Nor does one stand in a history that is not whole: it waits until that is closed.
        Signal::Message(message) if held || change.head.incomplete => {
            push_inbox_message(&mut change, &message)?;
            change.into_head_plan()?
        }
        // No message stands between a call and its result: it waits until the open calls have
        // theirs.
        Signal::Message(message) if change.head.round.is_some() => {
            push_inbox_message(&mut change, &message)?;
            if head.status != ThreadStatus::Waiting {
                change.head.mark_due();
            }
            change.into_head_plan()?
        }
        Signal::Message(message) => {
            begin_chat_run(&mut change);
            // Messages that were sent before stand before it.
            take_mail(&mut change);
            change.push_event(Event::Message(message));
            change.head.mark_due();
            change.into_plan(CommitReason::UserMessage)?
        }
        Signal::Decision(decision) => return take_decision(change, round, &decision),
        Signal::Cancel if held => {
            request_cancel(&mut change);
            change.into_head_plan()?
        }
        Signal::Cancel => end_thread_now(change, round, EndIntent::Cancel)?,
        Signal::Kill => end_thread_now(change, round, EndIntent::Kill)?,
        Signal::Fail(failed) => fail_thread(change, round, failed)?,
        Signal::Raise(asked) => {
            raise_caps(&mut change, asked)?;
            if held {
                change.into_head_plan()?
            } else {
                mark_due_if_lifted(&mut change, asked.caps);
                change.into_plan(CommitReason::Changed)?
            }
        }
    };
    Ok(CommitDecision::Commit(plan))
}

/// Ends a thread by an error of its host.
fn fail_thread(
    change: ThreadChange<'_>,
    round: Option<&Entry>,
    HostFailure { failure, text }: HostFailure,
) -> Result<Box<CommitPlan>, Error> {
    let loaded = change.loaded_thread();
    if matches!(
        loaded.head.value.status,
        ThreadStatus::Created | ThreadStatus::Idle
    ) {
        return Err(refused_error(loaded, "it has no run that could fail"));
    }
    let cause = StatusCause::new("error", &failure.code, failure.message);
    fail_thread_now(change, round, (cause, text))
}

/// Decides about a signal to a thread that has ended. Two still have an effect: an end for the
/// threads under it, and money for those that draw on its account.
fn signal_ended_thread(
    loaded: &LoadedThread,
    mail: Vec<InboxMessage>,
    (name, signal): (&str, Signal),
    moment: DecisionContext<'_>,
) -> Result<CommitDecision, Error> {
    let advice = match signal.intent() {
        Some(_) => "it has ended already",
        None => "it has ended and takes no more signals: `resume` goes on with it",
    };
    let mut change = ThreadChange::with_mail(loaded, mail, moment);
    remember_signal(&mut change, name, &signal);
    let chain = &loaded.chain.value;
    if let Some(intent) = signal
        .intent()
        .filter(|_| is_to_be_resumed(&loaded.head.value))
    {
        let plan = drop_resumption(change, intent)?;
        return Ok(CommitDecision::Commit(plan));
    }
    match signal {
        Signal::Cancel if chain.last_child_number() > 0 => {
            pass_to_children(&mut change, EndIntent::Cancel)
        }
        Signal::Kill if chain.last_child_number() > 0 => {
            pass_to_children(&mut change, EndIntent::Kill)
        }
        Signal::Raise(asked)
            if chain.has_account() && chain.account.is_open() && asked.caps.spend.is_some() =>
        {
            raise_caps(&mut change, asked)?;
        }
        _ => {
            return Err(refused_error(loaded, advice));
        }
    }
    Ok(CommitDecision::Commit(change.into_head_plan()?))
}

/// Records the name of a signal, so that it is taken once.
fn remember_signal(change: &mut ThreadChange<'_>, name: &str, signal: &Signal) {
    let root = id::key(&change.thread.chain);
    change.extra.push(StoreWrite::Put {
        collection: key::SEEN,
        key: key::join(&[&root, name]),
        expect: WriteCondition::Absent,
        value: signal.digest(),
    });
}

fn raise_caps(change: &mut ThreadChange<'_>, asked: CapRaise) -> Result<(), Error> {
    let CapRaise { caps, through } = asked;
    // A cap that is not asked for may stay above the operator's bound; the bound still applies.
    let ceiling = change.ceiling();
    if let Some((name, asked, most)) = ceiling.overridden_by(caps).first_cap_above(ceiling) {
        let problem = format!("is above the {most} that the operator's policy allows");
        return Err(Error::invalid(format!("limits.{name}"), &asked, problem));
    }
    caps.check("limits")?;
    check_parent_caps(change, caps)?;
    if let Some(spend) = caps.spend.filter(|_| change.chain.has_account()) {
        let raised =
            change.update_accounts(&mut |path| path.raise_limit(spend, through, ceiling.spend));
        raised.map_err(|refusal| raise_refused_error(change, spend, refusal))?;
    }
    // The event is in this commit's entry, or in the next one if the thread is held: see
    // `into_plan`.
    change.head.limits = change.head.limits.overridden_by(caps);
    if change.thread.pin.is_none() {
        // The caps are resolved once more at the first start.
        let before = change.thread.overrides.limits;
        change.thread_mut().overrides.limits = before.overridden_by(caps);
    }
    Ok(())
}

/// Makes a suspended thread due if these caps lift its cause and no cap holds it any more. The
/// money is checked when it goes on.
fn mark_due_if_lifted(change: &mut ThreadChange<'_>, caps: ThreadCaps) {
    let cause = change.head.cause.as_ref();
    let cause = cause.filter(|_| change.head.status == ThreadStatus::Suspended);
    let lifted = cause.is_some_and(|cause| match cause.code.as_str() {
        "turns_exceeded" => caps.turns.is_some(),
        "tokens_exceeded" => caps.tokens.is_some(),
        "spend_exceeded" => caps.spend.is_some(),
        "spawns_exceeded" => caps.spawns.is_some(),
        "depth_exceeded" => caps.depth.is_some(),
        "duration_exceeded" => caps.duration.is_some(),
        _ => false,
    });
    if lifted && find_reached_cap(&change.head, change.ceiling()).is_none() {
        change.head.due = Some(0);
    }
}

/// Refuses caps above the parent's for a child that has not begun: they are lowered to the parent's
/// at its first start, so a higher cap would be accepted and lost.
fn check_parent_caps(change: &ThreadChange<'_>, caps: ThreadCaps) -> Result<(), Error> {
    let Some(within) = &change.thread.overrides.within else {
        return Ok(());
    };
    let most = within.limits;
    match most.overridden_by(caps).first_cap_above(most) {
        Some((name, asked, most)) if change.thread.pin.is_none() => {
            let parent = change.thread.parent.as_deref().unwrap_or_default();
            let problem = format!("is above the {most} of {parent}, which spawned it");
            Err(Error::invalid(format!("limits.{name}"), &asked, problem))
        }
        _ => Ok(()),
    }
}

/// Returns the error for a raise that the accounts refuse.
fn raise_refused_error(change: &ThreadChange<'_>, spend: NanoUsd, refusal: LedgerRefusal) -> Error {
    let above = change.chain.above.first().map_or("", String::as_str);
    match refusal {
        LedgerRefusal::Short { need, room } => {
            let message = format!(
                "{need} USD more are asked of {above} and {room} USD are left there: raise it \
                 first, or raise through"
            );
            let (need, room) = (need.get(), room.get());
            let cause = StatusCause::with_bound("budget", "spend_exceeded", message, need, room);
            Error::exceeded_by(cause.with_detail(CauseDetail {
                failure: None,
                account: Some(above.to_owned()),
            }))
        }
        refusal => Error::invalid("limits.spend", &spend.to_string(), refusal.to_string()),
    }
}
