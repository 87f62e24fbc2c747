//! The phase in which a thread is handed off to the next link of its chain.
//!
//! It is looked for where the first attempt of a request is about to be admitted, and nowhere else:
//! no call is open then, and a run that finishes is never handed off. Where a summary is to be
//! written, the commit that begins the phase admits the attempt at it, and any driver can go on
//! with the phase; where none is, the thread is handed off in the commit that would have asked the
//! model. What is carried over is decided from the live window, which is loaded for such a decision
//! alone.

use super::OUTPUT_TOKENS_FLOOR;
use super::admission::{AttemptAdmission, AttemptNeeds, estimate_input_tokens, wait_for_money};
use super::ending::suspend;
use super::hand_off_terms::{CarryTerms, PreparedHandOff, impossible_cause};
use super::mail::lost_mail_cause;
use super::summary_attempt::{SummaryAdmission, admit_summary, summary_terms, tries_problem};
use crate::continuation::{
    ContextUsage, LiveWindow, TrailingBounds, WindowEntry, WindowNeeds, select_trailing,
};
use crate::error::Error;
use crate::history::{ContextLimitReached, Event};
use crate::ledger::LedgerRefusal;
use crate::money::NanoUsd;
use crate::plan::ThreadChange;
use crate::settings::PinnedSettings;
use crate::thread::{BASE_PARTS_MAX, HandOffPhase, StatusCause, find_reached_cap};

/// Most hand-offs of a chain in a row without a message of a person: a model that fills its window
/// again and again without being asked anything makes no progress.
pub const HAND_OFFS_MAX: u32 = 12;

/// The outcome of the question if a thread is to be handed off.
#[derive(Debug)]
pub(super) enum HandOffStart {
    /// It is not: the attempt may be admitted.
    NotDue,
    /// It cannot be told without this part of the live window.
    NeedsWindow(WindowNeeds),
    /// A step of the phase is handed out, or the run is suspended.
    Decided,
    /// It is, in this commit.
    HandedOff(PreparedHandOff),
}

/// Begins the hand-off of a thread whose next request takes too much of the window, or goes on with
/// the one that has begun. `needs` are those of the attempt that would be made.
pub(super) fn advance_hand_off(
    change: &mut ThreadChange<'_>,
    pin: &PinnedSettings,
    window: Option<&LiveWindow>,
    needs: &AttemptNeeds,
) -> Result<HandOffStart, Error> {
    change.count_messages();
    let overflow = match &change.head.phase {
        Some(phase) => phase.overflow,
        None if is_due(change, pin) => false,
        None => return Ok(HandOffStart::NotDue),
    };
    advance(change, pin, window, (overflow, needs))
}

/// Returns true if the next request takes too much of the window, or a thread that was resumed
/// again and again rests on too many pieces of others.
fn is_due(change: &ThreadChange<'_>, pin: &PinnedSettings) -> bool {
    let parts = change
        .thread
        .base
        .as_ref()
        .map_or(0, |base| base.parts.len());
    parts > BASE_PARTS_MAX || ContextUsage::new(&change.head, pin).is_over_trigger()
}

/// Begins the hand-off of a thread whose request a provider has refused as too long; not if it was
/// handed off for that already and no reply has come since.
pub(super) fn begin_after_overflow(
    change: &mut ThreadChange<'_>,
    pin: &PinnedSettings,
    window: Option<&LiveWindow>,
) -> Result<HandOffStart, Error> {
    change.count_messages();
    if change.head.shortened {
        return Ok(HandOffStart::NotDue);
    }
    advance(change, pin, window, (true, &AttemptNeeds::default()))
}

fn advance(
    change: &mut ThreadChange<'_>,
    pin: &PinnedSettings,
    window: Option<&LiveWindow>,
    (overflow, needs): (bool, &AttemptNeeds),
) -> Result<HandOffStart, Error> {
    let settings = &*pin.continuation();
    // What forbids another call forbids the phase, too: the admission of the attempt says it.
    let capped = find_reached_cap(&change.head, change.ceiling()).is_some();
    if capped || change.store_full_cause().is_some() || lost_mail_cause(change).is_some() {
        return Ok(HandOffStart::NotDue);
    }
    enter_phase(change, overflow);
    let bounds = CarryTerms::new(&change.head, pin).bounds(None);
    let summary = settings.summary.as_ref();
    let Some(window) = window else {
        return Ok(HandOffStart::NeedsWindow(WindowNeeds {
            carried: bounds.wanted,
            transcript: summary.map(|summary| summary_terms(summary, &change.head, pin).most()),
        }));
    };
    let pending = WindowEntry::pending(&change.thread.id, change.version(), &change.events);
    let carried = match select_trailing(window, &pending, bounds) {
        Ok(selection) if !selection.leaves_out => {
            change.head.phase = None;
            return Ok(HandOffStart::NotDue);
        }
        Ok(selection) => selection.size,
        Err(refusal) => {
            change.head.phase = None;
            let least = select_trailing(window, &pending, TrailingBounds::LEAST);
            let whole = least.is_ok_and(|least| !least.leaves_out);
            if overflow || whole {
                return Ok(HandOffStart::NotDue);
            }
            suspend(change, impossible_cause(refusal, pin));
            return Ok(HandOffStart::Decided);
        }
    };
    if change.head.hand_offs >= HAND_OFFS_MAX {
        change.head.phase = None;
        suspend(change, loop_cause(change.head.hand_offs));
        return Ok(HandOffStart::Decided);
    }
    push_limit_event(change, pin);
    let Some(summary) = summary else {
        return Ok(HandOffStart::HandedOff(PreparedHandOff::default()));
    };
    let without = |problem| HandOffStart::HandedOff(PreparedHandOff::without(problem));
    if let Some(problem) = tries_problem(change, summary) {
        return Ok(without(problem));
    }
    let terms = summary_terms(summary, &change.head, pin);
    Ok(match admit_summary(change, terms, (window, &pending)) {
        SummaryAdmission::Granted => HandOffStart::Decided,
        SummaryAdmission::Forbidden(problem) => without(problem),
        SummaryAdmission::NoMoney(amount, refusal) => {
            let next = CarryTerms::new(&change.head, pin).request_tokens(carried);
            go_on_without_money(change, pin, needs, (amount, refusal), next)
        }
    })
}

/// Goes on with a hand-off for whose summary the account has no money. If calls that are under way
/// hold it, the run waits for them, as it does for a turn. If the next link, whose first request
/// has about `next` tokens, can be paid, the thread is handed off without a summary. If not, the
/// run is suspended in the phase: what the model was told would be lost for nothing.
fn go_on_without_money(
    change: &mut ThreadChange<'_>,
    pin: &PinnedSettings,
    needs: &AttemptNeeds,
    (amount, refusal): (NanoUsd, LedgerRefusal),
    next: u64,
) -> HandOffStart {
    let needs = needs.clone();
    let AttemptAdmission::Refused(cause) = wait_for_money(change, pin, needs, (amount, refusal))
    else {
        return HandOffStart::Decided;
    };
    let prices = pin.model.prices.unwrap_or_default();
    let output = OUTPUT_TOKENS_FLOOR.min(pin.model.output);
    let least = prices.max_cost(estimate_input_tokens(next), output);
    let short = matches!(refusal, LedgerRefusal::Short { .. });
    if short && least <= change.attempt_room() {
        let why = format!("a summary may cost {amount} USD, which the account does not have");
        return HandOffStart::HandedOff(PreparedHandOff::without(why));
    }
    suspend(change, cause);
    HandOffStart::Decided
}

/// Begins the phase, unless the thread is in it.
fn enter_phase(change: &mut ThreadChange<'_>, overflow: bool) {
    let since = change.version();
    change.head.phase.get_or_insert(HandOffPhase {
        since,
        tries: 0,
        spent: NanoUsd::ZERO,
        overflow,
    });
}

/// Adds the event that begins the phase, in the entry that does so.
fn push_limit_event(change: &mut ThreadChange<'_>, pin: &PinnedSettings) {
    let begins = change.loaded_thread().head.value.phase.is_none();
    if begins {
        let usage = ContextUsage::new(&change.head, pin);
        let reached = ContextLimitReached::new(usage.tokens, usage.window);
        change.push_event(Event::ContextLimitReached(reached));
    }
}

/// Returns the cause for suspending a chain that is handed off again and again.
fn loop_cause(hand_offs: u32) -> StatusCause {
    let message = format!(
        "it was handed off {hand_offs} times in a row without a message of a person: look at what \
         it does, then send it one"
    );
    let (count, most) = (u64::from(hand_offs), u64::from(HAND_OFFS_MAX));
    StatusCause::with_bound("limit", "handoff_loop", message, count, most)
}
