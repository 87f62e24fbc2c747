//! Refusals of servers of Anthropic's messages, as Anthropic documents them.
//!
//! This checker is independent: it reads a body as a server does and shares nothing with the
//! encoder.

use super::chat_rules::{RuleCheck, has_only, has_text, is_plain_name, require};
use super::history_writer::FOREIGN;
use serde_json::Value;
use std::collections::BTreeSet;

/// Fields of a body that the adapter may send.
const BODY_FIELDS: [&str; 7] = [
    "model",
    "max_tokens",
    "stream",
    "cache_control",
    "system",
    "tools",
    "messages",
];

/// Checks the body of a request.
pub(super) fn check(body: &Value) -> RuleCheck {
    require(has_only(body, &BODY_FIELDS), "a field that no server knows")?;
    let bounded = body["max_tokens"].as_u64().is_some_and(|most| most > 0);
    require(bounded, "no max_tokens")?;
    require(body["stream"] == true, "not a stream")?;
    let spoken = body.get("system").is_none() || has_text(body["system"].as_str());
    require(spoken, "an empty system prompt")?;
    let foreign = body.to_string().contains(FOREIGN);
    require(!foreign, "what another provider sent for itself alone")?;
    let messages = body["messages"].as_array().ok_or("no list of messages")?;
    let mut conversation = MessagesCheck::default();
    for (n, message) in messages.iter().enumerate() {
        let checked = conversation.add(message);
        checked.map_err(|rule| format!("messages[{n}]: {rule}"))?;
    }
    require(
        conversation.open.is_empty(),
        "a call has no result at the end",
    )?;
    let asked = conversation.last_role == "user";
    require(asked, "the last message is not a user's")
}

/// State of the check of a conversation, message by message.
#[derive(Default)]
struct MessagesCheck {
    last_role: String,
    /// Ids of the calls of the previous message.
    open: BTreeSet<String>,
    ids: BTreeSet<String>,
}

impl MessagesCheck {
    fn add(&mut self, message: &Value) -> RuleCheck {
        let known = ["role", "content"];
        require(has_only(message, &known), "an unknown field of a message")?;
        let role = message["role"].as_str().unwrap_or_default();
        let first = self.last_role.is_empty();
        require(
            !first || role == "user",
            "the first message is not a user's",
        )?;
        require(self.last_role != role, "two messages of one role in a row")?;
        let blocks = message["content"].as_array().ok_or("no list of blocks")?;
        require(!blocks.is_empty(), "an empty message")?;
        match role {
            "user" => self.add_user(blocks)?,
            "assistant" => self.add_assistant(blocks)?,
            _ => return Err("an unknown role".to_owned()),
        }
        role.clone_into(&mut self.last_role);
        Ok(())
    }

    fn add_user(&mut self, blocks: &[Value]) -> RuleCheck {
        let mut is_text = false;
        for block in blocks {
            match block["type"].as_str() {
                Some("text") => check_text(block)?,
                Some("tool_result") => {
                    require(!is_text, "a result behind a text")?;
                    self.add_result(block)?;
                }
                _ => return Err("a block that is not a user's".to_owned()),
            }
            is_text |= block["type"] == "text";
        }
        require(
            self.open.is_empty(),
            "a call has no result in the next message",
        )
    }

    fn add_result(&mut self, block: &Value) -> RuleCheck {
        let known = ["type", "tool_use_id", "content", "is_error"];
        require(has_only(block, &known), "an unknown field of a result")?;
        let text = block.get("content");
        let spoken = text.is_none_or(|text| has_text(text.as_str()));
        require(spoken, "a blank result")?;
        let failed = block.get("is_error");
        require(
            failed.is_none_or(Value::is_boolean),
            "is_error is no boolean",
        )?;
        let id = block["tool_use_id"].as_str().unwrap_or_default();
        require(self.open.remove(id), "a result without its call")
    }

    fn add_assistant(&mut self, blocks: &[Value]) -> RuleCheck {
        let mut last_thinks = false;
        for block in blocks {
            let kind = block["type"].as_str().unwrap_or_default();
            match kind {
                "text" => check_text(block)?,
                "tool_use" => self.add_call(block)?,
                "thinking" | "redacted_thinking" => check_thinking(block, kind)?,
                _ => return Err("a block that is not an assistant's".to_owned()),
            }
            last_thinks = kind.ends_with("thinking");
        }
        require(!last_thinks, "thinking at the end of a message")
    }

    fn add_call(&mut self, block: &Value) -> RuleCheck {
        let known = ["type", "id", "name", "input"];
        require(has_only(block, &known), "an unknown field of a call")?;
        let id = block["id"].as_str().unwrap_or_default();
        require(is_plain_name(id), "a bad id")?;
        require(self.ids.insert(id.to_owned()), "an id comes twice")?;
        self.open.insert(id.to_owned());
        let name = block["name"].as_str().unwrap_or_default();
        require(is_plain_name(name), "a bad name")?;
        require(block["input"].is_object(), "an input that is no object")
    }
}

fn check_text(block: &Value) -> RuleCheck {
    require(
        has_only(block, &["type", "text"]),
        "an unknown field of a text",
    )?;
    require(has_text(block["text"].as_str()), "a blank text")
}

fn check_thinking(block: &Value, kind: &str) -> RuleCheck {
    let filled = |field: &str| block[field].as_str().is_some_and(|text| !text.is_empty());
    if kind == "redacted_thinking" {
        return require(filled("data"), "redacted thinking without its data");
    }
    let signed = filled("signature") && block["thinking"].is_string();
    require(signed, "thinking without a signature")
}
