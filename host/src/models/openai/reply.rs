//! The assembly of a reply from the chunks of a stream of chat completions.
//!
//! Servers that call themselves compatible differ in small ways; each leniency here names the one
//! it serves. Three cases are always faults: a chunk that is not JSON, an error object, and a
//! stream that ends without a sign that it is complete.

use super::calls::{CallPiece, Calls};
use super::usage;
use crate::models::http::classify::Fault;
use crate::models::http::finish::{FinishWord, add_reason, decide_finish, infer_finish_word};
use crate::models::http::origin::{CallOrigin, ThinkingOrigin};
use crate::models::http::room::{Room, call_arguments};
use crate::models::http::{self, Taken, said};
use crate::models::{Block, Completion, Delta, OnDelta, Usage};
use serde_json::{Map, Value};

/// Fields of a delta that may hold thinking, each used by some servers.
const THINKING_FIELDS: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];

/// The reply as far as its chunks have arrived.
#[derive(Default)]
pub(in crate::models) struct Reply {
    /// Name of the provider; stored with blocks that go back to this provider alone.
    provider: String,
    blocks: Vec<Block>,
    calls: Calls,
    /// The field that thinking came in, for the `raw` of its block.
    thinking: ThinkingOrigin,
    room: Room,
    refused: bool,
    finish: Option<String>,
    usage: Option<Usage>,
    ended: bool,
    /// Usage of an earlier reply in the same stream that a router abandoned.
    abandoned: Usage,
    /// Bytes of the reply when its usage was read.
    counted_at: usize,
    /// Most output tokens that the request allowed.
    output_max: u64,
    /// Number of parts so far that added to the reply.
    substance: u64,
    /// Number of chunks so far.
    chunks: u64,
    identity: ReplyIdentity,
}

/// Least bytes of a reply that make one token.
const TOKEN_BYTES: usize = 4;

/// The identity of the reply that the chunks of a stream belong to.
#[derive(Default)]
struct ReplyIdentity {
    id: String,
    /// The server's way to give ids to chunks.
    naming: Naming,
    /// True once a second reply has begun after the end of the first; its chunks are ignored.
    past: bool,
    /// The only delta of a reply that seems to be abandoned, until the next chunk decides.
    shelved: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Naming {
    /// Not known yet.
    #[default]
    Unknown,
    /// The chunks of one reply share one id.
    Steady,
    /// Each chunk has another id.
    Changing,
}

/// The relation of a chunk to the reply before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Belonging {
    /// It continues the reply.
    Same,
    /// It begins another reply in its place.
    Another,
    /// It seems to begin another reply, but the next chunk has to decide.
    Perhaps,
    /// The chunk before it seemed to begin another reply, and did not.
    Restored,
    /// It belongs to a second reply, after the whole first one.
    Past,
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
        // Some servers repeat a growing usage in every chunk: the last readable one counts.
        let usage = usage::of_chunk(&chunk).filter(|_| !self.identity.past);
        let counted = usage.is_some() && usage != self.usage;
        if let Some(said) = said::in_stream(&chunk, "choices") {
            self.count_usage(usage);
            return Err(Fault::StreamError(said));
        }
        self.chunks += 1;
        // Only one choice was requested.
        let choices = chunk["choices"].as_array().into_iter().flatten();
        let mine = |choice: &&Value| http::number(&choice["index"]).unwrap_or(0) == 0;
        let (before, unfinished) = (self.substance, self.finish.is_none());
        for choice in choices.filter(mine) {
            self.take_choice(&chunk["id"], choice, on_delta)?;
        }
        self.count_usage(usage.filter(|_| !self.identity.past));
        let ends = unfinished && self.finish.is_some();
        let progress = self.substance > before || ends || counted;
        Ok(if progress {
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

    /// Returns the usage so far. Output that has arrived since the last report is added, because an
    /// early report covers only the beginning.
    fn usage(&self) -> Option<Usage> {
        let usage = self.usage?;
        let more = self.room.taken().saturating_sub(self.counted_at) / TOKEN_BYTES;
        let output = usage.output.saturating_add(more as u64);
        Some(Usage { output, ..usage }.plus(self.abandoned))
    }

    fn complete(&mut self) -> Result<Completion, Fault> {
        let calls = !self.calls.open.is_empty();
        let says = calls || !self.text().is_empty();
        let in_order = self.usage.filter(|_| self.ended && says);
        let inferred = in_order.map(|usage| infer_finish_word(usage, self.output_max));
        let word = self.finish.take().or(inferred).ok_or(Fault::Unfinished)?;
        let mut finish = decide_finish(&word, calls)?;
        if finish == "stop" && self.refused {
            finish = FinishWord::ContentFilter.to_finish(&word);
        }
        let cut = !matches!(finish.as_str(), "stop" | "tool_use");
        let usage = self.usage();
        let usage = usage.filter(|usage| usage.output > 0 || self.blocks.is_empty());
        Ok(Completion {
            blocks: self.take_blocks(cut),
            finish,
            usage,
            session: None,
        })
    }
}

impl Reply {
    /// Makes an empty reply of the provider of this name.
    pub fn of(provider: &str, output_max: u64) -> Self {
        Self {
            provider: provider.to_owned(),
            output_max,
            ..Self::default()
        }
    }

    /// Stores reported usage. A chunk without usage leaves the earlier one.
    fn count_usage(&mut self, usage: Option<Usage>) {
        if usage.is_some() {
            self.usage = usage;
            self.counted_at = self.room.taken();
        }
    }

    fn take_choice(
        &mut self,
        id: &Value,
        choice: &Value,
        on_delta: OnDelta<'_>,
    ) -> Result<(), Fault> {
        // A reply that is not a stream has a message in place of the delta.
        let parts = ["delta", "message"].map(|name| &choice[name]);
        let delta = parts.into_iter().find(|part| part.is_object());
        let delta = delta.unwrap_or(&Value::Null);
        match self.belonging(id, delta) {
            Belonging::Same => {}
            Belonging::Another => self.begin_anew(on_delta),
            Belonging::Perhaps => {
                let shelved = self.identity.shelved.take();
                self.begin_anew(on_delta);
                self.identity.shelved = shelved;
            }
            Belonging::Restored => {
                let (shelved, now) = (self.identity.shelved.take(), self.identity.id.clone());
                if let Some(shelved) = shelved {
                    self.restore(&shelved, on_delta)?;
                }
                self.identity.id = now;
            }
            Belonging::Past => {
                self.identity.past = true;
                return Ok(());
            }
        }
        if let Some(id) = id.as_str().filter(|id| !id.is_empty()) {
            id.clone_into(&mut self.identity.id);
        }
        if self.chunks == 1 {
            self.identity.shelved = Some(delta.clone());
        }
        self.take_delta(delta, on_delta)?;
        let reason = match &choice["finish_reason"] {
            Value::Null => None,
            Value::String(word) => Some(word.clone()).filter(|word| !word.is_empty()),
            other => Some(other.to_string()),
        };
        self.finish = add_reason(self.finish.take(), reason);
        Ok(())
    }

    /// Decides the relation of a chunk to those before it. A router that fails over begins a second
    /// reply in the same stream: with another id, and with a role. Some servers generate another id
    /// for each chunk; two chunks with the same id show that this server does not.
    fn belonging(&mut self, id: &Value, delta: &Value) -> Belonging {
        let identity = &mut self.identity;
        let Some(id) = id.as_str().filter(|id| !id.is_empty()) else {
            return Belonging::Same;
        };
        if identity.past {
            return Belonging::Past;
        }
        if identity.id.is_empty() || identity.naming == Naming::Changing {
            return Belonging::Same;
        }
        if identity.id == id {
            identity.naming = Naming::Steady;
            identity.shelved = None;
            return Belonging::Same;
        }
        let begins = delta["role"].is_string();
        match (identity.naming, self.chunks) {
            (Naming::Steady, _) if begins && self.finish.is_some() => Belonging::Past,
            (Naming::Steady, _) if begins => Belonging::Another,
            (Naming::Steady, _) => Belonging::Same,
            (_, 2) if begins && self.finish.is_none() => Belonging::Perhaps,
            (_, 3) if identity.shelved.is_some() => {
                identity.naming = Naming::Changing;
                Belonging::Restored
            }
            _ => {
                identity.naming = Naming::Changing;
                Belonging::Same
            }
        }
    }

    /// Drops the reply so far, except for its usage.
    fn begin_anew(&mut self, on_delta: OnDelta<'_>) {
        let used = self.usage.unwrap_or_default();
        *self = Self {
            abandoned: self.abandoned.plus(used),
            chunks: self.chunks,
            substance: self.substance,
            room: std::mem::take(&mut self.room),
            identity: ReplyIdentity {
                naming: self.identity.naming,
                ..ReplyIdentity::default()
            },
            ..Self::of(&self.provider, self.output_max)
        };
        on_delta(Delta::Restarted);
    }

    /// Puts the shelved first delta in front of what came since: its server gives each chunk
    /// another id, so the two were one reply.
    fn restore(&mut self, first: &Value, on_delta: OnDelta<'_>) -> Result<(), Fault> {
        let since = std::mem::take(&mut self.blocks);
        let calls = std::mem::take(&mut self.calls);
        on_delta(Delta::Restarted);
        self.take_delta(first, on_delta)?;
        for block in since {
            match block {
                Block::Text { text } => self.say(&text, on_delta)?,
                Block::Thinking { text, .. } => {
                    let field = self.thinking.field.clone();
                    self.think(&text, &field, on_delta)?;
                }
                Block::ToolUse { .. } => {}
            }
        }
        for call in calls.open {
            self.take_call(CallPiece::of_call(call), on_delta)?;
        }
        Ok(())
    }

    fn take_delta(&mut self, delta: &Value, on_delta: OnDelta<'_>) -> Result<(), Fault> {
        for field in THINKING_FIELDS {
            if let Some(thought) = delta[field].as_str().filter(|text| !text.is_empty()) {
                self.think(thought, field, on_delta)?;
                break;
            }
        }
        for piece in delta["reasoning_details"].as_array().into_iter().flatten() {
            if let Some(piece) = piece.as_object() {
                self.add_detail(piece)?;
            }
        }
        self.take_content(&delta["content"], on_delta)?;
        // A refusal is text for the reader like any other; only the finish reason differs.
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

    /// Consumes content: a text, or a list of parts. A part is text or thinking, and thinking may
    /// be a text or a list of its own.
    fn take_content(&mut self, content: &Value, on_delta: OnDelta<'_>) -> Result<(), Fault> {
        match content {
            Value::Null => Ok(()),
            Value::String(text) => self.say(text, on_delta),
            Value::Array(parts) => parts
                .iter()
                .try_for_each(|part| match part["type"].as_str() {
                    Some("thinking") => self.think(&joined(&part["thinking"]), "content", on_delta),
                    // Parts of kinds that were not requested (references) are skipped.
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
        self.substance += 1;
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
        self.substance += 1;
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
        let known = self.calls.open.len();
        self.substance += u64::from(piece.says_more());
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
        self.substance += u64::from(self.calls.open.len() > known);
        let unnamed = self.calls.open[at].name.is_empty();
        self.calls.extend(at, piece, self.chunks);
        let name = &self.calls.open[at].name;
        if unnamed && !name.is_empty() {
            on_delta(Delta::ToolUse(name.clone()));
        }
        Ok(())
    }

    /// Adds a piece of a router's `reasoning_details`. Pieces of the same type and index are
    /// merged.
    fn add_detail(&mut self, piece: &Map<String, Value>) -> Result<(), Fault> {
        let bytes: usize = piece.values().map(|value| value.to_string().len()).sum();
        self.room.bytes(bytes)?;
        let details = &mut self.thinking.details;
        let same = |known: &&mut Map<String, Value>| {
            known.get("type") == piece.get("type") && known.get("index") == piece.get("index")
        };
        let Some(last) = details.last_mut().filter(same) else {
            details.push(piece.clone());
            return self.room.block();
        };
        for (name, value) in piece {
            match (last.get_mut(name), value) {
                (Some(Value::String(before)), Value::String(more))
                    if matches!(name.as_str(), "text" | "summary" | "data") =>
                {
                    before.push_str(more);
                }
                (_, Value::Null) => {}
                _ => drop(last.insert(name.clone(), value.clone())),
            }
        }
        Ok(())
    }

    fn begin(&mut self, block: Block) -> Result<(), Fault> {
        self.room.block()?;
        self.blocks.push(block);
        Ok(())
    }

    /// Takes the blocks of the complete reply, each with the fields that only its provider
    /// understands.
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

/// Returns the text of a part, of a list of parts, or the text itself.
fn joined(part: &Value) -> String {
    match part {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(joined).collect(),
        part => part["text"].as_str().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
