//! Bounds on everything that passes the host, whoever made it: an embedder's models and tools are
//! held to the sizes that the built-in ones keep, and a provider's usage to what the call can have
//! come to.

use super::UsageTotals;
use crate::models::{
    BLOCKS_MAX, CompletionRequest, FailureKind, IMAGE_TOKENS_MAX, ModelCompletion, ModelFailure,
    OnDelta, REPLY_BYTES_MAX, ReplyBlock, ReplyDelta, Usage, answer_bytes_max,
};
use crate::tools::{RESULT_BYTES_MAX, TOOL_COST_NANOS_MAX, ToolResult, bound_edits, bound_result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use threadkeep_units::price::TokenPrices;
use threadkeep_units::unknown_bill::{TOKENS_PER_SECOND, output_tokens_in};

/// Longest code and longest message of a failure, in bytes each: built-in ones have a few hundred.
const FAILURE_TEXT_BYTES_MAX: usize = 4 << 10;

/// Most images of one result: what the component takes of a call.
const RESULT_IMAGES_MAX: usize = 15;

/// Upper bound of bytes a token: English has four, a run of blanks somewhat more. A provider that
/// reports fewer tokens than the bytes that arrived imply, or none, is booked with the implied
/// number.
const TOKEN_BYTES_MAX: u64 = 16;

/// Counts of what has arrived of a reply so far.
#[derive(Debug, Default)]
pub(super) struct ArrivedBytes {
    /// Bytes over the network, where there is one.
    network_bytes: AtomicU64,
    /// Bytes of text and thinking.
    text_bytes: AtomicU64,
}

impl ArrivedBytes {
    /// Counts a delta, and passes it on unless the reply exceeds its maximal size.
    pub(super) fn count_and_forward(&self, delta: ReplyDelta, on_delta: OnDelta<'_>) {
        let (counter, bytes) = match &delta {
            ReplyDelta::Received(bytes) => (&self.network_bytes, *bytes),
            ReplyDelta::Text(text) | ReplyDelta::Thinking(text) | ReplyDelta::ToolUse(text) => {
                (&self.text_bytes, text.len() as u64)
            }
            ReplyDelta::Restarted => (&self.text_bytes, 0),
        };
        let more = |before: u64| Some(before.saturating_add(bytes));
        let before = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let before = before.unwrap_or(u64::MAX);
        let room = (REPLY_BYTES_MAX as u64).saturating_sub(before);
        if matches!(delta, ReplyDelta::Received(_)) || bytes <= room {
            on_delta(delta);
        }
    }
}

/// The most that a model call may come to.
pub(super) fn max_model_usage(
    request: &CompletionRequest,
    prices: Option<&TokenPrices>,
) -> UsageTotals {
    let tokens = request_tokens_max(request);
    UsageTotals {
        spend_nanos: prices.map_or(0, |prices| {
            prices.max_cost(tokens, request.output_max).get()
        }),
        unpriced_calls: u64::from(prices.is_none()),
        model_calls: 1,
        model_bytes: sent_bytes(request).saturating_add(answer_bytes_max(request.output_max)),
        ..UsageTotals::default()
    }
}

/// Upper bound of the use of a tool call.
pub(super) fn max_tool_usage(arguments: &str) -> UsageTotals {
    UsageTotals {
        tool_calls: 1,
        tool_bytes: (arguments.len() + RESULT_BYTES_MAX) as u64,
        ..UsageTotals::default()
    }
}

/// Actual use of a model call that was admitted with `most`. A call of unknown cost is charged what
/// its time allowed, or the full hold if the policy says so; a call of which something arrived
/// costs at least the minimum for those bytes.
pub(super) fn actual_model_usage(
    most: &UsageTotals,
    request: &CompletionRequest,
    prices: Option<&TokenPrices>,
    (answer, arrived): (&Result<ModelCompletion, ModelFailure>, &ArrivedBytes),
    under_way: Option<Duration>,
) -> UsageTotals {
    let (usage, sent, kept) = match answer {
        Ok(completion) => (completion.usage, true, reply_bytes(completion)),
        Err(failure) => {
            let usage = failure.usage.or(failure.refused.then(Usage::default));
            let sent = failure.sent || usage.is_some();
            (usage, sent, failure.partial.len() as u64)
        }
    };
    if !sent {
        return UsageTotals::default();
    }
    let said = kept.max(arrived.text_bytes.load(Ordering::Relaxed));
    let said = said.min(REPLY_BYTES_MAX as u64);
    let asked = request_bytes(request);
    let spend_nanos = match (usage, prices) {
        (Some(usage), Some(prices)) => prices.cost(usage).get().max(min_cost(prices, asked, said)),
        (None, Some(prices)) => match under_way {
            Some(time) => {
                // The rate that the component takes where a model's entry names none. A tenant's
                // entry does not count here.
                let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                let written = output_tokens_in(TOKENS_PER_SECOND, millis);
                let written = written.max(said).min(request.output_max);
                let tokens = request_tokens_max(request);
                prices.max_cost(tokens, written).get().min(most.spend_nanos)
            }
            None => most.spend_nanos,
        },
        (_, None) => most.spend_nanos,
    };
    let came = said.max(arrived.network_bytes.load(Ordering::Relaxed));
    UsageTotals {
        spend_nanos,
        model_bytes: sent_bytes(request)
            .saturating_add(came)
            .min(most.model_bytes),
        ..*most
    }
}

/// The least that a call can have cost; nothing if nothing arrived.
fn min_cost(prices: &TokenPrices, asked_bytes: u64, said_bytes: u64) -> u64 {
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

/// The believed part of a usage, by the bytes of the request. More is cut, in the thread's account
/// as in the book, and reported (`RunEvent::Disbelieved`).
pub(super) fn clamp_usage(usage: Usage, request: &CompletionRequest) -> Usage {
    usage.cut_to_admitted(request_tokens_max(request), request.output_max)
}

/// The reply, refused if it is larger than a reply may be.
pub(super) fn bound_completion(
    answer: Result<ModelCompletion, ModelFailure>,
) -> Result<ModelCompletion, ModelFailure> {
    let completion = answer.map_err(bound_failure)?;
    let words = [&completion.session, &completion.id, &completion.model];
    let words = words.into_iter().flatten().map(String::len).sum::<usize>();
    let words = (completion.finish.len() + words) as u64;
    let (bytes, blocks) = (reply_bytes(&completion) + words, completion.blocks.len());
    if bytes <= REPLY_BYTES_MAX as u64 && blocks <= BLOCKS_MAX {
        return Ok(completion);
    }
    let message = format!(
        "the model's reply has {bytes} bytes in {blocks} blocks, at most {REPLY_BYTES_MAX} in \
         {BLOCKS_MAX} are taken"
    );
    Err(ModelFailure {
        usage: completion.usage,
        ..ModelFailure::new(FailureKind::Permanent, "reply_too_large", message)
    })
}

fn bound_failure(mut failure: ModelFailure) -> ModelFailure {
    shorten(&mut failure.code, FAILURE_TEXT_BYTES_MAX);
    shorten(&mut failure.message, FAILURE_TEXT_BYTES_MAX);
    shorten(&mut failure.partial, REPLY_BYTES_MAX);
    failure
}

fn shorten(text: &mut String, bytes: usize) {
    text.truncate(text.floor_char_boundary(bytes));
}

/// Bytes that a call has brought: of texts and of images.
pub(super) fn tool_result_bytes(result: &ToolResult) -> u64 {
    let text = result.whole.as_ref().unwrap_or(&result.content).len();
    let images: usize = result.images.iter().map(Vec::len).sum();
    (text + images) as u64
}

/// The result, cut to the maximal size of a result and to the most that a call may cost.
pub(super) fn bound_tool_result(name: &str, result: ToolResult) -> ToolResult {
    let reported = result.cost_nanos;
    if reported > TOOL_COST_NANOS_MAX {
        tracing::warn!(tool = name, reported, "a tool's cost cannot be, and is cut");
    }
    let mut result = result;
    if result.content.len() > RESULT_BYTES_MAX {
        let shown = bound_result(result.content.clone());
        result.whole = Some(std::mem::replace(&mut result.content, shown));
    }
    result.images.truncate(RESULT_IMAGES_MAX);
    bound_edits(ToolResult {
        cost_nanos: reported.min(TOOL_COST_NANOS_MAX),
        ..result
    })
}

/// Most tokens that a request can come to: no tokenizer makes more than one of a byte of text.
fn request_tokens_max(request: &CompletionRequest) -> u64 {
    let images = request.images.count().saturating_mul(IMAGE_TOKENS_MAX);
    request_bytes(request).saturating_add(images)
}

/// Bytes of a request with those of its images.
fn sent_bytes(request: &CompletionRequest) -> u64 {
    request_bytes(request).saturating_add(request.images.bytes())
}

/// Bytes of the texts of a request.
fn request_bytes(request: &CompletionRequest) -> u64 {
    let tools = request
        .tools
        .iter()
        .map(|tool| tool.name.len() + tool.description.len() + tool.schema.len());
    let messages = request.messages.iter().map(String::len);
    (request.system.len() + tools.sum::<usize>() + messages.sum::<usize>()) as u64
}

fn reply_bytes(completion: &ModelCompletion) -> u64 {
    let bytes = completion.blocks.iter().map(|block| match block {
        ReplyBlock::Text { text } => text.len(),
        ReplyBlock::Thinking { text, raw } => text.len() + raw.as_ref().map_or(0, String::len),
        ReplyBlock::ToolUse {
            id,
            name,
            arguments,
            raw,
        } => id.len() + name.len() + arguments.len() + raw.as_ref().map_or(0, String::len),
    });
    bytes.sum::<usize>() as u64
}
