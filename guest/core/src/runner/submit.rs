//! Submission of the result of a step: it is recorded, and the next step decided, in one commit.

use super::CommitDecision;
use super::admit::{AttemptNeeds, admit_attempt};
use super::children::DecisionInputs;
use super::failure::{apply_driver_stop, apply_failure};
use super::mail::take_mail;
use super::reply::{LlmCompletion, apply_completion};
use super::round::{ToolOutcome, apply_tool_results};
use super::start::{refused_error, require_pin};
use super::usage_correction::record_fenced_usage;
use crate::error::Error;
use crate::hash::sha256_text;
use crate::history::{CommitReason, Entry, StepAnswer};
use crate::json::{self, ObjectWriter, ToJson, record::record};
use crate::ledger::Usage;
use crate::money::check_bill;
use crate::plan::{DecisionContext, LoadedThread, ThreadChange};
use crate::settings::PinnedSettings;
use crate::thread::{PendingStep, StepKind};

/// Result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepOutcome {
    /// The model answered.
    Completion(LlmCompletion),
    /// The model did not answer.
    Failure(LlmFailure),
    /// The tools answered.
    ToolOutcomes(Vec<ToolOutcome>),
    /// The time of a wait is over.
    Waited,
    /// The driver stopped the step.
    Stopped(LlmFailure),
}

impl StepOutcome {
    /// The tokens that a provider reported, if any were.
    fn usage(&self) -> Option<Usage> {
        match self {
            Self::Completion(completion) => completion.usage,
            Self::Failure(failure) | Self::Stopped(failure) => failure.usage,
            Self::ToolOutcomes(_) | Self::Waited => None,
        }
    }
}

impl ToJson for StepOutcome {
    fn write(&self, out: &mut String) {
        let mut fields = match self {
            Self::Waited => return "waited".write(out),
            _ => ObjectWriter::new(out),
        };
        match self {
            Self::Completion(completion) => fields.add("completion", completion),
            Self::Failure(failure) => fields.add("failure", failure),
            Self::ToolOutcomes(outcomes) => fields.add("outcomes", outcomes),
            Self::Stopped(failure) => fields.add("stopped", failure),
            Self::Waited => &mut fields,
        }
        .finish();
    }
}

/// The failure of a model call, or the stop of a step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LlmFailure {
    /// Kind, as the adapter classified the failure.
    pub kind: String,
    /// Code of the failure.
    pub code: String,
    /// A sentence for a person.
    pub message: String,
    /// Milliseconds that the provider asks to wait.
    pub retry: Option<u64>,
    /// False only if nothing was sent.
    pub sent: bool,
    /// Usage that was reported.
    pub usage: Option<Usage>,
    /// Text that had arrived.
    pub partial: String,
}

record!(write LlmFailure { kind, code, message, retry, sent, usage, partial });

/// A driver's submission of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepSubmission {
    /// Token of the lease.
    pub token: u64,
    /// The version that handed the step out.
    pub version: u64,
    /// The result.
    pub outcome: StepOutcome,
    /// Inputs of the decision beside the records: all the mail that waits, prepared calls,
    /// children.
    pub inputs: DecisionInputs,
}

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
        Err(error @ Error::Fenced { .. }) => {
            let usage = submission.outcome.usage();
            return record_fenced_usage(loaded, submission.version, usage, error, moment);
        }
        Err(error) => return Err(error),
    };
    if pending.kind == StepKind::ExternalLoop {
        let advice = "its host runs a loop of its own: append to it and close it";
        return Err(refused_error(loaded, advice));
    }
    let pin = require_pin(loaded, pin)?;
    let DecisionInputs {
        mail,
        prepared,
        waiting,
    } = submission.inputs;
    let mut change = ThreadChange::with_mail(loaded, mail, moment);
    change.head.request = None;
    change.head.lost = 0;
    change.answers = Some(StepAnswer {
        version: submission.version,
        hash,
    });
    let kind = pending.kind;
    let reason = match (kind, submission.outcome) {
        (StepKind::CallLlm, StepOutcome::Completion(completion)) => {
            apply_completion(&mut change, pin, completion, prepared)?
        }
        (StepKind::CallLlm, StepOutcome::Failure(failure)) => {
            apply_failure(&mut change, pending.tries, &failure)
        }
        (StepKind::CallTools, StepOutcome::ToolOutcomes(outcomes)) => {
            apply_tool_results(&mut change, pin, round, outcomes, waiting.as_ref())?
        }
        (StepKind::Wait, StepOutcome::Waited) => {
            let reason = apply_wait_end(&mut change, pin, pending);
            if keep_waiting_step(&mut change, pending) {
                return Ok(CommitDecision::Commit(Box::new(change.into_head_plan()?)));
            }
            reason
        }
        (_, StepOutcome::Stopped(failure)) => apply_driver_stop(&mut change, round, &failure),
        (kind, _) => {
            let problem = format!("is not a result of the pending step, {}", kind.as_str());
            return Err(Error::invalid("outcome", "", problem));
        }
    };
    Ok(CommitDecision::Commit(Box::new(change.into_plan(reason)?)))
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
        return Err(Error::Fenced {
            expected: submission.token,
            actual: head.token,
        });
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
        Some(answer) => Err(Error::Conflict {
            field: "result",
            expected: hash.to_owned(),
            actual: answer.hash.clone(),
        }),
        None => Err(Error::Conflict {
            field: "version",
            expected: submission.version.to_string(),
            actual: head
                .step
                .as_ref()
                .map_or(head.version, |step| step.version)
                .to_string(),
        }),
    }
}

fn outcome_hash(outcome: &StepOutcome) -> String {
    sha256_text(&json::to_text(outcome))
}

fn apply_wait_end(
    change: &mut ThreadChange<'_>,
    pin: &PinnedSettings,
    pending: &PendingStep,
) -> CommitReason {
    if let Some(intent) = change.head.intent {
        super::stop::terminate(change, intent);
        return CommitReason::Cancelled;
    }
    // An attempt that waits for money has not failed since.
    let tries = match pending.short_since {
        Some(_) => pending.tries,
        None => pending.tries + 1,
    };
    if pending.output == 0 {
        take_mail(change);
    }
    admit_attempt(
        change,
        pin,
        AttemptNeeds {
            tries,
            output: pending.output,
            short_since: pending.short_since,
        },
    );
    if let Some(step) = &mut change.head.step {
        step.failed.clone_from(&pending.failed);
    }
    CommitReason::Attempt
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
