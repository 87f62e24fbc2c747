//! Admission of an attempt: caps, then money, then the hold that is durable before the step is given out.

use super::stop::suspend;
use super::{LEASE_GRACE_MILLIS, MODEL_MILLIS, OUTPUT_TOKENS_FLOOR};
use crate::error::Error;
use crate::history::{Admitted, Message, Role};
use crate::ledger::Shortage;
use crate::money::Nanos;
use crate::plan::Change;
use crate::settings::Pin;
use crate::thread::{Cause, Head, Hold, Pending, Status, StepKind};

/// What a user's message says where a directive starts without one: providers need a first user message.
pub(super) fn opening() -> Message {
    Message::text(Role::User, "Execute the directive.")
}

/// Admit one attempt, or suspend the run if a cap or the money does not allow it.
pub(super) fn admit(change: &mut Change<'_>, pin: &Pin, tries: u32) -> Result<(), Error> {
    change.seal(false);
    if let Some(cause) = cap_reached(&change.head) {
        suspend(change, cause);
        return Ok(());
    }
    let prices = pin.model.prices.unwrap_or_default();
    // An eighth more than the estimate: what a provider counts differs from what we can know.
    let input = change.head.context.saturating_add(change.head.context / 8);
    let output = match affordable(change, pin, input) {
        Ok(output) => output,
        Err(short) => {
            suspend(change, money_short(short));
            return Ok(());
        }
    };
    let amount = prices.ceiling(input, output);
    if let Err(short) = change.chain.account.hold(amount) {
        suspend(change, money_short(short));
        return Ok(());
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
    Ok(())
}

/// Make a step pending, named by the version of the change, and let the lease stand as long.
pub(super) fn hand_out(change: &mut Change<'_>, kind: StepKind, millis: u64) {
    let now = change.now();
    let deadline = now.plus_millis(millis);
    change.head.step = Some(Pending {
        version: change.version(),
        kind,
        started: now,
        deadline,
        tries: 0,
        hash: String::new(),
        output: 0,
        until: None,
    });
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
fn affordable(change: &Change<'_>, pin: &Pin, input: u64) -> Result<u64, Shortage> {
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
