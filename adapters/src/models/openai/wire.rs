//! The request body of OpenAI's chat completions, made from the normal form.
//!
//! Fields stand in a fixed order and `messages` is last, each message encoded by itself. So the
//! same request is the same bytes, and the body of one turn, up to its closing brackets, is a
//! prefix of the next turn's.
//!
//! Limits of the wire:
//!
//! - Thinking is sent back where the dialect says so, if this provider wrote it as
//!   `reasoning_content`.
//! - Arguments travel as the text that the model wrote, or as `{}` if that is not a JSON object.
//! - A failed result has no mark of its own; only its text tells.
//! - The images of results travel in a user's message after them.

use crate::models::dialect::{OutputField, ReturnThinking, ServerDialect};
use crate::models::wire::conversation::{
    AssistantPart, SentImage, SentMessage, UserPart, sent_messages,
};
use crate::models::wire::normal_form::{self, EncodeError};
use crate::models::wire::origin::{CallIds, CallOrigin, ThinkingOrigin};
use crate::models::{CompletionRequest, ToolSpec};
use serde::Serialize;
use serde_json::value::Value;
use serde_json::{Map, json};

/// Text of the assistant message between a tool's result and a user's message, for servers that do
/// not accept the two in a row.
const FILLER_TEXT: &str = "Understood.";

#[derive(Serialize)]
struct ChatRequestBody<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(flatten)]
    options: &'a Map<String, Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    messages: Vec<ChatMessage>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct WireTool<'a> {
    r#type: &'static str,
    function: WireFunction<'a>,
}

#[derive(Serialize)]
struct WireFunction<'a> {
    name: &'a str,
    description: &'a str,
    parameters: Value,
}

#[derive(Serialize)]
struct ChatMessage {
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
    content: Option<MessageContent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasoning_details: Vec<Map<String, Value>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WireCall>,
}

/// The content of a message: a text, or a list of parts where images are among them. Not every
/// server takes a list.
#[derive(Serialize)]
#[serde(untagged)]
enum MessageContent {
    Text(String),
    Parts(Vec<Value>),
}

impl MessageContent {
    fn into_parts(self) -> Vec<Value> {
        match self {
            Self::Text(text) => vec![text_part(&text)],
            Self::Parts(parts) => parts,
        }
    }
}

fn text_part(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn image_part(image: &SentImage) -> Value {
    let url = format!("data:{};base64,{}", image.media, image.base64);
    json!({"type": "image_url", "image_url": {"url": url}})
}

impl ChatMessage {
    fn text_message(role: &'static str, content: String) -> Self {
        Self {
            role,
            tool_call_id: None,
            content: Some(MessageContent::Text(content)),
            reasoning_content: None,
            reasoning_details: Vec::new(),
            tool_calls: Vec::new(),
        }
    }
}

#[derive(Serialize)]
struct WireCall {
    id: String,
    r#type: &'static str,
    function: CalledFunction,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

#[derive(Serialize)]
struct CalledFunction {
    name: String,
    arguments: String,
}

/// Encodes the body of a request to the provider of this name.
pub(super) fn encode(
    request: &CompletionRequest,
    provider: &str,
    dialect: ServerDialect,
    options: &Map<String, Value>,
) -> Result<Vec<u8>, EncodeError> {
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.trim().is_empty() {
        messages.push(ChatMessage::text_message("system", request.system.clone()));
    }
    for turn in sent_messages(request, CallIds::new(provider, is_call_id))? {
        add_sent_message(&mut messages, turn, provider, dialect);
    }
    let renamed = dialect.output_field == OutputField::MaxCompletionTokens;
    let tools = request.tools.iter().map(encode_tool);
    let body = ChatRequestBody {
        model: &request.model,
        max_tokens: (!renamed).then_some(request.output_max),
        max_completion_tokens: renamed.then_some(request.output_max),
        stream: true,
        stream_options: dialect.stream_options.then_some(StreamOptions {
            include_usage: true,
        }),
        options,
        tools: tools.collect::<Result<_, _>>()?,
        messages,
    };
    // Strings and trees of strings always have a JSON form, so a failure could only mean that one
    // is too large.
    normal_form::check_body_size(serde_json::to_vec(&body).map_err(|_| EncodeError::TooLarge)?)
}

/// Returns true for an id that servers of this wire may have made: any length, no blank and no
/// control character.
fn is_call_id(id: &str) -> bool {
    id.bytes().all(|byte| byte.is_ascii_graphic())
}

fn encode_tool(tool: &ToolSpec) -> Result<WireTool<'_>, EncodeError> {
    let parameters =
        serde_json::from_str(&tool.schema).map_err(|_| EncodeError::Schema(tool.name.clone()))?;
    let function = WireFunction {
        name: &tool.name,
        description: &tool.description,
        parameters,
    };
    Ok(WireTool {
        r#type: "function",
        function,
    })
}

fn add_sent_message(
    messages: &mut Vec<ChatMessage>,
    turn: SentMessage,
    provider: &str,
    dialect: ServerDialect,
) {
    match turn {
        SentMessage::User(parts) => {
            add_user_message(messages, user_content(parts), (provider, dialect));
        }
        SentMessage::Assistant(parts) => messages.push(assistant_message(parts, provider, dialect)),
        SentMessage::Results(results) => {
            // This wire has no images in results: they follow in a message of the user.
            let mut parts = Vec::new();
            for result in results {
                if !result.images.is_empty() {
                    parts.push(text_part(&format!(
                        "Images in the result of {}:",
                        result.id
                    )));
                    parts.extend(result.images.iter().map(image_part));
                }
                messages.push(ChatMessage {
                    tool_call_id: Some(result.id),
                    ..ChatMessage::text_message("tool", result.text)
                });
            }
            if !parts.is_empty() {
                let content = MessageContent::Parts(parts);
                add_user_message(messages, content, (provider, dialect));
            }
        }
    }
}

/// Joins texts by a blank line: not every server accepts a list. With an image it is a list.
fn user_content(parts: Vec<UserPart>) -> MessageContent {
    let is_image = |part: &UserPart| matches!(part, UserPart::Image(_));
    if parts.iter().any(is_image) {
        let part = |part: &UserPart| match part {
            UserPart::Text(text) => text_part(text),
            UserPart::Image(image) => image_part(image),
        };
        return MessageContent::Parts(parts.iter().map(part).collect());
    }
    let texts = parts.into_iter().map(|part| match part {
        UserPart::Text(text) => text,
        UserPart::Image(_) => String::new(),
    });
    MessageContent::Text(texts.collect::<Vec<_>>().join("\n\n"))
}

/// Adds a message of the user: to the one with the images of results before it, or after a message
/// of the assistant where the server does not accept it after a result.
fn add_user_message(
    messages: &mut Vec<ChatMessage>,
    content: MessageContent,
    (provider, dialect): (&str, ServerDialect),
) {
    match messages.last_mut() {
        Some(last) if last.role == "user" => {
            let before = last.content.take().map(MessageContent::into_parts);
            let mut parts = before.unwrap_or_default();
            parts.extend(content.into_parts());
            last.content = Some(MessageContent::Parts(parts));
            return;
        }
        Some(last) if last.role == "tool" && !dialect.user_after_result => {
            let between = AssistantPart::Text(FILLER_TEXT.to_owned());
            messages.push(assistant_message(vec![between], provider, dialect));
        }
        _ => {}
    }
    messages.push(ChatMessage {
        content: Some(content),
        ..ChatMessage::text_message("user", String::new())
    });
}

/// Joins the texts without a separator: they were one text before they were blocks.
fn assistant_message(
    parts: Vec<AssistantPart>,
    provider: &str,
    dialect: ServerDialect,
) -> ChatMessage {
    let mut message = ChatMessage::text_message("assistant", String::new());
    let (mut content, mut thinking) = (String::new(), String::new());
    for part in parts {
        match part {
            AssistantPart::Text(text) => content.push_str(&text),
            AssistantPart::Thinking { text, raw } => {
                let origin = ThinkingOrigin::read(raw.as_deref());
                let Some(origin) = origin.filter(|origin| origin.provider == provider) else {
                    continue;
                };
                message.reasoning_details.extend(origin.details);
                if origin.field == "reasoning_content" {
                    thinking.push_str(&text);
                }
            }
            AssistantPart::Call {
                id,
                name,
                arguments,
                origin,
            } => message.tool_calls.push(WireCall {
                id,
                r#type: "function",
                function: CalledFunction { name, arguments },
                fields: if dialect.call_fields {
                    fields_of_provider(origin, provider)
                } else {
                    Map::new()
                },
            }),
        }
    }
    if let (Some(signature), Some(first)) =
        (dialect.foreign_signature, message.tool_calls.first_mut())
        && !first.fields.contains_key("extra_content")
    {
        let signed = json!({"google": {"thought_signature": signature}});
        first.fields.insert("extra_content".to_owned(), signed);
    }
    let calls = !message.tool_calls.is_empty();
    let content = (!content.is_empty() || !calls).then_some(content);
    message.content = content.map(MessageContent::Text);
    message.reasoning_content = match dialect.return_thinking {
        ReturnThinking::Always if thinking.is_empty() => Some(dialect.no_thinking.to_owned()),
        ReturnThinking::Always => Some(thinking),
        ReturnThinking::WithCalls => (calls && !thinking.is_empty()).then_some(thinking),
        ReturnThinking::Never => None,
    };
    if dialect.return_thinking == ReturnThinking::Never {
        message.reasoning_details.clear();
    }
    message
}

/// Returns the fields that this provider sent with a call.
fn fields_of_provider(origin: Option<CallOrigin>, provider: &str) -> Map<String, Value> {
    let own = origin.filter(|origin| origin.provider == provider);
    own.map(|origin| origin.fields).unwrap_or_default()
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
