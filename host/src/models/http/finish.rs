//! Every provider's word for why a reply ended, as one of four: whole, whole with calls, cut, withheld.

/// What a word says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::models) enum FinishWord {
    /// The reply is whole.
    Stop,
    /// The reply is whole and asks for calls.
    ToolUse,
    /// The reply was cut: at its most output tokens, or where the window was full.
    Length,
    /// The provider withheld all or part of it.
    ContentFilter,
    /// The provider behind a router broke off, or made a reply that nobody can read.
    Error,
    /// Any other word: never that of a whole reply.
    Unknown,
}

const WORDS: [(FinishWord, &[&str]); 5] = [
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
            // Only tools of the provider's own pause a turn, and none is offered.
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
    /// Reads a provider's word, in any case.
    pub fn parse(word: &str) -> Self {
        let word = word.trim().to_ascii_lowercase().replace([' ', '-'], "_");
        let known = WORDS
            .iter()
            .find(|(_, words)| words.contains(&word.as_str()));
        known.map_or(Self::Unknown, |(finish, _)| *finish)
    }

    /// The word of [`crate::models::Completion::finish`]: one of the closed set, else the provider's own, cut.
    pub fn named(self, word: &str) -> String {
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

/// The word of a stream without one: it is whole if it ended in order, with usage and something said.
pub(in crate::models) fn whole_without_word(in_order: bool) -> Option<String> {
    in_order.then(|| "stop".to_owned())
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
            assert_eq!(FinishWord::parse(word).named(word), named, "{word}");
        }
        assert_eq!(
            FinishWord::parse("MALFORMED_FUNCTION_CALL"),
            FinishWord::Error
        );
    }
}
