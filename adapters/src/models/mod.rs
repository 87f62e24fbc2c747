//! Requests to model providers, their answers and failures, and what makes and reads them.
//!
//! An adapter makes exactly one request for each call and classifies a failure once. It never
//! retries: the runner does, with a new hold. It never returns a completion for a stream that ended
//! without a finish reason.

#[cfg(feature = "http")]
pub mod anthropic;
mod conversation_images;
pub mod dialect;
mod images;
#[cfg(feature = "http")]
pub mod openai;
#[cfg(feature = "http")]
mod options;
pub mod scripted;
mod secret;
#[cfg(all(test, feature = "http"))]
mod server_rules_tests;
#[cfg(feature = "http")]
pub mod wire;

pub use conversation_images::ConversationImages;
pub use images::{IMAGE_TOKENS_MAX, REQUEST_IMAGES_BYTES_MAX, RequestImage, RequestImages};
#[cfg(feature = "http")]
pub use options::ProviderOptions;
pub use secret::SecretText;
#[cfg(feature = "http")]
pub use wire::{ProviderTimeouts, SetupError};

use crate::blobs::BlobName;
use std::time::Duration;

/// Most bytes of one reply (text, thinking and arguments together). A provider that streams for
/// ever is cut off here.
pub const REPLY_BYTES_MAX: usize = 4 << 20;

/// Most blocks of one reply. A block may have no bytes that [`REPLY_BYTES_MAX`] would count, and a
/// history does not accept a reply with more blocks.
pub const BLOCKS_MAX: usize = 512;

/// Default of the longest time in which a stream may bring nothing of a reply: some models think
/// that long in silence.
pub const IDLE_TIME: Duration = Duration::from_secs(300);

/// Default of the longest time of a whole call, the same as the component's: a long reply at an
/// honest speed takes more than ten minutes. Silence is bounded by [`IDLE_TIME`]. A process that
/// died is known by its lock file at once; another host waits this long for a dead holder, or is
/// told that it died (`recover --dead`).
pub const CALL_TIME: Duration = Duration::from_secs(3_600);

/// Most bytes of an answer that streams, whatever was requested: four times the longest output that
/// models have, in events of 250 bytes a token.
const ANSWER_BYTES_MAX: u64 = 128 << 20;
/// Most bytes that a token takes on the wire: some 250 as a rule, 600 where routers send everything
/// twice.
const TOKEN_WIRE_BYTES_MAX: u64 = 1 << 10;

/// Returns the most bytes that the answer to a request for so much output may have on the wire,
/// everything that is not reply included; a longer one is broken off. A small request still has
/// room for a whole reply, because its provider may count tokens differently.
pub fn answer_bytes_max(output_max: u64) -> u64 {
    let tokens = output_max.saturating_mul(TOKEN_WIRE_BYTES_MAX);
    tokens.clamp(REPLY_BYTES_MAX as u64, ANSWER_BYTES_MAX)
}

pub use threadkeep_units::price::Usage;

/// A tool as it is offered to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSpec {
    /// `[A-Za-z0-9_-]`, at most 64 bytes.
    pub name: String,
    /// A description for the model.
    pub description: String,
    /// JSON Schema of its arguments, as text.
    pub schema: String,
}

/// A request to a provider. All of it is as pinned and stored, so that the same request is the same
/// bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompletionRequest {
    /// The model's name on the provider's wire.
    pub model: String,
    /// The system prompt; empty if there is none.
    pub system: String,
    /// The tools that are offered.
    pub tools: Vec<ToolSpec>,
    /// The whole conversation: JSON messages in the normal form, one text each.
    ///
    /// A message is `{"role": "user" | "assistant" | "tool", "content": [blocks]}`. A block is one
    /// of:
    ///
    /// - `{"type":"text","text"}`
    /// - `{"type":"thinking","text","raw"?}`
    /// - `{"type":"tool_use","id","name","arguments","raw"?}`; `arguments` is the text that the
    ///   model wrote, `raw` what its provider sent for itself alone
    /// - `{"type":"tool_result","id","name","text","failed","images"?}`, in messages of the role
    ///   `tool` alone
    /// - `{"type":"image","blob","chain","media","size"}`, in messages of the role `user` and in
    ///   `images` of results: its bytes are in [`Self::images`] under `blob`
    ///
    /// Ids are this project's own, `call_<version>_<index>`, and unique in a conversation.
    pub messages: Vec<String>,
    /// The images that the messages name.
    pub images: RequestImages,
    /// Most output tokens.
    pub output_max: u64,
    /// A provider session to continue.
    pub session: Option<String>,
}

/// One block of a reply, in the order in which the model wrote them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyBlock {
    /// Text for the reader.
    Text {
        /// The text.
        text: String,
    },
    /// Thinking; `raw` is the provider's own JSON, sent back byte for byte (signatures).
    Thinking {
        /// The thinking, as far as it may be read.
        text: String,
        /// The provider's own JSON.
        raw: Option<String>,
    },
    /// A call. `arguments` is the text that the model wrote: it may not be JSON.
    ToolUse {
        /// The provider's id of the call, or a generated one if it gave none.
        id: String,
        /// The tool's name.
        name: String,
        /// The text that the model wrote.
        arguments: String,
        /// The provider's own JSON, which is sent back to it with the call (ids, signatures).
        raw: Option<String>,
    },
}

impl ReplyBlock {
    /// Returns the block in the normal form, as the component takes it.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Text { text } => serde_json::json!({"type": "text", "text": text}),
            Self::Thinking { text, raw } => {
                serde_json::json!({"type": "thinking", "text": text, "raw": raw})
            }
            Self::ToolUse {
                id,
                name,
                arguments,
                raw,
            } => {
                let mut block = serde_json::json!({"type": "tool_use", "id": id, "name": name,
                    "arguments": arguments});
                if let Some(raw) = raw {
                    block["raw"] = raw.as_str().into();
                }
                block
            }
        }
    }
}

/// A complete reply. It is built by [`ModelCompletion::new`] and may have more parts later.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ModelCompletion {
    /// The blocks, in order.
    pub blocks: Vec<ReplyBlock>,
    /// `stop`, `tool_use`, `length`, `content_filter`, or a provider's own word, which is never
    /// that of a complete reply.
    pub finish: String,
    /// The usage, if the provider reported one.
    pub usage: Option<Usage>,
    /// The session to continue.
    pub session: Option<String>,
    /// The provider's id of the reply.
    pub id: Option<String>,
    /// The model that answered, as the provider names it.
    pub model: Option<String>,
}

impl ModelCompletion {
    /// Makes a reply of which the provider reports no usage and names no session.
    pub fn new(blocks: Vec<ReplyBlock>, finish: impl Into<String>) -> Self {
        Self {
            blocks,
            finish: finish.into(),
            usage: None,
            session: None,
            id: None,
            model: None,
        }
    }

    /// Adds the usage that the provider reported.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Returns its blocks as a JSON list, as the component takes them.
    pub fn blocks_to_json(&self) -> String {
        let blocks = self.blocks.iter().map(ReplyBlock::to_json);
        serde_json::Value::Array(blocks.collect()).to_string()
    }

    /// Removes empty texts, which providers refuse when they come back.
    #[must_use]
    pub fn without_empty_texts(mut self) -> Self {
        self.blocks
            .retain(|block| !matches!(block, ReplyBlock::Text { text } if text.is_empty()));
        self
    }

    /// Adds the session to continue.
    #[must_use]
    pub fn with_session(mut self, session: impl Into<String>) -> Self {
        self.session = Some(session.into());
        self
    }
}

/// The kind of a failure. The runner's reaction depends on it and on nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// Connection, time-out, 5xx, a broken or unfinished stream: the same request may succeed.
    Transient,
    /// 429: the same request may succeed later.
    RateLimited,
    /// 4xx, a bad key, a refused model: the same request will not succeed.
    Permanent,
    /// The account's money or quota is used up: a person must act.
    Quota,
    /// The request is larger than the model's window.
    ContextOverflow,
    /// The caller dropped the call.
    Cancelled,
}

impl FailureKind {
    /// Returns the word in WIT and in histories.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::RateLimited => "rate-limited",
            Self::Permanent => "permanent",
            Self::Quota => "quota",
            Self::ContextOverflow => "context-overflow",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A failure of a model call, in place of a completion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct ModelFailure {
    /// The kind.
    pub kind: FailureKind,
    /// A short stable code: `http_503`, `stream_unfinished`, `bad_chunk`, `connect`, `timeout`, ...
    pub code: String,
    /// A sentence for a person: what was wrong, and where. Never a key, never a prompt.
    pub message: String,
    /// The wait that the provider asks for.
    pub retry_after: Option<Duration>,
    /// False only if it is certain that nothing was sent.
    pub sent: bool,
    /// True if the provider refused the request with a status: it was sent and cost nothing.
    pub refused: bool,
    /// Tokens that were reported before it failed.
    pub usage: Option<Usage>,
    /// Text that had arrived before it failed.
    pub partial: String,
}

impl ModelFailure {
    /// Makes a failure of which nothing is known except that the request may have been sent.
    pub fn new(kind: FailureKind, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            kind,
            code: code.into(),
            message: message.into(),
            retry_after: None,
            sent: true,
            refused: false,
            usage: None,
            partial: String::new(),
        }
    }

    /// Marks the request as certainly not sent: the hold for the call is released.
    #[must_use]
    pub fn not_sent(mut self) -> Self {
        self.sent = false;
        self
    }
}

/// A part of a reply that streams. Only the completion counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyDelta {
    /// More text.
    Text(String),
    /// More thinking.
    Thinking(String),
    /// The model has begun a call of this tool.
    ToolUse(String),
    /// The deltas of this reply so far are void: its provider broke off, and another one begins
    /// anew.
    Restarted,
    /// So many more bytes of the answer came over the wire, of any content. Reported only by
    /// providers over a network.
    Received(u64),
}

/// A callback for deltas. It must not block.
pub type OnDelta<'a> = &'a (dyn Fn(ReplyDelta) + Send + Sync);

/// Returns a text as a user's message in the normal form, the input of `Driver::run`.
pub fn user_message(text: &str) -> String {
    let content = [serde_json::json!({"type": "text", "text": text})];
    serde_json::json!({"role": "user", "content": content}).to_string()
}

/// As [`user_message`], with images that were stored before.
pub fn user_message_with_images(text: Option<&str>, images: &[BlobName]) -> String {
    let text = text.map(|text| serde_json::json!({"type": "text", "text": text}));
    let images = images.iter().map(BlobName::image_block);
    let content: Vec<_> = text.into_iter().chain(images).collect();
    serde_json::json!({"role": "user", "content": content}).to_string()
}
