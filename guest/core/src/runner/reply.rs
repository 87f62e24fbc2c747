//! A reply of the model: it is settled and recorded, and either ends the run or opens a round of
//! calls.

use super::admit::{AttemptNeeds, admit_attempt};
use super::children::{
    ChildSnapshot, PerformedCall, PreparedCall, WaitRequest, next_step, perform_call,
};
use super::finish_reason::FinishReason;
use super::mail::take_mail;
use super::round::cut_to_fit;
use super::stop::{count_time, finish_run, settle_attempt, settle_estimated, suspend, terminate};
use super::{
    BAD_ROUNDS_MAX, BLOCK_BYTES, BUILTIN_ANSWERS_BYTES_MAX, CALL_NAME_BYTES_MAX, CALLS_MAX,
    REFUSAL_BYTES_MAX, REPLY_BYTES_MAX,
};
use crate::error::{Error, cut};
use crate::estimate;
use crate::history::{
    AssistantText, CommitReason, Event, Message, MessageRole, PartialEvent, ResultEvent,
    ThinkingEvent, ToolResult, ToolResultState, ToolUse, cut_escaped, escaped_bytes,
};
use crate::json::{self, ObjectWriter, ToJson, record::record};
use crate::ledger::Usage;
use crate::money::NanoUsd;
use crate::plan::ThreadChange;
use crate::settings::{PinnedSettings, is_builtin_tool};
use crate::thread::{RoundCall, StatusCause, ToolRound};

/// A model's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LlmCompletion {
    /// Blocks of the reply, in order.
    pub blocks: Vec<ReplyBlock>,
    /// The provider's word for the end of the reply: see [`FinishReason`].
    pub finish: String,
    /// Usage that the provider reported.
    pub usage: Option<Usage>,
    /// Session id for the next request.
    pub session: Option<String>,
}

record!(write LlmCompletion { blocks, finish, usage, session });

/// One block of a reply, as a driver submits it: see [`ReplyBlock::parse_all`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyBlock {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// Thinking.
    Thinking {
        /// The readable part.
        text: String,
        /// The provider's own JSON.
        raw: Option<String>,
    },
    /// A call.
    ToolUse {
        /// The model's id.
        id: String,
        /// The tool's name.
        name: String,
        /// The text that the model wrote.
        arguments: String,
        /// The provider's own JSON, which goes back to it with the call.
        raw: Option<String>,
    },
}

impl ToJson for ReplyBlock {
    fn write(&self, out: &mut String) {
        let mut fields = ObjectWriter::new(out);
        match self {
            Self::Text { text } => fields.add("type", "text").add("text", text),
            Self::Thinking { text, raw } => fields
                .add("type", "thinking")
                .add("text", text)
                .add("raw", raw),
            Self::ToolUse {
                id,
                name,
                arguments,
                raw,
            } => fields
                .add("type", "tool_use")
                .add("id", id)
                .add("name", name)
                .add("arguments", arguments)
                .add_present("raw", raw),
        }
        .finish();
    }
}

struct FlatBlock {
    kind: String,
    text: String,
    raw: Option<String>,
    id: String,
    name: String,
    arguments: String,
}

record!(read FlatBlock {
    kind as "type", text or default, raw or default, id or default, name or default, arguments or default
});

impl ReplyBlock {
    /// Reads the JSON list of blocks that `llm.completion` documents.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, Error> {
        let flat: Vec<FlatBlock> = json::read(text).map_err(|e| {
            Error::invalid(
                "completion.blocks",
                text,
                format!("is not a list of blocks: {e}"),
            )
        })?;
        flat.into_iter()
            .map(|block| match block.kind.as_str() {
                "text" => Ok(Self::Text { text: block.text }),
                "thinking" => Ok(Self::Thinking {
                    text: block.text,
                    raw: block.raw,
                }),
                "tool_use" => Ok(Self::ToolUse {
                    id: block.id,
                    name: block.name,
                    arguments: block.arguments,
                    raw: block.raw,
                }),
                kind => Err(Error::invalid_name(
                    "completion.blocks.type",
                    kind,
                    "is not a block",
                    &["text", "thinking", "tool_use"],
                )),
            })
            .collect()
    }

    /// Most bytes that the block takes in an entry.
    fn entry_bytes(&self) -> usize {
        BLOCK_BYTES
            + match self {
                Self::Text { text } => escaped_bytes(text),
                Self::Thinking { text, raw } => {
                    escaped_bytes(text) + raw.as_deref().map_or(0, escaped_bytes)
                }
                Self::ToolUse {
                    id,
                    name,
                    arguments,
                    raw,
                } => {
                    let raw = raw.as_deref().map_or(0, escaped_bytes);
                    escaped_bytes(id) + escaped_bytes(name) + escaped_bytes(arguments) + raw
                }
            }
    }
}

/// Records a reply, and decides the next step or the end of the run.
pub(super) fn apply_completion(
    change: &mut ThreadChange<'_>,
    pin: &PinnedSettings,
    completion: LlmCompletion,
    prepared: Vec<Option<PreparedCall>>,
) -> Result<CommitReason, Error> {
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
        return apply_final_reply(change, pin, &word);
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
) -> CommitReason {
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
    let text = cut_escaped(&text, super::PARTIAL_BYTES_MAX).to_owned();
    change.push_event(Event::Partial(PartialEvent { text }));
    change.push_event(Event::Result(result));
    let message =
        format!("the reply is larger than {REPLY_BYTES_MAX} bytes and was kept as a partial only");
    suspend(
        change,
        StatusCause::new("error", "reply_too_large", message),
    );
    CommitReason::Suspended
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
fn apply_final_reply(
    change: &mut ThreadChange<'_>,
    pin: &PinnedSettings,
    word: &str,
) -> Result<CommitReason, Error> {
    let text = change
        .events
        .iter()
        .filter_map(|event| {
            if let Event::Message(message) = event {
                Some(message.joined_text())
            } else {
                None
            }
        })
        .collect::<Vec<_>>()
        .join("\n");
    let waiting = !change.mail.is_empty();
    take_mail(change);
    if let Some(intent) = change.head.intent {
        change.count_messages();
        terminate(change, intent);
        return Ok(CommitReason::Cancelled);
    }
    if waiting {
        change.count_messages();
        admit_attempt(change, pin, AttemptNeeds::default());
        return Ok(CommitReason::AssistantTurn);
    }
    change.count_messages();
    if let Some(cause) = incomplete_reply_cause(word, &text) {
        suspend(change, cause);
        return Ok(CommitReason::Suspended);
    }
    finish_run(change, &text);
    Ok(CommitReason::RunFinished)
}

/// Returns the cause why a reply without calls does not end the run: it was cut, withheld, or says
/// nothing.
fn incomplete_reply_cause(word: &str, text: &str) -> Option<StatusCause> {
    let (code, message) = match FinishReason::parse(word) {
        FinishReason::Length => (
            "reply_truncated",
            "the reply was cut at its most output tokens: resume with a message to let it go on"
                .to_owned(),
        ),
        FinishReason::ContentFilter => (
            "reply_filtered",
            "the provider withheld the reply: resume with another message".to_owned(),
        ),
        FinishReason::Unknown => (
            "reply_unfinished",
            format!(
                "the provider ended the reply with {word:?}, which does not say that it is whole: resume with a \
                 message to let it go on"
            ),
        ),
        FinishReason::Stop | FinishReason::ToolUse if text.is_empty() => (
            "empty_reply",
            "the model answered nothing: resume to ask again, or with a message".to_owned(),
        ),
        FinishReason::Stop | FinishReason::ToolUse => return None,
    };
    Some(StatusCause::new("error", code, message))
}

/// State of the calls of a reply while they are decided.
#[derive(Default)]
struct ReplyCalls {
    /// Calls that have no result yet.
    open: Vec<RoundCall>,
    /// Longest time of a call that a driver runs, in milliseconds.
    timeout: u64,
    /// The children of the call that waits, if one does.
    waiting: Option<WaitRequest>,
    /// Children that were spawned.
    spawned: Vec<ChildSnapshot>,
    /// Number of calls of the runner's own tools.
    own: usize,
    /// Bytes of the answers, as JSON text.
    bytes: usize,
    /// Cause that stops the run: the first cap that did not allow a call, or that the reply is not
    /// whole.
    stop: Option<StatusCause>,
    /// Reason why no call of the reply is run: the reply is not whole.
    not_run: Option<String>,
}

/// Handles a reply with calls. Calls that cannot be run, and calls of the runner's own tools, get
/// their result at once; the others are handed out; a wait comes last.
fn open_round(
    change: &mut ThreadChange<'_>,
    pin: &PinnedSettings,
    asked: Vec<(u32, Option<PreparedCall>)>,
    word: &str,
) -> Result<CommitReason, Error> {
    let mut calls = ReplyCalls {
        not_run: not_run_reason(word),
        ..ReplyCalls::default()
    };
    for (place, (index, prepared)) in asked.into_iter().enumerate() {
        decide_call(change, pin, (place, index), prepared, &mut calls)?;
    }
    // The model can repeat a cut reply with less in it. A reply that was withheld, or that ended in
    // an unknown way, needs a person.
    let withheld = matches!(
        FinishReason::parse(word),
        FinishReason::ContentFilter | FinishReason::Unknown
    );
    if withheld && let Some(cause) = incomplete_reply_cause(word, "") {
        calls.stop = Some(cause);
    }
    change.head.round = (!calls.open.is_empty()).then_some(ToolRound {
        version: change.version(),
        calls: calls.open,
    });
    if let Some(intent) = change.head.intent {
        let names: Vec<String> = change.events.iter().map(called_tool_name).collect();
        super::stop::interrupt_calls(change, |_| true, &|index| names[index as usize].clone());
        take_mail(change);
        change.count_messages();
        terminate(change, intent);
        return Ok(CommitReason::Cancelled);
    }
    let ran = change.head.round.is_some() || calls.own > 0;
    change.head.bad_rounds = if ran { 0 } else { change.head.bad_rounds + 1 };
    if change.head.bad_rounds >= BAD_ROUNDS_MAX {
        let message = format!(
            "the model made {BAD_ROUNDS_MAX} rounds in a row in which no call could be run"
        );
        change.head.bad_rounds = 0;
        calls.stop = Some(StatusCause::new("error", "bad_tool_rounds", message));
    }
    if let Some(cause) = calls.stop {
        change.count_messages();
        suspend(change, cause);
        // Spawned children are more than the truth about what has happened: the margin of a full
        // store is not for them.
        change.closing &= calls.spawned.is_empty();
        return Ok(CommitReason::Suspended);
    }
    let spawned = calls.spawned;
    let waiting = calls
        .waiting
        .map(|waiting| waiting.with_reply_changes(change, spawned));
    next_step(change, pin, waiting.as_ref(), calls.timeout)?;
    Ok(CommitReason::AssistantTurn)
}

/// Decides one call of a reply.
fn decide_call(
    change: &mut ThreadChange<'_>,
    pin: &PinnedSettings,
    (place, index): (usize, u32),
    prepared: Option<PreparedCall>,
    calls: &mut ReplyCalls,
) -> Result<(), Error> {
    let Some(Event::ToolUse(used)) = change.events.get(index as usize).cloned() else {
        return Ok(());
    };
    let tool = pin.find_tool(&used.name);
    let refused = calls
        .not_run
        .clone()
        .or_else(|| call_refusal_text(pin, &used, place));
    // Each answer gets half of the rest, so that the last one has room, too.
    let share = (BUILTIN_ANSWERS_BYTES_MAX.saturating_sub(calls.bytes) / 2).max(REFUSAL_BYTES_MAX);
    let result = match (refused, prepared) {
        (Some(text), _) => (
            cut(&text, REFUSAL_BYTES_MAX).to_owned(),
            ToolResultState::Denied,
        ),
        // The thread is to end: nothing more is performed, and calls without a result are
        // interrupted.
        (None, Some(_)) if change.head.intent.is_some() => {
            calls.open.push(new_round_call(index, true, false));
            return Ok(());
        }
        (None, None) if tool.is_some_and(|tool| is_builtin_tool(&tool.name)) => {
            return Err(Error::Corrupt(format!(
                "nobody prepared the call of {}",
                used.name
            )));
        }
        (None, None) => {
            calls.timeout = calls.timeout.max(tool.map_or(0, |tool| tool.timeout));
            let idempotent = tool.is_some_and(|tool| tool.idempotent);
            calls.open.push(new_round_call(index, idempotent, false));
            return Ok(());
        }
        (None, Some(PreparedCall::Wait(waiting))) if calls.waiting.is_none() => {
            calls.waiting = Some(waiting);
            calls.open.push(new_round_call(index, true, true));
            return Ok(());
        }
        (None, Some(prepared)) => {
            calls.own += 1;
            match perform_call(change, prepared, share, &mut calls.spawned)? {
                PerformedCall::Answered(text, failed) => (
                    text,
                    if failed {
                        ToolResultState::Denied
                    } else {
                        ToolResultState::Done
                    },
                ),
                PerformedCall::Stops(text, cause) => {
                    calls.stop.get_or_insert(cause);
                    (text, ToolResultState::Denied)
                }
            }
        }
    };
    let (text, state) = result;
    let text = cut_to_fit(text, share);
    calls.bytes += escaped_bytes(&text);
    change.push_event(Event::ToolResult(ToolResult {
        version: change.version(),
        index,
        name: used.name,
        text,
        failed: state == ToolResultState::Denied,
        state,
        cost: NanoUsd::ZERO,
    }));
    Ok(())
}

fn new_round_call(index: u32, idempotent: bool, waits: bool) -> RoundCall {
    RoundCall {
        index,
        idempotent,
        waits,
    }
}

fn called_tool_name(event: &Event) -> String {
    match event {
        Event::ToolUse(call) => call.name.clone(),
        _ => String::new(),
    }
}

/// Returns the reason, as a sentence for the model, why no call of a reply with this finish word is
/// run. The part that is missing may have changed the purpose of the others.
fn not_run_reason(word: &str) -> Option<String> {
    Some(match FinishReason::parse(word) {
        FinishReason::Stop | FinishReason::ToolUse => return None,
        FinishReason::Length => {
            "not run: the reply was cut at its most output tokens: call again, with less in one reply"
                .to_owned()
        }
        FinishReason::ContentFilter => "not run: the provider withheld the reply".to_owned(),
        FinishReason::Unknown => {
            format!("not run: the provider ended the reply with {word:?}")
        }
    })
}

/// Returns the reason, as a sentence for the model, why a call cannot be run.
fn call_refusal_text(pin: &PinnedSettings, call: &ToolUse, place: usize) -> Option<String> {
    let names = || {
        pin.tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect::<Vec<_>>()
    };
    if place >= CALLS_MAX {
        return Some(format!("not run: at most {CALLS_MAX} calls in one reply"));
    }
    if pin.find_tool(&call.name).is_none() {
        let name = cut(&call.name, 64);
        return Some(
            match (
                names().as_slice(),
                threadkeep_units::nearest::nearest(name, names()),
            ) {
                ([], _) => format!("there is no tool {name:?}: you have no tools, answer in text"),
                (names, None) => {
                    format!("there is no tool {name:?}: you have {}", names.join(", "))
                }
                (names, Some(near)) => {
                    format!(
                        "there is no tool {name:?}, did you mean {near:?}? You have {}",
                        names.join(", ")
                    )
                }
            },
        );
    }
    match json::parse(&call.arguments) {
        Ok(json::JsonValue::Object(_)) => None,
        Ok(_) => Some("the arguments are not a JSON object: call again with {...}".into()),
        Err(e) => Some(format!(
            "the arguments are not JSON ({e}): call again with a JSON object"
        )),
    }
}
