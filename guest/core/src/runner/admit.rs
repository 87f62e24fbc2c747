//! Admission of an attempt: caps, then money, then the hold that is durable before the step is
//! handed out.

use super::mail::only_lost_mail;
use super::stop::suspend;
use super::{
    BACKOFF_MILLIS, LEASE_GRACE_MILLIS, MODEL_MILLIS, MONEY_WAIT_MILLIS_MAX, OUTPUT_TOKENS_FLOOR,
};
use crate::history::{Admitted, Message, Role};
use crate::ledger::{Refusal, Settled};
use crate::limits::Limits;
use crate::money::NanoUsd;
use crate::plan::Change;
use crate::settings::Pin;
use crate::thread::{Cause, Head, Hold, Pending, Status, StepKind};
use crate::time::Instant;

/// Message that opens a directive's thread started without input: providers need a first user
/// message.
pub(super) fn opening() -> Message {
    Message::text(Role::User, "Execute the directive.")
}

/// Parameters of an attempt before it is admitted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Try {
    /// Attempts of the same request before this one.
    pub tries: u32,
    /// Most output tokens of those; 0 before the first.
    pub output: u64,
    /// The time since which it waits for money that other calls hold, if it does.
    pub short_since: Option<Instant>,
}

/// Admits an attempt, or suspends the run if a cap or the money does not allow it. For the first
/// attempt of a request the most output tokens are lowered to a floor where money is short. Later
/// attempts keep the same output as long as that fits, so that a provider sees the same bytes.
/// Where money is short only because other calls hold it, the run waits for them.
pub(super) fn admit(change: &mut Change<'_>, pin: &Pin, next: Try) {
    change.seal();
    change.tell_late();
    let stop = cap_reached(&change.head, change.ceiling()).or_else(|| change.store_full());
    let stop = stop.or_else(|| match next.output {
        0 => window_reached(&change.head, pin).or_else(|| only_lost_mail(change)),
        _ => None,
    });
    if let Some(cause) = stop {
        suspend(change, cause);
        return;
    }
    let prices = pin.model.prices.unwrap_or_default();
    let input = input_estimate(&change.head);
    let output = match next.output {
        0 => affordable(change, pin),
        output if prices.ceiling(input, output) <= change.room() => output,
        // The charge for the attempt before it has reduced what is left.
        output => output.min(affordable(change, pin)),
    };
    let amount = prices.ceiling(input, output);
    if let Err(refusal) = hold(change, amount) {
        wait_or_suspend(change, pin, next, (amount, refusal));
        return;
    }
    let request = change.request_hash(pin, output);
    change.head.hold = Some(Hold {
        amount,
        prices,
        basis: change.charge_basis(input, output, pin.model.rate),
    });
    change.admitted = Some(Admitted {
        hold: amount,
        output,
        request: request.clone(),
        key: None,
    });
    let millis = call_millis(change, pin);
    hand_out(change, StepKind::CallLlm, millis);
    change.head.cause = None;
    if let Some(step) = &mut change.head.step {
        (step.tries, step.output, step.hash) = (next.tries, output, request);
    }
}

/// Handles an attempt for which there is no money. If calls that are under way hold it, the run
/// waits until they end, at most for the time of a call; if not, the run is suspended.
fn wait_or_suspend(
    change: &mut Change<'_>,
    pin: &Pin,
    next: Try,
    (need, refusal): (NanoUsd, Refusal),
) {
    let since = next.short_since.unwrap_or(change.now());
    let waited = change.now().millis_since(since);
    let longest = pin.model.call_millis.unwrap_or(MODEL_MILLIS);
    let held = money_held(change, need, refusal).filter(|_| waited < longest);
    let Some(cause) = held else {
        let cause = refused_money(change, refusal);
        suspend(change, cause);
        return;
    };
    let millis = waited.clamp(BACKOFF_MILLIS, MONEY_WAIT_MILLIS_MAX);
    hand_out(change, StepKind::Wait, millis);
    let until = change.now().plus_millis(millis);
    let Some(step) = &mut change.head.step else {
        return;
    };
    (step.tries, step.output) = (next.tries, next.output);
    (step.until, step.short_since) = (Some(until), Some(since));
    change.head.cause = Some(cause);
}

/// Returns the cause of a wait for money: `need` is refused only because other calls hold money,
/// and there is enough once they end.
pub(super) fn money_held(change: &Change<'_>, need: NanoUsd, refusal: Refusal) -> Option<Cause> {
    let short = matches!(refusal, Refusal::Short { .. } | Refusal::Debt(_));
    if !short || !change.fits_without_holds(need) {
        return None;
    }
    let room = change.room();
    let message = format!(
        "the next call may cost {need} USD and {room} USD are left, because more is held for calls \
         that are under way: there is room when they end"
    );
    let (need, room) = (need.get(), room.get());
    Some(Cause::bound("budget", "money_held", message, need, room))
}

/// Returns the cause that forbids a request as large as the model's window, so that no reply would
/// fit.
fn window_reached(head: &Head, pin: &Pin) -> Option<Cause> {
    let (used, window) = (head.context, pin.model.window);
    if used < window {
        return None;
    }
    let message = format!(
        "the request has about {used} tokens and the window of {} has {window}: begin another thread \
         with what matters, or one with a model of a larger window",
        pin.model.name
    );
    Some(Cause::bound(
        "limit",
        "window_exceeded",
        message,
        used,
        window,
    ))
}

/// Returns the longest time of a model call: the model's own time, cut where the run's cap on
/// duration is reached.
fn call_millis(change: &Change<'_>, pin: &Pin) -> u64 {
    let own = change.head.limits.duration.into_iter();
    let cap = own.chain(change.ceiling().duration).min();
    let left = cap.map(|cap| cap.saturating_sub(change.head.counters.run_duration));
    let time = pin.model.call_millis.unwrap_or(MODEL_MILLIS);
    left.into_iter().chain([time]).min().unwrap_or(time)
}

/// Returns an eighth more than the estimated context: a provider's count differs from the estimate.
fn input_estimate(head: &Head) -> u64 {
    head.context.saturating_add(head.context / 8)
}

/// Makes a step pending, named by the version of the change, and sets the lease for as long. Where
/// the store is full the run is suspended instead; open calls stay open and are handed out when it
/// goes on.
pub(super) fn hand_out(change: &mut Change<'_>, kind: StepKind, millis: u64) {
    if let Some(cause) = change.store_full() {
        suspend(change, cause);
        return;
    }
    hand_out_until(change, kind, change.now().plus_millis(millis));
}

/// Makes a step pending until a deadline that the caller has chosen, without the check for a full
/// store.
pub(super) fn hand_out_until(change: &mut Change<'_>, kind: StepKind, deadline: Instant) {
    change.head.step = Some(Pending {
        version: change.version(),
        kind,
        started: change.now(),
        deadline,
        tries: 0,
        hash: String::new(),
        output: 0,
        until: None,
        failed: None,
        short_since: None,
    });
    lease(change, deadline);
}

/// Sets the lease to the deadline and a grace, and the status to running.
pub(super) fn lease(change: &mut Change<'_>, deadline: Instant) {
    let expiry = deadline.plus_millis(LEASE_GRACE_MILLIS);
    change.head.expiry = Some(expiry);
    change.head.status = Status::Running;
    // The due entry moves only to become earlier: a turn leaves it where it is, and it is never
    // later than its true time.
    let expiry = expiry.millis();
    change.head.due = match change.head.due {
        Some(due) if due > 0 => Some(due.min(expiry)),
        _ => Some(expiry),
    };
}

/// Returns the first cap that leaves no room for one more call: the thread's own, or the operator's
/// where that is lower now.
pub(crate) fn cap_reached(head: &Head, ceiling: Limits) -> Option<Cause> {
    let (own, used, held) = (&head.limits, &head.counters, head.held());
    let turns = used.run_turns.saturating_add(held.turns);
    let tokens = used.run_tokens.saturating_add(held.tokens);
    let caps = [
        ("turns", turns, own.turns, ceiling.turns),
        ("tokens", tokens, own.tokens, ceiling.tokens),
        (
            "duration",
            used.run_duration,
            own.duration,
            ceiling.duration,
        ),
    ];
    caps.into_iter().find_map(|(name, value, own, most)| {
        let maximum = own.into_iter().chain(most).min()?;
        if value < maximum {
            return None;
        }
        let unit = match name {
            "duration" => "milliseconds",
            name => name,
        };
        let advice = what_to_do(own, most, "cap");
        let done = if held.turns > 0 {
            "used or holds"
        } else {
            "used"
        };
        let message = format!("the run has {done} {value} of {maximum} {unit}: {advice}");
        let code = format!("{name}_exceeded");
        Some(Cause::bound("limit", &code, message, value, maximum))
    })
}

/// Returns the advice where a bound is reached: the thread's own can be raised, the operator's
/// cannot.
fn what_to_do<T: PartialOrd>(own: Option<T>, most: Option<T>, what: &str) -> String {
    match most {
        Some(most) if own.is_none_or(|own| own >= most) => {
            "the operator's policy allows no more, whatever the thread's own cap".to_owned()
        }
        _ => format!("raise the {what} to go on"),
    }
}

/// Returns the most output tokens that the window and this attempt's share of the money allow, not
/// below the floor unless the model's own maximum is.
fn affordable(change: &Change<'_>, pin: &Pin) -> u64 {
    let input = input_estimate(&change.head);
    let prices = pin.model.prices.unwrap_or_default();
    let floor = OUTPUT_TOKENS_FLOOR.min(pin.model.output);
    let fits = pin.model.window.saturating_sub(input);
    let output = pin.model.output.min(fits);
    output
        .min(prices.output_for(change.share(), input))
        .max(floor)
}

/// Sets money aside for an attempt, on the account that the chain draws on.
pub(super) fn hold(change: &mut Change<'_>, amount: NanoUsd) -> Result<Settled, Refusal> {
    let room = change.room();
    let most = change.ceiling().spend;
    match amount > room && change.account().room(most) > room {
        true => Err(Refusal::Short { need: amount, room }),
        false => change.on_account(&mut |path| path.hold(amount, most)),
    }
}

/// Returns the cause why an attempt is not admitted, or why a thread cannot draw on its account
/// again.
pub(super) fn refused_money(change: &Change<'_>, refusal: Refusal) -> Cause {
    let (need, room) = match refusal {
        Refusal::Short { need, room } => (need, room),
        _ => (NanoUsd::ZERO, NanoUsd::ZERO),
    };
    let message = match refusal {
        Refusal::Short { need, room } => {
            let advice = match change.chain.has_account() {
                true => what_to_do(change.head.limits.spend, change.ceiling().spend, "spend"),
                false => format!(
                    "its money is that of {}: raise it there to go on",
                    change.chain.draws_on(&change.thread.chain)
                ),
            };
            format!("the next call may cost {need} USD and {room} USD are left: {advice}")
        }
        Refusal::Debt(owed) => {
            format!("the account owes {owed} USD: raise the spend by more than that to go on")
        }
        refusal => format!("{refusal}: nothing more is spent on it"),
    };
    let (need, room) = (need.get(), room.get());
    Cause::bound("budget", "spend_exceeded", message, need, room)
}
