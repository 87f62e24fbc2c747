//! A reply, put together from the chunks of a stream.
//!
//! Servers that call themselves compatible differ in small ways; each leniency here names the one
//! it serves. What is never lenient: a chunk that is not JSON, an error object, and a stream that
//! ends without the word that it is whole.

use super::calls::{CallPiece, Calls};
use super::usage;
use crate::models::http::classify::Fault;
use crate::models::http::finish::{FinishWord, add_reason, decide_finish, infer_finish_word};
use crate::models::http::origin::{CallOrigin, ThinkingOrigin};
use crate::models::http::room::{Room, call_arguments};
use crate::models::http::{self, Taken, said};
use crate::models::{Block, Completion, Delta, OnDelta, Usage};
use serde_json::{Map, Value};

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
    /// What a reply used that was abandoned before this one.
    abandoned: Usage,
    /// Bytes of the reply when its usage was read.
    counted_at: usize,
    /// Most output tokens that were asked for.
    output_max: u64,
    /// Parts of substance so far.
    substance: u64,
    /// Chunks so far.
    chunks: u64,
    identity: ReplyIdentity,
}

/// Bytes of a reply that make one token at least.
const TOKEN_BYTES: usize = 4;

/// Which reply of a stream the chunks belong to.
#[derive(Default)]
struct ReplyIdentity {
    id: String,
    /// How the server names its chunks.
    naming: Naming,
    /// A second reply began behind the end of the first.
    past: bool,
    /// The one delta of a reply that seems to be abandoned, until the next chunk decides.
    shelved: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Naming {
    /// Nothing is known.
    #[default]
    Unknown,
    /// Chunks of one reply have one id.
    Steady,
    /// Each chunk has another id.
    Changing,
}

/// What a chunk is to the reply before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Belonging {
    /// It goes on with it.
    Same,
    /// It begins another reply in its place.
    Another,
    /// It seems to, but the next chunk has to tell.
    Perhaps,
    /// The one before it seemed to begin another reply, and did not.
    Restored,
    /// It belongs to a second reply, behind the whole first one.
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
        // Some servers repeat a growing usage in every chunk: the last one that can be read counts.
        let usage = usage::of_chunk(&chunk).filter(|_| !self.identity.past);
        let counted = usage.is_some() && usage != self.usage;
        if let Some(said) = said::in_stream(&chunk, "choices") {
            self.count_usage(usage);
            return Err(Fault::StreamError(said));
        }
        self.chunks += 1;
        // Only one choice was asked for.
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

    /// Of output, what has arrived counts at least: a usage that came early is no more than a
    /// start.
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
    /// A reply of the provider of this name, of which nothing has arrived.
    pub fn of(provider: &str, output_max: u64) -> Self {
        Self {
            provider: provider.to_owned(),
            output_max,
            ..Self::default()
        }
    }

    /// Takes what is reported so far. Nothing takes away what was.
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
        // A reply that is no stream has a message in place of the delta.
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

    /// Decides what a chunk is to those before it. A router that fails over begins a second reply
    /// in the same stream: with another id, and with a role. Some servers make up another id for
    /// each chunk; two chunks with the same id show that this one does not.
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

    /// Drops what has come of a reply, but what it used.
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

    /// Puts the first delta of a reply in front of what came since: its server names each chunk
    /// anew, and the two were one reply.
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

    /// Adds a piece of a router's `reasoning_details`: texts of the same kind and place are one.
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

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
