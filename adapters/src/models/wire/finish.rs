//! Finish reasons of providers, and the meaning of each.

use super::classify::{ExchangeFault, ProviderError};
use crate::models::Usage;

/// The meaning of a provider's finish reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::models) enum FinishWord {
    /// The reply is complete.
    Stop,
    /// The reply is complete and makes calls.
    ToolUse,
    /// The reply was cut, at its output maximum or where the window was full.
    Length,
    /// The provider withheld the reply or a part of it.
    ContentFilter,
    /// The provider behind a router broke off, or made a reply that cannot be parsed.
    Error,
    /// Any other word; never that of a complete reply.
    Unknown,
}

const FINISH_WORDS: [(FinishWord, &[&str]); 5] = [
    (
        FinishWord::Stop,
        &[
            "stop",
            "end_turn",
            "stop_sequence",
            "eos",
            "eos_token",
            "end",
            "complete",
            "completed",
            "finish_reason_stop",
        ],
    ),
    (
        FinishWord::ToolUse,
        &["tool_use", "tool_calls", "tool_call", "function_call"],
    ),
    (
        FinishWord::Length,
        &[
            "length",
            "max_tokens",
            "max_output_tokens",
            "max_completion_tokens",
            "model_length",
            "token_limit",
            "context_length",
            "model_context_window_exceeded",
            // Only the provider's own tools pause a turn, and none is offered.
            "pause_turn",
            "incomplete",
            "finish_reason_max_tokens",
        ],
    ),
    (
        FinishWord::ContentFilter,
        &[
            "content_filter",
            "content_filtered",
            "refusal",
            "safety",
            "sensitive",
            "recitation",
            "blocklist",
            "prohibited_content",
            "spii",
            "image_safety",
            "guardrail_intervened",
            "error_toxic",
        ],
    ),
    (
        FinishWord::Error,
        &[
            "error",
            "network_error",
            "malformed_function_call",
            "unexpected_tool_call",
        ],
    ),
];

impl FinishWord {
    /// Parses a provider's word, in any case.
    pub fn parse(word: &str) -> Self {
        let word = word.trim().to_ascii_lowercase().replace([' ', '-'], "_");
        let known = FINISH_WORDS
            .iter()
            .find(|(_, words)| words.contains(&word.as_str()));
        known.map_or(Self::Unknown, |(finish, _)| *finish)
    }

    /// Returns the word for [`crate::models::ModelCompletion::finish`]: one of the closed set, else
    /// the provider's own, truncated.
    pub fn to_finish(self, word: &str) -> String {
        let named = match self {
            Self::Stop => "stop",
            Self::ToolUse => "tool_use",
            Self::Length => "length",
            Self::ContentFilter => "content_filter",
            Self::Error | Self::Unknown => return word.chars().take(64).collect(),
        };
        named.to_owned()
    }
}

/// Decides the finish reason of a reply by the provider's word and by the presence of calls.
pub(in crate::models) fn decide_finish(word: &str, calls: bool) -> Result<String, ExchangeFault> {
    match (FinishWord::parse(word), calls) {
        // Routers report a provider that broke off behind them by these words.
        (FinishWord::Error, _) => Err(ExchangeFault::StreamError(ProviderError {
            code: word.chars().take(64).collect(),
            ..ProviderError::default()
        })),
        (FinishWord::ToolUse, false) => Err(ExchangeFault::CallsMissing),
        // Some servers say `stop` after calls, too.
        (FinishWord::ToolUse | FinishWord::Stop, true) => Ok("tool_use".to_owned()),
        (finish, _) => Ok(finish.to_finish(word)),
    }
}

/// Returns true for a word of the closed set, false for a provider's own.
pub(in crate::models) fn is_standard_word(finish: &str) -> bool {
    ["stop", "tool_use", "length", "content_filter"].contains(&finish)
}

/// Infers the finish reason of a stream that ended in order, with usage and content, but without
/// one: `length` if the whole output maximum was written, else `stop`.
pub(in crate::models) fn infer_finish_word(usage: Usage, output_max: u64) -> String {
    let word = if usage.output >= output_max {
        "length"
    } else {
        "stop"
    };
    word.to_owned()
}

/// Combines a finish reason with the one before: a reply that was cut or withheld stays so.
pub(in crate::models) fn add_reason(
    before: Option<String>,
    reason: Option<String>,
) -> Option<String> {
    let is_whole = |word: &String| {
        matches!(
            FinishWord::parse(word),
            FinishWord::Stop | FinishWord::ToolUse
        )
    };
    match before.filter(|before| !is_whole(before) || reason.is_none()) {
        Some(before) => Some(before),
        None => reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_nobody_knows_is_never_that_of_a_whole_reply() {
        for (word, named) in [
            ("STOP", "stop"),
            ("end_turn", "stop"),
            ("tool-calls", "tool_use"),
            ("MAX_TOKENS", "length"),
            ("model_length", "length"),
            ("model_context_window_exceeded", "length"),
            ("SAFETY", "content_filter"),
            (
                "insufficient_system_resource",
                "insufficient_system_resource",
            ),
            ("banana", "banana"),
        ] {
            assert_eq!(FinishWord::parse(word).to_finish(word), named, "{word}");
            assert_eq!(
                is_standard_word(named),
                named != word || word == "stop",
                "{word}"
            );
        }
        assert_eq!(
            FinishWord::parse("MALFORMED_FUNCTION_CALL"),
            FinishWord::Error
        );
    }
}
