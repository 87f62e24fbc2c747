//! Parsing of a script, and the choice of a reply. Pure: no clock, no state between calls.

use super::ScriptError;
use crate::models::{FailureKind, ModelCompletion, REPLY_BYTES_MAX, ReplyBlock, Usage};
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::Value;
use std::time::Duration;

/// Most bytes of a script: it is kept in memory.
pub(super) const SCRIPT_BYTES_MAX: usize = 16 << 20;
/// Longest delay and pause, in milliseconds: ten minutes.
pub(super) const DELAY_MS_MAX: u64 = 600_000;
/// Characters of one delta if the reply does not set them.
const CHUNK_DEFAULT: usize = 16;

/// A value of `repeat` or `times`: a number from 1, or `"forever"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RepeatCount {
    Times(u64),
    Forever,
}

impl<'de> Deserialize<'de> for RepeatCount {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match (value.as_str(), value.as_u64()) {
            (Some("forever"), _) => Ok(Self::Forever),
            (_, Some(times)) if times > 0 => Ok(Self::Times(times)),
            _ => Err(D::Error::custom(format!(
                "expected a number from 1 or \"forever\", found {value}"
            ))),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawReply {
    r#for: Option<String>,
    text: Option<String>,
    thinking: Option<String>,
    calls: Option<Vec<RawCall>>,
    usage: Option<RawUsage>,
    fail: Option<RawFail>,
    delay_ms: Option<u64>,
    pause_ms: Option<u64>,
    chunk: Option<usize>,
    finish: Option<String>,
    repeat: Option<RepeatCount>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCall {
    name: String,
    #[serde(default)]
    arguments: Value,
}

/// Usage as the script gives it: counts, or the word `none` for a provider that reports nothing.
#[derive(Clone, Copy)]
enum RawUsage {
    None,
    Counts(Usage),
}

impl<'de> Deserialize<'de> for RawUsage {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize, Default)]
        #[serde(deny_unknown_fields, default)]
        struct UsageCounts {
            input: u64,
            output: u64,
            read: u64,
            write: u64,
            reasoning: u64,
        }
        let value = Value::deserialize(deserializer)?;
        if value.as_str() == Some("none") {
            return Ok(Self::None);
        }
        let UsageCounts {
            input,
            output,
            read,
            write,
            reasoning,
        } = serde_json::from_value(value).map_err(D::Error::custom)?;
        Ok(Self::Counts(Usage {
            input,
            output,
            read,
            write,
            reasoning,
        }))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFail {
    kind: Option<String>,
    code: Option<String>,
    message: Option<String>,
    retry_after_ms: Option<u64>,
    sent: Option<bool>,
    partial: Option<String>,
    usage: Option<RawUsage>,
    times: Option<RepeatCount>,
}

/// The timing and chunk size of a streamed reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StreamPace {
    pub delay: Duration,
    pub pause: Duration,
    pub chunk: usize,
}

/// A scripted failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScriptedFailure {
    pub kind: FailureKind,
    pub code: String,
    pub message: String,
    pub retry_after: Option<Duration>,
    pub sent: bool,
    pub partial: String,
    pub usage: Option<Usage>,
    pub times: RepeatCount,
    pub pace: StreamPace,
}

/// A scripted completion. `estimate` is set if its usage is to be estimated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScriptedAnswer {
    pub completion: ModelCompletion,
    pub estimate: bool,
    pub pace: StreamPace,
}

/// One reply with the failures before it. Without an answer, the script ends in failures.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ScriptSlot {
    fails: Vec<ScriptedFailure>,
    answer: Option<ScriptedAnswer>,
    repeat: RepeatCount,
}

/// The replies for conversations that contain `text`, or for all others.
#[derive(Debug)]
struct ReplyGroup {
    text: Option<String>,
    slots: Vec<ScriptSlot>,
    /// Failures that wait for the answer of a later reply.
    open: Vec<ScriptedFailure>,
}

/// The choice for a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ScriptChoice<'a> {
    Answer(&'a ScriptedAnswer),
    Fail(&'a ScriptedFailure),
    /// The script has fewer replies than the conversation has requests.
    Ended,
}

/// The groups in the order of their first reply; the group for all other conversations is last.
#[derive(Debug)]
pub(super) struct ReplyScript {
    groups: Vec<ReplyGroup>,
}

impl ReplyScript {
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        if text.len() > SCRIPT_BYTES_MAX {
            return Err(ScriptError::TooLarge {
                bytes: text.len(),
                maximum: SCRIPT_BYTES_MAX,
            });
        }
        let mut groups: Vec<ReplyGroup> = Vec::new();
        for (index, value) in parse_values(text)?.into_iter().enumerate() {
            let number = index + 1;
            let failed = |problem: String| ScriptError::Reply { number, problem };
            let raw: RawReply =
                serde_json::from_value(value).map_err(|error| failed(error.to_string()))?;
            let at = groups
                .iter()
                .position(|group| group.text == raw.r#for)
                .unwrap_or_else(|| {
                    groups.push(ReplyGroup {
                        text: raw.r#for.clone(),
                        slots: Vec::new(),
                        open: Vec::new(),
                    });
                    groups.len() - 1
                });
            groups[at].add_reply(raw).map_err(failed)?;
        }
        for group in &mut groups {
            if !group.open.is_empty() {
                let fails = std::mem::take(&mut group.open);
                group.slots.push(ScriptSlot {
                    fails,
                    answer: None,
                    repeat: RepeatCount::Times(1),
                });
            }
        }
        groups.sort_by_key(|group| group.text.is_none());
        if groups.is_empty() {
            Err(ScriptError::Empty)
        } else {
            Ok(Self { groups })
        }
    }

    /// Chooses the reply for a conversation that begins with `opening` and has `turns` replies, at
    /// try number `tries` (from 0).
    pub fn choose(&self, opening: &[&str], turns: u64, tries: u64) -> ScriptChoice<'_> {
        let fits = |group: &&ReplyGroup| {
            group
                .text
                .as_ref()
                .is_none_or(|text| opening.iter().any(|part| part.contains(text)))
        };
        let slot = self
            .groups
            .iter()
            .find(fits)
            .and_then(|group| item_at(&group.slots, turns, |slot| slot.repeat));
        match slot {
            None => ScriptChoice::Ended,
            Some(slot) => match (item_at(&slot.fails, tries, |fail| fail.times), &slot.answer) {
                (Some(fail), _) => ScriptChoice::Fail(fail),
                (None, Some(answer)) => ScriptChoice::Answer(answer),
                (None, None) => ScriptChoice::Ended,
            },
        }
    }
}

/// Returns the item that covers place `n`, if each item covers as many places as `count` says.
fn item_at<T>(items: &[T], n: u64, count: impl Fn(&T) -> RepeatCount) -> Option<&T> {
    let mut left = n;
    for item in items {
        match count(item) {
            RepeatCount::Forever => return Some(item),
            RepeatCount::Times(times) if left < times => return Some(item),
            RepeatCount::Times(times) => left -= times,
        }
    }
    None
}

impl ReplyGroup {
    fn add_reply(&mut self, raw: RawReply) -> Result<(), String> {
        if self
            .open
            .iter()
            .any(|fail| fail.times == RepeatCount::Forever)
            || self
                .slots
                .last()
                .is_some_and(|slot| slot.repeat == RepeatCount::Forever)
        {
            return Err("it is never reached: the reply before it stands for ever".to_owned());
        }
        let pace = read_pace(&raw)?;
        let answers = raw.text.is_some() || raw.thinking.is_some() || raw.calls.is_some();
        if let Some(fail) = raw.fail.as_ref() {
            self.open.push(read_fail(fail, pace.clone())?);
        }
        if !answers {
            let extra = raw.usage.is_some() || raw.finish.is_some() || raw.repeat.is_some();
            return match (raw.fail.is_some(), extra) {
                (false, _) => {
                    Err("it has none of `text`, `thinking`, `calls` and `fail`".to_owned())
                }
                (true, true) => Err(
                    "a reply that only fails has no `usage`, `finish` or `repeat`; \
                     see `fail.usage` and `fail.times`"
                        .to_owned(),
                ),
                (true, false) => Ok(()),
            };
        }
        if self
            .open
            .iter()
            .any(|fail| fail.times == RepeatCount::Forever)
        {
            return Err("it is never reached: its own failure stands for ever".to_owned());
        }
        let repeat = raw.repeat.unwrap_or(RepeatCount::Times(1));
        let answer = Some(read_answer(raw, pace)?);
        self.slots.push(ScriptSlot {
            fails: std::mem::take(&mut self.open),
            answer,
            repeat,
        });
        Ok(())
    }
}

/// Parses the values of a JSON list, or of lines of JSON; empty lines are skipped.
fn parse_values(text: &str) -> Result<Vec<Value>, ScriptError> {
    let not_json = |line: usize, error: &serde_json::Error| ScriptError::NotJson {
        line,
        problem: error.to_string(),
    };
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text).map_err(|error| not_json(error.line(), &error));
    }
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            serde_json::from_str(line).map_err(|error| not_json(index + 1, &error))
        })
        .collect()
}

fn read_pace(raw: &RawReply) -> Result<StreamPace, String> {
    let time = |name: &str, value: Option<u64>| match value.unwrap_or(0) {
        ms if ms > DELAY_MS_MAX => Err(format!("`{name}` is {ms}, more than {DELAY_MS_MAX}")),
        ms => Ok(Duration::from_millis(ms)),
    };
    let chunk = raw.chunk.unwrap_or(CHUNK_DEFAULT);
    if chunk == 0 {
        return Err("`chunk` is 0; a delta has at least 1 character".to_owned());
    }
    Ok(StreamPace {
        delay: time("delay_ms", raw.delay_ms)?,
        pause: time("pause_ms", raw.pause_ms)?,
        chunk,
    })
}

fn read_fail(raw: &RawFail, pace: StreamPace) -> Result<ScriptedFailure, String> {
    use FailureKind::{Cancelled, ContextOverflow, Permanent, Quota, RateLimited, Transient};
    let word = raw.kind.as_deref().unwrap_or(Transient.as_str());
    let kinds = [
        Transient,
        RateLimited,
        Permanent,
        Quota,
        ContextOverflow,
        Cancelled,
    ];
    let Some(kind) = kinds.into_iter().find(|kind| kind.as_str() == word) else {
        let words = kinds.map(FailureKind::as_str).join(", ");
        return Err(format!("`fail.kind` is `{word}`; it is one of {words}"));
    };
    let retry_ms = raw.retry_after_ms;
    if retry_ms.is_some_and(|ms| ms > DELAY_MS_MAX) {
        return Err(format!("`fail.retry_after_ms` is more than {DELAY_MS_MAX}"));
    }
    Ok(ScriptedFailure {
        kind,
        code: raw.code.clone().unwrap_or_else(|| "scripted".to_owned()),
        message: raw
            .message
            .clone()
            .unwrap_or_else(|| "the script lets this request fail".to_owned()),
        retry_after: retry_ms.map(Duration::from_millis),
        sent: raw.sent.unwrap_or(true),
        partial: raw.partial.clone().unwrap_or_default(),
        usage: raw.usage.and_then(RawUsage::to_usage),
        times: raw.times.unwrap_or(RepeatCount::Times(1)),
        pace,
    })
}

impl RawUsage {
    fn to_usage(self) -> Option<Usage> {
        match self {
            Self::None => None,
            Self::Counts(usage) => Some(usage),
        }
    }
}

fn read_answer(raw: RawReply, pace: StreamPace) -> Result<ScriptedAnswer, String> {
    let mut blocks = Vec::new();
    blocks.extend(
        raw.thinking
            .map(|text| ReplyBlock::Thinking { text, raw: None }),
    );
    blocks.extend(raw.text.map(|text| ReplyBlock::Text { text }));
    let calls = raw.calls.unwrap_or_default();
    let calling = !calls.is_empty();
    for (n, call) in calls.into_iter().enumerate() {
        let arguments = match call.arguments {
            Value::String(text) => text,
            Value::Null => "{}".to_owned(),
            Value::Object(_) => call.arguments.to_string(),
            other => {
                return Err(format!(
                    "`arguments` of `{}` is {other}; it is an object or a string",
                    call.name
                ));
            }
        };
        blocks.push(ReplyBlock::ToolUse {
            id: format!("scripted_{n}"),
            name: call.name,
            arguments,
            raw: None,
        });
    }
    let bytes = blocks.iter().map(block_bytes).sum::<usize>();
    if bytes > REPLY_BYTES_MAX {
        return Err(format!("it has {bytes} bytes, more than {REPLY_BYTES_MAX}"));
    }
    let finish = raw
        .finish
        .unwrap_or_else(|| if calling { "tool_use" } else { "stop" }.to_owned());
    let usage = raw.usage.and_then(RawUsage::to_usage);
    let completion = ModelCompletion {
        blocks,
        finish,
        usage,
        ..ModelCompletion::default()
    };
    Ok(ScriptedAnswer {
        completion,
        estimate: raw.usage.is_none(),
        pace,
    })
}

/// Returns the bytes of a block that count towards its reply.
pub(super) fn block_bytes(block: &ReplyBlock) -> usize {
    match block {
        ReplyBlock::Text { text } | ReplyBlock::Thinking { text, .. } => text.len(),
        ReplyBlock::ToolUse {
            name, arguments, ..
        } => name.len() + arguments.len(),
    }
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
