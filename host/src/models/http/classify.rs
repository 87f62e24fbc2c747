//! What went wrong, classified once.
//!
//! [`classify`] is the one place that decides what a fault of any wire means to the runner. Words of providers (error
//! codes and types) are compared here and nowhere else; the codes that it gives are ours and stable.

use super::normal::EncodeError;
use crate::models::FailureKind;
use std::time::Duration;

/// The longest wait that is passed on. A provider that asks for more means a person, not a timer.
pub(in crate::models) const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// One thing that can go wrong with one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::models) enum Fault {
    /// The request has no body.
    Encode(EncodeError),
    /// No connection was made.
    Connect { problem: String },
    /// A connection was refused because the server's certificate is not trusted.
    Certificate,
    /// No answer began within this time.
    Timeout(Duration),
    /// The connection broke: before the answer began, or in it.
    Disconnected,
    /// The provider refused, with its status and what it said in the body.
    Status {
        status: u16,
        said: Said,
        retry_after: Option<Duration>,
    },
    /// The answer is no event stream.
    NotAStream,
    /// An error object came inside the stream.
    StreamError(Said),
    /// A chunk is not the JSON it should be.
    BadChunk,
    /// The reply, one of its events or the whole stream is larger than is accepted.
    TooLarge,
    /// Nothing came for this long.
    Stalled(Duration),
    /// The stream ended without a finish reason.
    Unfinished,
    /// The finish reason announces calls, and there are none.
    CallsMissing,
}

/// An error object of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::models) struct Said {
    /// Its `code`, as a word.
    pub code: String,
    /// Its `type`.
    pub r#type: String,
    /// Its sentence. Not for showing: see [`super::redact`].
    pub message: String,
}

impl Said {
    /// A status that stands as the code: routers put the one of the provider behind them there.
    fn status(&self) -> Option<u16> {
        self.code
            .parse()
            .ok()
            .filter(|status| (400..=599).contains(status))
    }

    fn is(&self, words: &[&str]) -> bool {
        words
            .iter()
            .any(|word| self.code == *word || self.r#type == *word)
    }

    /// Anthropic says it with the status and the type of a bad request.
    fn is_out_of_money(&self) -> bool {
        let words = [
            "insufficient_quota",
            "insufficient_credits",
            "billing_hard_limit_reached",
            "billing_not_active",
            "billing_error",
        ];
        let sentences = ["credit balance is too low", "specified API usage limits"];
        self.is(&words) || self.says(&sentences)
    }

    fn says(&self, sentences: &[&str]) -> bool {
        sentences
            .iter()
            .any(|sentence| self.message.contains(sentence))
    }

    fn is_overflow(&self) -> bool {
        let sentences = [
            "maximum context length",
            "exceeds the available context size",
            "prompt is too long",
            "exceed context limit",
        ];
        self.is(&["context_length_exceeded", "exceed_context_size_error"]) || self.says(&sentences)
    }
}

/// What a fault means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::models) struct Verdict {
    pub kind: FailureKind,
    pub code: String,
    /// Our half of the sentence. Nothing of what a provider said is in it.
    pub sentence: String,
    pub retry_after: Option<Duration>,
    /// False only if it is certain that nothing was sent.
    pub sent: bool,
}

/// Classify a fault.
pub(in crate::models) fn classify(fault: &Fault) -> Verdict {
    use FailureKind::{Permanent, Transient};
    let named = |kind, code: &str| (kind, code.to_owned());
    let (kind, code) = match fault {
        Fault::Encode(EncodeError::TooLarge) => named(Permanent, "request_too_large"),
        Fault::Encode(_) => named(Permanent, "request_unreadable"),
        Fault::Connect { .. } => named(Transient, "connect"),
        Fault::Certificate => named(Permanent, "certificate"),
        Fault::Timeout(_) => named(Transient, "timeout"),
        Fault::Disconnected => named(Transient, "disconnected"),
        Fault::Status { status, said, .. } => {
            let (kind, code) = refusal(Some(*status), said);
            (
                kind,
                code.map_or_else(|| format!("http_{status}"), str::to_owned),
            )
        }
        Fault::NotAStream => named(Permanent, "not_a_stream"),
        Fault::StreamError(said) => {
            let (kind, code) = refusal(said.status(), said);
            named(kind, code.unwrap_or("stream_error"))
        }
        Fault::BadChunk => named(Transient, "bad_chunk"),
        Fault::TooLarge => named(Permanent, "reply_too_large"),
        Fault::Stalled(_) => named(Transient, "stalled"),
        Fault::Unfinished => named(Transient, "stream_unfinished"),
        Fault::CallsMissing => named(Transient, "calls_missing"),
    };
    let retry_after = match fault {
        Fault::Status { retry_after, .. } => retry_after.map(|wait| wait.min(RETRY_AFTER_MAX)),
        _ => None,
    };
    let unsent = matches!(
        fault,
        Fault::Encode(_) | Fault::Connect { .. } | Fault::Certificate
    );
    Verdict {
        kind,
        code,
        sentence: sentence(fault),
        retry_after,
        sent: !unsent,
    }
}

fn sentence(fault: &Fault) -> String {
    let plain = match fault {
        Fault::Encode(error) => return encode_sentence(error),
        Fault::Connect { problem } => {
            return format!("the provider cannot be reached: {problem}");
        }
        Fault::Timeout(after) => {
            return format!("the provider did not begin to answer within {after:?}");
        }
        Fault::Status { status, .. } => {
            return format!("the provider answered with status {status}");
        }
        Fault::Stalled(after) => {
            return format!("the provider's stream stood still for {after:?}");
        }
        Fault::Certificate => "the certificate of the provider is not trusted",
        Fault::Disconnected => "the connection to the provider broke",
        Fault::NotAStream => "the provider did not answer with an event stream",
        Fault::StreamError(_) => "the provider ended its stream with an error",
        Fault::BadChunk => "the provider sent a chunk that is broken",
        Fault::TooLarge => "the provider sent more than one reply may have",
        Fault::Unfinished => "the provider's stream ended without a finish reason",
        Fault::CallsMissing => "the provider announced tool calls and sent none",
    };
    plain.to_owned()
}

/// The kind of a refusal, and its code if it is a known one. Without a status the words alone decide.
fn refusal(status: Option<u16>, said: &Said) -> (FailureKind, Option<&'static str>) {
    let too_many = [
        "rate_limit_exceeded",
        "rate_limit_error",
        "rate_limit_reached_error",
    ];
    let refused = [
        "invalid_request_error",
        "authentication_error",
        "permission_error",
        "not_found_error",
        "request_too_large",
    ];
    if matches!(status, None | Some(400 | 413)) && said.is_overflow() {
        return (
            FailureKind::ContextOverflow,
            Some("context_length_exceeded"),
        );
    }
    if said.is_out_of_money() {
        return (FailureKind::Quota, Some("insufficient_quota"));
    }
    let kind = match status {
        Some(402) => FailureKind::Quota,
        Some(429) => FailureKind::RateLimited,
        Some(408 | 409 | 425 | 500..=599) => FailureKind::Transient,
        Some(_) => FailureKind::Permanent,
        None if said.is(&too_many) => FailureKind::RateLimited,
        None if said.is(&refused) => FailureKind::Permanent,
        None => FailureKind::Transient,
    };
    (kind, None)
}

fn encode_sentence(error: &EncodeError) -> String {
    match error {
        EncodeError::Message(index) => {
            format!("message {index} of the conversation is not in the normal form")
        }
        EncodeError::Misplaced(index) => {
            format!("message {index} has a block that its role cannot have")
        }
        EncodeError::Schema(tool) => format!("the schema of the tool `{tool}` is not JSON"),
        EncodeError::TooLarge => "the conversation is larger than one request may be".to_owned(),
    }
}

/// What an error body says, in any of the shapes that compatible servers use:
/// `{"error": {"message", "type", "code"}}`, `{"error": "..."}`, `{"object": "error", "message", "type", "code"}`.
/// None if it says nothing of an error.
pub(in crate::models) fn said(body: &serde_json::Value) -> Option<Said> {
    let flat = body.get("object").and_then(|object| object.as_str()) == Some("error");
    let error = match body.get("error") {
        Some(serde_json::Value::Null) | None => flat.then_some(body)?,
        Some(error) => error,
    };
    let word = |name: &str| match error.get(name) {
        Some(serde_json::Value::String(word)) => word.clone(),
        Some(serde_json::Value::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    let message = error
        .as_str()
        .map_or_else(|| word("message"), str::to_owned);
    Some(Said {
        code: word("code"),
        r#type: word("type"),
        message,
    })
}

/// How long the headers ask to wait: `retry-after-ms`, else `retry-after` in seconds or as a date, measured against
/// the provider's own `date` if it sent one, for our clock may be wrong.
pub(in crate::models) fn retry_after(
    header: impl Fn(&str) -> Option<String>,
    now: jiff::Timestamp,
) -> Option<Duration> {
    let number = |text: String| {
        text.trim()
            .parse::<f64>()
            .ok()
            .filter(|n| n.is_finite() && *n >= 0.0)
    };
    if let Some(millis) = header("retry-after-ms").and_then(number) {
        return Duration::try_from_secs_f64(millis / 1_000.0).ok();
    }
    let text = header("retry-after")?;
    if let Some(seconds) = number(text.clone()) {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let now = header("date").and_then(|text| date(&text)).unwrap_or(now);
    let wait = date(&text)?.as_second().saturating_sub(now.as_second());
    Some(Duration::from_secs(u64::try_from(wait).unwrap_or(0)))
}

fn date(text: &str) -> Option<jiff::Timestamp> {
    jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(text.trim())
        .ok()
}

#[cfg(test)]
#[path = "classify_tests.rs"]
mod tests;
