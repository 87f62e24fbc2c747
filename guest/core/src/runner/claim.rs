//! Takeover from a holder that is gone: its attempt of unknown usage is charged, calls that must
//! not run twice are interrupted, and the run goes on.

use super::children::{DecisionInputs, next_step, resume_wait};
use super::failure::push_partial;
use super::mail::InboxMessage;
use super::round::tool_name_of;
use super::start::{busy_error, refused_error, require_pin, slowest_tool_millis};
use super::stop::{count_time_until, interrupt_calls, settle_attempt_until, suspend, terminate};
use super::{CommitDecision, LOST_STEPS_MAX, SILENCE_MILLIS_MAX};
use crate::error::Error;
use crate::history::{CommitReason, Entry};
use crate::plan::{DecisionContext, LoadedThread, ThreadChange};
use crate::settings::PinnedSettings;
use crate::thread::{EndIntent, Head, StatusCause, ThreadStatus};
use crate::time::Instant;

/// Proof that the former holder is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HolderProof {
    /// None: valid only where the thread has no holder.
    None,
    /// Step and partial text did not move while the thread was watched for the grace.
    Watched {
        /// Version of the pending step that was seen.
        step: u64,
        /// Store version of the partial record that was seen.
        partial: u64,
    },
    /// The holder is known to be dead.
    Dead,
}

/// Partial text of a stream, with the store version of its record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeptPartial {
    /// The text; empty if it does not belong to the pending step.
    pub text: String,
    /// Store version of the record; 0 if there is none.
    pub version: u64,
    /// Time at which it was kept, if it belongs to the pending step.
    pub time: Option<Instant>,
}

/// Takes a thread over and hands its step out anew.
pub fn claim(
    loaded: &LoadedThread,
    pin: Option<&PinnedSettings>,
    round: Option<&Entry>,
    partial: &KeptPartial,
    claimer: (&str, HolderProof, DecisionInputs),
    moment: DecisionContext<'_>,
) -> Result<CommitDecision, Error> {
    let (holder, proof, kit) = claimer;
    let head = &loaded.head.value;
    if head.status == ThreadStatus::Waiting {
        return resume_wait(
            loaded,
            require_pin(loaded, pin)?,
            round,
            (holder, kit),
            moment,
        );
    }
    if head.status != ThreadStatus::Running {
        let advice = "only a thread that is held or waits can be claimed: start it";
        return Err(refused_error(loaded, advice));
    }
    if !head.is_external_loop() && head.holder.as_deref() == Some(holder) && head.request.is_some()
    {
        return Ok(CommitDecision::Repeat);
    }
    if !is_holder_gone(loaded, proof, partial.version, moment) {
        return Err(busy_error(loaded));
    }
    if head.is_external_loop() {
        return recover(loaded, round, partial, kit.mail, moment);
    }
    let pin = require_pin(loaded, pin)?;
    let DecisionInputs { mail, waiting, .. } = kit;
    let mut change = ThreadChange::with_mail(loaded, mail, moment);
    fence_holder(&mut change, round, partial);
    if change.head.intent.is_some() {
        return apply_waiting_intent(change, round);
    }
    change.head.holder = Some(holder.to_owned());
    change.head.request = Some(format!("claim:{holder}"));
    if let Some(cause) = crash_loop_cause(&mut change.head) {
        suspend(&mut change, cause);
        return Ok(CommitDecision::Commit(Box::new(
            change.into_plan(CommitReason::Suspended)?,
        )));
    }
    next_step(&mut change, pin, waiting.as_ref(), slowest_tool_millis(pin))?;
    Ok(CommitDecision::Commit(Box::new(
        change.into_plan(CommitReason::Resumed)?,
    )))
}

/// Returns the cause for suspending a thread whose steps keep being lost, if they do. The count
/// begins anew then, because a person is to look at the thread. A start does not reset it, or a
/// step that kills each holder would be paid for at each resume.
fn crash_loop_cause(head: &mut Head) -> Option<StatusCause> {
    if head.lost < LOST_STEPS_MAX {
        return None;
    }
    head.lost = 0;
    let message = format!(
        "{LOST_STEPS_MAX} steps in a row were lost to holders that died: look at what it does, then resume"
    );
    Some(StatusCause::new("error", "crash_loop", message))
}

/// Closes the run of a holder that is known to be dead: the first half of a claim, then suspended,
/// code `recovered`, or `crash_loop` where that happened again and again.
pub fn recover(
    loaded: &LoadedThread,
    round: Option<&Entry>,
    partial: &KeptPartial,
    mail: Vec<InboxMessage>,
    moment: DecisionContext<'_>,
) -> Result<CommitDecision, Error> {
    let mut change = ThreadChange::with_mail(loaded, mail, moment);
    let holder = change.head.holder.clone().unwrap_or_default();
    fence_holder(&mut change, round, partial);
    if change.head.intent.is_some() {
        return apply_waiting_intent(change, round);
    }
    let cause = crash_loop_cause(&mut change.head).unwrap_or_else(|| {
        let message = format!("its holder {holder} died: resume to go on");
        StatusCause::new("error", "recovered", message)
    });
    suspend(&mut change, cause);
    Ok(CommitDecision::Commit(Box::new(
        change.into_plan(CommitReason::Suspended)?,
    )))
}

/// Applies a cancel or kill that waited, instead of going on.
pub(super) fn apply_waiting_intent(
    mut change: ThreadChange<'_>,
    round: Option<&Entry>,
) -> Result<CommitDecision, Error> {
    interrupt_calls(&mut change, |_| true, &|index| tool_name_of(round, index));
    let intent = change.head.intent.unwrap_or(EndIntent::Cancel);
    terminate(&mut change, intent);
    let plan = change.into_plan(CommitReason::Cancelled)?;
    Ok(CommitDecision::Commit(Box::new(plan)))
}

fn is_holder_gone(
    loaded: &LoadedThread,
    proof: HolderProof,
    partial_now: u64,
    moment: DecisionContext<'_>,
) -> bool {
    let head = &loaded.head.value;
    match proof {
        HolderProof::Dead => true,
        HolderProof::None => head.holder.is_none(),
        HolderProof::Watched { step, partial } => {
            let expired = head.expiry.is_none_or(|expiry| expiry < moment.now);
            expired
                && head
                    .step
                    .as_ref()
                    .is_some_and(|pending| pending.version == step)
                && partial == partial_now
        }
    }
}

/// Fences the former holder with a new token, so that it can write no more; charges its attempt and
/// keeps its text.
fn fence_holder(change: &mut ThreadChange<'_>, round: Option<&Entry>, partial: &KeptPartial) {
    change.head.token += 1;
    // An external loop submits no steps: the number of its appends between two deaths is not
    // counted.
    if !change.head.is_external_loop() {
        change.head.lost += 1;
    }
    // The holder's time of death is unknown. It lived when it kept a text. The time after that may
    // be a night in which no process ran, and must not bring a run to its cap on duration.
    if let Some(time) = partial.time {
        count_time_until(change, time);
    }
    // A live driver keeps what arrives every few seconds. So the call was under way until then, and
    // the time in which more may have come after the last text is bounded.
    let seen = partial
        .time
        .or(change.head.step.as_ref().map(|step| step.started));
    let end = seen.map_or(change.now(), |time| {
        time.plus_millis(SILENCE_MILLIS_MAX).min(change.now())
    });
    settle_attempt_until(change, (None, true), &partial.text, end);
    push_partial(change, &partial.text);
    interrupt_calls(change, |idempotent| !idempotent, &|index| {
        tool_name_of(round, index)
    });
}
