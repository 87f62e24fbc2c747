//! Redaction of a provider's sentence before an error shows it.
//!
//! Such a sentence is worth showing ("The model `x` does not exist"), but some repeat the key or
//! the prompt. It is shown only if it shares no run of [`KEY_RUN`] bytes with the key and none of
//! [`PROMPT_RUN`] with the conversation, and contains no whole short text of it. It is truncated
//! and its control characters are blanked, because it may reach a terminal.

use super::normal_form;
use crate::models::{CompletionRequest, SecretText};
use std::collections::HashSet;

/// Most characters that are shown.
const SHOWN_CHARS_MAX: usize = 300;
/// Length of a run of a key, in bytes, that gives too much of it away.
const KEY_RUN: usize = 8;
/// Length of a run, in bytes, that is no coincidence. Shorter ones ("you do not have access") are
/// common in any language.
const PROMPT_RUN: usize = 32;
/// Least length of a whole text of the conversation that is recognized even below [`PROMPT_RUN`].
const PROMPT_TEXT_MIN: usize = 8;

/// Returns the sentence as it may be shown; `None` if it repeats a key or the conversation.
pub(super) fn redact_sentence(
    said: &str,
    secrets: &[SecretText],
    request: &CompletionRequest,
) -> Option<String> {
    let blank = |c: char| if c.is_control() { ' ' } else { c };
    let said: String = said.chars().take(SHOWN_CHARS_MAX).map(blank).collect();
    let said = said.trim();
    let mut secrets = secrets.iter().map(SecretText::expose);
    let told = secrets.any(|secret| repeats_key(said, secret)) || repeats_prompt(said, request);
    (!told).then(|| said.to_owned())
}

fn repeats_key(said: &str, key: &str) -> bool {
    if key.len() < KEY_RUN {
        !key.is_empty() && said.contains(key)
    } else {
        shares_run(said, key, KEY_RUN)
    }
}

fn repeats_prompt(said: &str, request: &CompletionRequest) -> bool {
    repeats_text(said, &request.system)
        || request.messages.iter().any(|message| {
            normal_form::message_texts(message)
                .iter()
                .any(|text| repeats_text(said, text))
        })
}

fn repeats_text(said: &str, text: &str) -> bool {
    let text = text.trim();
    (text.len() >= PROMPT_TEXT_MIN && said.contains(text)) || shares_run(said, text, PROMPT_RUN)
}

fn shares_run(said: &str, text: &str, run: usize) -> bool {
    let runs: HashSet<&[u8]> = said.as_bytes().windows(run).collect();
    !runs.is_empty()
        && text
            .as_bytes()
            .windows(run)
            .any(|window| runs.contains(window))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_shown_unless_they_repeat_a_secret() {
        let message = serde_json::json!({"role": "user", "content": [
            {"type": "text", "text": "Our margin in the third quarter was \"41.7 %\",\nkeep it \
                                      quiet."},
            {"type": "text", "text": "code: 8812"}]});
        let request = CompletionRequest {
            model: "m".into(),
            system: "You are the assistant of Example Trading Limited.".into(),
            tools: Vec::new(),
            messages: vec![message.to_string()],
            images: Default::default(),
            output_max: 1,
            session: None,
        };
        let key = SecretText::new("sk-live-0123456789abcdef");
        for (said, want) in [
            (
                "The model `m` does not exist",
                Some("The model `m` does not exist"),
            ),
            ("You are out of credit", Some("You are out of credit")),
            ("a\u{1b}[31m\nb", Some("a [31m b")),
            ("Incorrect API key provided: sk-live-0123456789abcdef", None),
            ("Incorrect API key provided: sk-live-****", None),
            ("Bad input: the third quarter was \"41.7 %\", keep", None),
            (
                "Bad input: the margin was 41.7 %",
                Some("Bad input: the margin was 41.7 %"),
            ),
            ("Unknown: code: 8812", None),
            ("system: the assistant of Example Trading Limited.", None),
        ] {
            assert_eq!(
                redact_sentence(said, std::slice::from_ref(&key), &request).as_deref(),
                want,
                "{said}"
            );
        }
        let short = SecretText::new("local");
        assert_eq!(
            redact_sentence("no key local here", &[short], &request),
            None
        );
        let long = "é".repeat(1_000);
        assert_eq!(
            redact_sentence(&long, &[], &request).map(|text| text.chars().count()),
            Some(SHOWN_CHARS_MAX)
        );
    }
}
