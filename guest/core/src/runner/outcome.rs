//! The outcome of a change: applies what comes next, and names the reason in the history.
//!
//! This is the one place where an intent that waits (a cancel, a kill) takes the place of what
//! would come next, and where a cap, the money or a full store suspends a run instead. The reason
//! is named here and nowhere else:
//!
//! - a run that ends by an intent: `cancelled`;
//! - a run that is over: `run-finished`;
//! - a suspension that a result brings with it (a reply that is cut, a failure): `suspended`;
//! - a suspension because the next step is not admitted: the reason of what was recorded, or
//!   `suspended` where nothing was (the end of a wait before a retry);
//! - a thread that goes on in another one: `handoff`.

use super::CommitDecision;
use super::admission::{AttemptAdmission, AttemptNeeds, admit_attempt, hand_out_step};
use super::checks::require_pin;
use super::children::{DecidedCall, WaitOutcome, WaitRequest, begin_wait, missing_wait_error};
use super::consent::{apply_decisions, suspend_for_decisions};
use super::ending::{finish_run, suspend, suspend_in_wait, terminate};
use super::hand_off_terms::{CarryTerms, PreparedHandOff};
use super::handing_off::{HandOffStart, advance_hand_off, begin_after_overflow};
use super::mail::take_mail;
use super::open_calls::{interrupt_calls, tool_name_of};
use super::successor::hand_off;
use super::transition::{RetryWait, RunTransition};
use crate::continuation::{LiveWindow, WindowNeeds};
use crate::error::Error;
use crate::history::{CommitReason, Entry};
use crate::plan::ThreadChange;
use crate::settings::PinnedSettings;
use crate::thread::{RoundCall, StepKind, ThreadStatus};

/// Records of a run that its outcome needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunRecords<'a> {
    /// The pinned settings; a run that only stops needs none.
    pub pin: Option<&'a PinnedSettings>,
    /// The entry that holds the open calls, unless the change itself makes them.
    pub round: Option<&'a Entry>,
    /// The live window of the thread, once it was asked for.
    pub window: Option<&'a LiveWindow>,
}

/// The work that is left once a transition is applied.
#[derive(Debug)]
pub(super) enum AppliedTransition {
    /// The change becomes an entry, for this reason.
    Recorded(CommitReason),
    /// The change closes its thread, and the run goes on in another one.
    HandedOff(PreparedHandOff),
    /// It cannot be told without this part of the live window of the thread.
    NeedsWindow(WindowNeeds),
}

/// The outcome of the wish to call the model.
#[derive(Debug)]
pub(super) enum ModelCall {
    /// A step is handed out, or the run is suspended.
    Decided,
    /// The run goes on in another thread.
    HandedOff(PreparedHandOff),
    /// It cannot be told without this part of the live window of the thread.
    NeedsWindow(WindowNeeds),
}

impl From<HandOffStart> for ModelCall {
    fn from(start: HandOffStart) -> Self {
        match start {
            HandOffStart::NotDue | HandOffStart::Decided => Self::Decided,
            HandOffStart::NeedsWindow(needs) => Self::NeedsWindow(needs),
            HandOffStart::HandedOff(prepared) => Self::HandedOff(prepared),
        }
    }
}

impl ModelCall {
    /// Returns what is left to be done, if the change is recorded for this reason.
    pub fn recorded_as(self, reason: CommitReason) -> AppliedTransition {
        match self {
            Self::Decided => AppliedTransition::Recorded(reason),
            Self::HandedOff(prepared) => AppliedTransition::HandedOff(prepared),
            Self::NeedsWindow(needs) => AppliedTransition::NeedsWindow(needs),
        }
    }
}

/// Applies a transition and makes the commit. `happened` is the reason of what the change records.
pub(super) fn conclude(
    mut change: ThreadChange<'_>,
    records: RunRecords<'_>,
    happened: CommitReason,
    next: RunTransition,
) -> Result<CommitDecision, Error> {
    let applied = apply_transition(&mut change, records, happened, next)?;
    decide(change, records, applied)
}

/// Makes the commit of a change to which a transition was applied.
pub(super) fn decide(
    mut change: ThreadChange<'_>,
    records: RunRecords<'_>,
    applied: AppliedTransition,
) -> Result<CommitDecision, Error> {
    let full = change.store_full_cause();
    let plan = match (applied, full) {
        (AppliedTransition::Recorded(reason), _) => change.into_plan(reason)?,
        // The phase stays: another summary is asked for when the run goes on.
        (AppliedTransition::HandedOff(_), Some(cause)) => {
            suspend(&mut change, cause);
            change.into_plan(CommitReason::Suspended)?
        }
        (AppliedTransition::HandedOff(prepared), None) => {
            let pin = require_pin(change.loaded_thread(), records.pin)?;
            let Some(window) = records.window else {
                let needs = CarryTerms::new(&change.head, pin).window_needs(&prepared);
                return Ok(CommitDecision::NeedsWindow(needs));
            };
            hand_off(change, pin, window, prepared)?
        }
        (AppliedTransition::NeedsWindow(needs), _) => {
            return Ok(CommitDecision::NeedsWindow(needs));
        }
    };
    Ok(CommitDecision::Commit(plan))
}

/// Applies a transition; returns what is left to be done.
pub(super) fn apply_transition(
    change: &mut ThreadChange<'_>,
    records: RunRecords<'_>,
    happened: CommitReason,
    next: RunTransition,
) -> Result<AppliedTransition, Error> {
    if apply_waiting_intent(change, records.round) {
        return Ok(AppliedTransition::Recorded(CommitReason::Cancelled));
    }
    let called = match next {
        RunTransition::Suspend(cause) => {
            suspend(change, cause);
            keep_margin_from_spawns(change);
            return Ok(AppliedTransition::Recorded(CommitReason::Suspended));
        }
        RunTransition::Stop(cause) => {
            let names = open_call_names(change, records.round);
            interrupt_calls(change, |idempotent| !idempotent, &names);
            suspend(change, cause);
            return Ok(AppliedTransition::Recorded(CommitReason::Suspended));
        }
        RunTransition::Finish(text) => {
            finish_run(change, &text);
            return Ok(AppliedTransition::Recorded(CommitReason::RunFinished));
        }
        RunTransition::Overflow(cause) => {
            let pin = require_pin(change.loaded_thread(), records.pin)?;
            match begin_after_overflow(change, pin, records.window)? {
                HandOffStart::NotDue => {
                    suspend(change, cause);
                    return Ok(AppliedTransition::Recorded(CommitReason::Suspended));
                }
                started => started.into(),
            }
        }
        RunTransition::HandOff(prepared) => return Ok(AppliedTransition::HandedOff(prepared)),
        RunTransition::CallModel(needs) => call_model(change, records, needs)?,
        RunTransition::Retry(retry) => {
            wait_for_retry(change, retry);
            ModelCall::Decided
        }
        RunTransition::Continue {
            wait,
            decided,
            tool_millis,
        } => continue_round(change, records, (wait, decided), tool_millis)?,
    };
    let refused = change.head.status == ThreadStatus::Suspended;
    Ok(called.recorded_as(match happened {
        CommitReason::Attempt if refused => CommitReason::Suspended,
        happened => happened,
    }))
}

/// Ends the thread by the cancel or kill that waits, and interrupts its open calls; returns false
/// if none waits.
pub(super) fn apply_waiting_intent(change: &mut ThreadChange<'_>, round: Option<&Entry>) -> bool {
    let Some(intent) = change.head.intent else {
        return false;
    };
    let names = open_call_names(change, round);
    interrupt_calls(change, |_| true, &names);
    terminate(change, intent);
    true
}

/// Applies the outcome of a look at a wait: the run goes on, is suspended, or waits.
pub(super) fn apply_wait_outcome(
    change: &mut ThreadChange<'_>,
    records: RunRecords<'_>,
    outcome: WaitOutcome,
) -> Result<ModelCall, Error> {
    match outcome {
        WaitOutcome::Answered => return call_model_with_mail(change, records),
        WaitOutcome::Blocked(cause, wait) => suspend_in_wait(change, cause, wait),
        WaitOutcome::StoreFull(cause) => suspend(change, cause),
        WaitOutcome::Released => {}
    }
    Ok(ModelCall::Decided)
}

fn open_call_names(
    change: &ThreadChange<'_>,
    round: Option<&Entry>,
) -> impl Fn(u32) -> String + use<> {
    let own = change.head.round.as_ref();
    let own = own.is_some_and(|round| round.version == change.version());
    let open = change.head.round.iter().flat_map(|round| &round.calls);
    let names: Vec<(u32, String)> = open
        .map(|call| {
            let events = match own {
                true => Some(change.events.as_slice()),
                false => round.map(|entry| entry.events.as_slice()),
            };
            (call.index, tool_name_of(events, call.index))
        })
        .collect();
    move |index| {
        let found = names.iter().find(|(open, _)| *open == index);
        found.map_or_else(String::new, |(_, name)| name.clone())
    }
}

fn continue_round(
    change: &mut ThreadChange<'_>,
    records: RunRecords<'_>,
    (mut wait, decided): (Option<WaitRequest>, Vec<DecidedCall>),
    tool_millis: u64,
) -> Result<ModelCall, Error> {
    let name_of = open_call_names(change, records.round);
    if let Some(cause) = apply_decisions(change, &name_of, decided, &mut wait)? {
        suspend(change, cause);
        keep_margin_from_spawns(change);
        return Ok(ModelCall::Decided);
    }
    let Some(round) = &change.head.round else {
        return call_model_with_mail(change, records);
    };
    if round.calls.iter().any(RoundCall::is_handed_out) {
        hand_out_or_suspend(change, StepKind::CallTools, tool_millis);
        return Ok(ModelCall::Decided);
    }
    if round.calls.iter().any(RoundCall::is_undecided) {
        suspend_for_decisions(change, &name_of);
        keep_margin_from_spawns(change);
        return Ok(ModelCall::Decided);
    }
    let wait = wait.as_ref();
    let outcome = begin_wait(change, wait.ok_or_else(missing_wait_error)?);
    apply_wait_outcome(change, records, outcome)
}

/// A spawned child is more than the truth about what has happened: the margin of a full store is
/// not for it.
fn keep_margin_from_spawns(change: &mut ThreadChange<'_>) {
    let children = change.loaded_thread().chain.value.children;
    change.closing &= change.chain.children == children;
}

fn call_model_with_mail(
    change: &mut ThreadChange<'_>,
    records: RunRecords<'_>,
) -> Result<ModelCall, Error> {
    take_mail(change);
    call_model(change, records, AttemptNeeds::default())
}

/// Hands out the next model call: the attempt of a request, or one for the summary of a thread that
/// is handed off before its request is made.
fn call_model(
    change: &mut ThreadChange<'_>,
    records: RunRecords<'_>,
    needs: AttemptNeeds,
) -> Result<ModelCall, Error> {
    let pin = require_pin(change.loaded_thread(), records.pin)?;
    let summarizes = change.head.phase.is_some();
    if needs.output == 0 || summarizes {
        match advance_hand_off(change, pin, records.window, &needs)? {
            HandOffStart::NotDue => {}
            started => return Ok(started.into()),
        }
    }
    // What was tried before was a summary, and not the request that is made now.
    let needs = match summarizes {
        true => AttemptNeeds::default(),
        false => needs,
    };
    if let AttemptAdmission::Refused(cause) = admit_attempt(change, pin, needs) {
        suspend(change, cause);
    }
    Ok(ModelCall::Decided)
}

fn wait_for_retry(change: &mut ThreadChange<'_>, retry: RetryWait) {
    hand_out_or_suspend(change, StepKind::Wait, retry.millis);
    let until = change.now().plus_millis(retry.millis);
    if let Some(step) = &mut change.head.step {
        (step.tries, step.output) = (retry.tries, retry.output);
        (step.until, step.failed) = (Some(until), retry.failed);
    }
}

/// Hands a step out. Where the store is full the run is suspended instead; open calls stay open and
/// are handed out when it goes on.
fn hand_out_or_suspend(change: &mut ThreadChange<'_>, kind: StepKind, millis: u64) {
    match change.store_full_cause() {
        Some(cause) => suspend(change, cause),
        None => hand_out_step(change, kind, change.now().plus_millis(millis)),
    }
}
