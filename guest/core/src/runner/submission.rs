//! The submission of a driver: the result of a step.

use super::children::DecisionInputs;
use super::reply_blocks::LlmCompletion;
use super::round::ToolOutcome;
use crate::json::{ObjectWriter, ToJson, record};
use crate::ledger::Usage;

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
    pub(super) fn usage(&self) -> Option<Usage> {
        match self {
            Self::Completion(completion) => completion.usage,
            Self::Failure(failure) | Self::Stopped(failure) => {
                failure.usage.or(failure.refused.then(Usage::default))
            }
            Self::ToolOutcomes(_) | Self::Waited => None,
        }
    }

    /// Cuts the reported tokens by `cut`.
    pub(super) fn cut_usage(&mut self, cut: impl FnOnce(Usage) -> Usage) {
        let usage = match self {
            Self::Completion(completion) => &mut completion.usage,
            Self::Failure(failure) | Self::Stopped(failure) => &mut failure.usage,
            Self::ToolOutcomes(_) | Self::Waited => return,
        };
        *usage = usage.map(cut);
    }
}

impl LlmFailure {
    /// Returns true if the attempt may have cost something although no usage was reported.
    pub(super) fn may_have_cost(&self) -> bool {
        self.sent && !self.refused
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
    /// True if the provider refused the request with a status: such a refusal costs nothing.
    pub refused: bool,
    /// Usage that was reported.
    pub usage: Option<Usage>,
    /// Text that had arrived.
    pub partial: String,
}

record!(write LlmFailure {
    kind, code, message, retry, sent, refused or nothing, usage, partial
});

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
