//! Users' messages, read from callers.

use super::message::{MESSAGE_BYTES_MAX, escaped_bytes};
use super::{BLOBS_MAX, Message, MessageBlock, MessageRole, StoredBlob};
use crate::error::Error;
use crate::json::{self, JsonError, JsonValue, ObjectReader};

/// A message of a caller, without unknown fields, before its role and content are checked.
struct RawMessage<'a> {
    role: String,
    content: JsonValue<'a>,
    id: Option<String>,
    synthetic: bool,
}

impl<'a> RawMessage<'a> {
    fn read(value: JsonValue<'a>) -> Result<Self, JsonError> {
        let mut taken = ObjectReader::new(value)?;
        let given = Self {
            role: taken.field("role")?,
            content: taken.raw_field("content")?,
            id: taken.field("id")?,
            synthetic: taken.optional_field("synthetic"),
        };
        taken.finish_strictly()?;
        Ok(given)
    }
}

/// Reads a user's message of a caller:
/// `{"role": "user", "content": "text" | [blocks], "id"?}`. A block is `{"type": "text", "text"}`
/// or an image that the host has stored, `{"type": "image", "blob", "media", "size"}`.
pub fn parse_user(text: &str) -> Result<Message, Error> {
    if text.len() > MESSAGE_BYTES_MAX {
        let problem = format!("is longer than {MESSAGE_BYTES_MAX} bytes");
        return Err(Error::invalid("input", "", problem));
    }
    let value = json::parse(text).map_err(|wrong| not_a_message_error("input", text, &wrong))?;
    let message = read_message("input", value)?;
    if message.role != MessageRole::User {
        return Err(Error::invalid("input.role", "assistant", "must be user"));
    }
    Ok(message)
}

/// Reads a caller's message of a user or an assistant.
pub(super) fn read_message(place: &str, value: JsonValue<'_>) -> Result<Message, Error> {
    let given = RawMessage::read(value).map_err(|wrong| not_a_message_error(place, "", &wrong))?;
    let at = |field: &str| format!("{place}.{field}");
    let role = match given.role.as_str() {
        "user" => MessageRole::User,
        "assistant" => MessageRole::Assistant,
        role => {
            return Err(Error::invalid(
                at("role"),
                role,
                "must be user or assistant",
            ));
        }
    };
    if given.synthetic && role == MessageRole::User {
        let problem = "marks words that an assistant is shown to say: a user's are sent";
        return Err(Error::invalid(at("synthetic"), "", problem));
    }
    let content = read_content(&at("content"), role, given.content)?;
    let bytes = content.iter().map(|block| match block {
        MessageBlock::Text(text) => escaped_bytes(text),
        MessageBlock::Image(_) => 0,
    });
    let bytes: usize = bytes.sum();
    if role == MessageRole::User && bytes > MESSAGE_BYTES_MAX {
        let problem = format!("is {bytes} bytes as JSON, the most is {MESSAGE_BYTES_MAX}");
        return Err(Error::invalid(at("content"), "", problem));
    }
    Ok(Message {
        role,
        content,
        id: given.id,
        synthetic: given.synthetic,
    })
}

fn not_a_message_error(place: &str, text: &str, wrong: &JsonError) -> Error {
    let problem = format!("is not a message {{\"role\", \"content\"}}: {wrong}");
    Error::invalid(place, text, problem)
}

/// Reads the blocks of a message and checks that no text is blank: providers refuse blank ones,
/// each time that the thread is sent. Only users' messages have images.
fn read_content(
    place: &str,
    role: MessageRole,
    content: JsonValue<'_>,
) -> Result<Vec<MessageBlock>, Error> {
    let refuse = |problem: &str| Err(Error::invalid(place, "", problem));
    let given = match content {
        JsonValue::String(text) => return text_content(place, text.into_owned()),
        JsonValue::Array(given) => given,
        _ => return refuse("must be a text or a list of blocks"),
    };
    let mut content = Vec::with_capacity(given.len());
    for (number, block) in given.into_iter().enumerate() {
        let at = format!("{place}[{number}]");
        match block.get("type").and_then(JsonValue::as_str) {
            Some("image") if role == MessageRole::User => {
                content.push(MessageBlock::Image(StoredBlob::parse(&at, &block)?));
            }
            Some("text") => {
                let mut reader = ObjectReader::new(block).map_err(|_| not_a_block_error(&at))?;
                let _: String = reader.record_field("type");
                let text = reader.record_field("text");
                reader
                    .finish(&["type", "text"])
                    .map_err(|_| not_a_block_error(&at))?;
                content.extend(text_content(&at, text)?);
            }
            _ => return Err(not_a_block_error(&at)),
        }
    }
    let images = content
        .iter()
        .filter(|block| matches!(block, MessageBlock::Image(_)));
    if images.count() > BLOBS_MAX {
        return refuse(&format!(
            "holds more than {BLOBS_MAX} images: send them in parts"
        ));
    }
    if content.is_empty() {
        return refuse("must hold at least one block");
    }
    Ok(content)
}

fn text_content(place: &str, text: String) -> Result<Vec<MessageBlock>, Error> {
    if text.trim().is_empty() {
        return Err(Error::invalid(place, "", "must not be blank"));
    }
    Ok(vec![MessageBlock::Text(text)])
}

fn not_a_block_error(place: &str) -> Error {
    let problem = "is no block {\"type\": \"text\", \"text\"}, and no image {\"type\": \"image\", \
                   \"blob\", \"media\", \"size\"} of a user";
    Error::invalid(place, "", problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn reads_users_messages_or_says_what_is_wrong() {
        for good in [
            r#"{"role":"user","content":"hi"}"#,
            r#"{"role":"user","content":[{"type":"text","text":"hi \u0000 🙂"}],"id":"m1"}"#,
        ] {
            parse_user(good).unwrap();
        }
        let long = format!(
            r#"{{"role":"user","content":"{}"}}"#,
            "x".repeat(MESSAGE_BYTES_MAX)
        );
        for bad in [
            "",
            "hi",
            "{}",
            r#"{"role":"assistant","content":"hi"}"#,
            r#"{"role":"user","content":7}"#,
            r#"{"role":"user","content":[]}"#,
            r#"{"role":"user","content":" \n"}"#,
            r#"{"role":"user","content":[{"type":"text","text":"hi"},{"type":"text","text":""}]}"#,
            r#"{"role":"user","content":"hi","synthetic":true}"#,
            r#"{"role":"user","content":[{"type":"image","text":""}]}"#,
            r#"{"role":"user","content":"hi","extra":1}"#,
            r#"{"role":"user","content":"\ud800"}"#,
            &format!(
                r#"{{"role":"user","content":"{}"}}"#,
                "\\u0000".repeat(MESSAGE_BYTES_MAX / 6 + 1)
            ),
            &long,
        ] {
            assert!(
                matches!(
                    parse_user(bad).map_err(Error::into_kind),
                    Err(ErrorKind::Invalid { .. })
                ),
                "{bad:.60}"
            );
        }
    }
}
