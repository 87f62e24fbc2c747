//! Messages for a provider, made from entries.
//!
//! The text of a message depends on its entry alone, so that what a provider has seen stays the
//! same bytes for ever.

use super::{Entry, Event, MessageBlock, MessageRole, StoredBlob};
use crate::json::{self, ObjectWriter, ToJson, words};

/// Most bytes of one user's message, as JSON text: with its entry it stays well under the size of a
/// stored value.
pub const MESSAGE_BYTES_MAX: usize = 384 << 10;

/// Returns the bytes of a text inside a JSON string: control characters take six, quotes and
/// backslashes two.
pub fn escaped_bytes(text: &str) -> usize {
    let (mut rest, mut escaped) = (text.as_bytes(), 0);
    loop {
        let plain = json::count_plain_bytes(rest);
        escaped += plain;
        escaped += match rest.get(plain) {
            None => return escaped,
            Some(b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c) => 2,
            Some(_) => 6,
        };
        rest = &rest[plain + 1..];
    }
}

/// Returns the longest prefix of `text` that takes at most `bytes` bytes inside a JSON string.
pub fn cut_escaped(text: &str, bytes: usize) -> &str {
    if escaped_bytes(text) <= bytes {
        return text;
    }
    let mut taken = 0;
    let mut buffer = [0; 4];
    for (at, c) in text.char_indices() {
        taken += escaped_bytes(c.encode_utf8(&mut buffer));
        if taken > bytes {
            return &text[..at];
        }
    }
    text
}

/// Role of a message in the form that a provider is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderRole {
    /// A user.
    User,
    /// The assistant.
    Assistant,
    /// A tool, for its results.
    Tool,
}

words!(ProviderRole { User = "user", Assistant = "assistant", Tool = "tool" });

struct ProviderMessage<'a> {
    role: ProviderRole,
    is_user_text: bool,
    content: Vec<ProviderBlock<'a>>,
}

impl ToJson for ProviderMessage<'_> {
    fn write(&self, out: &mut String) {
        ObjectWriter::new(out)
            .add("role", &self.role)
            .add("content", &self.content)
            .finish();
    }
}

enum ProviderBlock<'a> {
    Text {
        text: &'a str,
    },
    Image(&'a StoredBlob),
    Thinking {
        text: &'a str,
        raw: Option<&'a str>,
    },
    ToolUse {
        id: String,
        name: &'a str,
        arguments: &'a str,
        raw: Option<&'a str>,
    },
    ToolResult {
        id: String,
        name: &'a str,
        text: &'a str,
        failed: bool,
        images: Vec<&'a StoredBlob>,
    },
}

impl ProviderBlock<'_> {
    /// Returns the number of images in it.
    fn image_count(&self) -> u64 {
        match self {
            Self::Image(_) => 1,
            Self::ToolResult { images, .. } => images.len() as u64,
            Self::Text { .. } | Self::Thinking { .. } | Self::ToolUse { .. } => 0,
        }
    }
}

impl ToJson for ProviderBlock<'_> {
    fn write(&self, out: &mut String) {
        if let Self::Image(image) = self {
            return image.write(out);
        }
        let mut fields = ObjectWriter::new(out);
        match self {
            Self::Image(_) => &mut fields,
            Self::Text { text } => fields.add("type", "text").add("text", text),
            Self::Thinking { text, raw } => fields
                .add("type", "thinking")
                .add("text", text)
                .add_present("raw", raw),
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
            Self::ToolResult {
                id,
                name,
                text,
                failed,
                images,
            } => fields
                .add("type", "tool_result")
                .add("id", id)
                .add("name", name)
                .add("text", text)
                .add("failed", failed)
                .add_present("images", images),
        }
        .finish();
    }
}

/// Returns the ids of the calls of which events are the results.
pub fn closed_calls(events: &[Event]) -> Vec<String> {
    let results = events.iter().filter_map(|event| match event {
        Event::ToolResult(result) => Some(call_id(result.version, result.index)),
        _ => None,
    });
    results.collect()
}

/// Returns the id by which a provider is sent a call, unique in a conversation.
pub fn call_id(version: u64, index: u32) -> String {
    format!("call_{version}_{index}")
}

/// Returns the version and the index of a call by its id; `None` for another text.
pub fn parse_call_id(id: &str) -> Option<(u64, u32)> {
    let (version, index) = id.strip_prefix("call_")?.split_once('_')?;
    let call = (version.parse().ok()?, index.parse().ok()?);
    // One call has one id: no sign and no leading zero.
    (call_id(call.0, call.1) == id).then_some(call)
}

/// Returns the messages that an entry adds to a conversation, as JSON texts, in order.
pub fn provider_messages(entry: &Entry) -> Vec<String> {
    provider_messages_of(entry.version, &entry.events)
}

/// Returns the messages that an entry of this version and these events adds.
pub fn provider_messages_of(version: u64, events: &[Event]) -> Vec<String> {
    let messages = build_messages(version, events);
    messages.iter().map(json::to_text).collect()
}

/// Returns the messages of an entry for a document: as a provider is sent them, but for a content
/// of one text, which is a string.
pub fn document_messages(entry: &Entry) -> Vec<String> {
    let messages = build_messages(entry.version, &entry.events);
    let texts = messages.iter().map(|message| {
        let mut text = String::new();
        let mut fields = ObjectWriter::new(&mut text);
        fields.add("role", &message.role);
        match &message.content[..] {
            [ProviderBlock::Text { text }] => fields.add("content", *text),
            blocks => fields.add("content", blocks),
        };
        fields.finish();
        text
    });
    texts.collect()
}

/// A message as a provider is sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderText {
    /// Role of the message.
    pub role: ProviderRole,
    /// True for a message of a person, a scheduler or another agent.
    pub is_user_text: bool,
    /// The message as JSON text. It names images, whose bytes the host puts in.
    pub json: String,
    /// Number of its images.
    pub images: u64,
}

/// Returns the messages of [`provider_messages_of`], each with its role.
pub fn provider_texts_of(version: u64, events: &[Event]) -> Vec<ProviderText> {
    let messages = build_messages(version, events);
    let texts = messages.iter().map(|message| ProviderText {
        role: message.role,
        is_user_text: message.is_user_text,
        json: json::to_text(message),
        images: message.content.iter().map(ProviderBlock::image_count).sum(),
    });
    texts.collect()
}

/// Returns true for a message of a person, a scheduler or another agent.
pub fn is_user_text(event: &Event) -> bool {
    matches!(event, Event::Message(message) if message.role == MessageRole::User)
}

/// Makes the messages of an entry. Users' messages are never merged.
fn build_messages(version: u64, events: &[Event]) -> Vec<ProviderMessage<'_>> {
    let mut wires: Vec<ProviderMessage<'_>> = Vec::new();
    for (index, event) in (0_u32..).zip(events) {
        let Some((role, blocks)) = provider_blocks(version, index, event) else {
            continue;
        };
        match wires.last_mut() {
            Some(last) if last.role == role && role != ProviderRole::User => {
                last.content.extend(blocks)
            }
            _ => wires.push(ProviderMessage {
                role,
                is_user_text: is_user_text(event),
                content: blocks,
            }),
        }
    }
    wires
}

/// Returns the role in which a provider is sent an event; `None` if it is not sent.
pub fn provider_role(event: &Event) -> Option<ProviderRole> {
    provider_blocks(0, 0, event).map(|(speaker, _)| speaker)
}

fn provider_blocks(
    version: u64,
    index: u32,
    event: &Event,
) -> Option<(ProviderRole, Vec<ProviderBlock<'_>>)> {
    Some(match event {
        Event::Message(message) if message.synthetic => return None,
        Event::ContextInjected(injected) => {
            let text = injected.text.as_str();
            let blocks = vec![ProviderBlock::Text { text }];
            (message_role(injected.role), blocks)
        }
        Event::Message(message) => {
            let blocks = message.content.iter().map(|block| match block {
                MessageBlock::Text(text) => ProviderBlock::Text { text },
                MessageBlock::Image(image) => ProviderBlock::Image(image),
            });
            (message_role(message.role), blocks.collect())
        }
        Event::AssistantText(text) => {
            let block = ProviderBlock::Text { text: &text.text };
            (ProviderRole::Assistant, vec![block])
        }
        Event::Thinking(thinking) => {
            let (text, raw) = (thinking.text.as_str(), thinking.raw.as_deref());
            let block = ProviderBlock::Thinking { text, raw };
            (ProviderRole::Assistant, vec![block])
        }
        Event::ToolUse(call) => {
            let id = call_id(version, index);
            (
                ProviderRole::Assistant,
                vec![ProviderBlock::ToolUse {
                    id,
                    name: &call.name,
                    arguments: &call.arguments,
                    raw: call.raw.as_deref(),
                }],
            )
        }
        Event::ToolResult(result) => {
            let id = call_id(result.version, result.index);
            let block = ProviderBlock::ToolResult {
                id,
                name: &result.name,
                text: &result.text,
                failed: result.failed,
                images: result.images().collect(),
            };
            (ProviderRole::Tool, vec![block])
        }
        Event::Result(_)
        | Event::Suspended(_)
        | Event::Resumed(_)
        | Event::Partial(_)
        | Event::Error(_)
        | Event::Cancelled(_)
        | Event::Charged(_)
        | Event::UsageCorrected(_)
        | Event::Raised(_)
        | Event::Decision(_)
        | Event::ConsentAsked(_)
        | Event::Title(_)
        | Event::Note(_)
        | Event::ContextLimitReached(_)
        | Event::ThreadHandoff(_)
        | Event::ThreadResumed(_)
        | Event::Other(_) => return None,
    })
}

fn message_role(role: MessageRole) -> ProviderRole {
    match role {
        MessageRole::User => ProviderRole::User,
        MessageRole::Assistant => ProviderRole::Assistant,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{
        AssistantText, CommitReason, ContextInjected, ContextLimitReached, Message, ToolResult,
        ToolResultState, ToolUse,
    };
    use crate::money::NanoUsd;

    fn entry(version: u64, events: Vec<Event>) -> Entry {
        Entry {
            format: 1,
            version,
            reason: CommitReason::AssistantTurn,
            time: crate::time::UnixTime::default(),
            run: 1,
            commit: String::new(),
            previous: String::new(),
            answers: None,
            settled: None,
            admitted: None,
            charged: Vec::new(),
            about: None,
            state: None,
            ended: None,
            state_at: 0,
            events,
        }
    }

    #[test]
    fn groups_a_reply_and_its_results() {
        let call = |arguments: &str| {
            Event::ToolUse(ToolUse {
                name: "read".into(),
                arguments: arguments.into(),
                id: "same".into(),
                raw: None,
            })
        };
        let result = ToolResult {
            version: 4,
            index: 2,
            name: "read".into(),
            text: "no".into(),
            failed: true,
            state: ToolResultState::Denied,
            cost: NanoUsd::ZERO,
            blocks: Vec::new(),
        };
        let reply = entry(
            4,
            vec![
                Event::AssistantText(AssistantText {
                    text: "Let me see.".into(),
                }),
                call("{\"a\":1}"),
                call("oops"),
                Event::Message(Message::synthetic("(stopped by user)")),
                Event::ToolResult(result),
            ],
        );
        assert_eq!(
            provider_messages(&reply),
            [
                concat!(
                    r#"{"role":"assistant","content":[{"type":"text","text":"Let me see."},"#,
                    r#"{"type":"tool_use","id":"call_4_1","name":"read","#,
                    r#""arguments":"{\"a\":1}"},{"type":"tool_use","id":"call_4_2","#,
                    r#""name":"read","arguments":"oops"}]}"#
                ),
                concat!(
                    r#"{"role":"tool","content":[{"type":"tool_result","id":"call_4_2","#,
                    r#""name":"read","text":"no","failed":true}]}"#
                ),
            ]
        );
    }

    /// The context of a hand-off is sent in its roles, and each user's message of it alone: the
    /// words of a person are never one message with words that nobody wrote.
    #[test]
    fn injected_context_is_sent_in_its_role() {
        let injected = |role, text: &str| {
            Event::ContextInjected(ContextInjected {
                role,
                text: text.into(),
            })
        };
        let first = entry(
            8,
            vec![
                injected(MessageRole::User, "## Thread Handoff Context"),
                injected(MessageRole::Assistant, "Understood. Continuing."),
                injected(MessageRole::User, "Go on."),
                Event::Message(Message::text(MessageRole::User, "And?")),
                Event::ContextLimitReached(ContextLimitReached::new(9, 10)),
            ],
        );
        let text = |role: &str, text: &str| {
            format!(r#"{{"role":"{role}","content":[{{"type":"text","text":"{text}"}}]}}"#)
        };
        assert_eq!(
            provider_messages(&first),
            [
                text("user", "## Thread Handoff Context"),
                text("assistant", "Understood. Continuing."),
                text("user", "Go on."),
                text("user", "And?"),
            ]
        );
    }
}
