//! The assembly of a reply from the chunks of a stream of chat completions.
//!
//! Servers that call themselves compatible differ in small ways; each leniency here names the one
//! it serves. Three cases are always faults: a chunk that is not JSON, an error object, and a
//! stream that ends without a sign that it is complete.

use super::calls::{CallAssembler, CallPiece};
use super::usage;
use crate::models::wire::classify::ExchangeFault;
use crate::models::wire::finish::{FinishWord, add_reason, decide_finish, infer_finish_word};
use crate::models::wire::origin::{CallOrigin, ThinkingOrigin};
use crate::models::wire::reply_size::{ReplySize, call_arguments};
use crate::models::wire::{self, EventEffect, error_body};
use crate::models::{ModelCompletion, OnDelta, ReplyBlock, ReplyDelta, Usage};
use serde_json::{Map, Value};

/// Fields of a delta that may hold thinking, each used by some servers.
const THINKING_FIELDS: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];

/// The reply as far as its chunks have arrived.
#[derive(Default)]
pub struct OpenAiReply {
    /// Name of the provider; stored with blocks that go back to this provider alone.
    provider: String,
    blocks: Vec<ReplyBlock>,
    calls: CallAssembler,
    /// The field that thinking came in, for the `raw` of its block.
    thinking: ThinkingOrigin,
    room: ReplySize,
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
    /// The server's name of the model that answers.
    model: Option<String>,
    /// The server's way to give ids to chunks.
    naming: ChunkNaming,
    /// True once a second reply has begun after the end of the first; its chunks are ignored.
    ignores_rest: bool,
    /// The only delta of a reply that seems to be abandoned, until the next chunk decides.
    shelved: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ChunkNaming {
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
enum ChunkRelation {
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

impl wire::ReplyBuilder for OpenAiReply {
    fn take_event(
        &mut self,
        data: &str,
        on_delta: OnDelta<'_>,
    ) -> Result<EventEffect, ExchangeFault> {
        if data.trim() == "[DONE]" {
            self.ended = true;
            return Ok(EventEffect::Substance);
        }
        let chunk: Value = serde_json::from_str(data).map_err(|_| ExchangeFault::BadChunk)?;
        if !chunk.is_object() {
            return Err(ExchangeFault::BadChunk);
        }
        // Some servers repeat a growing usage in every chunk: the last readable one counts.
        let usage = usage::parse_chunk_usage(&chunk).filter(|_| !self.identity.ignores_rest);
        let counted = usage.is_some() && usage != self.usage;
        if let Some(said) = error_body::parse_stream_error(&chunk, "choices") {
            self.count_usage(usage);
            return Err(ExchangeFault::StreamError(said));
        }
        self.chunks += 1;
        // Only one choice was requested.
        let choices = chunk["choices"].as_array().into_iter().flatten();
        let mine = |choice: &&Value| wire::parse_count(&choice["index"]).unwrap_or(0) == 0;
        let (before, unfinished) = (self.substance, self.finish.is_none());
        for choice in choices.filter(mine) {
            self.take_choice(&chunk["id"], choice, on_delta)?;
            if let Some(model) = chunk["model"]
                .as_str()
                .filter(|_| !self.identity.ignores_rest)
            {
                self.identity.model = Some(model.to_owned());
            }
        }
        self.count_usage(usage.filter(|_| !self.identity.ignores_rest));
        let ends = unfinished && self.finish.is_some();
        let progress = self.substance > before || ends || counted;
        Ok(if progress {
            EventEffect::Substance
        } else {
            EventEffect::Nothing
        })
    }

    fn take_document(
        &mut self,
        answer: &Value,
        on_delta: OnDelta<'_>,
    ) -> Option<Result<(), ExchangeFault>> {
        answer["choices"].is_array().then(|| {
            self.take_event(&answer.to_string(), on_delta)?;
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
        let text = |block: &ReplyBlock| match block {
            ReplyBlock::Text { text } => Some(text.clone()),
            ReplyBlock::Thinking { .. } | ReplyBlock::ToolUse { .. } => None,
        };
        self.blocks.iter().filter_map(text).collect()
    }

    /// Returns the usage so far. Output that has arrived since the last report is added, because an
    /// early report covers only the beginning.
    fn usage(&self) -> Option<Usage> {
        let usage = self.usage?;
        let more = self.room.byte_count().saturating_sub(self.counted_at) / TOKEN_BYTES;
        let output = usage.output.saturating_add(more as u64);
        Some(Usage { output, ..usage }.plus(self.abandoned))
    }

    fn complete(&mut self) -> Result<ModelCompletion, ExchangeFault> {
        let calls = !self.calls.calls.is_empty();
        let says = calls || !self.text().is_empty();
        let in_order = self.usage.filter(|_| self.ended && says);
        let inferred = in_order.map(|usage| infer_finish_word(usage, self.output_max));
        let word = self
            .finish
            .take()
            .or(inferred)
            .ok_or(ExchangeFault::Unfinished)?;
        let mut finish = decide_finish(&word, calls)?;
        if finish == "stop" && self.refused {
            finish = FinishWord::ContentFilter.to_finish(&word);
        }
        let cut = !matches!(finish.as_str(), "stop" | "tool_use");
        let usage = self.usage();
        let usage = usage.filter(|usage| usage.output > 0 || self.blocks.is_empty());
        Ok(ModelCompletion {
            blocks: self.take_blocks(cut),
            finish,
            usage,
            session: None,
            id: Some(std::mem::take(&mut self.identity.id)),
            model: self.identity.model.take(),
        })
    }
}

impl OpenAiReply {
    /// Makes an empty reply of the provider of this name.
    pub fn new(provider: &str, output_max: u64) -> Self {
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
            self.counted_at = self.room.byte_count();
        }
    }

    fn take_choice(
        &mut self,
        id: &Value,
        choice: &Value,
        on_delta: OnDelta<'_>,
    ) -> Result<(), ExchangeFault> {
        // A reply that is not a stream has a message in place of the delta.
        let parts = ["delta", "message"].map(|name| &choice[name]);
        let delta = parts.into_iter().find(|part| part.is_object());
        let delta = delta.unwrap_or(&Value::Null);
        match self.relate_chunk(id, delta) {
            ChunkRelation::Same => {}
            ChunkRelation::Another => self.restart_reply(on_delta),
            ChunkRelation::Perhaps => {
                let shelved = self.identity.shelved.take();
                self.restart_reply(on_delta);
                self.identity.shelved = shelved;
            }
            ChunkRelation::Restored => {
                let (shelved, now) = (self.identity.shelved.take(), self.identity.id.clone());
                if let Some(shelved) = shelved {
                    self.restore_first_delta(&shelved, on_delta)?;
                }
                self.identity.id = now;
            }
            ChunkRelation::Past => {
                self.identity.ignores_rest = true;
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
    fn relate_chunk(&mut self, id: &Value, delta: &Value) -> ChunkRelation {
        let identity = &mut self.identity;
        let Some(id) = id.as_str().filter(|id| !id.is_empty()) else {
            return ChunkRelation::Same;
        };
        if identity.ignores_rest {
            return ChunkRelation::Past;
        }
        if identity.id.is_empty() || identity.naming == ChunkNaming::Changing {
            return ChunkRelation::Same;
        }
        if identity.id == id {
            identity.naming = ChunkNaming::Steady;
            identity.shelved = None;
            return ChunkRelation::Same;
        }
        let begins = delta["role"].is_string();
        match (identity.naming, self.chunks) {
            (ChunkNaming::Steady, _) if begins && self.finish.is_some() => ChunkRelation::Past,
            (ChunkNaming::Steady, _) if begins => ChunkRelation::Another,
            (ChunkNaming::Steady, _) => ChunkRelation::Same,
            (_, 2) if begins && self.finish.is_none() => ChunkRelation::Perhaps,
            (_, 3) if identity.shelved.is_some() => {
                identity.naming = ChunkNaming::Changing;
                ChunkRelation::Restored
            }
            _ => {
                identity.naming = ChunkNaming::Changing;
                ChunkRelation::Same
            }
        }
    }

    /// Drops the reply so far, except for its usage.
    fn restart_reply(&mut self, on_delta: OnDelta<'_>) {
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
            ..Self::new(&self.provider, self.output_max)
        };
        on_delta(ReplyDelta::Restarted);
    }

    /// Puts the shelved first delta in front of what came since: its server gives each chunk
    /// another id, so the two were one reply.
    fn restore_first_delta(
        &mut self,
        first: &Value,
        on_delta: OnDelta<'_>,
    ) -> Result<(), ExchangeFault> {
        let since = std::mem::take(&mut self.blocks);
        let calls = std::mem::take(&mut self.calls);
        on_delta(ReplyDelta::Restarted);
        self.take_delta(first, on_delta)?;
        for block in since {
            match block {
                ReplyBlock::Text { text } => self.append_text(&text, on_delta)?,
                ReplyBlock::Thinking { text, .. } => {
                    let field = self.thinking.field.clone();
                    self.append_thinking(&text, &field, on_delta)?;
                }
                ReplyBlock::ToolUse { .. } => {}
            }
        }
        for call in calls.calls {
            self.take_call(CallPiece::from_call(call), on_delta)?;
        }
        Ok(())
    }

    fn take_delta(&mut self, delta: &Value, on_delta: OnDelta<'_>) -> Result<(), ExchangeFault> {
        for field in THINKING_FIELDS {
            if let Some(thought) = delta[field].as_str().filter(|text| !text.is_empty()) {
                self.append_thinking(thought, field, on_delta)?;
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
            self.append_text(refusal, on_delta)?;
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
    fn take_content(
        &mut self,
        content: &Value,
        on_delta: OnDelta<'_>,
    ) -> Result<(), ExchangeFault> {
        match content {
            Value::Null => Ok(()),
            Value::String(text) => self.append_text(text, on_delta),
            Value::Array(parts) => parts
                .iter()
                .try_for_each(|part| match part["type"].as_str() {
                    Some("thinking") => {
                        self.append_thinking(&join_text(&part["thinking"]), "content", on_delta)
                    }
                    // Parts of kinds that were not requested (references) are skipped.
                    _ => self.append_text(&join_text(part), on_delta),
                }),
            _ => Err(ExchangeFault::BadChunk),
        }
    }

    fn append_text(&mut self, text: &str, on_delta: OnDelta<'_>) -> Result<(), ExchangeFault> {
        if text.is_empty() {
            return Ok(());
        }
        self.room.add_bytes(text.len())?;
        self.substance += 1;
        match self.blocks.last_mut() {
            Some(ReplyBlock::Text { text: before }) => before.push_str(text),
            _ => self.push_block(ReplyBlock::Text {
                text: text.to_owned(),
            })?,
        }
        on_delta(ReplyDelta::Text(text.to_owned()));
        Ok(())
    }

    fn append_thinking(
        &mut self,
        thought: &str,
        field: &str,
        on_delta: OnDelta<'_>,
    ) -> Result<(), ExchangeFault> {
        if thought.is_empty() {
            return Ok(());
        }
        self.room.add_bytes(thought.len())?;
        self.substance += 1;
        field.clone_into(&mut self.thinking.field);
        match self.blocks.last_mut() {
            Some(ReplyBlock::Thinking { text, .. }) => text.push_str(thought),
            _ => self.push_block(ReplyBlock::Thinking {
                text: thought.to_owned(),
                raw: None,
            })?,
        }
        on_delta(ReplyDelta::Thinking(thought.to_owned()));
        Ok(())
    }

    fn take_call(&mut self, piece: CallPiece, on_delta: OnDelta<'_>) -> Result<(), ExchangeFault> {
        self.room.add_bytes(piece.byte_count())?;
        let known = self.calls.calls.len();
        self.substance += u64::from(piece.has_arguments());
        let at = match self.calls.find_call(&piece, self.chunks) {
            Some(at) => at,
            None => {
                let block = self.blocks.len();
                self.push_block(ReplyBlock::ToolUse {
                    id: String::new(),
                    name: String::new(),
                    arguments: String::new(),
                    raw: None,
                })?;
                self.calls.begin_call(block, &piece)
            }
        };
        self.substance += u64::from(self.calls.calls.len() > known);
        let unnamed = self.calls.calls[at].name.is_empty();
        self.calls.extend_call(at, piece, self.chunks);
        let name = &self.calls.calls[at].name;
        if unnamed && !name.is_empty() {
            on_delta(ReplyDelta::ToolUse(name.clone()));
        }
        Ok(())
    }

    /// Adds a piece of a router's `reasoning_details`. Pieces of the same type and index are
    /// merged.
    fn add_detail(&mut self, piece: &Map<String, Value>) -> Result<(), ExchangeFault> {
        let bytes: usize = piece.values().map(|value| value.to_string().len()).sum();
        self.room.add_bytes(bytes)?;
        let details = &mut self.thinking.details;
        let same = |known: &&mut Map<String, Value>| {
            known.get("type") == piece.get("type") && known.get("index") == piece.get("index")
        };
        let Some(last) = details.last_mut().filter(same) else {
            details.push(piece.clone());
            return self.room.add_block();
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

    fn push_block(&mut self, block: ReplyBlock) -> Result<(), ExchangeFault> {
        self.room.add_block()?;
        self.blocks.push(block);
        Ok(())
    }

    /// Takes the blocks of the complete reply, each with the fields that only its provider
    /// understands.
    fn take_blocks(&mut self, cut: bool) -> Vec<ReplyBlock> {
        let mut blocks = std::mem::take(&mut self.blocks);
        for call in std::mem::take(&mut self.calls.calls) {
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
            *block = ReplyBlock::ToolUse {
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
                .any(|block| matches!(block, ReplyBlock::Thinking { .. }))
        {
            let text = String::new();
            blocks.insert(0, ReplyBlock::Thinking { text, raw: None });
        }
        for block in &mut blocks {
            if let ReplyBlock::Thinking { raw, .. } = block {
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
fn join_text(part: &Value) -> String {
    match part {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(join_text).collect(),
        part => part["text"].as_str().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
#[path = "abandoned_reply_tests.rs"]
mod abandoned_tests;

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
