//! Admission of an attempt: caps, then money, then the hold that is durable before the step is given out.

use super::mail::only_lost_mail;
use super::stop::suspend;
use super::{LEASE_GRACE_MILLIS, MODEL_MILLIS, OUTPUT_TOKENS_FLOOR};
use crate::history::{Admitted, Message, Role};
use crate::ledger::{Refusal, Settled};
use crate::limits::Limits;
use crate::money::Nanos;
use crate::plan::Change;
use crate::settings::Pin;
use crate::thread::{Cause, Head, Hold, Pending, Status, StepKind};
use crate::time::Instant;

/// What a user's message says where a directive starts without one: providers need a first user message.
pub(super) fn opening() -> Message {
    Message::text(Role::User, "Execute the directive.")
}

/// Admit the first attempt of a request, or suspend the run if a cap or the money does not allow it. Where money is
/// short, the most output tokens are lowered to a floor first.
pub(super) fn admit(change: &mut Change<'_>, pin: &Pin) {
    change.seal();
    change.tell_late();
    let stop = cap_reached(&change.head, change.ceiling())
        .or_else(|| change.store_full())
        .or_else(|| window_reached(&change.head, pin))
        .or_else(|| only_lost_mail(change));
    match (stop, affordable(change, pin)) {
        (Some(cause), _) => suspend(change, cause),
        (None, Ok(output)) => attempt(change, pin, 0, output),
        (None, Err(refusal)) => suspend_short(change, refusal),
    }
}

/// Admit a further attempt of the same request: with the same output, so that a provider sees the same bytes.
pub(super) fn admit_again(change: &mut Change<'_>, pin: &Pin, tries: u32, output: u64) {
    change.seal();
    change.tell_late();
    attempt(change, pin, tries, output);
}

fn attempt(change: &mut Change<'_>, pin: &Pin, tries: u32, output: u64) {
    let stop = cap_reached(&change.head, change.ceiling()).or_else(|| change.store_full());
    if let Some(cause) = stop {
        suspend(change, cause);
        return;
    }
    let prices = pin.model.prices.unwrap_or_default();
    let amount = prices.ceiling(input_estimate(&change.head), output);
    if let Err(refusal) = hold(change, amount) {
        suspend_short(change, refusal);
        return;
    }
    let request = change.request_hash(pin, output);
    change.head.hold = Some(Hold { amount, prices });
    change.admitted = Some(Admitted {
        hold: amount,
        output,
        request: request.clone(),
        key: None,
    });
    let millis = call_millis(change, pin);
    hand_out(change, StepKind::CallLlm, millis);
    if let Some(step) = &mut change.head.step {
        (step.tries, step.output, step.hash) = (tries, output, request);
    }
}

/// Why a request is not sent: it is as large as the model's window, so that no reply would fit.
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

/// How long a model call may take: the model's own time, cut where the run's cap on duration is reached.
fn call_millis(change: &Change<'_>, pin: &Pin) -> u64 {
    let own = change.head.limits.duration.into_iter();
    let cap = own.chain(change.ceiling().duration).min();
    let left = cap.map(|cap| cap.saturating_sub(change.head.counters.run_duration));
    let time = pin.model.call_millis.unwrap_or(MODEL_MILLIS);
    left.into_iter().chain([time]).min().unwrap_or(time)
}

/// An eighth more than the estimate: what a provider counts differs from what we can know.
fn input_estimate(head: &Head) -> u64 {
    head.context.saturating_add(head.context / 8)
}

/// Make a step pending, named by the version of the change, and let the lease stand as long. Where the store is full the
/// run is suspended instead; calls that are open stay so and are handed out when it goes on.
pub(super) fn hand_out(change: &mut Change<'_>, kind: StepKind, millis: u64) {
    if let Some(cause) = change.store_full() {
        suspend(change, cause);
        return;
    }
    hand_out_until(change, kind, change.now().plus_millis(millis));
}

/// The same, with a deadline that somebody else has chosen.
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
    });
    lease(change, deadline);
}

/// Held until the deadline and a grace.
pub(super) fn lease(change: &mut Change<'_>, deadline: Instant) {
    let expiry = deadline.plus_millis(LEASE_GRACE_MILLIS);
    change.head.expiry = Some(expiry);
    change.head.status = Status::Running;
    // The due entry moves only to become earlier: a turn leaves it where it is, and it is never later than the truth.
    let expiry = expiry.millis();
    change.head.due = match change.head.due {
        Some(due) if due > 0 => Some(due.min(expiry)),
        _ => Some(expiry),
    };
}

/// The first cap that leaves no room for one more call: the thread's own, or the operator's where that is lower now.
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

/// What to do where a bound is reached: the thread's own can be raised, the operator's is not the caller's.
fn what_to_do<T: PartialOrd>(own: Option<T>, most: Option<T>, what: &str) -> String {
    match most {
        Some(most) if own.is_none_or(|own| own >= most) => {
            "the operator's policy allows no more, whatever the thread's own cap".to_owned()
        }
        _ => format!("raise the {what} to go on"),
    }
}

/// The most output tokens that window and money allow, not below the floor unless the model's own maximum is.
fn affordable(change: &Change<'_>, pin: &Pin) -> Result<u64, Refusal> {
    let input = input_estimate(&change.head);
    let prices = pin.model.prices.unwrap_or_default();
    let room = change.room();
    let floor = OUTPUT_TOKENS_FLOOR.min(pin.model.output);
    let fits = pin.model.window.saturating_sub(input).max(floor);
    let output = pin
        .model
        .output
        .min(fits)
        .min(prices.output_for(room, input));
    if output >= floor && prices.ceiling(input, output) <= room {
        return Ok(output);
    }
    let need = prices.ceiling(input, floor);
    Err(match change.account().missing() {
        Nanos::ZERO => Refusal::Short { need, room },
        debt => Refusal::Debt(debt),
    })
}

/// Set money aside for an attempt, on the account that the chain draws on.
pub(super) fn hold(change: &mut Change<'_>, amount: Nanos) -> Result<Settled, Refusal> {
    let room = change.room();
    let most = change.ceiling().spend;
    match amount > room && change.account().room(most) > room {
        true => Err(Refusal::Short { need: amount, room }),
        false => change.on_account(&mut |path| path.hold(amount, most)),
    }
}

fn suspend_short(change: &mut Change<'_>, refusal: Refusal) {
    let cause = refused_money(change, refusal);
    suspend(change, cause);
}

/// Why an attempt is not admitted, or a thread does not begin to draw on its account again.
pub(super) fn refused_money(change: &Change<'_>, refusal: Refusal) -> Cause {
    let (need, room) = match refusal {
        Refusal::Short { need, room } => (need, room),
        _ => (Nanos::ZERO, Nanos::ZERO),
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
