//! Submission of the result of a step: it is recorded, and the next step decided, in one commit.

use super::Decision;
use super::admit::{Try, admit};
use super::children::Kit;
use super::failure::{failed, stopped};
use super::late::fenced;
use super::mail::take_mail;
use super::reply::{Completion, replied};
use super::round::{ToolOutcome, ran};
use super::start::{pinned, refused};
use crate::error::Error;
use crate::hash::sha256_text;
use crate::history::{Answer, Entry, Reason};
use crate::json::{self, Fields, ToJson, record::record};
use crate::ledger::Usage;
use crate::money::check_bill;
use crate::plan::{Change, Loaded, Moment};
use crate::settings::Pin;
use crate::thread::{Pending, StepKind};

/// Result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The model answered.
    Completion(Completion),
    /// The model did not answer.
    Failure(LlmFailure),
    /// The tools answered.
    Outcomes(Vec<ToolOutcome>),
    /// The time of a wait is over.
    Waited,
    /// The driver stopped the step.
    Stopped(LlmFailure),
}

impl Outcome {
    /// The tokens that a provider reported, if any were.
    fn usage(&self) -> Option<Usage> {
        match self {
            Self::Completion(completion) => completion.usage,
            Self::Failure(failure) | Self::Stopped(failure) => failure.usage,
            Self::Outcomes(_) | Self::Waited => None,
        }
    }
}

impl ToJson for Outcome {
    fn write(&self, out: &mut String) {
        let mut fields = match self {
            Self::Waited => return "waited".write(out),
            _ => Fields::new(out),
        };
        match self {
            Self::Completion(completion) => fields.add("completion", completion),
            Self::Failure(failure) => fields.add("failure", failure),
            Self::Outcomes(outcomes) => fields.add("outcomes", outcomes),
            Self::Stopped(failure) => fields.add("stopped", failure),
            Self::Waited => &mut fields,
        }
        .end();
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
pub struct Submission {
    /// Token of the lease.
    pub token: u64,
    /// The version that handed the step out.
    pub version: u64,
    /// The result.
    pub outcome: Outcome,
    /// Inputs of the decision beside the records: all the mail that waits, prepared calls,
    /// children.
    pub kit: Kit,
}

/// Decides about a result. `round` is the entry that holds the calls of the head's round; `answer`
/// the entry after `version`, if the history reaches further.
pub fn submit(
    loaded: &Loaded,
    pin: Option<&Pin>,
    round: Option<&Entry>,
    answer: Option<&Entry>,
    submission: Submission,
    moment: Moment<'_>,
) -> Result<Decision, Error> {
    check_costs(&submission.outcome)?;
    let hash = outcome_hash(&submission.outcome);
    let pending = match pending(loaded, answer, &submission, &hash) {
        Ok(Some(pending)) => pending,
        Ok(None) => return Ok(Decision::Repeat),
        Err(error @ Error::Fenced { .. }) => {
            let usage = submission.outcome.usage();
            return fenced(loaded, submission.version, usage, error, moment);
        }
        Err(error) => return Err(error),
    };
    if pending.kind == StepKind::OwnLoop {
        let advice = "its host runs a loop of its own: append to it and close it";
        return Err(refused(loaded, advice));
    }
    let pin = pinned(loaded, pin)?;
    let Kit {
        mail,
        prepared,
        waiting,
    } = submission.kit;
    let mut change = Change::with(loaded, mail, moment);
    change.head.request = None;
    change.head.lost = 0;
    change.answers = Some(Answer {
        version: submission.version,
        hash,
    });
    let kind = pending.kind;
    let reason = match (kind, submission.outcome) {
        (StepKind::CallLlm, Outcome::Completion(completion)) => {
            replied(&mut change, pin, completion, prepared)?
        }
        (StepKind::CallLlm, Outcome::Failure(failure)) => {
            failed(&mut change, pending.tries, &failure)
        }
        (StepKind::CallTools, Outcome::Outcomes(outcomes)) => {
            ran(&mut change, pin, round, outcomes, waiting.as_ref())?
        }
        (StepKind::Wait, Outcome::Waited) => {
            let reason = waited(&mut change, pin, pending);
            if still_waits(&mut change, pending) {
                return Ok(Decision::Commit(Box::new(change.into_head_plan()?)));
            }
            reason
        }
        (_, Outcome::Stopped(failure)) => stopped(&mut change, round, &failure),
        (kind, _) => {
            let problem = format!("is not a result of the pending step, {}", kind.as_str());
            return Err(Error::invalid("outcome", "", problem));
        }
    };
    Ok(Decision::Commit(Box::new(change.into_plan(reason)?)))
}

fn check_costs(outcome: &Outcome) -> Result<(), Error> {
    if let Outcome::Outcomes(outcomes) = outcome {
        for (n, outcome) in outcomes.iter().enumerate() {
            check_bill(&format!("outcomes[{n}].cost"), outcome.cost.get())?;
        }
    }
    Ok(())
}

/// Returns the pending step, if the submission answers it; `None` if it was answered with the same
/// result already.
fn pending<'a>(
    loaded: &'a Loaded,
    answer: Option<&Entry>,
    submission: &Submission,
    hash: &str,
) -> Result<Option<&'a Pending>, Error> {
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

fn outcome_hash(outcome: &Outcome) -> String {
    sha256_text(&json::text(outcome))
}

fn waited(change: &mut Change<'_>, pin: &Pin, pending: &Pending) -> Reason {
    if let Some(intent) = change.head.intent {
        super::stop::end_by(change, intent);
        return Reason::Cancelled;
    }
    // An attempt that waits for money has not failed since.
    let tries = match pending.short_since {
        Some(_) => pending.tries,
        None => pending.tries + 1,
    };
    if pending.output == 0 {
        take_mail(change);
    }
    admit(
        change,
        pin,
        Try {
            tries,
            output: pending.output,
            short_since: pending.short_since,
        },
    );
    if let Some(step) = &mut change.head.step {
        step.failed.clone_from(&pending.failed);
    }
    Reason::Attempt
}

/// Returns true if the run waits on for money that other calls hold, with nothing to record. Then
/// the step keeps its name, and the history does not grow.
fn still_waits(change: &mut Change<'_>, pending: &Pending) -> bool {
    let quiet = change.events.is_empty() && pending.short_since.is_some();
    match &mut change.head.step {
        Some(step) if quiet && step.kind == StepKind::Wait => {
            step.version = pending.version;
            true
        }
        _ => false,
    }
}
