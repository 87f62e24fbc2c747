//! The request body of Anthropic's messages, made from the normal form.
//!
//! Fields stand in a fixed order and `messages` is last, each message encoded by itself. So the
//! same request is the same bytes, and the body of one turn, up to its closing brackets, is a
//! prefix of the next turn's. The one cache mark stands in front, where it never moves: the
//! provider sets its breakpoint at the end of what it was sent.
//!
//! Requirements of the wire, and how they are met:
//!
//! - Roles alternate. Consecutive user messages (results and texts) become one message, results
//!   first.
//! - No text is blank. Blank texts are left out, and so is a message that has nothing else.
//! - Thinking is sent back as the provider wrote it, byte for byte, with its signature. Thinking
//!   without a signature is left out, and so is thinking at the end of a message.
//! - A call's input is an object: the text that the model wrote, or `{}` if that text is no object.
//!
//! With the cache mark a first turn costs a quarter more for its input, and each later turn reads
//! that input at a tenth of its price.

use crate::models::wire::conversation::{
    AssistantPart, CallResult, SentImage, SentMessage, UserPart, sent_messages,
};
use crate::models::wire::normal_form::{self, EncodeError};
use crate::models::wire::origin::CallIds;
use crate::models::{CompletionRequest, ToolSpec};
use serde_json::Map;
use serde_json::value::Value;

/// Longest id of a call that this wire accepts.
const ID_BYTES_MAX: usize = 64;

/// Encodes the body of a request to the provider of this name.
pub(super) fn encode(
    request: &CompletionRequest,
    provider: &str,
    cache: bool,
    options: &Map<String, Value>,
) -> Result<Vec<u8>, EncodeError> {
    let mut fields = vec![
        format!(r#""model":{}"#, json_string(&request.model)),
        format!(r#""max_tokens":{}"#, request.output_max),
        r#""stream":true"#.to_owned(),
    ];
    if cache {
        fields.push(r#""cache_control":{"type":"ephemeral"}"#.to_owned());
    }
    let options = options.iter();
    fields.extend(options.map(|(name, value)| format!("{}:{value}", json_string(name))));
    if !request.system.trim().is_empty() {
        fields.push(format!(r#""system":{}"#, json_string(&request.system)));
    }
    let tools = request.tools.iter().map(encode_tool);
    let tools: Vec<String> = tools.collect::<Result<_, _>>()?;
    if !tools.is_empty() {
        fields.push(format!(r#""tools":[{}]"#, tools.join(",")));
    }
    let messages = to_wire_messages(sent_messages(request, CallIds::new(provider, is_call_id))?);
    let messages: Vec<String> = messages.iter().map(AnthropicMessage::to_json).collect();
    fields.push(format!(r#""messages":[{}]"#, messages.join(",")));
    normal_form::check_body_size(format!("{{{}}}", fields.join(",")).into_bytes())
}

fn is_call_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    id.len() <= ID_BYTES_MAX && id.bytes().all(plain)
}

/// One message of the request body.
struct AnthropicMessage {
    role: &'static str,
    /// Content blocks, each as JSON text.
    blocks: Vec<String>,
}

impl AnthropicMessage {
    fn to_json(&self) -> String {
        let (role, blocks) = (self.role, self.blocks.join(","));
        format!(r#"{{"role":"{role}","content":[{blocks}]}}"#)
    }
}

/// Converts the conversation. Results and the texts after them become one message of the user.
fn to_wire_messages(turns: Vec<SentMessage>) -> Vec<AnthropicMessage> {
    let mut messages: Vec<AnthropicMessage> = Vec::with_capacity(turns.len());
    for turn in turns {
        let (role, blocks) = match turn {
            SentMessage::User(parts) => ("user", parts.iter().map(user_block).collect()),
            SentMessage::Results(results) => ("user", results.iter().map(result_block).collect()),
            SentMessage::Assistant(parts) => ("assistant", assistant_blocks(parts)),
        };
        match messages.last_mut() {
            Some(last) if last.role == role => last.blocks.extend(blocks),
            _ => messages.push(AnthropicMessage { role, blocks }),
        }
    }
    messages
}

/// Returns the assistant's blocks up to the last one that is not thinking.
fn assistant_blocks(parts: Vec<AssistantPart>) -> Vec<String> {
    let mut blocks = Vec::with_capacity(parts.len());
    let mut followed = 0;
    for part in parts {
        let block = match part {
            AssistantPart::Thinking { raw, .. } => {
                blocks.extend(raw.filter(|raw| is_thinking(raw)));
                continue;
            }
            AssistantPart::Text(text) => text_block(&text),
            AssistantPart::Call {
                id,
                name,
                arguments,
                ..
            } => format!(
                r#"{{"type":"tool_use","id":{},"name":{},"input":{arguments}}}"#,
                json_string(&id),
                json_string(&name),
            ),
        };
        blocks.push(block);
        followed = blocks.len();
    }
    blocks.truncate(followed);
    blocks
}

fn user_block(part: &UserPart) -> String {
    match part {
        UserPart::Text(text) => text_block(text),
        UserPart::Image(image) => image_block(image),
    }
}

/// Base64 has no character that JSON escapes, and neither has a media type of images.
fn image_block(image: &SentImage) -> String {
    let SentImage { media, base64 } = image;
    let source = format!(r#""type":"base64","media_type":"{media}","data":"{base64}""#);
    format!(r#"{{"type":"image","source":{{{source}}}}}"#)
}

fn text_block(text: &str) -> String {
    format!(r#"{{"type":"text","text":{}}}"#, json_string(text))
}

fn result_block(result: &CallResult) -> String {
    let CallResult {
        id,
        text,
        failed,
        images,
    } = result;
    let mut block = format!(
        r#"{{"type":"tool_result","tool_use_id":{}"#,
        json_string(id)
    );
    let says = !text.trim().is_empty();
    if !images.is_empty() {
        let text = says.then(|| text_block(text));
        let blocks: Vec<_> = text
            .into_iter()
            .chain(images.iter().map(image_block))
            .collect();
        block.push_str(&format!(r#","content":[{}]"#, blocks.join(",")));
    } else if says {
        block.push_str(&format!(r#","content":{}"#, json_string(text)));
    }
    if *failed {
        block.push_str(r#","is_error":true"#);
    }
    block.push('}');
    block
}

/// Returns true for a block of thinking that this wire accepts: signed, or redacted. Thinking of
/// another provider is neither.
fn is_thinking(raw: &str) -> bool {
    let Ok(block) = serde_json::from_str::<Value>(raw) else {
        return false;
    };
    let filled = |field: &str| block[field].as_str().is_some_and(|text| !text.is_empty());
    match block["type"].as_str() {
        Some("thinking") => block["thinking"].is_string() && filled("signature"),
        Some("redacted_thinking") => filled("data"),
        _ => false,
    }
}

fn encode_tool(tool: &ToolSpec) -> Result<String, EncodeError> {
    let schema: Value =
        serde_json::from_str(&tool.schema).map_err(|_| EncodeError::Schema(tool.name.clone()))?;
    let mut text = format!(r#"{{"name":{}"#, json_string(&tool.name));
    if !tool.description.is_empty() {
        text.push_str(&format!(
            r#","description":{}"#,
            json_string(&tool.description)
        ));
    }
    text.push_str(&format!(r#","input_schema":{schema}}}"#));
    Ok(text)
}

/// Returns a text as a JSON string.
fn json_string(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
