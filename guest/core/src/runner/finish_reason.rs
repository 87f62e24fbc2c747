//! Reasons for which a provider ends a reply: a closed set of words, with the synonyms that hosts
//! may hand on unchanged.

use crate::thread::StatusCause;

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

/// Returns the cause for which a reply without calls does not end the run: it was cut, withheld, or
/// says nothing. Else it would end a directive's thread as completed.
pub(super) fn incomplete_reply_cause(word: &str, text: &str) -> Option<StatusCause> {
    let (code, message) = match FinishReason::parse(word) {
        FinishReason::Length => (
            "reply_truncated",
            "the reply was cut at its most output tokens: resume with a message to let it go on"
                .to_owned(),
        ),
        FinishReason::ContentFilter => (
            "reply_filtered",
            "the provider withheld the reply: resume with another message".to_owned(),
        ),
        FinishReason::Unknown => (
            "reply_unfinished",
            format!(
                "the provider ended the reply with {word:?}, which does not say that it is \
                 whole: resume with a message to let it go on"
            ),
        ),
        FinishReason::Stop | FinishReason::ToolUse if text.is_empty() => (
            "empty_reply",
            "the model answered nothing: resume to ask again, or with a message".to_owned(),
        ),
        FinishReason::Stop | FinishReason::ToolUse => return None,
    };
    Some(StatusCause::new("error", code, message))
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
