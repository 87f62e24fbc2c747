//! The terms of a hand-off: how much the next link begins with, and what is known of its summary.

use crate::continuation::{
    CONTINUE_MESSAGE, ContentSize, ContextUsage, TrailingBounds, TrailingRefusal, WINDOW_BYTES_MAX,
    WindowNeeds, context_texts, cut_summary,
};
use crate::estimate::TokenScale;
use crate::settings::PinnedSettings;
use crate::thread::{Head, StatusCause};

/// Most bytes of the first request after a hand-off: half of those from which on a thread is handed
/// off whatever its tokens are.
const CARRIED_BYTES_MAX: u64 = WINDOW_BYTES_MAX / 2;

/// A hand-off whose summary is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PreparedHandOff {
    /// The summary, if there is one.
    pub summary: Option<String>,
    /// Reason why a summary that was wanted is missing.
    pub problem: Option<SummaryProblem>,
}

impl PreparedHandOff {
    /// A hand-off without the summary that was wanted, for this reason.
    pub fn without(problem: impl Into<SummaryProblem>) -> Self {
        Self {
            summary: None,
            problem: Some(problem.into()),
        }
    }
}

/// Reason why a summary that was wanted is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SummaryProblem {
    /// The reason in words of this program: the model of the next link is told it.
    pub why: String,
    /// The words of a provider or its adapter, or nothing. They come from outside: people are shown
    /// them, and no model is told them.
    pub said: String,
}

impl<T: Into<String>> From<T> for SummaryProblem {
    fn from(why: T) -> Self {
        Self {
            why: why.into(),
            said: String::new(),
        }
    }
}

impl SummaryProblem {
    /// Returns the reason as the event of the hand-off has it.
    pub fn into_text(self) -> String {
        match self.said.is_empty() {
            true => self.why,
            false => format!("{}: {}", self.why, self.said),
        }
    }
}

/// The terms by which the context of a successor is chosen. Tokens are estimated ones: those of the
/// window are scaled back by how the provider counts.
pub(super) struct CarryTerms {
    /// Most tokens of a summary that is carried.
    pub summary_tokens: u64,
    /// Size of the next request beside what is carried and the summary.
    fixed: ContentSize,
    /// Most of the whole next request.
    most: ContentSize,
    /// The scale by which the conversation's provider counts.
    scale: TokenScale,
    /// Most tokens of the summary and what is carried.
    ceiling: u64,
}

impl CarryTerms {
    /// Returns the terms of a thread: its next link begins with at most half of the tokens from
    /// which on a thread is handed off. Where a provider has found fewer tokens too many, with half
    /// of those.
    pub fn new(head: &Head, pin: &PinnedSettings) -> Self {
        let (settings, usage) = (pin.continuation(), ContextUsage::new(head, pin));
        let overflow = head.phase.as_ref().is_some_and(|phase| phase.overflow);
        let half = usage.trigger / 2;
        let target = match overflow {
            true => half.min(usage.tokens / 2),
            false => half,
        };
        let target = usage.scale.revert(target);
        let beside = context_texts(None, "", true).into_iter();
        let beside = beside.map(|(_, text)| ContentSize::of(&text));
        let pinned = pin.fixed_texts().map(ContentSize::of);
        let fixed = beside
            .chain(pinned)
            .fold(ContentSize::default(), ContentSize::plus);
        Self {
            summary_tokens: target / 4,
            fixed: fixed.plus(ContentSize::of(CONTINUE_MESSAGE)),
            most: ContentSize {
                tokens: target,
                bytes: CARRIED_BYTES_MAX,
            },
            ceiling: settings.ceiling,
            scale: usage.scale,
        }
    }

    /// Returns about the most tokens, as the provider counts, of a first request of the next link
    /// that carries so much and no summary.
    pub fn request_tokens(&self, carried: ContentSize) -> u64 {
        self.scale.apply(self.fixed.plus(carried).tokens)
    }

    /// Returns the part of the live window that a hand-off needs whose summary is known.
    pub fn window_needs(&self, prepared: &PreparedHandOff) -> WindowNeeds {
        let summary = prepared.summary.as_deref();
        let summary = summary.map(|summary| cut_summary(summary, self.summary_tokens));
        WindowNeeds {
            carried: self.bounds(summary.as_deref()).wanted,
            transcript: None,
        }
    }

    /// Returns the bounds of what is carried beside a summary.
    pub fn bounds(&self, summary: Option<&str>) -> TrailingBounds {
        let summary = summary.map_or_else(ContentSize::default, ContentSize::of);
        TrailingBounds::with_summary(summary, self.fixed, self.most, self.ceiling)
    }
}

/// Returns the cause for suspending a thread of which not even the least fits the next link.
pub(super) fn impossible_cause(refusal: TrailingRefusal, pin: &PinnedSettings) -> StatusCause {
    let (tokens, most) = (refusal.needed.tokens, refusal.available.tokens);
    let message = format!(
        "its context nears the window of {}, and the messages that a hand-off must carry (the last \
         one of a person, and the newest with what belongs to it) have about {tokens} tokens where \
         {most} may be: send a shorter message, or begin another thread with what matters, with a \
         model of a larger window, or with a larger resume_ceiling_tokens or trigger_threshold",
        pin.model.name
    );
    StatusCause::with_bound("limit", "handoff_impossible", message, tokens, most)
}
