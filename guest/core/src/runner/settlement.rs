//! Settlement: what an attempt, a held call of an external loop or a tool has cost, and the time
//! that a step took. The account, the counters and the events of the change follow.

use crate::estimate;
use crate::history::{ChargedEvent, CostSource, Event, SettledHold};
use crate::ledger::{ChargeBasis, Usage};
use crate::money::NanoUsd;
use crate::plan::ThreadChange;
use crate::thread::{ChargedAttempt, Hold, StepKind};
use crate::time::UnixTime;

/// Cuts reported usage to what its call can have used: the tokens that it was admitted with, by the
/// basis of its charge or else by `admitted` (input and output). The input was estimated from text
/// by characters, so it counts as the bytes that it stands for at most.
pub(super) fn believable_usage(
    usage: Usage,
    basis: Option<ChargeBasis>,
    admitted: (u64, u64),
) -> Usage {
    let (input, output) = basis.map_or(admitted, |basis| (basis.input, basis.output));
    usage.cut_to_admitted(input.saturating_mul(estimate::TOKEN_BYTES_MAX), output)
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

/// Closes the hold of the pending attempt, as [`settle_attempt`] does, if it is known to have been
/// under way until `end`.
pub(super) fn settle_attempt_until(
    change: &mut ThreadChange<'_>,
    (usage, sent): (Option<Usage>, bool),
    arrived: &str,
    end: UnixTime,
) -> NanoUsd {
    match usage {
        Some(usage) => close_hold(change, CostSource::Settled, Some(usage)),
        None if sent && !change.head.is_parked() => {
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
    let Hold {
        amount,
        prices,
        basis,
    } = hold;
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
    // In the phase of a hand-off each attempt is one at the summary.
    if let Some(phase) = &mut change.head.phase {
        phase.spent = phase.spent.saturating_add(spend);
    }
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
                basis: basis.map(ChargeBasis::keep_tokens),
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
pub(super) fn charge_external_holds(change: &mut ThreadChange<'_>) {
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
                basis: hold.basis.map(ChargeBasis::keep_tokens),
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
/// nothing, and so do a parked step and an external loop, whose time the runner does not measure.
pub(super) fn count_time(change: &mut ThreadChange<'_>) -> u64 {
    let now = change.now();
    count_time_until(change, now)
}

/// Clamps a time to the deadline of the pending step: after it no driver works on the step.
fn clamp_to_deadline(change: &ThreadChange<'_>, moment: UnixTime) -> UnixTime {
    let step = change.head.step.as_ref();
    step.map_or(moment, |step| moment.min(step.deadline))
}

/// Counts the time of the pending step up to this time, and returns it in milliseconds.
pub(super) fn count_time_until(change: &mut ThreadChange<'_>, end: UnixTime) -> u64 {
    let Some(step) = &change.head.step else {
        return 0;
    };
    if step.kind == StepKind::ExternalLoop || step.parked {
        return 0;
    }
    let millis = end.min(step.deadline).millis_since(step.started);
    let used = &mut change.head.counters;
    used.duration = used.duration.saturating_add(millis);
    used.run_duration = used.run_duration.saturating_add(millis);
    millis
}
