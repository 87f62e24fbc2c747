//! A reply, put together from the chunks of a stream.
//!
//! Servers that call themselves compatible differ in small ways; each leniency here names the one it serves. What is
//! never lenient: a chunk that is not JSON, an error object, and a stream without a finish reason.

use crate::models::http;
use crate::models::http::classify::{self, Fault};
use crate::models::http::room::{Room, call_arguments};
use crate::models::{Block, Completion, Delta, OnDelta, Usage};
use serde::Deserialize;
use serde_json::value::Value;

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Option<Vec<Choice>>,
    #[serde(default)]
    usage: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: Option<u64>,
    #[serde(default)]
    delta: Option<WireDelta>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct WireDelta {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    reasoning_content: Option<String>,
    /// The same as `reasoning_content`, as some servers name it.
    #[serde(default)]
    reasoning: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<WireCall>>,
}

#[derive(Deserialize)]
struct WireCall {
    #[serde(default)]
    index: Option<u64>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    function: Option<WireFunction>,
}

#[derive(Deserialize)]
struct WireFunction {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<Value>,
}

/// Where a call stands in `blocks`, and the index that its chunks carry.
struct Open {
    block: usize,
    index: Option<u64>,
}

/// What has arrived so far.
#[derive(Default)]
pub(in crate::models) struct Reply {
    blocks: Vec<Block>,
    calls: Vec<Open>,
    room: Room,
    refused: bool,
    finish: Option<String>,
    usage: Option<Usage>,
    ended: bool,
}

impl http::Reply for Reply {
    fn take(&mut self, data: &str, on_delta: OnDelta<'_>) -> Result<(), Fault> {
        if data.trim() == "[DONE]" {
            self.ended = true;
            return Ok(());
        }
        let value: Value = serde_json::from_str(data).map_err(|_| Fault::BadChunk)?;
        if !value.is_object() {
            return Err(Fault::BadChunk);
        }
        if let Some(said) = classify::said(&value) {
            return Err(Fault::StreamError(said));
        }
        let chunk: Chunk = serde_json::from_value(value).map_err(|_| Fault::BadChunk)?;
        // Some servers repeat a growing usage in every chunk: the last one counts.
        if let Some(usage) = chunk.usage.as_ref().and_then(read_usage) {
            self.usage = Some(usage);
        }
        // Only one choice was asked for.
        for choice in chunk
            .choices
            .into_iter()
            .flatten()
            .filter(|choice| choice.index.unwrap_or(0) == 0)
        {
            if let Some(delta) = choice.delta {
                self.take_delta(delta, on_delta)?;
            }
            self.finish = choice
                .finish_reason
                .filter(|reason| !reason.is_empty())
                .or(self.finish.take());
        }
        Ok(())
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
        let finish = self.finish.take().ok_or(Fault::Unfinished)?;
        let finish = match finish.as_str() {
            // A word of routers for a provider that broke off behind them.
            "error" => return Err(Fault::StreamError(classify::Said::default())),
            "tool_calls" | "function_call" if self.calls.is_empty() => {
                return Err(Fault::CallsMissing);
            }
            "tool_calls" | "function_call" => "tool_use".to_owned(),
            // Some servers say `stop` after calls, too.
            "stop" if !self.calls.is_empty() => "tool_use".to_owned(),
            "stop" if self.refused => "refusal".to_owned(),
            _ => finish,
        };
        let mut blocks = std::mem::take(&mut self.blocks);
        for (n, block) in blocks.iter_mut().enumerate() {
            complete_call(n, block, finish == "length");
        }
        Ok(Completion {
            blocks,
            finish,
            usage: self.usage,
            session: None,
        })
    }
}

impl Reply {
    fn take_delta(&mut self, delta: WireDelta, on_delta: OnDelta<'_>) -> Result<(), Fault> {
        let thinking = delta
            .reasoning_content
            .or(delta.reasoning)
            .unwrap_or_default();
        if !thinking.is_empty() {
            self.room.bytes(thinking.len())?;
            match self.blocks.last_mut() {
                Some(Block::Thinking { text, .. }) => text.push_str(&thinking),
                _ => self.begin(Block::Thinking {
                    text: thinking.clone(),
                    raw: None,
                })?,
            }
            on_delta(Delta::Thinking(thinking));
        }
        self.refused |= delta.refusal.as_ref().is_some_and(|text| !text.is_empty());
        // A refusal is text for the reader like any other; the finish reason tells it apart.
        for text in [delta.content, delta.refusal]
            .into_iter()
            .flatten()
            .filter(|text| !text.is_empty())
        {
            self.room.bytes(text.len())?;
            match self.blocks.last_mut() {
                Some(Block::Text { text: before }) => before.push_str(&text),
                _ => self.begin(Block::Text { text: text.clone() })?,
            }
            on_delta(Delta::Text(text));
        }
        delta
            .tool_calls
            .into_iter()
            .flatten()
            .try_for_each(|call| self.take_call(call, on_delta))
    }

    fn take_call(&mut self, call: WireCall, on_delta: OnDelta<'_>) -> Result<(), Fault> {
        let (name, arguments) = call
            .function
            .map_or((None, None), |function| (function.name, function.arguments));
        let (new_id, new_name) = (call.id.unwrap_or_default(), name.unwrap_or_default());
        let arguments = match arguments {
            Some(Value::String(text)) => text,
            None | Some(Value::Null) => String::new(),
            // Some servers send the object itself.
            Some(object) => object.to_string(),
        };
        self.room
            .bytes(new_id.len() + new_name.len() + arguments.len())?;
        let at = match self.open_call(call.index, &new_id, &new_name) {
            Some(at) => at,
            None => self.begin_call(call.index)?,
        };
        let Some(Block::ToolUse {
            id,
            name,
            arguments: before,
        }) = self.blocks.get_mut(at)
        else {
            return Err(Fault::BadChunk);
        };
        if id.is_empty() {
            *id = new_id;
        }
        // Some servers repeat the name in every chunk; a few send it in pieces.
        if *name != new_name {
            let begins = name.is_empty();
            name.push_str(&new_name);
            if begins {
                on_delta(Delta::ToolUse(new_name));
            }
        }
        before.push_str(&arguments);
        Ok(())
    }

    /// The call that a chunk goes on with. A new id with a name begins another call even under a known index: some
    /// servers number every call 0. A chunk without an index belongs to the newest call.
    fn open_call(&self, index: Option<u64>, new_id: &str, new_name: &str) -> Option<usize> {
        let open = match index {
            Some(_) => self.calls.iter().rev().find(|open| open.index == index)?,
            None => self.calls.last()?,
        };
        let Some(Block::ToolUse { id, .. }) = self.blocks.get(open.block) else {
            return None;
        };
        let other = !new_id.is_empty() && !id.is_empty() && id != new_id && !new_name.is_empty();
        (!other).then_some(open.block)
    }

    fn begin_call(&mut self, index: Option<u64>) -> Result<usize, Fault> {
        let block = self.blocks.len();
        self.begin(Block::ToolUse {
            id: String::new(),
            name: String::new(),
            arguments: String::new(),
        })?;
        self.calls.push(Open { block, index });
        Ok(block)
    }

    fn begin(&mut self, block: Block) -> Result<(), Fault> {
        self.room.block()?;
        self.blocks.push(block);
        Ok(())
    }
}

/// Some servers give a call no id.
fn complete_call(n: usize, block: &mut Block, cut: bool) {
    if let Block::ToolUse { id, arguments, .. } = block {
        if id.is_empty() {
            *id = format!("call_{n}");
        }
        *arguments = call_arguments(std::mem::take(arguments), cut);
    }
}

/// The wire counts cached tokens within `prompt_tokens`; ours are apart. None if it has neither of the two counts.
fn read_usage(usage: &Value) -> Option<Usage> {
    let count = |path: &str| usage.pointer(path).and_then(Value::as_u64);
    let (prompt, output) = (count("/prompt_tokens"), count("/completion_tokens"));
    if prompt.is_none() && output.is_none() {
        return None;
    }
    let prompt = prompt.unwrap_or(0);
    let cached =
        count("/prompt_tokens_details/cached_tokens").or(count("/prompt_cache_hit_tokens"));
    let read = cached.unwrap_or(0).min(prompt);
    let write = count("/prompt_tokens_details/cache_write_tokens")
        .unwrap_or(0)
        .min(prompt - read);
    let output = output.unwrap_or(0);
    let reasoning = count("/completion_tokens_details/reasoning_tokens")
        .unwrap_or(0)
        .min(output);
    Some(Usage {
        input: prompt - read - write,
        output,
        read,
        write,
        reasoning,
    })
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
