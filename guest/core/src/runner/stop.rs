//! The stop of a run: suspended, cancelled, killed, finished. Each leaves no holder, no step and no
//! hold.

use super::RESULT_BYTES_MAX;
use super::children::mark_sweep;
use super::mail::take_mail;
use crate::history::{
    CancelledEvent, ChargedEvent, CostSource, Event, Message, SettledHold, SuspendedEvent,
    ToolResult, ToolResultState, cut_escaped,
};
use crate::ledger::{AccountPath, Usage};
use crate::money::NanoUsd;
use crate::plan::{StoreWrite, ThreadChange};
use crate::thread::{
    CauseDetail, ChargedAttempt, EndIntent, Hold, StatusCause, StepKind, ThreadStatus,
};
use crate::time::Instant;
use crate::{error, estimate, id, key};

/// Suspends the run: it needs a person or a driver, and can go on in place.
///
/// Where a cancel waits, the run ends by it instead.
pub(super) fn suspend(change: &mut ThreadChange<'_>, cause: StatusCause) {
    if let (Some(intent), None) = (change.head.intent, &change.head.round) {
        terminate(change, intent);
        return;
    }
    if cause.reason == "error" {
        push_error_message(change, &cause);
    }
    change.push_event(Event::Suspended(SuspendedEvent {
        cause: cause.clone(),
    }));
    release_lease(change, ThreadStatus::Suspended);
    change.head.cause = Some(cause);
    change.closing = true;
}

/// Ends the thread by a cancel or a kill. Messages that were sent to the thread until now enter its
/// history; its children are to be ended, too.
pub(super) fn terminate(change: &mut ThreadChange<'_>, intent: EndIntent) {
    take_mail(change);
    let (status, code) = match intent {
        EndIntent::Kill => (ThreadStatus::Killed, "killed"),
        EndIntent::Cancel => (ThreadStatus::Cancelled, "cancelled"),
    };
    let by = intent.as_str();
    change.push_event(Event::Message(Message::synthetic("(stopped by user)")));
    change.push_event(Event::Cancelled(CancelledEvent { by: by.to_owned() }));
    release_lease(change, status);
    change.head.cause = Some(StatusCause::new(code, code, format!("ended by a {by}")));
    if change.chain.has_account() {
        change.apply_settled(&mut AccountPath::freeze);
    }
    mark_sweep(change, intent);
    record_end(change, status);
}

/// Finishes a run that went well: a chat becomes idle, a directive's thread ends with its last text
/// as result.
pub(super) fn finish_run(change: &mut ThreadChange<'_>, text: &str) {
    if change.thread.directive.is_none() {
        return become_idle(change);
    }
    let kept = cut_escaped(text, RESULT_BYTES_MAX);
    let result = if kept.len() == text.len() {
        kept.to_owned()
    } else {
        format!("{kept} (cut: the whole is in the transcript)")
    };
    complete_thread(change, Some(crate::json::to_text(&result)));
}

/// Makes the thread idle: it takes the next input.
pub(super) fn become_idle(change: &mut ThreadChange<'_>) {
    change.closing = true;
    change.head.cause = None;
    release_lease(change, ThreadStatus::Idle);
    change.stop_drawing();
}

/// Ends the thread well. `result` is JSON.
pub(super) fn complete_thread(change: &mut ThreadChange<'_>, result: Option<String>) {
    change.head.cause = None;
    release_lease(change, ThreadStatus::Completed);
    change.thread.result = result;
    record_end(change, ThreadStatus::Completed);
}

/// Ends the thread by an error of an external loop. `result` is JSON.
pub(super) fn fail_thread(change: &mut ThreadChange<'_>, cause: StatusCause, result: String) {
    push_error_message(change, &cause);
    release_lease(change, ThreadStatus::Error);
    change.head.cause = Some(cause);
    change.thread.result = Some(result);
    record_end(change, ThreadStatus::Error);
}

fn push_error_message(change: &mut ThreadChange<'_>, cause: &StatusCause) {
    let text = format!("(error: {})", cause.message);
    change.push_event(Event::Message(Message::synthetic(text)));
}

fn record_end(change: &mut ThreadChange<'_>, status: ThreadStatus) {
    change.closing = true;
    change.thread.outcome = Some(status);
    change.head.intent = None;
    change.head.round = None;
    change.stop_drawing();
}

/// Releases the lease: leaves no holder, no step, and nothing due (but waiting mail makes a thread
/// due at once).
pub(super) fn release_lease(change: &mut ThreadChange<'_>, status: ThreadStatus) {
    charge_external_holds(change);
    let mail = change.head.mail_count() > 0 && !status.is_terminal();
    let head = &mut change.head;
    head.status = status;
    head.holder = None;
    head.expiry = None;
    head.request = None;
    head.step = None;
    head.wait = None;
    head.due = mail.then_some(0);
    let key = id::key(&change.thread.id);
    change.extra.push(StoreWrite::Delete {
        collection: key::PARTIAL,
        key,
    });
}

/// Closes the hold of the pending attempt and returns the cost: by the reported usage; by estimate
/// if something was sent and the usage is unknown (`None`; `arrived` is the part of its reply that
/// was seen); or with nothing if nothing was sent.
pub(super) fn settle_attempt(
    change: &mut ThreadChange<'_>,
    usage: Option<Usage>,
    sent: bool,
    arrived: &str,
) -> NanoUsd {
    let now = change.now();
    settle_attempt_until(change, (usage, sent), arrived, now)
}

/// Closes the hold of the pending attempt, as [`settle_attempt`] does, if it is known to have been under
/// way until `end`.
pub(super) fn settle_attempt_until(
    change: &mut ThreadChange<'_>,
    (usage, sent): (Option<Usage>, bool),
    arrived: &str,
    end: Instant,
) -> NanoUsd {
    match usage {
        Some(usage) => close_hold(change, CostSource::Settled, Some(usage)),
        None if sent => {
            let basis = change.head.hold.and_then(|hold| hold.basis);
            let end = clamp_to_deadline(change, end);
            let usage =
                basis.map(|basis| basis.estimated_usage(estimate::estimate_tokens(arrived), end));
            close_hold(change, CostSource::Charged, usage)
        }
        None => close_hold(change, CostSource::Released, None),
    }
}

/// Closes the hold of an attempt whose reply is whole and has no usage: charged by the estimated
/// tokens of request and reply, at most the hold. The real usage may still replace it.
pub(super) fn settle_estimated(change: &mut ThreadChange<'_>, usage: Usage) -> NanoUsd {
    close_hold(change, CostSource::Estimated, Some(usage))
}

fn close_hold(change: &mut ThreadChange<'_>, how: CostSource, usage: Option<Usage>) -> NanoUsd {
    let Some(hold) = change.head.hold.take() else {
        return NanoUsd::ZERO;
    };
    let Hold { amount, prices, .. } = hold;
    let cost = prices.cost(usage.unwrap_or_default());
    let spend = match how {
        CostSource::Settled => cost,
        CostSource::Estimated => cost.min(amount),
        CostSource::Charged => charge_amount(usage, &hold),
        CostSource::Released => NanoUsd::ZERO,
    };
    change.apply_settled(&mut |path| match how {
        CostSource::Released => path.release(amount),
        CostSource::Settled | CostSource::Estimated | CostSource::Charged => {
            path.settle(amount, spend)
        }
    });
    let (version, output) = change
        .head
        .step
        .as_ref()
        .map_or((0, 0), |step| (step.version, step.output));
    // An attempt that is charged its whole hold counts in full against the cap of tokens, too.
    let unknown = change.head.context.saturating_add(output);
    change.settled = Some(SettledHold {
        version,
        hold: amount,
        spend,
        how,
        usage,
    });
    let used = &mut change.head.counters;
    used.spend = used.spend.saturating_add(spend);
    used.usage = used.usage.plus(usage.unwrap_or_default());
    let tokens = match (how, usage) {
        (CostSource::Charged, None) => unknown,
        (_, usage) => usage.unwrap_or_default().total(),
    };
    used.run_tokens = used.run_tokens.saturating_add(tokens);
    if how == CostSource::Charged {
        push_charge_event(change, version, usage, (spend, amount));
    }
    if matches!(how, CostSource::Charged | CostSource::Estimated) {
        change.remember_charge(ChargedAttempt {
            version,
            hold: Hold {
                amount: spend,
                prices,
                basis: None,
            },
            run: change.head.run,
            tokens,
            estimated: usage,
            unpriced: false,
            late: None,
        });
    }
    spend
}

/// Returns the charge for an attempt with this estimated usage, or the whole hold where there is no
/// estimate.
fn charge_amount(estimated: Option<Usage>, hold: &Hold) -> NanoUsd {
    let dearest = |usage: Usage| hold.prices.max_cost(usage.context(), usage.output);
    estimated.map_or(hold.amount, |usage| dearest(usage).min(hold.amount))
}

/// Adds the event that records the charge for an attempt, and the most that it can have cost.
fn push_charge_event(
    change: &mut ThreadChange<'_>,
    version: u64,
    usage: Option<Usage>,
    (spend, most): (NanoUsd, NanoUsd),
) {
    if most > NanoUsd::ZERO {
        change.push_event(Event::Charged(ChargedEvent {
            version,
            spend,
            most,
            usage,
        }));
    }
}

/// Charges the calls that an external loop still held when it ended: their usage is unknown.
fn charge_external_holds(change: &mut ThreadChange<'_>) {
    let end = clamp_to_deadline(change, change.now());
    for own in std::mem::take(&mut change.head.holds) {
        let version = own.version;
        let hold = Hold {
            amount: own.amount,
            prices: own.prices.unwrap_or_default(),
            basis: own.basis,
        };
        let usage = own.basis.map(|basis| basis.estimated_usage(0, end));
        let spend = charge_amount(usage, &hold);
        change.apply_settled(&mut |path| path.settle(hold.amount, spend));
        let tokens = usage.map_or(own.tokens, Usage::total);
        let used = &mut change.head.counters;
        used.spend = used.spend.saturating_add(spend);
        used.usage = used.usage.plus(usage.unwrap_or_default());
        used.run_tokens = used.run_tokens.saturating_add(tokens);
        change.charges.push(SettledHold {
            version,
            hold: hold.amount,
            spend,
            how: CostSource::Charged,
            usage,
        });
        push_charge_event(change, version, usage, (spend, hold.amount));
        change.remember_charge(ChargedAttempt {
            version,
            hold: Hold {
                amount: spend,
                basis: None,
                ..hold
            },
            run: change.head.run,
            tokens,
            estimated: usage,
            unpriced: own.prices.is_none(),
            late: None,
        });
    }
}

/// Records the cost of a tool call itself. No money was held for it, and an append may report it
/// while no chain draws on the account.
pub(super) fn record_tool_cost(change: &mut ThreadChange<'_>, cost: NanoUsd) {
    change.apply_settled(&mut |path| path.correct_charge(NanoUsd::ZERO, cost));
    let used = &mut change.head.counters;
    used.spend = used.spend.saturating_add(cost);
}

/// Counts the time of the pending step, up to its deadline. A clock that stepped back counts as
/// nothing, and so does an external loop, whose time the runner does not measure.
pub(super) fn count_time(change: &mut ThreadChange<'_>) -> u64 {
    let now = change.now();
    count_time_until(change, now)
}

/// Clamps a time to the deadline of the pending step: after it no driver works on the step.
fn clamp_to_deadline(change: &ThreadChange<'_>, moment: Instant) -> Instant {
    let step = change.head.step.as_ref();
    step.map_or(moment, |step| moment.min(step.deadline))
}

/// Counts the time of the pending step up to this time, and returns it in milliseconds.
pub(super) fn count_time_until(change: &mut ThreadChange<'_>, end: Instant) -> u64 {
    let Some(step) = &change.head.step else {
        return 0;
    };
    if step.kind == StepKind::ExternalLoop {
        return 0;
    }
    let millis = end.min(step.deadline).millis_since(step.started);
    let used = &mut change.head.counters;
    used.duration = used.duration.saturating_add(millis);
    used.run_duration = used.run_duration.saturating_add(millis);
    millis
}

/// Gives every open call that `which` picks the result `interrupted`; the others stay open.
pub(super) fn interrupt_calls(
    change: &mut ThreadChange<'_>,
    which: impl Fn(bool) -> bool,
    names: &dyn Fn(u32) -> String,
) {
    let Some(round) = change.head.round.take() else {
        return;
    };
    let (gone, open): (Vec<_>, Vec<_>) = round
        .calls
        .iter()
        .copied()
        .partition(|call| which(call.idempotent));
    for call in gone {
        change.push_event(Event::ToolResult(ToolResult {
            version: round.version,
            index: call.index,
            name: names(call.index),
            text: "interrupted: nobody knows whether this call ran".into(),
            failed: true,
            state: ToolResultState::Interrupted,
            cost: NanoUsd::ZERO,
        }));
    }
    if !open.is_empty() {
        change.head.round = Some(crate::thread::ToolRound {
            version: round.version,
            calls: open,
        });
    }
}

/// Returns the cause of a suspension for a provider's failure.
pub(super) fn provider_cause(kind: &str, code: &str, message: &str) -> StatusCause {
    let text = format!("{} ({})", error::cut(message, 1_000), error::cut(code, 100));
    let kind = format!("provider_{}", kind.replace('-', "_"));
    StatusCause::new("error", &kind, text).with_detail(CauseDetail {
        failure: Some(error::cut(code, 100).to_owned()),
        account: None,
    })
}
