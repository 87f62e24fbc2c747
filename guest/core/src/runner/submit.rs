//! Submission of the result of a step: it is recorded, and the next step decided, in one commit.

use super::CommitDecision;
use super::admission::AttemptNeeds;
use super::checks::{refused_error, require_pin};
use super::children::DecisionInputs;
use super::failure::{apply_driver_stop, apply_failure};
use super::mail::take_mail;
use super::outcome::{AppliedTransition, RunRecords, apply_transition, decide};
use super::reply::apply_completion;
use super::round::apply_tool_results;
use super::settlement::believable_usage;
use super::submission::{StepOutcome, StepSubmission};
use super::summary_attempt::{apply_summary_failure, apply_summary_reply};
use super::transition::RunTransition;
use super::usage_correction::record_fenced_usage;
use crate::error::{Error, ErrorKind, NO_STEP};
use crate::hash::sha256_text;
use crate::history::{CommitReason, Entry, StepAnswer};
use crate::json;
use crate::money::check_bill;
use crate::plan::{DecisionContext, LoadedThread, ThreadChange};
use crate::settings::PinnedSettings;
use crate::thread::{PendingStep, StepKind};

/// Decides about a result. `round` is the entry that holds the calls of the head's round; `answer`
/// the entry after `version`, if the history reaches further.
pub fn submit(
    loaded: &LoadedThread,
    pin: Option<&PinnedSettings>,
    round: Option<&Entry>,
    answer: Option<&Entry>,
    submission: StepSubmission,
    moment: DecisionContext<'_>,
) -> Result<CommitDecision, Error> {
    check_costs(&submission.outcome)?;
    let hash = outcome_hash(&submission.outcome);
    let pending = match find_pending_step(loaded, answer, &submission, &hash) {
        Ok(Some(pending)) => pending,
        Ok(None) => return Ok(CommitDecision::Repeat),
        Err(error) if matches!(error.kind(), ErrorKind::Fenced { .. }) => {
            let usage = submission.outcome.usage();
            let links = (loaded, submission.inputs.tip.as_deref());
            return record_fenced_usage(links, submission.version, usage, error, moment);
        }
        Err(error) => return Err(error),
    };
    if pending.kind == StepKind::ExternalLoop {
        let advice = "its host runs a loop of its own: append to it and close it";
        return Err(refused_error(loaded, advice));
    }
    let pin = require_pin(loaded, pin)?;
    let StepSubmission {
        version,
        mut outcome,
        mut inputs,
        ..
    } = submission;
    if let Some(hold) = loaded.head.value.hold {
        let head = &loaded.head.value;
        // A provider whose tokens were scaled down may count a new text in full.
        let admitted = (head.context.max(head.estimated), pending.output);
        outcome.cut_usage(|usage| believable_usage(usage, hold.basis, admitted));
    }
    let mail = std::mem::take(&mut inputs.mail);
    let window = inputs.window.take();
    let mut change = ThreadChange::with_mail(loaded, mail, moment);
    change.head.request = None;
    change.head.lost = 0;
    change.answers = Some(StepAnswer { version, hash });
    let records = RunRecords {
        pin: Some(pin),
        round,
        window: window.as_ref(),
    };
    let (happened, next) = record_result(&mut change, records, pending, outcome, inputs)?;
    let applied = apply_transition(&mut change, records, happened, next)?;
    let recorded = matches!(applied, AppliedTransition::Recorded(_));
    if recorded && keep_waiting_step(&mut change, pending) {
        let plan = change.into_head_plan()?;
        return Ok(CommitDecision::Commit(plan));
    }
    decide(change, records, applied)
}

/// Records the result of the pending step; returns what happened and what the run does next.
fn record_result(
    change: &mut ThreadChange<'_>,
    records: RunRecords<'_>,
    pending: &PendingStep,
    outcome: StepOutcome,
    inputs: DecisionInputs,
) -> Result<(CommitReason, RunTransition), Error> {
    let summarizes = change.head.phase.is_some();
    Ok(match (pending.kind, outcome) {
        (StepKind::CallLlm, StepOutcome::Completion(completion)) if summarizes => {
            let pin = require_pin(change.loaded_thread(), records.pin)?;
            let next = apply_summary_reply(change, pin, completion);
            (CommitReason::AssistantTurn, next)
        }
        (StepKind::CallLlm, StepOutcome::Failure(failure)) if summarizes => {
            let pin = require_pin(change.loaded_thread(), records.pin)?;
            let next = apply_summary_failure(change, pin, &failure);
            (CommitReason::Error, next)
        }
        (StepKind::CallLlm, StepOutcome::Completion(completion)) => {
            let pin = require_pin(change.loaded_thread(), records.pin)?;
            let next = apply_completion(change, pin, completion, inputs)?;
            (CommitReason::AssistantTurn, next)
        }
        (StepKind::CallLlm, StepOutcome::Failure(failure)) => {
            let next = apply_failure(change, pending.tries, &failure);
            (CommitReason::Error, next)
        }
        (StepKind::CallTools, StepOutcome::ToolOutcomes(outcomes)) => {
            let pin = require_pin(change.loaded_thread(), records.pin)?;
            let next = apply_tool_results(change, (pin, records.round), outcomes, inputs)?;
            (CommitReason::ToolResults, next)
        }
        (StepKind::Wait, StepOutcome::Waited) => {
            (CommitReason::Attempt, attempt_after_wait(change, pending))
        }
        (_, StepOutcome::Stopped(failure)) => {
            (CommitReason::Suspended, apply_driver_stop(change, &failure))
        }
        (kind, _) => {
            let problem = format!("is not a result of the pending step, {}", kind.as_str());
            return Err(Error::invalid("outcome", "", problem));
        }
    })
}

fn check_costs(outcome: &StepOutcome) -> Result<(), Error> {
    if let StepOutcome::ToolOutcomes(outcomes) = outcome {
        for (n, outcome) in outcomes.iter().enumerate() {
            check_bill(&format!("outcomes[{n}].cost"), outcome.cost.get())?;
        }
    }
    Ok(())
}

/// Returns the pending step, if the submission answers it; `None` if it was answered with the same
/// result already.
fn find_pending_step<'a>(
    loaded: &'a LoadedThread,
    answer: Option<&Entry>,
    submission: &StepSubmission,
    hash: &str,
) -> Result<Option<&'a PendingStep>, Error> {
    let head = &loaded.head.value;
    if submission.token != head.token {
        return Err(Error::fenced_by(submission.token, head.token));
    }
    if let Some(pending) = head
        .step
        .as_ref()
        .filter(|step| step.version == submission.version)
    {
        return Ok(Some(pending));
    }
    match answer
        .and_then(|entry| entry.answers.as_ref())
        .filter(|answer| answer.version == submission.version)
    {
        Some(answer) if answer.hash == hash => Ok(None),
        Some(answer) => Err(Error::conflict(
            "result",
            hash.to_owned(),
            answer.hash.clone(),
        )),
        None => {
            let actual = match &head.step {
                Some(step) => step.version.to_string(),
                None => NO_STEP.to_owned(),
            };
            let expected = submission.version.to_string();
            Err(Error::conflict("version", expected, actual))
        }
    }
}

fn outcome_hash(outcome: &StepOutcome) -> String {
    sha256_text(&json::to_text(outcome))
}

/// Returns the attempt that follows a wait. Before the first attempt of a request, mail is taken.
fn attempt_after_wait(change: &mut ThreadChange<'_>, pending: &PendingStep) -> RunTransition {
    if pending.output == 0 {
        take_mail(change);
    }
    RunTransition::CallModel(AttemptNeeds {
        // An attempt that waits for money has not failed since, and a wait at the start of a run
        // follows none.
        tries: pending.tries + u32::from(is_after_failure(pending)),
        output: pending.output,
        short_since: pending.short_since,
        failed: pending.failed.clone(),
    })
}

/// Returns true for a wait that follows an attempt which failed.
fn is_after_failure(wait: &PendingStep) -> bool {
    wait.short_since.is_none() && wait.output > 0
}

/// Returns true if the run waits on for money that other calls hold, with nothing to record. Then
/// the step keeps its name, and the history does not grow.
fn keep_waiting_step(change: &mut ThreadChange<'_>, pending: &PendingStep) -> bool {
    let quiet = change.events.is_empty() && pending.short_since.is_some();
    match &mut change.head.step {
        Some(step) if quiet && step.kind == StepKind::Wait => {
            step.version = pending.version;
            true
        }
        _ => false,
    }
}
