//! The assembly of a reply from the events of a stream of Anthropic's messages.
//!
//! Events, deltas and blocks of kinds that were not requested are skipped, as Anthropic's
//! documentation requires. Four cases are always faults: an event that is not JSON, a delta without
//! its block, an error event, and a stream that ends without a stop reason.

use crate::models::wire::classify::ExchangeFault;
use crate::models::wire::finish::{add_reason, decide_finish, infer_finish_word};
use crate::models::wire::origin::CallOrigin;
use crate::models::wire::reply_size::{ReplySize, call_arguments};
use crate::models::wire::{self, EventEffect, error_body, parse_count};
use crate::models::{ModelCompletion, OnDelta, ReplyBlock, ReplyDelta, Usage};
use serde_json::{Map, Value};

/// Least bytes of a reply that make one token: English has four, code and other languages fewer.
const TOKEN_BYTES: usize = 3;

/// A content block of the wire that is being put together.
enum PartialBlock {
    Text(String),
    /// Thinking. `raw` is the provider's own object as `content_block_start` sent it; `text` and
    /// `signature` collect the deltas.
    Thinking {
        raw: Map<String, Value>,
        text: String,
        signature: String,
    },
    /// The provider's own object, complete from `content_block_start` on.
    Redacted(Value),
    Call {
        id: String,
        name: String,
        arguments: String,
        /// The input that `content_block_start` already carried: some servers send no deltas.
        whole: Option<String>,
    },
    /// A block of a kind that was not requested.
    Other,
}

/// The reply as far as its events have arrived.
#[derive(Default)]
pub struct AnthropicReply {
    /// Name of the provider; stored with blocks that go back to this provider alone.
    provider: String,
    /// In order of arrival, each with the index that deltas name.
    parts: Vec<(u64, PartialBlock)>,
    room: ReplySize,
    finish: Option<String>,
    usage: Option<Usage>,
    /// True once `usage` holds the counts of the end of the reply.
    counted: bool,
    ended: bool,
    /// Usage of an earlier message in the same stream that a router abandoned.
    abandoned: Usage,
    /// Most output tokens that the request allowed.
    output_max: u64,
    /// True once a message has begun.
    begun: bool,
    /// True once a second message has begun after the end of the first; its events are ignored.
    ignores_rest: bool,
    /// The provider's id of the message.
    id: Option<String>,
    /// The provider's name of the model that answers.
    model: Option<String>,
}

impl wire::ReplyBuilder for AnthropicReply {
    fn take_event(
        &mut self,
        data: &str,
        on_delta: OnDelta<'_>,
    ) -> Result<EventEffect, ExchangeFault> {
        // Some gateways end the stream with OpenAI's mark.
        if data.trim() == "[DONE]" {
            self.ended = true;
            return Ok(EventEffect::Substance);
        }
        let event: Value = serde_json::from_str(data).map_err(|_| ExchangeFault::BadChunk)?;
        if let Some(said) = error_body::parse_stream_error(&event, "type") {
            self.count_usage(&event["usage"], false);
            return Err(ExchangeFault::StreamError(said));
        }
        if event["type"] == "ping" || self.ignores_rest {
            return Ok(EventEffect::Nothing);
        }
        let before = self.room.byte_count();
        let index = || event["index"].as_u64().ok_or(ExchangeFault::BadChunk);
        match event["type"].as_str().ok_or(ExchangeFault::BadChunk)? {
            "message_start" => {
                if self.begin_message() {
                    on_delta(ReplyDelta::Restarted);
                }
                if self.ignores_rest {
                    return Ok(EventEffect::Nothing);
                }
                self.note_labels(&event["message"]);
                self.count_usage(&event["message"]["usage"], false);
            }
            "content_block_start" => {
                self.begin_block(index()?, &event["content_block"], on_delta)?
            }
            "content_block_delta" => self.apply_delta(index()?, &event["delta"], on_delta)?,
            "message_delta" => {
                self.count_usage(&event["usage"], true);
                let reason = event["delta"]["stop_reason"].as_str();
                let reason = reason.filter(|reason| !reason.is_empty());
                let reason = reason.map(str::to_owned);
                self.finish = add_reason(self.finish.take(), reason);
            }
            "message_stop" => self.ended = true,
            _ => {}
        }
        let grown = self.room.byte_count() > before || self.finish.is_some();
        Ok(if grown {
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
        let blocks = answer["content"].as_array()?;
        self.note_labels(answer);
        let mut blocks = (0..).zip(blocks);
        let taken = blocks.try_for_each(|(index, block)| self.begin_block(index, block, on_delta));
        self.count_usage(&answer["usage"], true);
        self.finish = answer["stop_reason"].as_str().map(str::to_owned);
        self.ended = true;
        Some(taken)
    }

    fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    fn is_ended(&self) -> bool {
        self.ended
    }

    fn text(&self) -> String {
        let text = |(_, part): &(u64, PartialBlock)| match part {
            PartialBlock::Text(text) => Some(text.clone()),
            _ => None,
        };
        self.parts.iter().filter_map(text).collect()
    }

    /// Returns the usage so far. The output that a stream reports at its beginning is only an
    /// initial value, so the bytes that have arrived since count at least. Thinking arrives
    /// shortened or not at all, so a reply with thinking has no known usage.
    fn usage(&self) -> Option<Usage> {
        let thinks = |(_, part): &(u64, PartialBlock)| {
            matches!(
                part,
                PartialBlock::Thinking { .. } | PartialBlock::Redacted(_)
            )
        };
        let usage = self.usage?;
        let all = |usage: Usage| Some(usage.plus(self.abandoned));
        if self.counted {
            return all(usage);
        }
        let arrived = self.room.byte_count().div_ceil(TOKEN_BYTES) as u64;
        let output = usage.output.max(arrived);
        let thought = self.parts.iter().any(thinks);
        all(Usage { output, ..usage }).filter(|_| !thought)
    }

    fn complete(&mut self) -> Result<ModelCompletion, ExchangeFault> {
        let is_call = |(_, part): &(u64, PartialBlock)| matches!(part, PartialBlock::Call { .. });
        let calls = self.parts.iter().any(is_call);
        let says = calls || !self.text().is_empty();
        let counted = self.usage.filter(|_| self.counted);
        let in_order = counted.filter(|_| self.ended && says);
        let inferred = in_order.map(|usage| infer_finish_word(usage, self.output_max));
        let word = self
            .finish
            .take()
            .or(inferred)
            .ok_or(ExchangeFault::Unfinished)?;
        let finish = decide_finish(&word, calls)?;
        let cut = !matches!(finish.as_str(), "stop" | "tool_use");
        let parts = std::mem::take(&mut self.parts).into_iter().enumerate();
        let blocks: Vec<ReplyBlock> = parts
            .filter_map(|(n, (_, part))| finish_block(n, part, cut, &self.provider))
            .collect();
        // A count of zero input, or of zero output beside text, is not a count: the usage is
        // unknown.
        let is_known =
            |usage: &Usage| usage.total() > usage.output && (usage.output > 0 || blocks.is_empty());
        Ok(ModelCompletion {
            usage: counted
                .filter(is_known)
                .map(|usage| usage.plus(self.abandoned)),
            blocks,
            finish,
            session: None,
            id: self.id.take(),
            model: self.model.take(),
        })
    }
}

impl AnthropicReply {
    /// Makes an empty reply of the provider of this name.
    pub fn new(provider: &str, output_max: u64) -> Self {
        Self {
            provider: provider.to_owned(),
            output_max,
            ..Self::default()
        }
    }

    /// Keeps id and model of a message.
    fn note_labels(&mut self, message: &Value) {
        let word = |field: &str| message[field].as_str().map(str::to_owned);
        (self.id, self.model) = (word("id"), word("model"));
    }

    /// Handles a `message_start`. A router that fails over begins a second message in the same
    /// stream. If the first one was not whole, its content is dropped and true is returned; if it
    /// was whole, the second one is ignored. The usage of a dropped message still counts.
    fn begin_message(&mut self) -> bool {
        if self.finish.is_some() {
            self.ignores_rest = true;
            return false;
        }
        let another = std::mem::replace(&mut self.begun, true);
        if another {
            self.parts.clear();
            self.counted = false;
            let used = self.usage.take().unwrap_or_default();
            self.abandoned = self.abandoned.plus(used);
        }
        another
    }

    /// Begins a content block at this index.
    fn begin_block(
        &mut self,
        index: u64,
        block: &Value,
        on_delta: OnDelta<'_>,
    ) -> Result<(), ExchangeFault> {
        self.room.add_block()?;
        let word = |field: &str| block[field].as_str().unwrap_or_default().to_owned();
        let part = match block["type"].as_str().ok_or(ExchangeFault::BadChunk)? {
            "text" => PartialBlock::Text(String::new()),
            "thinking" => {
                let raw = block.as_object().cloned().unwrap_or_default();
                self.room
                    .add_bytes(Value::from(raw.clone()).to_string().len())?;
                PartialBlock::Thinking {
                    raw,
                    text: String::new(),
                    signature: word("signature"),
                }
            }
            "redacted_thinking" => {
                self.room.add_bytes(block.to_string().len())?;
                PartialBlock::Redacted(block.clone())
            }
            "tool_use" => {
                let (id, name) = (word("id"), word("name"));
                let input = block["input"].as_object().filter(|input| !input.is_empty());
                let whole = input.map(|_| block["input"].to_string());
                let input = whole.as_ref().map_or(0, String::len);
                self.room.add_bytes(id.len() + name.len() + input)?;
                on_delta(ReplyDelta::ToolUse(name.clone()));
                PartialBlock::Call {
                    id,
                    name,
                    arguments: String::new(),
                    whole,
                }
            }
            _ => PartialBlock::Other,
        };
        self.parts.push((index, part));
        // Some servers put text into the start of a block that others send as its first delta.
        self.append_text(index, word("text"), word("thinking"), on_delta)
    }

    fn apply_delta(
        &mut self,
        index: u64,
        delta: &Value,
        on_delta: OnDelta<'_>,
    ) -> Result<(), ExchangeFault> {
        let word = |field: &str| delta[field].as_str().ok_or(ExchangeFault::BadChunk);
        let kind = delta["type"].as_str().ok_or(ExchangeFault::BadChunk)?;
        match (kind, self.find_block(index)?) {
            (_, PartialBlock::Other) => Ok(()),
            ("text_delta", PartialBlock::Text(_)) => {
                let text = word("text")?.to_owned();
                self.append_text(index, text, String::new(), on_delta)
            }
            ("thinking_delta", PartialBlock::Thinking { .. }) => {
                let text = word("thinking")?.to_owned();
                self.append_text(index, String::new(), text, on_delta)
            }
            ("signature_delta", PartialBlock::Thinking { signature, .. }) => {
                word("signature")?.clone_into(signature);
                let bytes = signature.len();
                self.room.add_bytes(bytes)
            }
            ("input_json_delta", PartialBlock::Call { arguments, .. }) => {
                let more = word("partial_json")?;
                arguments.push_str(more);
                self.room.add_bytes(more.len())
            }
            ("text_delta" | "thinking_delta" | "signature_delta" | "input_json_delta", _) => {
                Err(ExchangeFault::BadChunk)
            }
            _ => Ok(()),
        }
    }

    /// Appends text or thinking to a block and reports the delta.
    fn append_text(
        &mut self,
        index: u64,
        said: String,
        thought: String,
        on_delta: OnDelta<'_>,
    ) -> Result<(), ExchangeFault> {
        self.room.add_bytes(said.len() + thought.len())?;
        match self.find_block(index)? {
            PartialBlock::Text(text) if !said.is_empty() => {
                text.push_str(&said);
                on_delta(ReplyDelta::Text(said));
            }
            PartialBlock::Thinking { text, .. } if !thought.is_empty() => {
                text.push_str(&thought);
                on_delta(ReplyDelta::Thinking(thought));
            }
            _ => {}
        }
        Ok(())
    }

    fn find_block(&mut self, index: u64) -> Result<&mut PartialBlock, ExchangeFault> {
        let mut newest = self.parts.iter_mut().rev();
        let found = newest.find(|(known, _)| *known == index);
        found.map(|(_, part)| part).ok_or(ExchangeFault::BadChunk)
    }

    /// Reads reported usage. Counts only grow, because a later event may leave some out. `last`
    /// marks the counts of the end.
    fn count_usage(&mut self, usage: &Value, last: bool) {
        let count = |path: &str| usage.pointer(path).and_then(parse_count);
        let (input, output) = (count("/input_tokens"), count("/output_tokens"));
        if input.is_none() && output.is_none() {
            return;
        }
        let before = self.usage.unwrap_or_default();
        let grown = |new: Option<u64>, old: u64| new.unwrap_or(0).max(old);
        let output = grown(output, before.output);
        let thinking = count("/output_tokens_details/thinking_tokens");
        self.counted |= last;
        self.usage = Some(Usage {
            input: grown(input, before.input),
            output,
            read: grown(count("/cache_read_input_tokens"), before.read),
            write: grown(count("/cache_creation_input_tokens"), before.write),
            reasoning: grown(thinking, before.reasoning).min(output),
        });
    }
}

/// Converts a block to the normal form; `None` if it has no content.
fn finish_block(n: usize, part: PartialBlock, cut: bool, provider: &str) -> Option<ReplyBlock> {
    match part {
        PartialBlock::Text(text) => (!text.is_empty()).then_some(ReplyBlock::Text { text }),
        PartialBlock::Thinking {
            raw,
            text,
            signature,
        } => {
            let signed = !signature.is_empty();
            let raw = signed.then(|| signed_thinking(raw, &text, signature));
            (signed || !text.is_empty()).then_some(ReplyBlock::Thinking { text, raw })
        }
        PartialBlock::Redacted(raw) => Some(ReplyBlock::Thinking {
            text: String::new(),
            raw: Some(raw.to_string()),
        }),
        PartialBlock::Call {
            id,
            name,
            arguments,
            whole,
        } => {
            let written = whole.filter(|_| arguments.is_empty()).unwrap_or(arguments);
            let origin = CallOrigin {
                provider: provider.to_owned(),
                id: id.clone(),
                ..CallOrigin::default()
            };
            Some(ReplyBlock::ToolUse {
                raw: (!id.is_empty()).then(|| origin.write()),
                id: if id.is_empty() {
                    format!("call_{n}")
                } else {
                    id
                },
                name,
                arguments: call_arguments(written, cut),
            })
        }
        PartialBlock::Other => None,
    }
}

/// Returns the provider's own thinking block as JSON, as a reply that is no stream has it: every
/// field of its start, and the text and signature that arrived since.
fn signed_thinking(mut raw: Map<String, Value>, text: &str, signature: String) -> String {
    raw.insert("thinking".to_owned(), text.into());
    raw.insert("signature".to_owned(), signature.into());
    Value::from(raw).to_string()
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
