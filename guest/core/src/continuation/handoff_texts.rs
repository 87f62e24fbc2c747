//! Texts that open a thread that another was handed off to.

use crate::estimate::{cut_to_tokens, estimate_tokens};
use crate::history::MessageRole;

/// Message with which the next link of a directive goes on, where nobody sent it one.
pub const CONTINUE_MESSAGE: &str =
    "Continue executing the directive. Pick up where the previous thread left off.";

/// Heading of the message that stands for everything that is left out.
const CONTEXT_HEADING: &str = "## Thread Handoff Context";
/// Answer of the assistant to it, where a user speaks next.
const CONTEXT_ANSWER: &str = "Understood. Continuing.";
/// Opening of the message with a summary.
const WITH_SUMMARY: &str = "The conversation so far no longer fit the context window, so it goes \
     on here. This message is background, written by a program; it asks for nothing. The summary \
     below stands for earlier messages that are left out. The messages after this one are the \
     original ones: what was asked last in them is what counts. What the summary calls done is \
     done: do not do it again, and do not start over.";
/// Opening of the message without one.
const WITHOUT_SUMMARY: &str = "The conversation so far no longer fit the context window, so it \
     goes on here. This message is background, written by a program; it asks for nothing. Earlier \
     messages are left out, and there is no summary of them";
/// End of the message without a summary.
const ORIGINALS: &str = "The messages after this one are the original ones: what was asked last \
     in them is what counts. Work may have been done already that they do not show: look before \
     you do it again, and do not start over.";

/// Returns the messages that open the next link: the summary as background, or the reason why there
/// is none. A user's message behind them is preceded by an answer of the assistant.
pub fn context_texts(
    summary: Option<&str>,
    why: &str,
    next_is_user: bool,
) -> Vec<(MessageRole, String)> {
    let text = match summary {
        Some(summary) => format!("{CONTEXT_HEADING}\n\n{WITH_SUMMARY}\n\n{summary}"),
        None => {
            let why = if why.is_empty() {
                "none was asked for"
            } else {
                why
            };
            format!("{CONTEXT_HEADING}\n\n{WITHOUT_SUMMARY} ({why}). {ORIGINALS}")
        }
    };
    let mut texts = vec![(MessageRole::User, text)];
    if next_is_user {
        texts.push((MessageRole::Assistant, CONTEXT_ANSWER.to_owned()));
    }
    texts
}

/// Cuts a summary that is estimated to have more than `tokens` tokens, and says so in its place.
/// The result has at most `tokens` tokens, or is empty where not even that sentence fits.
pub fn cut_summary(summary: &str, tokens: u64) -> String {
    let summary = summary.trim();
    if estimate_tokens(summary) <= tokens {
        return summary.to_owned();
    }
    let notice = format!("\n\n(The summary is cut here: it was longer than {tokens} tokens.)");
    match tokens.checked_sub(estimate_tokens(&notice)) {
        // Rounding up the sum of both takes at most as many tokens as rounding each.
        Some(room) => format!("{}{notice}", cut_to_tokens(summary, room)),
        None => cut_to_tokens(summary, tokens).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_is_answered_where_a_user_speaks_next() {
        for (summary, why, next_is_user, holds) in [
            (Some("Read a.txt."), "", true, "Read a.txt."),
            (Some("Read a.txt."), "", false, "Read a.txt."),
            (None, "the model failed", true, "(the model failed)"),
            (None, "", false, "(none was asked for)"),
        ] {
            let texts = context_texts(summary, why, next_is_user);
            assert_eq!(texts.len(), 1 + usize::from(next_is_user));
            let (role, text) = &texts[0];
            assert_eq!(*role, MessageRole::User);
            assert!(text.starts_with("## Thread Handoff Context\n\n"), "{text}");
            assert!(
                text.contains(holds) && text.contains("asked last"),
                "{text}"
            );
            let answered = (MessageRole::Assistant, "Understood. Continuing.".to_owned());
            assert!(!next_is_user || texts[1] == answered);
        }
    }

    #[test]
    fn summaries_are_cut_to_their_tokens() {
        for text in [
            "a short one",
            &"word ".repeat(400),
            &"漢字".repeat(300),
            " \n",
        ] {
            for tokens in [0, 1, 5, 16, 17, 40, 100, 1_000] {
                let cut = cut_summary(text, tokens);
                assert!(estimate_tokens(&cut) <= tokens, "{tokens}: {cut}");
                let whole = estimate_tokens(text.trim()) <= tokens;
                assert_eq!(whole, cut == text.trim(), "{tokens}: {cut}");
                let says = cut.contains("is cut here");
                assert_eq!(says, !whole && tokens >= 15, "{tokens}: {cut}");
            }
        }
    }
}
