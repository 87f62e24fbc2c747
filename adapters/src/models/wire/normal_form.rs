//! The normal form of a conversation, as adapters read it, and the errors of encoding it.

use serde::Deserialize;
use serde_json::value::Value;

/// Most bytes of a request body. A window of a few million tokens fits; a runaway conversation does
/// not. Anthropic itself refuses larger bodies.
pub(in crate::models) const REQUEST_BYTES_MAX: usize = 32 << 20;

/// Most characters of a call's name on both wires.
const NAME_CHARS_MAX: usize = 64;

/// An error of encoding a request. Nothing was sent, and the error repeats nothing of the
/// conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EncodeError {
    /// The message at this index is not in the normal form.
    Message(usize),
    /// The message at this index has a block that does not fit its role.
    Misplaced(usize),
    /// The tool's schema is not JSON.
    Schema(String),
    /// The body would be larger than [`REQUEST_BYTES_MAX`].
    TooLarge,
}

/// A message in the normal form ([`crate::models::CompletionRequest::messages`]).
#[derive(Deserialize)]
pub(in crate::models) struct NormalMessage {
    pub role: MessageRole,
    pub content: Vec<NormalPart>,
}

#[derive(Debug, Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(in crate::models) enum MessageRole {
    User,
    Assistant,
    Tool,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(in crate::models) enum NormalPart {
    Text {
        text: String,
    },
    Image(ImagePart),
    Thinking {
        text: String,
        /// The provider's own JSON, as text.
        #[serde(default)]
        raw: Option<String>,
    },
    ToolUse {
        id: String,
        name: String,
        arguments: String,
        /// A [`CallOrigin`](super::origin::CallOrigin), as text.
        #[serde(default)]
        raw: Option<String>,
    },
    ToolResult {
        id: String,
        text: String,
        #[serde(default)]
        failed: bool,
        #[serde(default)]
        images: Vec<ImagePart>,
    },
}

/// An image that a message names.
#[derive(Debug, Deserialize)]
pub(in crate::models) struct ImagePart {
    /// SHA-256 of its bytes.
    pub blob: String,
}

/// Parses one message; the error names its index.
pub(in crate::models) fn parse_message(
    index: usize,
    text: &str,
) -> Result<NormalMessage, EncodeError> {
    serde_json::from_str(text).map_err(|_| EncodeError::Message(index))
}

/// Returns the body, or an error if it is larger than [`REQUEST_BYTES_MAX`].
pub(in crate::models) fn check_body_size(body: Vec<u8>) -> Result<Vec<u8>, EncodeError> {
    if body.len() > REQUEST_BYTES_MAX {
        Err(EncodeError::TooLarge)
    } else {
        Ok(body)
    }
}

/// Returns the arguments of an earlier call in a form that can be sent: the text that the model
/// wrote, or `{}` if it is not a JSON object. Providers parse arguments and otherwise refuse the
/// whole conversation. The call's result says what was wrong.
pub(in crate::models) fn sendable_arguments(written: &str) -> &str {
    let object = serde_json::from_str::<serde_json::Map<String, Value>>(written);
    if object.is_ok() { written } else { "{}" }
}

/// Returns the name of an earlier call in a form that can be sent. Models invent names, and
/// providers refuse a whole conversation for one with characters or a length that no tool's name
/// may have.
pub(in crate::models) fn sendable_name(written: &str) -> String {
    let allowed = |c: char| {
        let plain = c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if plain { c } else { '_' }
    };
    let name: String = written.chars().take(NAME_CHARS_MAX).map(allowed).collect();
    if name.is_empty() {
        "_".to_owned()
    } else {
        name
    }
}

/// Returns every text of a message that a person or a model wrote, so that errors can be checked to
/// repeat none. Empty if the message is not in the normal form.
pub(in crate::models) fn message_texts(message: &str) -> Vec<String> {
    let Ok(message) = serde_json::from_str::<NormalMessage>(message) else {
        return Vec::new();
    };
    let text = |part| match part {
        NormalPart::Text { text }
        | NormalPart::Thinking { text, .. }
        | NormalPart::ToolResult { text, .. } => Some(text),
        NormalPart::ToolUse { arguments, .. } => Some(arguments),
        NormalPart::Image(_) => None,
    };
    message.content.into_iter().filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_are_no_object_are_sent_as_an_empty_one() {
        for (written, sent) in [
            ("{}", "{}"),
            (r#"{"a":1}"#, r#"{"a":1}"#),
            (r#" {"a":1} "#, r#" {"a":1} "#),
            ("", "{}"),
            ("[1]", "{}"),
            ("null", "{}"),
            (r#"{"a":"#, "{}"),
            (r#"{"a":1} {"b":2}"#, "{}"),
        ] {
            assert_eq!(sendable_arguments(written), sent, "{written}");
        }
    }

    #[test]
    fn names_that_no_tool_may_have_are_sent_as_one_that_it_may() {
        for (written, sent) in [
            ("read_file-2", "read_file-2"),
            ("functions.read", "functions_read"),
            ("Grüße 🙂", "Gr__e__"),
            ("", "_"),
        ] {
            assert_eq!(sendable_name(written), sent, "{written}");
        }
        assert_eq!(sendable_name(&"x".repeat(65)), "x".repeat(64));
    }

    #[test]
    fn every_text_is_found() {
        let message = r#"{"role":"assistant","content":[{"type":"text","text":"a"},
            {"type":"thinking","text":"b","raw":"{}"},
            {"type":"tool_use","id":"i","name":"n","arguments":"c"},
            {"type":"tool_result","id":"i","name":"n","text":"d","failed":true}]}"#;
        assert_eq!(message_texts(message), ["a", "b", "c", "d"]);
        assert_eq!(message_texts("{"), [""; 0]);
    }
}
