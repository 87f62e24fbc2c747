//! A reply of the model: settled, recorded, and either the end of the run or a round of calls.

use super::admit::{admit, hand_out};
use super::mail::take_mail;
use super::stop::{count_time, end_by, finish, settle, suspend};
use super::{
    BAD_ROUNDS_MAX, BLOCK_BYTES, CALL_NAME_BYTES_MAX, CALLS_MAX, REFUSAL_BYTES_MAX, REPLY_BYTES_MAX,
};
use crate::error::{Error, cut};
use crate::history::{
    AssistantText, Event, Message, Partial, Reason, ResultEvent, Role, State, Thinking, ToolResult,
    ToolUse, cut_escaped, escaped_bytes,
};
use crate::json::{self, Fields, ToJson, record::record};
use crate::ledger::Usage;
use crate::money::Nanos;
use crate::plan::Change;
use crate::settings::Pin;
use crate::thread::{Cause, Round, RoundCall, StepKind};

/// A model's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// In order.
    pub blocks: Vec<ReplyBlock>,
    /// Why it ended.
    pub finish: String,
    /// What the provider reported.
    pub usage: Option<Usage>,
    /// The session to go on with.
    pub session: Option<String>,
}

record!(write Completion { blocks, finish, usage, session });

/// One block of a reply. An externally read form: see [`ReplyBlock::parse_all`].
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
    },
}

impl ToJson for ReplyBlock {
    fn write(&self, out: &mut String) {
        let mut fields = Fields::new(out);
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
            } => fields
                .add("type", "tool_use")
                .add("id", id)
                .add("name", name)
                .add("arguments", arguments),
        }
        .end();
    }
}

struct Flat {
    kind: String,
    text: String,
    raw: Option<String>,
    id: String,
    name: String,
    arguments: String,
}

record!(read Flat {
    kind as "type", text or default, raw or default, id or default, name or default, arguments or default
});

impl ReplyBlock {
    /// Read the JSON list of blocks that `llm.completion` documents.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, Error> {
        let flat: Vec<Flat> = json::read(text).map_err(|e| {
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
                }),
                kind => Err(Error::unknown(
                    "completion.blocks.type",
                    kind,
                    "is not a block",
                    &["text", "thinking", "tool_use"],
                )),
            })
            .collect()
    }

    /// What it may take in an entry.
    fn bytes(&self) -> usize {
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
                } => escaped_bytes(id) + escaped_bytes(name) + escaped_bytes(arguments),
            }
    }
}

/// Record a reply and decide what follows.
pub(super) fn replied(
    change: &mut Change<'_>,
    pin: &Pin,
    completion: Completion,
) -> Result<Reason, Error> {
    let usage = completion.usage;
    let (finish_word, duration) = (cut(&completion.finish, 64).to_owned(), count_time(change));
    let spend = settle(change, usage, true);
    change.head.counters.turns += 1;
    change.head.counters.run_turns += 1;
    change.head.session = completion.session.filter(|session| session.len() <= 512);
    let result = ResultEvent {
        model: pin.model.name.clone(),
        finish: finish_word,
        usage: usage.unwrap_or_default(),
        spend,
        duration,
        estimated: usage.is_none(),
    };
    if completion
        .blocks
        .iter()
        .map(ReplyBlock::bytes)
        .sum::<usize>()
        > REPLY_BYTES_MAX
    {
        return Ok(too_large(change, &completion.blocks, result));
    }
    let calls = record(change, completion.blocks);
    if let Some(usage) = usage {
        change.head.context = usage.context().saturating_add(usage.output);
    }
    let word = result.finish.clone();
    change.push(Event::Result(result));
    if calls.is_empty() {
        return ended(change, pin, usage.is_some(), &word);
    }
    round(change, pin, calls, usage.is_some())
}

fn too_large(change: &mut Change<'_>, blocks: &[ReplyBlock], result: ResultEvent) -> Reason {
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
    change.push(Event::Partial(Partial { text }));
    change.push(Event::Result(result));
    let message =
        format!("the reply is larger than {REPLY_BYTES_MAX} bytes and was kept as a partial only");
    suspend(change, Cause::new("error", "reply_too_large", message));
    Reason::Suspended
}

/// The blocks as events; the indexes of the calls. Text is the last word if nothing is called, narration beside calls.
fn record(change: &mut Change<'_>, blocks: Vec<ReplyBlock>) -> Vec<u32> {
    let calls_any = blocks
        .iter()
        .any(|block| matches!(block, ReplyBlock::ToolUse { .. }));
    let mut calls = Vec::new();
    for block in blocks {
        match block {
            ReplyBlock::Text { text } if calls_any => {
                change.push(Event::AssistantText(AssistantText { text }));
            }
            ReplyBlock::Text { text } => {
                change.push(Event::Message(Message::text(Role::Assistant, text)));
            }
            ReplyBlock::Thinking { text, raw } => {
                change.push(Event::Thinking(Thinking { text, raw }));
            }
            ReplyBlock::ToolUse {
                id,
                name,
                arguments,
            } => {
                calls.push(change.push(Event::ToolUse(ToolUse {
                    name: cut(&name, CALL_NAME_BYTES_MAX).to_owned(),
                    arguments,
                    id: cut(&id, CALL_NAME_BYTES_MAX).to_owned(),
                })));
            }
        }
    }
    calls
}

/// A reply without calls: the run is over, unless mail waits.
fn ended(change: &mut Change<'_>, pin: &Pin, counted: bool, word: &str) -> Result<Reason, Error> {
    let text = change
        .events
        .iter()
        .filter_map(|event| {
            if let Event::Message(message) = event {
                Some(message.joined())
            } else {
                None
            }
        })
        .collect::<Vec<_>>()
        .join("\n");
    let waiting = !change.mail.is_empty();
    take_mail(change);
    if change.head.intent.is_some() {
        change.seal(counted);
        end_by(change, "cancel");
        return Ok(Reason::Cancelled);
    }
    if waiting {
        change.seal(counted);
        admit(change, pin);
        return Ok(Reason::AssistantTurn);
    }
    change.seal(counted);
    if let Some(cause) = not_whole(word, &text) {
        suspend(change, cause);
        return Ok(Reason::Suspended);
    }
    finish(change, &text);
    Ok(Reason::RunFinished)
}

/// Why a reply is not the end of a run, though it calls nothing: it was cut, withheld, or says nothing.
fn not_whole(word: &str, text: &str) -> Option<Cause> {
    let (code, message) = match word {
        "length" => (
            "reply_truncated",
            "the reply was cut at its most output tokens: resume with a message to let it go on",
        ),
        "content_filter" => (
            "reply_filtered",
            "the provider withheld the reply: resume with another message",
        ),
        _ if text.is_empty() => (
            "empty_reply",
            "the model answered nothing: resume to ask again, or with a message",
        ),
        _ => return None,
    };
    Some(Cause::new("error", code, message))
}

/// A reply with calls: those that cannot be run get their result at once, the others are handed out.
fn round(
    change: &mut Change<'_>,
    pin: &Pin,
    calls: Vec<u32>,
    counted: bool,
) -> Result<Reason, Error> {
    let version = change.version();
    let mut open = Vec::new();
    let mut timeout = 0;
    for (place, index) in calls.into_iter().enumerate() {
        let Some(Event::ToolUse(call)) = change.events.get(index as usize).cloned() else {
            continue;
        };
        match refusal(pin, &call, place) {
            None => {
                let tool = pin.tool(&call.name);
                timeout = timeout.max(tool.map_or(0, |tool| tool.timeout));
                open.push(RoundCall {
                    index,
                    idempotent: tool.is_some_and(|tool| tool.idempotent),
                });
            }
            Some(text) => {
                change.push(Event::ToolResult(ToolResult {
                    version,
                    index,
                    name: call.name,
                    text: cut(&text, REFUSAL_BYTES_MAX).to_owned(),
                    failed: true,
                    state: State::Denied,
                    cost: Nanos::ZERO,
                }));
            }
        }
    }
    change.head.round = (!open.is_empty()).then_some(Round {
        version,
        calls: open,
    });
    if change.head.intent.is_some() {
        let names: Vec<String> = change.events.iter().map(called).collect();
        super::stop::interrupt(change, |_| true, &|index| names[index as usize].clone());
        take_mail(change);
        change.seal(counted);
        end_by(change, "cancel");
        return Ok(Reason::Cancelled);
    }
    if change.head.round.is_some() {
        change.head.bad_rounds = 0;
        change.seal(counted);
        hand_out(change, StepKind::CallTools, timeout);
        return Ok(Reason::AssistantTurn);
    }
    change.head.bad_rounds += 1;
    if change.head.bad_rounds >= BAD_ROUNDS_MAX {
        change.seal(counted);
        let message = format!(
            "the model made {BAD_ROUNDS_MAX} rounds in a row in which no call could be run"
        );
        change.head.bad_rounds = 0;
        suspend(change, Cause::new("error", "bad_tool_rounds", message));
        return Ok(Reason::Suspended);
    }
    take_mail(change);
    change.seal(counted);
    admit(change, pin);
    Ok(Reason::AssistantTurn)
}

fn called(event: &Event) -> String {
    match event {
        Event::ToolUse(call) => call.name.clone(),
        _ => String::new(),
    }
}

/// Why a call cannot be run, as a sentence for the model.
fn refusal(pin: &Pin, call: &ToolUse, place: usize) -> Option<String> {
    let names = || {
        pin.tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect::<Vec<_>>()
    };
    if place >= CALLS_MAX {
        return Some(format!("not run: at most {CALLS_MAX} calls in one reply"));
    }
    if pin.tool(&call.name).is_none() {
        let name = cut(&call.name, 64);
        return Some(
            match (names().as_slice(), crate::nearest::nearest(name, names())) {
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
        Ok(json::Value::Object(_)) => None,
        Ok(_) => Some("the arguments are not a JSON object: call again with {...}".into()),
        Err(e) => Some(format!(
            "the arguments are not JSON ({e}): call again with a JSON object"
        )),
    }
}
