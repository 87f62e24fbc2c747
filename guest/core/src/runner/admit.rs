//! Admission of an attempt: caps, then money, then the hold that is durable before the step is given out.

use super::stop::suspend;
use super::{LEASE_GRACE_MILLIS, MODEL_MILLIS, OUTPUT_TOKENS_FLOOR};
use crate::history::{Admitted, Message, Role};
use crate::ledger::Shortage;
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
    change.seal(false);
    let stop = cap_reached(&change.head).or_else(|| change.store_full());
    match (stop, affordable(change, pin)) {
        (Some(cause), _) => suspend(change, cause),
        (None, Ok(output)) => attempt(change, pin, 0, output),
        (None, Err(short)) => suspend(change, money_short(short)),
    }
}

/// Admit a further attempt of the same request: with the same output, so that a provider sees the same bytes.
pub(super) fn admit_again(change: &mut Change<'_>, pin: &Pin, tries: u32, output: u64) {
    change.seal(false);
    attempt(change, pin, tries, output);
}

fn attempt(change: &mut Change<'_>, pin: &Pin, tries: u32, output: u64) {
    if let Some(cause) = cap_reached(&change.head).or_else(|| change.store_full()) {
        suspend(change, cause);
        return;
    }
    let prices = pin.model.prices.unwrap_or_default();
    let amount = prices.ceiling(input_estimate(&change.head), output);
    if let Err(short) = change.chain.account.hold(amount) {
        suspend(change, money_short(short));
        return;
    }
    let request = change.request_hash(pin, output);
    change.head.hold = Some(Hold { amount, prices });
    change.admitted = Some(Admitted {
        hold: amount,
        output,
        request: request.clone(),
    });
    hand_out(change, StepKind::CallLlm, MODEL_MILLIS);
    if let Some(step) = &mut change.head.step {
        (step.tries, step.output, step.hash) = (tries, output, request);
    }
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

/// The first cap that leaves no room for one more call.
pub(super) fn cap_reached(head: &Head) -> Option<Cause> {
    let (limits, used) = (&head.limits, &head.counters);
    let caps = [
        ("turns_exceeded", "turns", used.run_turns, limits.turns),
        ("tokens_exceeded", "tokens", used.run_tokens, limits.tokens),
        (
            "duration_exceeded",
            "milliseconds",
            used.run_duration,
            limits.duration,
        ),
    ];
    caps.into_iter().find_map(|(code, unit, value, maximum)| {
        let maximum = maximum.filter(|maximum| value >= *maximum)?;
        let message =
            format!("the run has used {value} of {maximum} {unit}: raise the cap to go on");
        Some(Cause::bound("limit", code, message, value, maximum))
    })
}

/// The most output tokens that window and money allow, not below the floor unless the model's own maximum is.
fn affordable(change: &Change<'_>, pin: &Pin) -> Result<u64, Shortage> {
    let input = input_estimate(&change.head);
    let prices = pin.model.prices.unwrap_or_default();
    let room = change.chain.account.room();
    let floor = OUTPUT_TOKENS_FLOOR.min(pin.model.output);
    let fits = pin.model.window.saturating_sub(input).max(floor);
    let output = pin
        .model
        .output
        .min(fits)
        .min(prices.output_for(room, input));
    if output < floor || prices.ceiling(input, output) > room {
        return Err(Shortage {
            need: prices.ceiling(input, floor),
            room,
        });
    }
    Ok(output)
}

fn money_short(short: Shortage) -> Cause {
    let dollars = |nanos: Nanos| nanos.to_string();
    let message = format!(
        "the next call may cost {} USD and {} USD are left: raise the spend to go on",
        dollars(short.need),
        dollars(short.room)
    );
    Cause::bound(
        "budget",
        "spend_exceeded",
        message,
        short.need.get(),
        short.room.get(),
    )
}
