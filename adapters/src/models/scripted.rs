//! Answers from a script: for tests, demonstrations and replays.
//!
//! A script is a JSON list of replies, or one reply a line. A reply has any of these fields:
//!
//! | field | meaning |
//! |---|---|
//! | `text`, `thinking` | what the model says and thinks |
//! | `calls` | `[{"name", "arguments"}]`; arguments: an object, or a string for broken JSON |
//! | `usage` | `{"input", "output", "read", "write", "reasoning"}`, or `"none"`; else estimated |
//! | `finish` | the finish reason; else `tool_use` if there are calls, `stop` if not |
//! | `fail` | a failure before the reply: see below |
//! | `delay_ms`, `pause_ms` | the wait before the first delta, and between deltas |
//! | `chunk` | characters of one delta |
//! | `repeat` | the number of turns in a row that the reply serves, or `"forever"` |
//! | `for` | only for conversations whose system prompt or first message contains this text |
//!
//! **Which reply a request gets** follows from the request alone. A conversation with *n* assistant
//! messages gets the reply at position *n* (from 0). So any number of threads share a script
//! without disturbing each other, and a process that resumes a thread continues where the last one
//! stopped. Replies with the same `for` are a list of their own, so that a child, a summary or the
//! successor of a hand-off can have its own replies. The first such list in the script that fits is
//! used; the replies without `for` serve every other conversation.
//!
//! An estimated usage counts four bytes a token.
//!
//! **Failures** have any of the fields `kind`, `code`, `message`, `retry_after_ms`, `sent`,
//! `partial`, `usage` and `times`. They add no assistant message, so they are counted in memory. A
//! reply with `fail` lets the first `times` (1) tries of the same conversation fail and then
//! answers; a reply that has nothing but `fail` does so before the next reply. The count of a
//! conversation ends with its answer and with the process. Threads that send the very same
//! conversation at the same time share one count.

mod script;

use super::{
    CompletionRequest, FailureKind, ModelCompletion, ModelFailure, OnDelta, ReplyBlock, ReplyDelta,
    Usage,
};
use script::{ReplyScript, ScriptChoice, ScriptedAnswer, ScriptedFailure, StreamPace};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;
use threadkeep_storage::locks::SleepingMutex;

/// Most conversations whose failed tries are counted at the same time. Beyond it all counts start
/// again from zero, which only a test with that many failing conversations at once would notice.
const TRIES_MAX: usize = 16_384;

/// An error in a script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// The script is larger than is kept in memory.
    #[error("the script has {bytes} bytes, at most {maximum} are read")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The largest size.
        maximum: usize,
    },
    /// The script is neither a JSON list nor lines of JSON.
    #[error("line {line} of the script is not JSON: {problem}")]
    NotJson {
        /// The line, from 1.
        line: usize,
        /// The parser's message.
        problem: String,
    },
    /// The script has no reply.
    #[error("the script has no reply")]
    Empty,
    /// A reply of the script is invalid.
    #[error("reply {number} of the script: {problem}")]
    Reply {
        /// The reply, from 1.
        number: usize,
        /// The reason.
        problem: String,
    },
}

/// A script, and the failures that its conversations have met so far.
#[derive(Debug)]
pub struct ScriptedModel {
    script: ReplyScript,
    /// Number of failed tries by hash of the conversation.
    tries: SleepingMutex<HashMap<[u8; 32], u64>>,
}

impl ScriptedModel {
    /// Parses a script: a JSON list of replies, or one reply a line.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        Ok(Self {
            script: ReplyScript::parse(text)?,
            tries: SleepingMutex::default(),
        })
    }

    /// Answers one request. The caller waits where the script does: `wait` is never called with a
    /// time of zero, so that a script without delays runs on any executor.
    pub async fn answer_request<W: Future<Output = ()>>(
        &self,
        request: &CompletionRequest,
        on_delta: OnDelta<'_>,
        wait: impl Fn(Duration) -> W,
    ) -> Result<ModelCompletion, ModelFailure> {
        let place = find_position(request).map_err(unreadable_failure)?;
        let opening = [request.system.as_str(), &place.first];
        let key = conversation_hash(request);
        match self
            .script
            .choose(&opening, place.turns, self.try_count(&key))
        {
            ScriptChoice::Ended => Err(script_ended_failure(place.turns)),
            ScriptChoice::Fail(fail) => {
                self.count_try(key);
                Err(play_fail(fail, on_delta, &wait).await)
            }
            ScriptChoice::Answer(answer) => {
                let completion = play_answer(answer, request, on_delta, &wait).await;
                self.forget_tries(&key);
                Ok(completion)
            }
        }
    }

    fn try_count(&self, key: &[u8; 32]) -> u64 {
        self.tries.lock().get(key).copied().unwrap_or(0)
    }

    fn count_try(&self, key: [u8; 32]) {
        let mut tries = self.tries.lock();
        if tries.len() >= TRIES_MAX && !tries.contains_key(&key) {
            tries.clear();
        }
        *tries.entry(key).or_default() += 1;
    }

    fn forget_tries(&self, key: &[u8; 32]) {
        self.tries.lock().remove(key);
    }
}

/// The position of a request in its conversation.
struct ScriptPosition {
    /// Texts of the first message.
    first: String,
    /// Number of assistant messages.
    turns: u64,
}

/// Finds the position of a request. The error is the index of a message that cannot be parsed.
fn find_position(request: &CompletionRequest) -> Result<ScriptPosition, usize> {
    #[derive(serde::Deserialize)]
    struct RoleField {
        role: String,
    }
    let mut turns = 0;
    for (index, message) in request.messages.iter().enumerate() {
        let role: RoleField = serde_json::from_str(message).map_err(|_| index)?;
        turns += u64::from(role.role == "assistant");
    }
    let first = request
        .messages
        .first()
        .map(|message| first_text(message))
        .unwrap_or_default();
    Ok(ScriptPosition { first, turns })
}

fn first_text(message: &str) -> String {
    let message: serde_json::Value = serde_json::from_str(message).unwrap_or_default();
    let blocks = message
        .get("content")
        .and_then(|content| content.as_array());
    let texts = blocks
        .into_iter()
        .flatten()
        .filter_map(|block| block.get("text").and_then(|text| text.as_str()));
    texts.collect::<Vec<_>>().join("\n")
}

/// Returns the hash that all tries of one conversation share. The output maximum is not part of it,
/// because the runner may lower it from one try to the next.
fn conversation_hash(request: &CompletionRequest) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [&request.model, &request.system]
        .into_iter()
        .chain(&request.messages)
    {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

fn unreadable_failure(index: usize) -> ModelFailure {
    let message = format!("message {index} of the conversation is not in the normal form");
    permanent_failure("request_unreadable", message)
}

fn script_ended_failure(turns: u64) -> ModelFailure {
    permanent_failure(
        "script_ended",
        format!(
            "the script has no reply for request {} of this conversation",
            turns + 1
        ),
    )
}

fn permanent_failure(code: &str, message: String) -> ModelFailure {
    ModelFailure::new(FailureKind::Permanent, code, message).not_sent()
}

async fn play_fail<W: Future<Output = ()>>(
    fail: &ScriptedFailure,
    on_delta: OnDelta<'_>,
    wait: &impl Fn(Duration) -> W,
) -> ModelFailure {
    wait_for(fail.pace.delay, wait).await;
    stream_text(&fail.partial, &fail.pace, ReplyDelta::Text, on_delta, wait).await;
    ModelFailure {
        kind: fail.kind,
        code: fail.code.clone(),
        message: fail.message.clone(),
        retry_after: fail.retry_after,
        sent: fail.sent,
        refused: false,
        usage: fail.usage,
        partial: fail.partial.clone(),
    }
}

async fn play_answer<W: Future<Output = ()>>(
    answer: &ScriptedAnswer,
    request: &CompletionRequest,
    on_delta: OnDelta<'_>,
    wait: &impl Fn(Duration) -> W,
) -> ModelCompletion {
    wait_for(answer.pace.delay, wait).await;
    for block in &answer.completion.blocks {
        match block {
            ReplyBlock::Text { text } => {
                stream_text(text, &answer.pace, ReplyDelta::Text, on_delta, wait).await
            }
            ReplyBlock::Thinking { text, .. } => {
                stream_text(text, &answer.pace, ReplyDelta::Thinking, on_delta, wait).await
            }
            ReplyBlock::ToolUse { name, .. } => on_delta(ReplyDelta::ToolUse(name.clone())),
        }
    }
    let mut completion = answer.completion.clone();
    if answer.estimate {
        completion.usage = Some(estimate_usage(request, &completion.blocks));
    }
    completion
}

/// Estimates usage: four bytes a token, at least one token. The same request and reply always cost
/// the same.
fn estimate_usage(request: &CompletionRequest, blocks: &[ReplyBlock]) -> Usage {
    let tools = request
        .tools
        .iter()
        .map(|tool| tool.name.len() + tool.description.len() + tool.schema.len());
    let input = request.system.len()
        + request.messages.iter().map(String::len).sum::<usize>()
        + tools.sum::<usize>();
    let output = blocks.iter().map(script::block_bytes).sum::<usize>();
    let tokens = |bytes: usize| (bytes as u64 / 4).max(1);
    Usage {
        input: tokens(input),
        output: tokens(output),
        ..Usage::default()
    }
}

async fn stream_text<W: Future<Output = ()>>(
    text: &str,
    pace: &StreamPace,
    delta: fn(String) -> ReplyDelta,
    on_delta: OnDelta<'_>,
    wait: &impl Fn(Duration) -> W,
) {
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest
            .char_indices()
            .nth(pace.chunk)
            .map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(end);
        on_delta(delta(piece.to_owned()));
        rest = after;
        if !rest.is_empty() {
            wait_for(pace.pause, wait).await;
        }
    }
}

async fn wait_for<W: Future<Output = ()>>(time: Duration, wait: &impl Fn(Duration) -> W) {
    if !time.is_zero() {
        wait(time).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_bounded() {
        let llm = ScriptedModel::parse(r#"[{"fail":{"code":"x"}},{"text":"a"}]"#).unwrap();
        for n in 0..=TRIES_MAX {
            let request = CompletionRequest {
                model: n.to_string(),
                ..CompletionRequest::default()
            };
            llm.count_try(conversation_hash(&request));
        }
        assert_eq!(llm.tries.lock().len(), 1);
    }
}
