//! Takeover from a holder that is gone: its attempt of unknown usage is charged, calls that must
//! not run twice are interrupted, and the run goes on.

use super::checks::{busy_error, refused_error, require_pin, slowest_tool_millis};
use super::children::{DecisionInputs, WaitOutcome, check_wait, missing_wait_error};
use super::failure::push_partial;
use super::open_calls::{interrupt_calls, tool_name_of};
use super::outcome::{RunRecords, apply_wait_outcome, apply_waiting_intent, conclude, decide};
use super::settlement::{count_time_until, settle_attempt_until};
use super::transition::RunTransition;
use super::{CommitDecision, LOST_STEPS_MAX, SILENCE_MILLIS_MAX};
use crate::error::Error;
use crate::history::{CommitReason, Entry};
use crate::id;
use crate::plan::{DecisionContext, LoadedThread, ThreadChange};
use crate::settings::PinnedSettings;
use crate::thread::{Head, InboxMessage, StatusCause, ThreadStatus};
use crate::time::UnixTime;

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
    pub time: Option<UnixTime>,
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
    let (holder, proof, mut inputs) = claimer;
    id::check_request_name("holder", holder)?;
    let window = inputs.window.take();
    let window = window.as_ref();
    let records = RunRecords { pin, round, window };
    let head = &loaded.head.value;
    if head.status == ThreadStatus::Waiting {
        return resume_wait(loaded, records, (holder, inputs), moment);
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
        return recover(loaded, round, partial, inputs.mail, moment);
    }
    let pin = require_pin(loaded, pin)?;
    let DecisionInputs {
        mail,
        waiting,
        decided,
        ..
    } = inputs;
    let mut change = ThreadChange::with_mail(loaded, mail, moment);
    fence_holder(&mut change, round, partial);
    change.head.holder = Some(holder.to_owned());
    change.head.request = Some(format!("claim:{holder}"));
    let next = match crash_loop_cause(&mut change.head) {
        Some(cause) => RunTransition::Suspend(cause),
        None => RunTransition::Continue {
            wait: waiting,
            decided,
            tool_millis: slowest_tool_millis(pin),
        },
    };
    conclude(change, records, CommitReason::Resumed, next)
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
        "{LOST_STEPS_MAX} steps in a row were lost to holders that died: look at what it does, \
         then resume"
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
    let cause = crash_loop_cause(&mut change.head).unwrap_or_else(|| {
        let next = match change.head.incomplete {
            true => "before its history was whole: repeat the import with its id to go on",
            false => "resume to go on",
        };
        let message = format!("its holder {holder} died: {next}");
        StatusCause::new("error", "recovered", message)
    });
    let records = RunRecords {
        pin: None,
        round,
        window: None,
    };
    let next = RunTransition::Suspend(cause);
    conclude(change, records, CommitReason::Suspended, next)
}

/// Checks a waiting thread: it goes on under this holder, is suspended, or waits further.
fn resume_wait(
    loaded: &LoadedThread,
    records: RunRecords<'_>,
    (holder, inputs): (&str, DecisionInputs),
    moment: DecisionContext<'_>,
) -> Result<CommitDecision, Error> {
    let mut change = ThreadChange::with_mail(loaded, inputs.mail, moment);
    if apply_waiting_intent(&mut change, records.round) {
        let plan = change.into_plan(CommitReason::Cancelled)?;
        return Ok(CommitDecision::Commit(plan));
    }
    let waiting = inputs.waiting.ok_or_else(missing_wait_error)?;
    change.head.token += 1;
    change.head.lost = 0;
    change.head.holder = Some(holder.to_owned());
    change.head.request = Some(format!("claim:{holder}"));
    let outcome = check_wait(&mut change, &waiting);
    let reason = match outcome {
        WaitOutcome::Answered => CommitReason::ToolResults,
        WaitOutcome::Blocked(..) | WaitOutcome::StoreFull(_) => CommitReason::Suspended,
        WaitOutcome::Released => return wait_further(change),
    };
    let called = apply_wait_outcome(&mut change, records, outcome)?;
    decide(change, records, called.recorded_as(reason))
}

/// Lets a wait go on: the thread is not held, and not due before it must be.
fn wait_further(mut change: ThreadChange<'_>) -> Result<CommitDecision, Error> {
    let before = &change.loaded_thread().head.value;
    change.head.token = before.token;
    change.head.lost = before.lost;
    change.head.holder = None;
    change.head.request = None;
    if *change.head == **before {
        return Ok(CommitDecision::Repeat);
    }
    Ok(CommitDecision::Commit(change.into_head_plan()?))
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
    // counted. Nothing of a parked step was begun.
    let parked = change.head.is_parked();
    if !change.head.is_external_loop() && !parked {
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
    // What is missing of a history that is not whole may hold the results of its calls.
    if change.head.incomplete {
        return;
    }
    let events = round.map(|entry| entry.events.as_slice());
    let name = |index| tool_name_of(events, index);
    interrupt_calls(change, |idempotent| !idempotent && !parked, &name);
}
