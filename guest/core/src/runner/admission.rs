//! Admission of an attempt: caps, then money, then the hold that is durable before the step is
//! handed out.

use super::mail::lost_mail_cause;
use super::{
    BACKOFF_MILLIS, LEASE_GRACE_MILLIS, MODEL_MILLIS, MONEY_WAIT_MILLIS_MAX, OUTPUT_TOKENS_FLOOR,
};
use crate::history::{AdmittedAttempt, Message, MessageRole};
use crate::ledger::{LedgerRefusal, OverrunOutcome};
use crate::money::NanoUsd;
use crate::plan::ThreadChange;
use crate::settings::{Model, PinnedSettings};
use crate::thread::{
    DUE_NEW, Head, Hold, PendingStep, StatusCause, StepKind, ThreadStatus, find_reached_cap,
    raise_advice,
};
use crate::time::UnixTime;

/// Message that opens a directive's thread started without input: providers need a first user
/// message.
pub(super) fn opening_message() -> Message {
    Message::text(MessageRole::User, "Execute the directive.")
}

/// Parameters of an attempt before it is admitted.
#[derive(Debug, Clone, Default)]
pub(super) struct AttemptNeeds {
    /// Attempts of the same request before this one.
    pub tries: u32,
    /// Most output tokens of those; 0 before the first.
    pub output: u64,
    /// The time since which it waits for money that other calls hold, if it does.
    pub short_since: Option<UnixTime>,
    /// Code of the failure of the attempt before it, if that may have cost something.
    pub failed: Option<String>,
}

/// The answer to the request for an attempt.
pub(super) enum AttemptAdmission {
    /// A step is handed out: the model call, or a wait for money that other calls hold.
    Granted,
    /// A cap, the window, the store or the money does not allow it.
    Refused(StatusCause),
}

/// Admits an attempt and hands its step out, or refuses it. For the first attempt of a request the
/// most output tokens are lowered to a floor where money is short. Later attempts keep the same
/// output as long as that fits, so that a provider sees the same bytes. Where money is short only
/// because other calls hold it, the run waits for them.
pub(super) fn admit_attempt(
    change: &mut ThreadChange<'_>,
    pin: &PinnedSettings,
    needs: AttemptNeeds,
) -> AttemptAdmission {
    change.count_messages();
    change.apply_reported_usage();
    if let Some(cause) = refusal_before_money(change, pin, &needs) {
        return AttemptAdmission::Refused(cause);
    }
    let prices = pin.model.prices.unwrap_or_default();
    let input = estimate_input(&change.head);
    let output = match needs.output {
        0 => affordable_output(change, pin),
        output if prices.max_cost(input, output) <= change.attempt_room() => output,
        // The charge for the attempt before it has reduced what is left.
        output => output.min(affordable_output(change, pin)),
    };
    let amount = prices.max_cost(input, output);
    if let Err(refusal) = hold_money(change, amount) {
        return wait_for_money(change, pin, needs, (amount, refusal));
    }
    let request = change.request_hash(pin, output);
    change.head.hold = Some(Hold {
        amount,
        prices,
        basis: change.charge_basis(input, output, pin.model.rate),
    });
    change.admitted = Some(AdmittedAttempt {
        hold: amount,
        output,
        request: request.clone(),
        key: None,
    });
    let millis = model_call_time(change, &pin.model);
    hand_out_step(change, StepKind::CallLlm, change.now().plus_millis(millis));
    change.head.cause = None;
    if let Some(step) = &mut change.head.step {
        (step.tries, step.output, step.hash) = (needs.tries, output, request);
        step.failed = needs.failed;
    }
    AttemptAdmission::Granted
}

/// Returns the cause that refuses an attempt whatever money there is: a cap, a full store, and for
/// the first attempt of a request the window, or that nothing but lost mail asks for it.
fn refusal_before_money(
    change: &ThreadChange<'_>,
    pin: &PinnedSettings,
    needs: &AttemptNeeds,
) -> Option<StatusCause> {
    find_reached_cap(&change.head, change.ceiling())
        .or_else(|| change.store_full_cause())
        .or_else(|| match needs.output {
            0 => window_exceeded_cause(&change.head, pin).or_else(|| lost_mail_cause(change)),
            _ => None,
        })
}

/// Handles an attempt for which there is no money. If calls that are under way hold it, the run
/// waits until they end, at most for the time of a call; if not, the attempt is refused.
pub(super) fn wait_for_money(
    change: &mut ThreadChange<'_>,
    pin: &PinnedSettings,
    needs: AttemptNeeds,
    (need, refusal): (NanoUsd, LedgerRefusal),
) -> AttemptAdmission {
    let since = needs.short_since.unwrap_or(change.now());
    let waited = change.now().millis_since(since);
    let longest = pin.model.call_millis.unwrap_or(MODEL_MILLIS);
    let held = money_held_cause(change, need, refusal).filter(|_| waited < longest);
    let Some(cause) = held else {
        return AttemptAdmission::Refused(money_refused_cause(change, refusal));
    };
    let millis = waited.clamp(BACKOFF_MILLIS, MONEY_WAIT_MILLIS_MAX);
    let until = change.now().plus_millis(millis);
    hand_out_step(change, StepKind::Wait, until);
    if let Some(step) = &mut change.head.step {
        (step.tries, step.output, step.failed) = (needs.tries, needs.output, needs.failed);
        (step.until, step.short_since) = (Some(until), Some(since));
    }
    change.head.cause = Some(cause);
    AttemptAdmission::Granted
}

/// Returns the cause of a wait for money: `need` is refused only because other calls hold money,
/// and there is enough once they end.
pub(super) fn money_held_cause(
    change: &ThreadChange<'_>,
    need: NanoUsd,
    refusal: LedgerRefusal,
) -> Option<StatusCause> {
    let short = matches!(
        refusal,
        LedgerRefusal::Short { .. } | LedgerRefusal::Debt(_)
    );
    if !short || !change.fits_without_holds(need) {
        return None;
    }
    let room = change.attempt_room();
    let message = format!(
        "the next call may cost {need} USD and {room} USD are left, because more is held for calls \
         that are under way: there is room when they end"
    );
    let (need, room) = (need.get(), room.get());
    Some(StatusCause::with_bound(
        "budget",
        "money_held",
        message,
        need,
        room,
    ))
}

/// Returns the cause that forbids a request as large as the model's window, so that no reply would
/// fit.
fn window_exceeded_cause(head: &Head, pin: &PinnedSettings) -> Option<StatusCause> {
    let (used, window) = (head.context, pin.model.window);
    if used < window {
        return None;
    }
    let message = format!(
        "the request has about {used} tokens and the window of {} has {window}: begin another \
         thread with what matters, or one with a model of a larger window",
        pin.model.name
    );
    Some(StatusCause::with_bound(
        "limit",
        "window_exceeded",
        message,
        used,
        window,
    ))
}

/// Returns the longest time of a model call: the model's own time, cut where the run's cap on
/// duration is reached.
pub(super) fn model_call_time(change: &ThreadChange<'_>, model: &Model) -> u64 {
    let own = change.head.limits.duration.into_iter();
    let cap = own.chain(change.ceiling().duration).min();
    let left = cap.map(|cap| cap.saturating_sub(change.head.counters.run_duration));
    let time = model.call_millis.unwrap_or(MODEL_MILLIS);
    left.into_iter().chain([time]).min().unwrap_or(time)
}

/// Returns an eighth more than the estimated context: a provider's count differs from the estimate.
fn estimate_input(head: &Head) -> u64 {
    estimate_input_tokens(head.context)
}

/// Returns an eighth more than so many estimated tokens.
pub(super) fn estimate_input_tokens(tokens: u64) -> u64 {
    tokens.saturating_add(tokens / 8)
}

/// Adds the texts that go with every request to the window.
pub(super) fn add_fixed_parts(head: &mut Head, pin: &PinnedSettings) {
    for text in pin.fixed_texts() {
        head.add_to_window(text, false);
    }
}

/// Makes a step pending until a deadline, named by the version of the change, and sets the lease
/// for as long.
pub(super) fn hand_out_step(change: &mut ThreadChange<'_>, kind: StepKind, deadline: UnixTime) {
    change.head.step = Some(PendingStep {
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
        parked: false,
    });
    set_lease(change, deadline);
}

/// Sets the lease to the deadline and a grace, and the status to running.
pub(super) fn set_lease(change: &mut ThreadChange<'_>, deadline: UnixTime) {
    let expiry = deadline.plus_millis(LEASE_GRACE_MILLIS);
    change.head.expiry = Some(expiry);
    change.head.status = ThreadStatus::Running;
    // The due entry moves only to become earlier: a turn leaves it where it is, and it is never
    // later than its true time.
    let expiry = expiry.millis();
    change.head.due = match change.head.due {
        Some(due) if due > DUE_NEW => Some(due.min(expiry)),
        _ => Some(expiry),
    };
}

/// Returns the most output tokens that the window and this attempt's share of the money allow, not
/// below the floor unless the model's own maximum is.
fn affordable_output(change: &ThreadChange<'_>, pin: &PinnedSettings) -> u64 {
    let input = estimate_input(&change.head);
    let prices = pin.model.prices.unwrap_or_default();
    let floor = OUTPUT_TOKENS_FLOOR.min(pin.model.output);
    let fits = pin.model.window.saturating_sub(input);
    let output = pin.model.output.min(fits);
    output
        .min(prices.affordable_output(change.attempt_share(), input))
        .max(floor)
}

/// Sets money aside for an attempt, on the account that the chain draws on.
pub(super) fn hold_money(
    change: &mut ThreadChange<'_>,
    amount: NanoUsd,
) -> Result<OverrunOutcome, LedgerRefusal> {
    let room = change.attempt_room();
    let most = change.ceiling().spend;
    match amount > room && change.account().room(most) > room {
        true => Err(LedgerRefusal::Short { need: amount, room }),
        false => change.update_accounts(&mut |path| path.hold(amount, most)),
    }
}

/// Returns the cause why an attempt is not admitted, or why a thread cannot draw on its account
/// again.
pub(super) fn money_refused_cause(
    change: &ThreadChange<'_>,
    refusal: LedgerRefusal,
) -> StatusCause {
    let (need, room) = match refusal {
        LedgerRefusal::Short { need, room } => (need, room),
        _ => (NanoUsd::ZERO, NanoUsd::ZERO),
    };
    let message = match refusal {
        LedgerRefusal::Short { need, room } => {
            let advice = match change.chain.has_account() {
                true => raise_advice(change.head.limits.spend, change.ceiling().spend, "spend"),
                false => format!(
                    "its money is that of {}: raise it there to go on",
                    change.chain.draws_on(&change.thread.chain)
                ),
            };
            format!("the next call may cost {need} USD and {room} USD are left: {advice}")
        }
        LedgerRefusal::Debt(owed) => {
            format!("the account owes {owed} USD: raise the spend by more than that to go on")
        }
        refusal => format!("{refusal}: nothing more is spent on it"),
    };
    let (need, room) = (need.get(), room.get());
    StatusCause::with_bound("budget", "spend_exceeded", message, need, room)
}
