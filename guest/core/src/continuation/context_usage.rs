//! The measure of how full the window of a model is. By it a hand-off is triggered, and its
//! trailing messages are chosen.
//!
//! Tokens are anchored on what the provider reported last. What came after is estimated by its
//! script, and scaled as the provider has counted this conversation so far. System prompt and
//! schemas of tools are included. A count below the estimate is not believed here: servers that
//! count characters report a quarter of what Chinese text takes, and a hand-off that comes too
//! early costs less than a request that is refused.

use crate::estimate::TokenScale;
use crate::history::ContextLimitReached;
use crate::json::ObjectWriter;
use crate::settings::{CoordinationSettings, MILLION, PinnedSettings};
use crate::thread::Head;

/// Most bytes of prompt, schemas and messages before a thread is handed off, whatever its tokens:
/// more than four bytes of each token of the largest windows, and a quarter of the largest request
/// that providers take.
pub const WINDOW_BYTES_MAX: u64 = 8 << 20;

/// Size of the next request of a thread, and its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextUsage {
    /// Tokens of the next request.
    pub tokens: u64,
    /// Tokens that the model takes.
    pub window: u64,
    /// Tokens from which on the thread is handed off.
    pub trigger: u64,
    /// Bytes of the next request.
    pub bytes: u64,
    /// Bytes from which on the thread is handed off.
    pub bytes_max: u64,
    /// The scale by which this conversation's provider counts.
    pub scale: TokenScale,
}

impl ContextUsage {
    /// Measures a thread by its head and the settings that it runs with.
    pub fn new(head: &Head, pin: &PinnedSettings) -> Self {
        let trigger = match &pin.continuation {
            Some(continuation) => continuation.trigger,
            None => CoordinationSettings::default().trigger,
        };
        let (window, counted) = (pin.model.window, head.token_scale());
        let tokens = counted.counted.max(counted.estimated);
        Self {
            tokens,
            window,
            trigger: parts_of(window, trigger),
            bytes: head.window_bytes,
            bytes_max: WINDOW_BYTES_MAX,
            scale: TokenScale {
                counted: tokens,
                ..counted
            },
        }
    }

    /// Returns true if the thread is to be handed off before its next request.
    pub fn is_over_trigger(&self) -> bool {
        self.tokens >= self.trigger || self.bytes >= self.bytes_max
    }

    /// Returns the tokens that this conversation's provider would count for a text of this
    /// estimate.
    pub fn scale_estimate(&self, estimate: u64) -> u64 {
        self.scale.apply(estimate)
    }

    /// Returns the used part of the window, in parts per million.
    pub fn ratio(&self) -> u64 {
        ContextLimitReached::new(self.tokens, self.window).usage_ratio
    }
}

/// Returns the JSON that `continuation.usage` answers. A thread without a pin has no window yet.
pub fn usage_json(head: &Head, pin: Option<&PinnedSettings>) -> String {
    let usage = pin.map(|pin| ContextUsage::new(head, pin));
    let measure = |of: fn(&ContextUsage) -> u64| usage.as_ref().map(of);
    let mut text = String::new();
    ObjectWriter::new(&mut text)
        .add(
            "tokens",
            &usage.as_ref().map_or(head.context, |usage| usage.tokens),
        )
        .add("window", &measure(|usage| usage.window))
        .add("trigger", &measure(|usage| usage.trigger))
        .add("ratio", &measure(ContextUsage::ratio))
        .add("over", &usage.is_some_and(|usage| usage.is_over_trigger()))
        .add("estimated", &head.estimated)
        .add("bytes", &head.window_bytes)
        .add("bytes_max", &WINDOW_BYTES_MAX)
        .finish();
    text
}

/// Returns so many parts per million of a whole, rounded up and never zero.
fn parts_of(whole: u64, parts: u64) -> u64 {
    let share = (u128::from(whole) * u128::from(parts)).div_ceil(u128::from(MILLION));
    u64::try_from(share).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests;
