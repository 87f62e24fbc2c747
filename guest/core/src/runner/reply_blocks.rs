//! A reply of a model: its blocks, as a driver submits them.

use super::BLOCK_BYTES;
use crate::error::cut;
use crate::estimate;
use crate::history::escaped_bytes;
use crate::json::{self, JsonObject, JsonValue, ObjectWriter, ToJson, record};
use crate::ledger::Usage;

/// A model's reply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LlmCompletion {
    /// Blocks of the reply, in order.
    pub blocks: Vec<ReplyBlock>,
    /// The provider's word for the end of the reply: see [`FinishReason`].
    pub finish: String,
    /// Usage that the provider reported.
    pub usage: Option<Usage>,
    /// Session id for the next request.
    pub session: Option<String>,
    /// The provider's id of the reply.
    pub id: Option<String>,
    /// The model that answered, as the provider names it.
    pub model: Option<String>,
    /// The reason why not all of the reply is among the blocks.
    pub unreadable: Option<UnreadableReply>,
}

record!(write LlmCompletion {
    blocks, finish, usage, session, id or nothing, model or nothing, unreadable or nothing
});

/// One block of a reply, as a driver submits it: see [`ReplyBlock::parse_all`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyBlock {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// Thinking.
    Thinking {
        /// The readable part.
        text: String,
        /// The provider's own JSON.
        raw: Option<String>,
    },
    /// A call.
    ToolUse {
        /// The model's id.
        id: String,
        /// The tool's name.
        name: String,
        /// The text that the model wrote.
        arguments: String,
        /// The provider's own JSON, which goes back to it with the call.
        raw: Option<String>,
    },
}

impl ToJson for ReplyBlock {
    fn write(&self, out: &mut String) {
        let mut fields = ObjectWriter::new(out);
        match self {
            Self::Text { text } => fields.add("type", "text").add("text", text),
            Self::Thinking { text, raw } => fields
                .add("type", "thinking")
                .add("text", text)
                .add("raw", raw),
            Self::ToolUse {
                id,
                name,
                arguments,
                raw,
            } => fields
                .add("type", "tool_use")
                .add("id", id)
                .add("name", name)
                .add("arguments", arguments)
                .add_present("raw", raw),
        }
        .finish();
    }
}

/// The reason why all or part of a reply cannot be read. The call was made and is paid, so this is
/// a result and not an error of the submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableReply {
    /// The first thing that cannot be read, for a person.
    pub problem: String,
    /// Tokens of the whole reply, estimated from its text.
    pub tokens: u64,
}

record!(write UnreadableReply { problem, tokens });

/// Most bytes of a reply's own words that a problem repeats.
const SHOWN_BYTES_MAX: usize = 64;

impl ReplyBlock {
    /// Reads the JSON list of blocks that `llm.completion` documents. Returns the blocks that can
    /// be read, and why others cannot.
    pub fn parse_all(text: &str) -> (Vec<Self>, Option<UnreadableReply>) {
        let mended = json::mend_surrogates(text);
        let unreadable = |problem: String| {
            Some(UnreadableReply {
                problem,
                tokens: estimate::estimate_tokens(text),
            })
        };
        let items = match json::parse(&mended) {
            Ok(JsonValue::Array(items)) => items,
            Ok(_) => return (Vec::new(), unreadable("it is no list of blocks".to_owned())),
            Err(error) => return (Vec::new(), unreadable(format!("it is not JSON: {error}"))),
        };
        let (mut blocks, mut problem) = (Vec::with_capacity(items.len()), None);
        for (place, item) in items.iter().enumerate() {
            match Self::from_json(item) {
                Ok(block) => blocks.push(block),
                Err(why) if problem.is_none() => problem = Some(format!("blocks[{place}] {why}")),
                Err(_) => {}
            }
        }
        (blocks, problem.and_then(unreadable))
    }

    fn from_json(value: &JsonValue<'_>) -> Result<Self, String> {
        let JsonValue::Object(fields) = value else {
            return Err("is no object".to_owned());
        };
        match fields.get("type").and_then(JsonValue::as_str) {
            Some("text") => Ok(Self::Text {
                text: text_field(fields, "text")?,
            }),
            Some("thinking") => Ok(Self::Thinking {
                text: text_field(fields, "text")?,
                raw: any_field(fields, "raw"),
            }),
            Some("tool_use") => Ok(Self::ToolUse {
                id: any_field(fields, "id").unwrap_or_default(),
                name: text_field(fields, "name")?,
                arguments: any_field(fields, "arguments").unwrap_or_default(),
                raw: any_field(fields, "raw"),
            }),
            Some(kind) => Err(format!(
                "is of the type {:?}, and not text, thinking or tool_use",
                cut(kind, SHOWN_BYTES_MAX)
            )),
            None => Err("has no type".to_owned()),
        }
    }

    /// Most bytes that the block takes in an entry.
    pub(super) fn entry_bytes(&self) -> usize {
        BLOCK_BYTES
            + match self {
                Self::Text { text } => escaped_bytes(text),
                Self::Thinking { text, raw } => {
                    escaped_bytes(text) + raw.as_deref().map_or(0, escaped_bytes)
                }
                Self::ToolUse {
                    id,
                    name,
                    arguments,
                    raw,
                } => {
                    let raw = raw.as_deref().map_or(0, escaped_bytes);
                    escaped_bytes(id) + escaped_bytes(name) + escaped_bytes(arguments) + raw
                }
            }
    }
}

/// Returns a text; an empty one if it is missing or null.
fn text_field(fields: &JsonObject<'_>, name: &str) -> Result<String, String> {
    match fields.get(name) {
        None | Some(JsonValue::Null) => Ok(String::new()),
        Some(JsonValue::String(text)) => Ok(text.to_string()),
        Some(_) => Err(format!("has a field {name} that is no text")),
    }
}

/// Returns a text, or the JSON text of any other value: some hosts give arguments and the
/// provider's own JSON as objects. `None` if it is missing or null.
fn any_field(fields: &JsonObject<'_>, name: &str) -> Option<String> {
    match fields.get(name)? {
        JsonValue::Null => None,
        JsonValue::String(text) => Some(text.to_string()),
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str, arguments: &str) -> ReplyBlock {
        ReplyBlock::ToolUse {
            id: id.into(),
            name: "read".into(),
            arguments: arguments.into(),
            raw: None,
        }
    }

    fn text_block(text: &str) -> ReplyBlock {
        ReplyBlock::Text { text: text.into() }
    }

    /// Symptom: `submit` answered `invalid` for replies that were paid; nothing was settled and the
    /// thread stayed running. Cause: whatever could not be read was an error of the submission.
    /// Fix: it is a result. Kind: every form that writers of other languages are known to give.
    #[test]
    fn every_reply_is_read_as_far_as_it_can_be() {
        let tool = |rest: &str| format!(r#"[{{"type":"tool_use","name":"read"{rest}}}]"#);
        for (text, blocks) in [
            ("[]", vec![]),
            (
                r#"[{"type":"text","text":"a\ud83d"}]"#,
                vec![text_block("a\u{fffd}")],
            ),
            (r#"[{"type":"text","text":null}]"#, vec![text_block("")]),
            (
                &tool(r#","id":null,"arguments":"{}""#),
                vec![call("", "{}")],
            ),
            (
                &tool(r#","id":7,"arguments":{"a":[1.50,"x"]}"#),
                vec![call("7", r#"{"a":[1.50,"x"]}"#)],
            ),
            (&tool(r#","arguments":null"#), vec![call("", "")]),
        ] {
            assert_eq!(ReplyBlock::parse_all(text), (blocks, None), "{text}");
        }
        for (text, blocks, problem) in [
            ("", vec![], "it is not JSON"),
            (r#"[{"type":"text","text":NaN}]"#, vec![], "it is not JSON"),
            (r#"{"type":"text"}"#, vec![], "it is no list of blocks"),
            (
                r#"[{"type":"text","text":"a"},7]"#,
                vec![text_block("a")],
                "blocks[1] is no object",
            ),
            (
                r#"[{"type":"image","url":"x"},{"type":"text","text":"a"}]"#,
                vec![text_block("a")],
                "blocks[0] is of the type \"image\"",
            ),
            (r#"[{"text":"a"}]"#, vec![], "blocks[0] has no type"),
            (
                r#"[{"type":"text","text":["a"]}]"#,
                vec![],
                "blocks[0] has a field text",
            ),
            (
                r#"[{"type":"tool_use","name":{}}]"#,
                vec![],
                "blocks[0] has a field name",
            ),
        ] {
            let (read, unreadable) = ReplyBlock::parse_all(text);
            let unreadable = unreadable.unwrap_or_else(|| panic!("{text} is readable"));
            assert!(
                unreadable.problem.contains(problem),
                "{text}: {}",
                unreadable.problem
            );
            assert_eq!(unreadable.tokens, estimate::estimate_tokens(text));
            assert_eq!(read, blocks, "{text}");
        }
    }
}
