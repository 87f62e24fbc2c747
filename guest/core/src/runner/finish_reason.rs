//! Reasons for which a provider ends a reply: a closed set of words, with the synonyms that hosts
//! may hand on unchanged.

/// Meaning of the word for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The reply is whole.
    Stop,
    /// The reply is whole and asks for calls.
    ToolUse,
    /// The reply was cut: at its most output tokens, or where the window was full.
    Length,
    /// The provider withheld all or part of it.
    ContentFilter,
    /// Any other word. A reply that ends with it does not count as whole.
    Unknown,
}

/// Every known word in lower case: the contract's own first, then those of providers.
const WORDS: [(FinishReason, &[&str]); 4] = [
    (
        FinishReason::Stop,
        &["stop", "end_turn", "stop_sequence", "eos", "complete"],
    ),
    (
        FinishReason::ToolUse,
        &["tool_use", "tool_calls", "function_call"],
    ),
    (
        FinishReason::Length,
        &[
            "length",
            "max_tokens",
            "max_output_tokens",
            "model_length",
            "model_context_window_exceeded",
        ],
    ),
    (
        FinishReason::ContentFilter,
        &["content_filter", "refusal", "safety"],
    ),
];

impl FinishReason {
    /// Reads a word of `completion.finish`, in any case.
    pub fn parse(word: &str) -> Self {
        let word = word.trim().to_ascii_lowercase();
        let known = WORDS
            .iter()
            .find(|(_, words)| words.contains(&word.as_str()));
        known.map_or(Self::Unknown, |(reason, _)| *reason)
    }
}

#[cfg(test)]
mod tests {
    use super::FinishReason::{self, ContentFilter, Length, Stop, ToolUse, Unknown};

    #[test]
    fn only_a_known_word_makes_a_reply_whole() {
        for (word, expected) in [
            ("stop", Stop),
            ("STOP", Stop),
            ("end_turn", Stop),
            ("tool_calls", ToolUse),
            ("MAX_TOKENS", Length),
            ("refusal", ContentFilter),
            ("", Unknown),
            ("stopped", Unknown),
            ("insufficient_system_resource", Unknown),
        ] {
            assert_eq!(FinishReason::parse(word), expected, "{word:?}");
        }
    }
}
