//! The request body, made from the normal form.
//!
//! Fields stand in a fixed order and `messages` is last, each message encoded by itself. So the same request is the
//! same bytes, and the body of one turn, up to its closing brackets, is a prefix of the next turn's. The one mark for
//! the cache stands in front, where it never moves: the provider sets its breakpoint at the end of what it was sent.
//!
//! What the wire asks for, and how it is met:
//!
//! - Roles alternate. What follows one another from the user, results and texts, is one message, results first.
//!   Where the assistant's message is followed by another or by nothing (a reply that was cut and is asked to go
//!   on), the user's `Continue.` stands between: models refuse to go on with a message of their own.
//! - No text is blank. Such texts are left out, and a message that has nothing else with them.
//! - Thinking is sent back as the provider wrote it, byte for byte, with its signature; without one it is left out,
//!   and so is thinking that nothing follows in its message.
//! - A call's input is an object: the text that the model wrote, or `{}` where that is none.

use crate::models::http::normal::{self, EncodeError, Message, Part, Role};
use crate::models::{Request, ToolSpec};
use serde_json::value::Value;

/// What the user says where the assistant is to go on with its own words.
const CONTINUE: &str = "Continue.";

/// The body of a request.
pub(super) fn encode(request: &Request, cache: bool) -> Result<Vec<u8>, EncodeError> {
    let mut fields = vec![
        format!(r#""model":{}"#, quoted(&request.model)),
        format!(r#""max_tokens":{}"#, request.output_max),
        r#""stream":true"#.to_owned(),
    ];
    if cache {
        fields.push(r#""cache_control":{"type":"ephemeral"}"#.to_owned());
    }
    if !request.system.trim().is_empty() {
        fields.push(format!(r#""system":{}"#, quoted(&request.system)));
    }
    let tools = request.tools.iter().map(tool);
    let tools: Vec<String> = tools.collect::<Result<_, _>>()?;
    if !tools.is_empty() {
        fields.push(format!(r#""tools":[{}]"#, tools.join(",")));
    }
    let turns: Vec<String> = turns(request)?.iter().map(Turn::json).collect();
    fields.push(format!(r#""messages":[{}]"#, turns.join(",")));
    normal::bounded(format!("{{{}}}", fields.join(",")).into_bytes())
}

/// One message on the wire.
struct Turn {
    assistant: bool,
    /// How many of its blocks are results. They come first.
    results: usize,
    /// JSON, one text each.
    blocks: Vec<String>,
}

impl Turn {
    fn json(&self) -> String {
        let role = if self.assistant { "assistant" } else { "user" };
        let blocks = self.blocks.join(",");
        format!(r#"{{"role":"{role}","content":[{blocks}]}}"#)
    }

    fn user(text: &str) -> Self {
        Self {
            assistant: false,
            results: 0,
            blocks: vec![text_block(text)],
        }
    }

    fn add(&mut self, more: Self) {
        let at = if more.results > 0 {
            self.results
        } else {
            self.blocks.len()
        };
        self.blocks.splice(at..at, more.blocks);
        self.results += more.results;
    }
}

fn turns(request: &Request) -> Result<Vec<Turn>, EncodeError> {
    let mut turns: Vec<Turn> = Vec::with_capacity(request.messages.len() + 1);
    for (index, text) in request.messages.iter().enumerate() {
        let message = normal::message(index, text)?;
        let next = turn(message).ok_or(EncodeError::Misplaced(index))?;
        if next.blocks.is_empty() {
            continue;
        }
        match turns.last_mut() {
            Some(last) if !last.assistant && !next.assistant => last.add(next),
            Some(last) if last.assistant && next.assistant => {
                turns.extend([Turn::user(CONTINUE), next]);
            }
            _ => turns.push(next),
        }
    }
    if turns.last().is_some_and(|last| last.assistant) {
        turns.push(Turn::user(CONTINUE));
    }
    Ok(turns)
}

/// None if a block does not belong into a message of its role.
fn turn(message: Message) -> Option<Turn> {
    let role = message.role;
    let mut blocks = Vec::with_capacity(message.content.len());
    // Up to here, something follows the thinking.
    let mut followed = 0;
    for part in message.content {
        let thinks = matches!(part, Part::Thinking { .. });
        let Some(block) = block(role, part)? else {
            continue;
        };
        blocks.push(block);
        if !thinks {
            followed = blocks.len();
        }
    }
    blocks.truncate(followed);
    Some(Turn {
        assistant: role == Role::Assistant,
        results: if role == Role::Tool { blocks.len() } else { 0 },
        blocks,
    })
}

/// One block as JSON. The outer none says that it has no place in a message of this role, the inner one that it is
/// left out.
fn block(role: Role, part: Part) -> Option<Option<String>> {
    Some(match (role, part) {
        (Role::User | Role::Assistant, Part::Text { text }) => {
            (!text.trim().is_empty()).then(|| text_block(&text))
        }
        (Role::Assistant, Part::Thinking { raw, .. }) => raw.filter(|raw| is_thinking(raw)),
        (
            Role::Assistant,
            Part::ToolUse {
                id,
                name,
                arguments,
            },
        ) => Some(format!(
            r#"{{"type":"tool_use","id":{},"name":{},"input":{}}}"#,
            quoted(&id),
            quoted(&normal::call_name(&name)),
            normal::arguments(&arguments)
        )),
        (Role::Tool, Part::ToolResult { id, text, failed }) => Some(result(&id, &text, failed)),
        _ => return None,
    })
}

fn text_block(text: &str) -> String {
    format!(r#"{{"type":"text","text":{}}}"#, quoted(text))
}

fn result(id: &str, text: &str, failed: bool) -> String {
    let mut block = format!(r#"{{"type":"tool_result","tool_use_id":{}"#, quoted(id));
    if !text.trim().is_empty() {
        block.push_str(&format!(r#","content":{}"#, quoted(text)));
    }
    if failed {
        block.push_str(r#","is_error":true"#);
    }
    block.push('}');
    block
}

/// True for a block of thinking that this wire takes back: signed, or redacted. That of another provider is neither.
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

fn tool(tool: &ToolSpec) -> Result<String, EncodeError> {
    let schema: Value =
        serde_json::from_str(&tool.schema).map_err(|_| EncodeError::Schema(tool.name.clone()))?;
    let mut text = format!(r#"{{"name":{}"#, quoted(&tool.name));
    if !tool.description.is_empty() {
        text.push_str(&format!(r#","description":{}"#, quoted(&tool.description)));
    }
    text.push_str(&format!(r#","input_schema":{schema}}}"#));
    Ok(text)
}

/// A text as JSON.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
