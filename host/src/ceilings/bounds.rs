//! Bounds on everything that passes the host, whoever made it: an embedder's models and tools are
//! held to the sizes that the built-in ones keep, and a provider's usage to what the call can have
//! come to.

use super::Used;
use crate::models::{
    BLOCKS_MAX, Block, Completion, Delta, Failure, FailureKind, OnDelta, REPLY_BYTES_MAX, Request,
    Usage, answer_bytes_max,
};
use crate::tools::{RESULT_BYTES_MAX, ToolResult, cut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use threadkeep_units::price::TokenPrices;
use threadkeep_units::unknown_bill::{TOKENS_PER_SECOND, output_tokens_in};

/// Longest code and longest message of a failure, in bytes each: built-in ones have a few hundred.
const WORDS_BYTES_MAX: usize = 4 << 10;

/// Factor up to which reported tokens are believed, relative to those the call was admitted with:
/// providers count in their own way, and some let a model think beyond the output maximum.
const BELIEVED_TIMES: u64 = 2;
/// Tokens believed in addition to the factor: prompts that providers prepend have a few thousand at
/// most.
const BELIEVED_TOKENS: u64 = 10_000;
/// Upper bound of bytes a token: English has four, a run of blanks somewhat more. A provider that
/// reports fewer tokens than the bytes that arrived imply, or none, is booked with the implied
/// number.
const TOKEN_BYTES_MAX: u64 = 16;

/// Counts of what has arrived of a reply so far.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    /// Bytes over the network, where there is one.
    wire: AtomicU64,
    /// Bytes of text and thinking.
    said: AtomicU64,
}

impl Arrived {
    /// Counts a delta, and passes it on unless the reply exceeds its maximal size.
    pub(super) fn pass(&self, delta: Delta, on_delta: OnDelta<'_>) {
        let (counter, bytes) = match &delta {
            Delta::Received(bytes) => (&self.wire, *bytes),
            Delta::Text(text) | Delta::Thinking(text) | Delta::ToolUse(text) => {
                (&self.said, text.len() as u64)
            }
            Delta::Restarted => (&self.said, 0),
        };
        let more = |before: u64| Some(before.saturating_add(bytes));
        let before = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let before = before.unwrap_or(u64::MAX);
        let room = (REPLY_BYTES_MAX as u64).saturating_sub(before);
        if matches!(delta, Delta::Received(_)) || bytes <= room {
            on_delta(delta);
        }
    }
}

/// The most that a model call may come to.
pub(super) fn most_of_model(request: &Request, prices: Option<&TokenPrices>) -> Used {
    let bytes = request_bytes(request);
    Used {
        spend_nanos: prices.map_or(0, |prices| prices.ceiling(bytes, request.output_max).get()),
        unpriced_calls: u64::from(prices.is_none()),
        model_calls: 1,
        model_bytes: bytes.saturating_add(answer_bytes_max(request.output_max)),
        ..Used::default()
    }
}

/// Upper bound of the use of a tool call.
pub(super) fn most_of_tool(arguments: &str) -> Used {
    Used {
        tool_calls: 1,
        tool_bytes: (arguments.len() + RESULT_BYTES_MAX) as u64,
        ..Used::default()
    }
}

/// Actual use of a model call that was admitted with `most`. A call of unknown cost is charged what
/// its time allowed, or the full hold if the policy says so; a call of which something arrived
/// costs at least the minimum for those bytes.
pub(super) fn came_to(
    most: &Used,
    request: &Request,
    prices: Option<&TokenPrices>,
    (answer, arrived): (&Result<Completion, Failure>, &Arrived),
    under_way: Option<Duration>,
) -> Used {
    let (usage, sent, kept) = match answer {
        Ok(completion) => (completion.usage, true, reply_bytes(completion)),
        Err(failure) => {
            let sent = failure.sent || failure.usage.is_some();
            (failure.usage, sent, failure.partial.len() as u64)
        }
    };
    if !sent {
        return Used::default();
    }
    let said = kept.max(arrived.said.load(Ordering::Relaxed));
    let said = said.min(REPLY_BYTES_MAX as u64);
    let asked = request_bytes(request);
    let spend_nanos = match (usage, prices) {
        (Some(usage), Some(prices)) => prices.cost(usage).get().max(least(prices, asked, said)),
        (None, Some(prices)) => match under_way {
            Some(time) => {
                // The rate that the component takes where a model's entry names none. A tenant's
                // entry does not count here.
                let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                let written = output_tokens_in(TOKENS_PER_SECOND, millis);
                let written = written.max(said).min(request.output_max);
                prices.ceiling(asked, written).get().min(most.spend_nanos)
            }
            None => most.spend_nanos,
        },
        (_, None) => most.spend_nanos,
    };
    let came = said.max(arrived.wire.load(Ordering::Relaxed));
    Used {
        spend_nanos,
        model_bytes: asked.saturating_add(came).min(most.model_bytes),
        ..*most
    }
}

/// The least that a call can have cost; nothing if nothing arrived.
fn least(prices: &TokenPrices, asked_bytes: u64, said_bytes: u64) -> u64 {
    if said_bytes == 0 {
        return 0;
    }
    let cheapest = TokenPrices {
        input: prices.input.min(prices.read).min(prices.write),
        ..*prices
    };
    let least = cheapest.cost(Usage {
        input: asked_bytes / TOKEN_BYTES_MAX,
        output: said_bytes / TOKEN_BYTES_MAX,
        ..Usage::default()
    });
    least.get()
}

/// The believed part of a usage: of input tokens and of output tokens, each at most
/// [`BELIEVED_TIMES`] times what the call was admitted with and [`BELIEVED_TOKENS`] more.
pub(super) fn believed(usage: Usage, request: &Request) -> Usage {
    let believed = |tokens: u64| {
        let times = tokens.saturating_mul(BELIEVED_TIMES);
        times.saturating_add(BELIEVED_TOKENS)
    };
    let mut read = believed(request_bytes(request));
    let mut of_read = |tokens: u64| {
        let kept = tokens.min(read);
        read -= kept;
        kept
    };
    let output = usage.output.min(believed(request.output_max));
    Usage {
        input: of_read(usage.input),
        read: of_read(usage.read),
        write: of_read(usage.write),
        output,
        reasoning: usage.reasoning.min(output),
    }
}

/// The reply, refused if it is larger than a reply may be.
pub(super) fn answer(answer: Result<Completion, Failure>) -> Result<Completion, Failure> {
    let completion = answer.map_err(failure)?;
    let session = completion.session.as_ref().map_or(0, String::len);
    let words = (completion.finish.len() + session) as u64;
    let (bytes, blocks) = (reply_bytes(&completion) + words, completion.blocks.len());
    if bytes <= REPLY_BYTES_MAX as u64 && blocks <= BLOCKS_MAX {
        return Ok(completion);
    }
    let message = format!(
        "the model's reply has {bytes} bytes in {blocks} blocks, at most {REPLY_BYTES_MAX} in {BLOCKS_MAX} are taken"
    );
    Err(Failure {
        usage: completion.usage,
        ..Failure::new(FailureKind::Permanent, "reply_too_large", message)
    })
}

fn failure(mut failure: Failure) -> Failure {
    shorten(&mut failure.code, WORDS_BYTES_MAX);
    shorten(&mut failure.message, WORDS_BYTES_MAX);
    shorten(&mut failure.partial, REPLY_BYTES_MAX);
    failure
}

fn shorten(text: &mut String, bytes: usize) {
    text.truncate(text.floor_char_boundary(bytes));
}

/// The result, cut to the maximal size of a result.
pub(super) fn result(result: ToolResult) -> ToolResult {
    ToolResult {
        content: cut(result.content),
        ..result
    }
}

fn request_bytes(request: &Request) -> u64 {
    let tools = request
        .tools
        .iter()
        .map(|tool| tool.name.len() + tool.description.len() + tool.schema.len());
    let messages = request.messages.iter().map(String::len);
    (request.system.len() + tools.sum::<usize>() + messages.sum::<usize>()) as u64
}

fn reply_bytes(completion: &Completion) -> u64 {
    let bytes = completion.blocks.iter().map(|block| match block {
        Block::Text { text } => text.len(),
        Block::Thinking { text, raw } => text.len() + raw.as_ref().map_or(0, String::len),
        Block::ToolUse {
            id,
            name,
            arguments,
            raw,
        } => id.len() + name.len() + arguments.len() + raw.as_ref().map_or(0, String::len),
    });
    bytes.sum::<usize>() as u64
}
