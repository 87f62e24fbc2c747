//! The events of a history that are made of the messages of a `state.json`.
//!
//! Ids of calls name places in another history, so calls get ids of the new thread. An image is
//! named if its bytes were stored for the new thread; else a text tells which one was left out.

use super::state_file::{StateFileError, role, wrong};
use crate::blobs::BlobName;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Most bytes of the events of one append, and most events: what `history.append` takes, with room.
const BATCH_BYTES_MAX: usize = 400 << 10;
const BATCH_EVENTS_MAX: usize = 200;
/// Digits of a SHA-256.
const HASH_DIGITS: usize = 64;
/// The reason why an image is not there, as the model is told.
const LEFT_OUT: &str = "left out by the import";

/// Events in parts that are small enough for one append.
#[derive(Default)]
pub(super) struct EventList {
    pub batches: Vec<Vec<String>>,
    bytes: usize,
}

impl EventList {
    pub fn push(&mut self, event: Value) {
        let text = event.to_string();
        let is_full = self.batches.last().is_none_or(|batch| {
            batch.len() >= BATCH_EVENTS_MAX || self.bytes + text.len() > BATCH_BYTES_MAX
        });
        if is_full {
            self.batches.push(Vec::new());
            self.bytes = 0;
        }
        self.bytes += text.len();
        if let Some(batch) = self.batches.last_mut() {
            batch.push(text);
        }
    }
}

/// Lists the images that messages name, each once.
pub(super) fn list_images(messages: &[Value]) -> Vec<BlobName> {
    let blocks = messages
        .iter()
        .flat_map(|message| blocks_of(&message["content"]));
    let images = blocks.flat_map(|block| match block["type"].as_str() {
        Some("image") => vec![block],
        _ => blocks_of(&block["images"]).collect(),
    });
    let mut named: Vec<BlobName> = Vec::new();
    for name in images.filter_map(|block| read_name("", block).ok()) {
        if !named.contains(&name) {
            named.push(name);
        }
    }
    named
}

fn blocks_of(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Reads the name of an image. Its hash becomes the name of a file.
fn read_name(place: &str, block: &Value) -> Result<BlobName, StateFileError> {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let hash = block["blob"].as_str();
    let hash = hash.filter(|hash| hash.len() == HASH_DIGITS && hash.bytes().all(digit));
    let media = block["media"]
        .as_str()
        .filter(|media| media.starts_with("image/"));
    match (hash, media, block["size"].as_u64()) {
        (Some(hash), Some(media), Some(size)) => Ok(BlobName {
            hash: hash.to_owned(),
            media: media.to_owned(),
            size,
        }),
        _ => {
            let problem = "must name an image by blob (SHA-256), media and size";
            Err(wrong(place, problem))
        }
    }
}

/// Messages on their way into a history.
pub(super) struct MessageImport<'a> {
    pub events: EventList,
    /// Ids of the calls so far, by those of the file.
    pub calls: HashMap<String, String>,
    /// Images that are stored for the new thread.
    pub carried: &'a [BlobName],
}

impl MessageImport<'_> {
    /// Adds the events of a message.
    pub fn push_message(&mut self, place: &str, message: &Value) -> Result<(), StateFileError> {
        let role = role(message);
        let place = format!("{place}.content");
        match (role, &message["content"]) {
            ("system", _) => Ok(()),
            ("tool", Value::String(_)) => {
                let problem = "of a tool must be blocks that name their calls";
                Err(wrong(place, problem))
            }
            (_, Value::String(text)) => {
                if !text.trim().is_empty() {
                    let event = json!({"type": "message", "role": role, "content": text});
                    self.events.push(event);
                }
                Ok(())
            }
            ("user", Value::Array(blocks)) if blocks.iter().any(|b| b["type"] == "image") => {
                self.push_user_blocks(&place, blocks)
            }
            (_, Value::Array(blocks)) => {
                for (index, block) in blocks.iter().enumerate() {
                    let event = self.block_event(&format!("{place}[{index}]"), role, block)?;
                    event.into_iter().for_each(|event| self.events.push(event));
                }
                Ok(())
            }
            _ => Err(wrong(place, "must be a text or a list of blocks")),
        }
    }

    /// Adds a message of a user that has images: one event, as the images belong to its texts.
    fn push_user_blocks(&mut self, place: &str, blocks: &[Value]) -> Result<(), StateFileError> {
        let mut content = Vec::with_capacity(blocks.len());
        for (index, block) in blocks.iter().enumerate() {
            let place = format!("{place}[{index}]");
            match block["type"].as_str().unwrap_or_default() {
                "image" => content.push(self.image_or_text(&place, block)?),
                "text" => {
                    let text = text_field(block, &place, "text")?;
                    if !text.trim().is_empty() {
                        content.push(json!({"type": "text", "text": text}));
                    }
                }
                kind => return Err(refused_kind(&place, kind, "user")),
            }
        }
        let event = json!({"type": "message", "role": "user", "content": content});
        self.events.push(event);
        Ok(())
    }

    fn image_or_text(&self, place: &str, block: &Value) -> Result<Value, StateFileError> {
        let name = read_name(place, block)?;
        Ok(match self.carried.contains(&name) {
            true => name.image_block(),
            false => json!({"type": "text", "text": name.image_label(Some(LEFT_OUT))}),
        })
    }

    /// Returns the event of a block; `None` for a text without a word.
    fn block_event(
        &mut self,
        place: &str,
        role: &str,
        block: &Value,
    ) -> Result<Option<Value>, StateFileError> {
        let text = |name: &str| text_field(block, place, name);
        let kind = block["type"].as_str().unwrap_or_default();
        let event = match (role, kind) {
            ("user" | "assistant", "text") => {
                let text = text("text")?;
                if text.trim().is_empty() {
                    return Ok(None);
                }
                json!({"type": "message", "role": role, "content": text})
            }
            ("assistant", "thinking") => match block["raw"].as_str() {
                Some(raw) => json!({"type": "thinking", "text": text("text")?, "raw": raw}),
                None => json!({"type": "thinking", "text": text("text")?}),
            },
            ("assistant", "tool_use") => {
                let id = format!("imported_{}", self.calls.len());
                self.calls.insert(text("id")?.to_owned(), id.clone());
                json!({
                    "type": "tool_use", "name": text("name")?, "arguments": text("arguments")?,
                    "id": id
                })
            }
            ("tool", "tool_result") => self.result_event(place, block)?,
            _ => return Err(refused_kind(place, kind, role)),
        };
        Ok(Some(event))
    }

    fn result_event(&self, place: &str, block: &Value) -> Result<Value, StateFileError> {
        let call = self.calls.get(text_field(block, place, "id")?);
        let problem = "names no call of the messages before";
        let id = call.ok_or_else(|| wrong(format!("{place}.id"), problem))?;
        let failed = block["failed"].as_bool().unwrap_or(false);
        let mut text = text_field(block, place, "text")?.to_owned();
        let mut images = Vec::new();
        for (index, image) in blocks_of(&block["images"]).enumerate() {
            let name = read_name(&format!("{place}.images[{index}]"), image)?;
            match self.carried.contains(&name) {
                true => images.push(name.image_block()),
                false => {
                    text.push('\n');
                    text.push_str(&name.image_label(Some(LEFT_OUT)));
                }
            }
        }
        let mut event = json!({"type": "tool_result", "id": id, "text": text, "failed": failed});
        if !images.is_empty() {
            event["blocks"] = Value::Array(images);
        }
        Ok(event)
    }
}

fn text_field<'a>(block: &'a Value, place: &str, name: &str) -> Result<&'a str, StateFileError> {
    let text = block[name].as_str();
    text.ok_or_else(|| wrong(format!("{place}.{name}"), "must be a text"))
}

fn refused_kind(place: &str, kind: &str, role: &str) -> StateFileError {
    let problem = format!("{kind} of the role {role} is not imported");
    wrong(format!("{place}.type"), problem)
}
