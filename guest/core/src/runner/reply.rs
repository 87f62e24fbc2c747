//! A reply of the model is settled and recorded: it ends the run, or opens a round of calls.

use super::children::PreparedCall;
use super::finish_reason::incomplete_reply_cause;
use super::reply_blocks::{LlmCompletion, ReplyBlock};
use super::reply_calls::open_round;
use super::settlement::{count_time, settle_attempt, settle_estimated};
use super::transition::RunTransition;
use super::{CALL_NAME_BYTES_MAX, PARTIAL_BYTES_MAX, REPLY_BYTES_MAX};
use crate::error::{Error, cut};
use crate::estimate;
use crate::history::{
    AssistantText, Event, Message, MessageRole, PartialEvent, ResultEvent, ThinkingEvent, ToolUse,
    cut_escaped,
};
use crate::ledger::Usage;
use crate::plan::ThreadChange;
use crate::settings::PinnedSettings;
use crate::thread::StatusCause;

/// Records a reply, and decides the next step or the end of the run.
pub(super) fn apply_completion(
    change: &mut ThreadChange<'_>,
    pin: &PinnedSettings,
    completion: LlmCompletion,
    prepared: Vec<Option<PreparedCall>>,
) -> Result<RunTransition, Error> {
    let reported = completion.usage;
    let (finish_word, duration) = (cut(&completion.finish, 64).to_owned(), count_time(change));
    let usage = reported.unwrap_or_else(|| estimate_usage(change, &completion.blocks));
    let spend = match reported {
        Some(usage) => settle_attempt(change, Some(usage), true, ""),
        None => settle_estimated(change, usage),
    };
    change.head.counters.turns += 1;
    change.head.counters.run_turns += 1;
    change.head.session = completion.session.filter(|session| session.len() <= 512);
    let result = ResultEvent {
        model: pin.model.name.clone(),
        finish: finish_word,
        usage,
        spend,
        duration,
        estimated: reported.is_none(),
    };
    if completion
        .blocks
        .iter()
        .map(ReplyBlock::entry_bytes)
        .sum::<usize>()
        > REPLY_BYTES_MAX
    {
        return Ok(keep_oversized_reply(change, &completion.blocks, result));
    }
    let calls = push_blocks(change, completion.blocks);
    if let Some(usage) = reported {
        change.head.context = usage.context().saturating_add(usage.output);
    }
    change.counted = reported.is_some();
    let word = result.finish.clone();
    change.push_event(Event::Result(result));
    if calls.is_empty() {
        return Ok(apply_final_reply(change, &word));
    }
    let calls = calls
        .into_iter()
        .zip(prepared.into_iter().chain(std::iter::repeat(None)));
    open_round(change, pin, calls.collect(), &word)
}

/// Estimates the tokens of a reply whose provider reported none: the output by its text, the input
/// by the estimated context.
fn estimate_usage(change: &ThreadChange<'_>, blocks: &[ReplyBlock]) -> Usage {
    let output = blocks.iter().map(|block| match block {
        ReplyBlock::Text { text } | ReplyBlock::Thinking { text, .. } => {
            estimate::estimate_tokens(text)
        }
        ReplyBlock::ToolUse {
            name, arguments, ..
        } => estimate::estimate_tokens(name).saturating_add(estimate::estimate_tokens(arguments)),
    });
    Usage {
        input: change.head.context,
        output: output.fold(0, u64::saturating_add),
        ..Usage::default()
    }
}

fn keep_oversized_reply(
    change: &mut ThreadChange<'_>,
    blocks: &[ReplyBlock],
    result: ResultEvent,
) -> RunTransition {
    let text: String = blocks
        .iter()
        .filter_map(|block| {
            if let ReplyBlock::Text { text } = block {
                Some(text.as_str())
            } else {
                None
            }
        })
        .collect();
    let text = cut_escaped(&text, PARTIAL_BYTES_MAX).to_owned();
    change.push_event(Event::Partial(PartialEvent { text }));
    change.push_event(Event::Result(result));
    let message =
        format!("the reply is larger than {REPLY_BYTES_MAX} bytes and was kept as a partial only");
    RunTransition::Suspend(StatusCause::new("error", "reply_too_large", message))
}

/// Adds the blocks as events; returns the indexes of the calls. Text is a message if the reply
/// calls nothing, and narration beside calls otherwise.
fn push_blocks(change: &mut ThreadChange<'_>, blocks: Vec<ReplyBlock>) -> Vec<u32> {
    let calls_any = blocks
        .iter()
        .any(|block| matches!(block, ReplyBlock::ToolUse { .. }));
    let mut calls = Vec::new();
    for block in blocks {
        match block {
            ReplyBlock::Text { text } if calls_any => {
                change.push_event(Event::AssistantText(AssistantText { text }));
            }
            ReplyBlock::Text { text } => {
                change.push_event(Event::Message(Message::text(MessageRole::Assistant, text)));
            }
            ReplyBlock::Thinking { text, raw } => {
                change.push_event(Event::Thinking(ThinkingEvent { text, raw }));
            }
            ReplyBlock::ToolUse {
                id,
                name,
                arguments,
                raw,
            } => {
                calls.push(change.push_event(Event::ToolUse(ToolUse {
                    name: cut(&name, CALL_NAME_BYTES_MAX).to_owned(),
                    arguments,
                    id: cut(&id, CALL_NAME_BYTES_MAX).to_owned(),
                    raw,
                })));
            }
        }
    }
    calls
}

/// Handles a reply without calls: the run is over, unless mail waits.
fn apply_final_reply(change: &mut ThreadChange<'_>, word: &str) -> RunTransition {
    let texts = change.events.iter().filter_map(|event| match event {
        Event::Message(message) => Some(message.joined_text()),
        _ => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    if !change.mail.is_empty() {
        return RunTransition::Continue {
            wait: None,
            tool_millis: 0,
        };
    }
    match incomplete_reply_cause(word, &text) {
        Some(cause) => RunTransition::Suspend(cause),
        None => RunTransition::Finish(text),
    }
}
