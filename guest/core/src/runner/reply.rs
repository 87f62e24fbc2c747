//! A reply of the model is settled and recorded: it ends the run, or opens a round of calls.

use super::children::DecisionInputs;
use super::failure::push_partial;
use super::finish_reason::incomplete_reply_cause;
use super::reply_blocks::{LlmCompletion, ReplyBlock, UnreadableReply};
use super::reply_calls::open_round;
use super::settlement::{count_time, settle_attempt, settle_estimated};
use super::transition::RunTransition;
use super::{CALL_NAME_BYTES_MAX, REPLY_BYTES_MAX};
use crate::error::{Error, cut};
use crate::estimate;
use crate::history::{
    AssistantText, Event, Message, MessageRole, ResultEvent, ThinkingEvent, ToolUse,
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
    inputs: DecisionInputs,
) -> Result<RunTransition, Error> {
    // Zeros beside a reply are no report: some gateways send them where they know nothing.
    let reported = completion.usage.filter(|usage| *usage != Usage::default());
    let (finish_word, duration) = (cut(&completion.finish, 64).to_owned(), count_time(change));
    let usage = reported.unwrap_or_else(|| estimate_usage(change, &completion));
    let spend = match reported {
        Some(usage) => settle_attempt(change, Some(usage), true, ""),
        None => settle_estimated(change, usage),
    };
    change.head.counters.turns += 1;
    change.head.counters.run_turns += 1;
    change.head.shortened = false;
    change.head.session = completion.session.filter(|session| session.len() <= 512);
    let result = ResultEvent {
        model: pin.model.name.clone(),
        finish: finish_word,
        usage,
        spend,
        duration,
        estimated: reported.is_none(),
        response_id: provider_word(completion.id),
        response_model: provider_word(completion.model),
        summary: false,
    };
    if let Some(cause) = unusable_reply_cause(&completion.blocks, completion.unreadable) {
        return Ok(keep_partial_reply(
            change,
            &completion.blocks,
            result,
            cause,
        ));
    }
    if let Some(usage) = reported {
        let shown = |block: &ReplyBlock| matches!(block, ReplyBlock::Thinking { .. });
        let kept = usage.kept_tokens(completion.blocks.iter().any(shown));
        change.head.anchor_context(kept);
    }
    let calls = push_blocks(change, completion.blocks);
    change.counted = reported.is_some();
    let word = result.finish.clone();
    change.push_event(Event::Result(result));
    if calls.is_empty() {
        return Ok(apply_final_reply(change, &word));
    }
    let calls = calls
        .into_iter()
        .zip(inputs.prepared.into_iter().chain(std::iter::repeat(None)));
    open_round(change, pin, calls.collect(), (&word, inputs.approvals))
}

/// Returns the cause for which a reply is no turn: it cannot be read, or is too large.
fn unusable_reply_cause(
    blocks: &[ReplyBlock],
    unreadable: Option<UnreadableReply>,
) -> Option<StatusCause> {
    if let Some(UnreadableReply { problem, .. }) = unreadable {
        let message = format!(
            "the reply cannot be read, and what can be was kept as a partial only: {problem}: \
             resume to ask again"
        );
        return Some(StatusCause::new("error", "bad_reply", message));
    }
    let bytes = blocks.iter().map(ReplyBlock::entry_bytes).sum::<usize>();
    let message =
        format!("the reply is larger than {REPLY_BYTES_MAX} bytes and was kept as a partial only");
    (bytes > REPLY_BYTES_MAX).then(|| StatusCause::new("error", "reply_too_large", message))
}

/// Returns a word of the provider's, cut; `None` for an empty one.
pub(super) fn provider_word(word: Option<String>) -> Option<String> {
    let word = word.filter(|word| !word.is_empty())?;
    Some(cut(&word, CALL_NAME_BYTES_MAX).to_owned())
}

/// Estimates the tokens of a reply whose provider reported none: the output by its text, the input
/// by the estimated context.
fn estimate_usage(change: &ThreadChange<'_>, completion: &LlmCompletion) -> Usage {
    let unreadable = completion.unreadable.as_ref();
    let output = completion.blocks.iter().map(|block| match block {
        ReplyBlock::Text { text } | ReplyBlock::Thinking { text, .. } => {
            estimate::estimate_tokens(text)
        }
        ReplyBlock::ToolUse {
            name, arguments, ..
        } => estimate::estimate_tokens(name).saturating_add(estimate::estimate_tokens(arguments)),
    });
    Usage {
        input: change.head.context,
        output: output
            .fold(0, u64::saturating_add)
            .max(unreadable.map_or(0, |unreadable| unreadable.tokens)),
        ..Usage::default()
    }
}

/// Records the text of a reply that cannot be a turn, and suspends the run.
fn keep_partial_reply(
    change: &mut ThreadChange<'_>,
    blocks: &[ReplyBlock],
    result: ResultEvent,
    cause: StatusCause,
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
    push_partial(change, &text);
    change.head.unusable += 1;
    change.push_event(Event::Result(result));
    RunTransition::Suspend(cause)
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
            decided: Vec::new(),
            tool_millis: 0,
        };
    }
    match incomplete_reply_cause(word, &text) {
        Some(cause) => RunTransition::Suspend(cause),
        None => RunTransition::Finish(text),
    }
}
