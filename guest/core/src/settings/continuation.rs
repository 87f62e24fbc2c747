//! Stand-in: replaced by the settings of branch `settings`.
use super::Model;
use crate::json::record::record;
use crate::money::NanoUsd;

/// Settings of hand-offs, as a run pins them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedContinuation {
    /// Trigger in parts per million of the window.
    pub trigger: u64,
    /// Most tokens of summary and trailing messages.
    pub ceiling: u64,
    /// The summary, if one is to be written.
    pub summary: Option<PinnedSummary>,
}
record!(PinnedContinuation { trigger, ceiling, summary or nothing });

/// How a summary is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedSummary {
    /// System prompt.
    pub prompt: String,
    /// Model.
    pub model: Model,
    /// Most tokens.
    pub tokens: u64,
    /// Most attempts.
    pub turns: Option<u64>,
    /// Most money.
    pub spend: Option<NanoUsd>,
}
record!(PinnedSummary { prompt, model, tokens, turns or nothing, spend or nothing });
