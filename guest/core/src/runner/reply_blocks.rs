//! A reply of a model: its blocks, as a driver submits them.

use super::BLOCK_BYTES;
use crate::error::Error;
use crate::history::escaped_bytes;
use crate::json::{self, ObjectWriter, ToJson, record::record};
use crate::ledger::Usage;

/// A model's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LlmCompletion {
    /// Blocks of the reply, in order.
    pub blocks: Vec<ReplyBlock>,
    /// The provider's word for the end of the reply: see [`FinishReason`].
    pub finish: String,
    /// Usage that the provider reported.
    pub usage: Option<Usage>,
    /// Session id for the next request.
    pub session: Option<String>,
}

record!(write LlmCompletion { blocks, finish, usage, session });

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

struct FlatBlock {
    kind: String,
    text: String,
    raw: Option<String>,
    id: String,
    name: String,
    arguments: String,
}

record!(read FlatBlock {
    kind as "type", text or default, raw or default, id or default, name or default,
    arguments or default
});

impl ReplyBlock {
    /// Reads the JSON list of blocks that `llm.completion` documents.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, Error> {
        let flat: Vec<FlatBlock> = json::read(text).map_err(|e| {
            Error::invalid(
                "completion.blocks",
                text,
                format!("is not a list of blocks: {e}"),
            )
        })?;
        flat.into_iter()
            .map(|block| match block.kind.as_str() {
                "text" => Ok(Self::Text { text: block.text }),
                "thinking" => Ok(Self::Thinking {
                    text: block.text,
                    raw: block.raw,
                }),
                "tool_use" => Ok(Self::ToolUse {
                    id: block.id,
                    name: block.name,
                    arguments: block.arguments,
                    raw: block.raw,
                }),
                kind => Err(Error::invalid_name(
                    "completion.blocks.type",
                    kind,
                    "is not a block",
                    &["text", "thinking", "tool_use"],
                )),
            })
            .collect()
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
