//! Classification of everything that can go wrong with a request, done once.
//!
//! [`classify`] is the one place that decides what a fault of any wire means to the runner. Error
//! codes and types of providers are compared here and nowhere else. The codes that it returns are
//! this project's own and stable.

use super::normal_form::EncodeError;
use crate::models::FailureKind;
use std::time::Duration;

/// Longest wait that is passed on. A provider that asks for more needs a person, not a timer.
pub(in crate::models) const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// One thing that can go wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant's doc says what its fields are")]
pub enum ExchangeFault {
    /// The request could not be encoded.
    Encode(EncodeError),
    /// No connection was made.
    Connect { problem: String },
    /// No connection was made: the server's name resolves to addresses that are out of reach.
    OutOfReach,
    /// No connection was made: the server's certificate is not trusted or belongs to another
    /// server.
    Certificate { problem: String },
    /// No connection was made: the server does not speak TLS.
    NoTls,
    /// No connection was made: TLS failed, and the client does not tell why.
    TlsFailed,
    /// No answer began within this time.
    Timeout(Duration),
    /// The connection broke, before the answer began or during it.
    Disconnected,
    /// The provider refused, with this status and error body.
    Status {
        status: u16,
        said: ProviderError,
        retry_after: Option<Duration>,
        /// Target of a redirect.
        location: Option<String>,
    },
    /// The provider refused a field that the next request will leave out.
    FieldRefused(ProviderError),
    /// The answer is neither an event stream nor a reply.
    NotAStream(ProviderError),
    /// The stream carried an error object.
    StreamError(ProviderError),
    /// A chunk is not the JSON that it should be.
    BadChunk,
    /// The reply, one of its events or the whole stream exceeds its bound.
    TooLarge,
    /// The stream brought nothing for this long.
    Stalled(Duration),
    /// The stream ended without a finish reason.
    Unfinished,
    /// The finish reason announces calls, and the reply has none.
    CallsMissing,
}

/// An error object that a provider sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderError {
    /// Its `code`, as text.
    pub code: String,
    /// Its `type`.
    pub r#type: String,
    /// The request field that it names.
    pub param: String,
    /// Its sentence, unfiltered: pass it through [`super::redact`] before it is shown.
    pub message: String,
}

impl ProviderError {
    /// Returns the field that it names and its sentence, without code and type. Unfiltered.
    pub fn sentence(&self) -> String {
        format!("{}: {}", self.param, self.message)
    }

    /// Returns code or type, field and sentence as one text. Unfiltered.
    pub fn summary(&self) -> String {
        let word = if self.code.is_empty() {
            &self.r#type
        } else {
            &self.code
        };
        let words = [word, &self.param, &self.message];
        let words = words.into_iter().filter(|word| !word.is_empty());
        words.map(String::as_str).collect::<Vec<_>>().join(": ")
    }

    /// Returns an HTTP status that stands in `code`: routers put the status of the provider behind
    /// them there.
    fn status(&self) -> Option<u16> {
        self.code
            .parse()
            .ok()
            .filter(|status| (400..=599).contains(status))
    }

    fn has_word(&self, words: &[&str]) -> bool {
        words
            .iter()
            .any(|word| self.code == *word || self.r#type == *word)
    }

    /// Returns true if the account has no money or quota left. Anthropic reports that with the
    /// status and type of a bad request.
    fn is_out_of_money(&self) -> bool {
        let words = [
            "insufficient_quota",
            "insufficient_credits",
            "billing_hard_limit_reached",
            "billing_not_active",
            "billing_error",
        ];
        let sentences = [
            "credit balance is too low",
            "specified api usage limits",
            "insufficient balance",
            "insufficient credits",
            "insufficient funds",
        ];
        self.has_word(&words) || self.has_sentence(&sentences)
    }

    fn has_sentence(&self, sentences: &[&str]) -> bool {
        let message = self.message.to_ascii_lowercase();
        sentences.iter().any(|sentence| message.contains(sentence))
    }

    /// Returns true if the request is larger than the model's window, in the words of some twenty
    /// servers. A limit of tokens per minute is a different thing, whatever its wording.
    pub fn is_overflow(&self) -> bool {
        if self.has_sentence(&["per minute", "rate limit", "per day"]) {
            return false;
        }
        let both =
            |one: &str, other: &[&str]| self.has_sentence(&[one]) && self.has_sentence(other);
        self.has_word(&OVERFLOW_CODES)
            || self.has_sentence(&OVERFLOW_SENTENCES)
            || both("context window", &["exceed", "larger", "too long"])
            || both(
                "context length",
                &["exceed", "longer", "greater", "only", "larger"],
            )
            || both("token count", &["exceeds the maximum", "exceeds the limit"])
            || both("current length is", &["limit is"])
            || both("input length", &["exceeds the maximum"])
            || both("max_seq_len", &["less than", "greater than", "exceed"])
            || both("`inputs`", &["must be <=", "must have less than"])
    }
}

/// Codes and types by which servers report a request larger than the window.
const OVERFLOW_CODES: [&str; 8] = [
    "context_length_exceeded",
    "context_window_exceeded",
    "exceed_context_size_error",
    "model_max_prompt_tokens_exceeded",
    "tokens_limit_reached",
    "prompt_too_long",
    // Zhipu's number.
    "1261",
    "string_above_max_length",
];

/// Parts of the sentences by which servers report it, in lower case.
const OVERFLOW_SENTENCES: [&str; 19] = [
    "maximum context length",
    "maximum model length",
    "maximum prompt length",
    "available context size",
    "prompt is too long",
    "prompt too long",
    "prompt exceeds max length",
    "input is too long",
    "exceed context limit",
    "exceeded model token limit",
    "range of input length should be",
    "too large for model with",
    "reduce the length of the messages",
    "total number of tokens in the prompt cannot exceed",
    "input length exceeds",
    "exceeds maximum input length",
    "number of input tokens exceeds",
    "request body too large for",
    "prompt tokens too long",
];

/// The meaning of a fault for the runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::models) struct FaultVerdict {
    pub kind: FailureKind,
    pub code: String,
    /// The sentence without the provider's words.
    pub sentence: String,
    pub retry_after: Option<Duration>,
    /// False only if it is certain that nothing was sent.
    pub sent: bool,
}

/// Classifies a fault of a request to `url`.
pub(in crate::models) fn classify(fault: &ExchangeFault, url: &str) -> FaultVerdict {
    use FailureKind::{Permanent, Transient};
    let named = |kind, code: &str| (kind, code.to_owned());
    let (kind, code) = match fault {
        ExchangeFault::Encode(EncodeError::TooLarge) => named(Permanent, "request_too_large"),
        ExchangeFault::Encode(_) => named(Permanent, "request_unreadable"),
        ExchangeFault::Connect { .. } => named(Transient, "connect"),
        ExchangeFault::OutOfReach => named(Permanent, "out_of_reach"),
        ExchangeFault::Certificate { .. } => named(Permanent, "certificate"),
        ExchangeFault::NoTls => named(Permanent, "no_tls"),
        ExchangeFault::TlsFailed => named(Permanent, "tls"),
        ExchangeFault::Timeout(_) => named(Transient, "timeout"),
        ExchangeFault::Disconnected => named(Transient, "disconnected"),
        ExchangeFault::Status { status, said, .. } => {
            let (kind, code) = classify_refusal(Some(*status), said);
            (
                kind,
                code.map_or_else(|| format!("http_{status}"), str::to_owned),
            )
        }
        // The refusal cost nothing, and the next request is a different one.
        ExchangeFault::FieldRefused(_) => named(Transient, "field_refused"),
        ExchangeFault::NotAStream(_) => named(Permanent, "not_a_stream"),
        ExchangeFault::StreamError(said) => {
            let (kind, code) = classify_refusal(said.status(), said);
            named(kind, code.unwrap_or("stream_error"))
        }
        ExchangeFault::BadChunk => named(Transient, "bad_chunk"),
        ExchangeFault::TooLarge => named(Permanent, "reply_too_large"),
        ExchangeFault::Stalled(_) => named(Transient, "stalled"),
        ExchangeFault::Unfinished => named(Transient, "stream_unfinished"),
        ExchangeFault::CallsMissing => named(Transient, "calls_missing"),
    };
    let retry_after = match fault {
        ExchangeFault::Status { retry_after, .. } => {
            retry_after.map(|wait| wait.min(RETRY_AFTER_MAX))
        }
        _ => None,
    };
    let unsent = matches!(
        fault,
        ExchangeFault::Encode(_)
            | ExchangeFault::Connect { .. }
            | ExchangeFault::OutOfReach
            | ExchangeFault::Certificate { .. }
            | ExchangeFault::NoTls
            | ExchangeFault::TlsFailed
    );
    FaultVerdict {
        kind,
        code,
        sentence: fault_sentence(fault, url),
        retry_after,
        sent: !unsent,
    }
}

fn fault_sentence(fault: &ExchangeFault, url: &str) -> String {
    let plain = match fault {
        ExchangeFault::Encode(error) => return encode_sentence(error),
        ExchangeFault::Connect { problem } => {
            return format!("the provider cannot be reached at {url}: {problem}");
        }
        ExchangeFault::OutOfReach => {
            return format!(
                "the name of the server at {url} leads to loopback, link-local or private \
                 addresses alone, and the \
                 operator's policy does not grant them"
            );
        }
        ExchangeFault::Certificate { problem } => {
            return format!("the certificate of the server at {url} is not trusted: {problem}");
        }
        ExchangeFault::NoTls => return format!("the server at {url} does not speak https"),
        ExchangeFault::TlsFailed => {
            return format!(
                "no secure connection to the server at {url} was made: its certificate is not \
                 trusted, or it does not speak https"
            );
        }
        ExchangeFault::Timeout(after) => {
            return format!("the provider did not begin to answer within {after:?}");
        }
        ExchangeFault::Status {
            status, location, ..
        } => {
            return match location {
                Some(to) => {
                    let to = printable_location(to);
                    format!(
                        "the provider answered {url} with status {status} and a redirect to {to}"
                    )
                }
                None => format!("the provider answered {url} with status {status}"),
            };
        }
        ExchangeFault::FieldRefused(_) => {
            return format!(
                "the provider refused a field of the request to {url}; the next attempt is made \
                 without it"
            );
        }
        ExchangeFault::NotAStream(_) => {
            return format!("the server at {url} did not answer with an event stream or a reply");
        }
        ExchangeFault::Stalled(after) => {
            return format!("the provider's stream brought nothing of a reply for {after:?}");
        }
        ExchangeFault::Disconnected => "the connection to the provider broke",
        ExchangeFault::StreamError(_) => "the provider ended its stream with an error",
        ExchangeFault::BadChunk => "the provider sent a chunk that is broken",
        ExchangeFault::TooLarge => "the provider sent more than one reply may have",
        ExchangeFault::Unfinished => "the provider's stream ended without a finish reason",
        ExchangeFault::CallsMissing => "the provider announced tool calls and sent none",
    };
    plain.to_owned()
}

/// Most characters that are shown of an address chosen by a server.
const LOCATION_CHARS_MAX: usize = 200;

/// Returns the target of a redirect without its query, which may hold secrets.
fn printable_location(location: &str) -> String {
    let path = location.split(['?', '#']).next().unwrap_or_default();
    let plain = path.chars().filter(|c| c.is_ascii_graphic());
    plain.take(LOCATION_CHARS_MAX).collect()
}

/// Returns advice for a person, if there is some for this fault. `path` is that of the request.
pub(in crate::models) fn advice(fault: &ExchangeFault, path: &str) -> Option<&'static str> {
    match fault {
        ExchangeFault::Status {
            status: 300..=399, ..
        } => Some("write the address it leads to as base_url"),
        ExchangeFault::Status {
            status: 404 | 405, ..
        }
        | ExchangeFault::NotAStream(_)
            if !path.contains("/v1") =>
        {
            Some("most servers want a base_url that ends in /v1")
        }
        ExchangeFault::Status {
            status: 404 | 405, ..
        }
        | ExchangeFault::NotAStream(_) => Some("look at base_url and the model's name"),
        ExchangeFault::Status {
            status: 401 | 403, ..
        } => Some("look at the provider's key: threadkeep doctor says where it comes from"),
        ExchangeFault::TlsFailed => Some(
            "look at base_url: http:// if that is meant, else a server whose certificate a public \
             authority has signed",
        ),
        ExchangeFault::NoTls => Some("write http:// in base_url, if that is meant"),
        ExchangeFault::OutOfReach => Some(
            "if it is meant, the operator grants the provider with `private: true` in the policy",
        ),
        ExchangeFault::Certificate { .. } => {
            Some("add the server's authority to the certificates that this system trusts")
        }
        _ => None,
    }
}

/// Returns the kind of a refusal, and its code if it is a known one. Without a status, code, type
/// and sentence alone decide.
fn classify_refusal(
    status: Option<u16>,
    said: &ProviderError,
) -> (FailureKind, Option<&'static str>) {
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
    if matches!(status, None | Some(400 | 413 | 422)) && said.is_overflow() {
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
        None if said.has_word(&too_many) => FailureKind::RateLimited,
        None if said.has_word(&refused) => FailureKind::Permanent,
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

/// Returns the wait that the headers ask for: `retry-after-ms`, else `retry-after` in seconds or as
/// a date. A date is measured against the provider's own `date` if it sent one, because the local
/// clock may be wrong.
pub(in crate::models) fn parse_retry_after(
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
    let now = header("date")
        .and_then(|text| parse_date(&text))
        .unwrap_or(now);
    let wait = parse_date(&text)?
        .as_second()
        .saturating_sub(now.as_second());
    Some(Duration::from_secs(u64::try_from(wait).unwrap_or(0)))
}

fn parse_date(text: &str) -> Option<jiff::Timestamp> {
    jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(text.trim())
        .ok()
}

#[cfg(test)]
#[path = "classify_tests.rs"]
mod tests;
