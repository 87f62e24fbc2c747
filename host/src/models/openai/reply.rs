//! A reply, put together from the chunks of a stream.
//!
//! Servers that call themselves compatible differ in small ways; each leniency here names the one it serves. What is
//! never lenient: a chunk that is not JSON, an error object, and a stream that ends without the word that it is whole.

use super::calls::{CallPiece, Calls};
use super::usage;
use crate::models::http::classify::{self, Fault};
use crate::models::http::finish::{FinishWord, whole_without_word};
use crate::models::http::origin::{CallOrigin, ThinkingOrigin};
use crate::models::http::room::{Room, call_arguments};
use crate::models::http::{self, Taken, said};
use crate::models::{Block, Completion, Delta, OnDelta, Usage};
use serde_json::Value;

/// Fields of a delta that hold thinking, by the servers that name them so.
const THINKING_FIELDS: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];

/// What has arrived so far.
#[derive(Default)]
pub(in crate::models) struct Reply {
    /// Name of the provider, for what goes back to it alone.
    provider: String,
    blocks: Vec<Block>,
    calls: Calls,
    /// Where thinking came in, for the block of thinking.
    thinking: ThinkingOrigin,
    room: Room,
    refused: bool,
    finish: Option<String>,
    usage: Option<Usage>,
    ended: bool,
    /// Chunks so far.
    chunks: u64,
    identity: Identity,
}

/// Which reply of a stream the chunks belong to.
#[derive(Default)]
struct Identity {
    id: String,
    /// Two chunks in a row had it: the server does not make up another one for each chunk.
    steady: bool,
    /// A second reply began behind the end of the first.
    past: bool,
}

impl http::Reply for Reply {
    fn take(&mut self, data: &str, on_delta: OnDelta<'_>) -> Result<Taken, Fault> {
        if data.trim() == "[DONE]" {
            self.ended = true;
            return Ok(Taken::Substance);
        }
        let chunk: Value = serde_json::from_str(data).map_err(|_| Fault::BadChunk)?;
        if !chunk.is_object() {
            return Err(Fault::BadChunk);
        }
        // Some servers repeat a growing usage in every chunk: the last one that can be read counts.
        let usage = usage::of_chunk(&chunk);
        self.usage = usage.or(self.usage);
        if let Some(said) = said::in_stream(&chunk, "choices") {
            return Err(Fault::StreamError(said));
        }
        self.chunks += 1;
        // Only one choice was asked for.
        let choices = chunk["choices"].as_array().into_iter().flatten();
        let mine = |choice: &&Value| http::number(&choice["index"]).unwrap_or(0) == 0;
        let before = self.room.taken();
        for choice in choices.filter(mine) {
            // A reply that is no stream has a message in place of the delta.
            let parts = ["delta", "message"].map(|name| &choice[name]);
            let delta = parts.into_iter().find(|part| part.is_object());
            let delta = delta.unwrap_or(&Value::Null);
            if self.tell_replies_apart(&chunk["id"], delta) {
                on_delta(Delta::Restarted);
            }
            if self.identity.past {
                continue;
            }
            self.take_delta(delta, on_delta)?;
            let reason = choice["finish_reason"].as_str();
            let reason = reason.filter(|reason| !reason.is_empty());
            self.finish = reason.map(str::to_owned).or(self.finish.take());
        }
        let substance = self.room.taken() > before || self.finish.is_some() || usage.is_some();
        Ok(if substance {
            Taken::Substance
        } else {
            Taken::Nothing
        })
    }

    fn take_whole(&mut self, answer: &Value, on_delta: OnDelta<'_>) -> Option<Result<(), Fault>> {
        answer["choices"].is_array().then(|| {
            self.take(&answer.to_string(), on_delta)?;
            self.ended = true;
            Ok(())
        })
    }

    fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    fn is_ended(&self) -> bool {
        self.ended
    }

    fn text(&self) -> String {
        let text = |block: &Block| match block {
            Block::Text { text } => Some(text.clone()),
            Block::Thinking { .. } | Block::ToolUse { .. } => None,
        };
        self.blocks.iter().filter_map(text).collect()
    }

    fn usage(&self) -> Option<Usage> {
        self.usage
    }

    fn complete(&mut self) -> Result<Completion, Fault> {
        let calls = !self.calls.open.is_empty();
        let says = calls || !self.text().is_empty();
        let unsaid = whole_without_word(self.ended && self.usage.is_some() && says);
        let word = self.finish.take().or(unsaid).ok_or(Fault::Unfinished)?;
        let finish = match (FinishWord::parse(&word), calls) {
            // A word of routers for a provider that broke off behind them.
            (FinishWord::Error, _) => return Err(Fault::StreamError(classify::Said::default())),
            (FinishWord::ToolUse, false) => return Err(Fault::CallsMissing),
            // Some servers say `stop` after calls, too.
            (FinishWord::ToolUse | FinishWord::Stop, true) => FinishWord::ToolUse.named(&word),
            (FinishWord::Stop, false) if self.refused => FinishWord::ContentFilter.named(&word),
            (finish, _) => finish.named(&word),
        };
        let cut = !matches!(finish.as_str(), "stop" | "tool_use");
        let usage = self
            .usage
            .filter(|usage| usage.output > 0 || self.blocks.is_empty());
        Ok(Completion {
            blocks: self.take_blocks(cut),
            finish,
            usage,
            session: None,
        })
    }
}

impl Reply {
    /// A reply of the provider of this name, of which nothing has arrived.
    pub fn of(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            ..Self::default()
        }
    }

    /// A router that fails over begins a second reply in the same stream: what came of the first is dropped (true), or, if
    /// that was whole, the second is passed over.
    fn tell_replies_apart(&mut self, id: &Value, delta: &Value) -> bool {
        let Some(id) = id.as_str().filter(|id| !id.is_empty()) else {
            return false;
        };
        if self.identity.id == id {
            self.identity.steady = true;
            return false;
        }
        let another = self.identity.steady && delta["role"].is_string();
        if another && self.finish.is_some() {
            self.identity.past = true;
            return false;
        }
        if another {
            let usage = self.usage;
            *self = Self {
                usage,
                chunks: self.chunks,
                room: std::mem::take(&mut self.room),
                ..Self::of(&self.provider)
            };
        }
        self.identity.id = id.to_owned();
        another
    }

    fn take_delta(&mut self, delta: &Value, on_delta: OnDelta<'_>) -> Result<(), Fault> {
        for field in THINKING_FIELDS {
            if let Some(thought) = delta[field].as_str().filter(|text| !text.is_empty()) {
                self.think(thought, field, on_delta)?;
                break;
            }
        }
        for piece in delta["reasoning_details"].as_array().into_iter().flatten() {
            self.room.bytes(piece.to_string().len())?;
            add_detail(&mut self.thinking.details, piece);
        }
        self.take_content(&delta["content"], on_delta)?;
        // A refusal is text for the reader like any other; the finish reason tells it apart.
        if let Some(refusal) = delta["refusal"].as_str().filter(|text| !text.is_empty()) {
            self.refused = true;
            self.say(refusal, on_delta)?;
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.take_call(CallPiece::read(call), on_delta)?;
        }
        if delta["function_call"].is_object() {
            self.take_call(CallPiece::read_function(&delta["function_call"]), on_delta)?;
        }
        Ok(())
    }

    /// Text, or a list of parts: texts and thinking, which may be a text or a list of its own.
    fn take_content(&mut self, content: &Value, on_delta: OnDelta<'_>) -> Result<(), Fault> {
        match content {
            Value::Null => Ok(()),
            Value::String(text) => self.say(text, on_delta),
            Value::Array(parts) => parts
                .iter()
                .try_for_each(|part| match part["type"].as_str() {
                    Some("thinking") => self.think(&joined(&part["thinking"]), "content", on_delta),
                    // Parts of kinds that nobody asked for (references) are passed over.
                    _ => self.say(&joined(part), on_delta),
                }),
            _ => Err(Fault::BadChunk),
        }
    }

    fn say(&mut self, text: &str, on_delta: OnDelta<'_>) -> Result<(), Fault> {
        if text.is_empty() {
            return Ok(());
        }
        self.room.bytes(text.len())?;
        match self.blocks.last_mut() {
            Some(Block::Text { text: before }) => before.push_str(text),
            _ => self.begin(Block::Text {
                text: text.to_owned(),
            })?,
        }
        on_delta(Delta::Text(text.to_owned()));
        Ok(())
    }

    fn think(&mut self, thought: &str, field: &str, on_delta: OnDelta<'_>) -> Result<(), Fault> {
        if thought.is_empty() {
            return Ok(());
        }
        self.room.bytes(thought.len())?;
        field.clone_into(&mut self.thinking.field);
        match self.blocks.last_mut() {
            Some(Block::Thinking { text, .. }) => text.push_str(thought),
            _ => self.begin(Block::Thinking {
                text: thought.to_owned(),
                raw: None,
            })?,
        }
        on_delta(Delta::Thinking(thought.to_owned()));
        Ok(())
    }

    fn take_call(&mut self, piece: CallPiece, on_delta: OnDelta<'_>) -> Result<(), Fault> {
        self.room.bytes(piece.bytes())?;
        let at = match self.calls.find(&piece, self.chunks) {
            Some(at) => at,
            None => {
                let block = self.blocks.len();
                self.begin(Block::ToolUse {
                    id: String::new(),
                    name: String::new(),
                    arguments: String::new(),
                    raw: None,
                })?;
                self.calls.begin(block, &piece)
            }
        };
        let unnamed = self.calls.open[at].name.is_empty();
        self.calls.extend(at, piece, self.chunks);
        let name = &self.calls.open[at].name;
        if unnamed && !name.is_empty() {
            on_delta(Delta::ToolUse(name.clone()));
        }
        Ok(())
    }

    fn begin(&mut self, block: Block) -> Result<(), Fault> {
        self.room.block()?;
        self.blocks.push(block);
        Ok(())
    }

    /// The blocks of the whole reply, with what only their provider understands.
    fn take_blocks(&mut self, cut: bool) -> Vec<Block> {
        let mut blocks = std::mem::take(&mut self.blocks);
        for call in std::mem::take(&mut self.calls.open) {
            let n = call.block;
            let Some(block) = blocks.get_mut(n) else {
                continue;
            };
            let origin = CallOrigin {
                provider: self.provider.clone(),
                id: call.id.clone(),
                fields: call.fields,
            };
            let says = !origin.id.is_empty() || !origin.fields.is_empty();
            *block = Block::ToolUse {
                // Some servers give a call no id.
                id: if call.id.is_empty() {
                    format!("call_{n}")
                } else {
                    call.id
                },
                name: call.name,
                arguments: call_arguments(call.arguments, cut),
                raw: says.then(|| origin.write()),
            };
        }
        self.thinking.provider.clone_from(&self.provider);
        let mut details = std::mem::take(&mut self.thinking.details);
        if !details.is_empty()
            && !blocks
                .iter()
                .any(|block| matches!(block, Block::Thinking { .. }))
        {
            let text = String::new();
            blocks.insert(0, Block::Thinking { text, raw: None });
        }
        for block in &mut blocks {
            if let Block::Thinking { raw, .. } = block {
                let details = std::mem::take(&mut details);
                let origin = ThinkingOrigin {
                    details,
                    ..self.thinking.clone()
                };
                *raw = Some(origin.write());
            }
        }
        blocks
    }
}

/// The text of a part, of a list of them, or the text itself.
fn joined(part: &Value) -> String {
    match part {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(joined).collect(),
        part => part["text"].as_str().unwrap_or_default().to_owned(),
    }
}

/// Adds a piece of routers' `reasoning_details`: texts of the same kind and place are one.
fn add_detail(details: &mut Vec<Value>, piece: &Value) {
    let same = |known: &Value| known["type"] == piece["type"] && known["index"] == piece["index"];
    let (Some(last), Some(fields)) = (
        details.last_mut().filter(|last| same(last)),
        piece.as_object(),
    ) else {
        details.push(piece.clone());
        return;
    };
    for (name, value) in fields {
        match (&mut last[name.as_str()], value) {
            (Value::String(before), Value::String(more))
                if matches!(name.as_str(), "text" | "summary" | "data") =>
            {
                before.push_str(more);
            }
            (before, value) if !value.is_null() => *before = value.clone(),
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
