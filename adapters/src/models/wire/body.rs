//! Reading of a provider's answer: a stream of events, a whole document, or an error body. Each is
//! read within bounds of bytes and time.

use super::classify::{ExchangeFault, ProviderError};
use super::{EventEffect, ReplyBuilder, error_body, sse};
use crate::models::{ModelCompletion, OnDelta, ReplyDelta};
use futures_util::{Stream, StreamExt};
use serde_json::Value;
use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

/// Most bytes of an error body that are read. It is a sentence, or a page of HTML at worst.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// Longest wait for an error body: the status alone says enough.
const ERROR_WAIT: Duration = Duration::from_secs(10);
/// Longest wait after the finish reason, in all. The reply is complete by then; only its usage may
/// be missing.
const USAGE_WAIT: Duration = Duration::from_secs(5);

/// Waits for the bytes of an answer, but not longer than it may take. A host that has a runtime
/// uses the timers of it; one that has none blocks where it reads.
pub trait AnswerTimer: Send + Sync {
    /// Runs a future until it is done or the deadline has passed, which is `None`.
    fn run_until<F: Future + Send>(
        &self,
        deadline: Instant,
        future: F,
    ) -> impl Future<Output = Option<F::Output>> + Send;
}

/// The bounds within which one answer is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AnswerBounds {
    /// Longest time in which a stream may bring nothing of a reply.
    pub idle: Duration,
    /// Longest time for an answer that is no stream.
    pub whole: Duration,
    /// Most bytes.
    pub bytes_max: u64,
}

/// Reads a stream into a reply, until the reply is complete and its usage known or overdue.
pub(super) async fn read_stream<R: ReplyBuilder, B: AsRef<[u8]> + Send, E: Send>(
    bytes: impl Stream<Item = Result<B, E>> + Send,
    bounds: AnswerBounds,
    timer: impl AnswerTimer,
    reply: &mut R,
    on_delta: OnDelta<'_>,
) -> Result<ModelCompletion, ExchangeFault> {
    let idle = bounds.idle;
    let mut events = pin!(sse::parse_events(bytes, bounds.bytes_max));
    let mut deadline = Instant::now() + idle;
    let mut finished = false;
    while !reply.is_ended() {
        let taken = match timer.run_until(deadline, events.next()).await {
            None => Err(ExchangeFault::Stalled(idle)),
            Some(None) => break,
            Some(Some(Ok(data))) if data.trim().is_empty() => Ok(EventEffect::Nothing),
            Some(Some(Ok(data))) => reply.take_event(&data, on_delta),
            Some(Some(Err(broken))) => Err(to_stream_fault(broken)),
        };
        match taken {
            // The reply is complete: nothing after it can invalidate it, and its usage may still
            // follow an error.
            Err(ExchangeFault::StreamError(_) | ExchangeFault::BadChunk) if finished => {}
            Err(_) if reply.is_finished() => break,
            Err(fault) => return Err(fault),
            Ok(_) if finished => {}
            Ok(_) if reply.is_finished() => {
                finished = true;
                deadline = Instant::now() + USAGE_WAIT;
            }
            Ok(EventEffect::Substance) => deadline = Instant::now() + idle,
            Ok(EventEffect::Nothing) => {}
        }
    }
    reply.complete()
}

/// Reads an answer that is not a stream: a whole reply of a server that does not stream, or an
/// error.
pub(super) async fn read_document<R: ReplyBuilder, E: Send>(
    begin: Vec<u8>,
    bytes: impl Stream<Item = Result<Vec<u8>, E>> + Send,
    bounds: AnswerBounds,
    timer: impl AnswerTimer,
    reply: &mut R,
    on_delta: OnDelta<'_>,
) -> Result<ModelCompletion, ExchangeFault> {
    let bytes_max = bounds.bytes_max.min(sse::EVENT_BYTES_MAX as u64) as usize;
    let (body, end) = read_body(begin, bytes, bytes_max, bounds.whole, timer).await;
    on_delta(ReplyDelta::Received(body.len() as u64));
    match end {
        BodyEnd::Whole => {}
        BodyEnd::Late => return Err(ExchangeFault::Stalled(bounds.whole)),
        BodyEnd::Broken => return Err(ExchangeFault::Disconnected),
        BodyEnd::Cut => return Err(ExchangeFault::TooLarge),
    }
    let text = String::from_utf8_lossy(&body);
    let value = sse::is_small(&text)
        .then(|| serde_json::from_str::<Value>(&text).ok())
        .flatten();
    let Some(value) = value else {
        return Err(ExchangeFault::NotAStream(error_body::parse_text(&text)));
    };
    if let Some(said) = error_body::parse_body(&value).filter(|_| value.get("choices").is_none()) {
        return Err(ExchangeFault::StreamError(said));
    }
    match reply.take_document(&value, on_delta) {
        None => Err(ExchangeFault::NotAStream(ProviderError::default())),
        Some(taken) => taken.and_then(|()| reply.complete()),
    }
}

/// Reads the error object from an error body of any shape.
pub(super) async fn read_error<E: Send>(
    bytes: impl Stream<Item = Result<Vec<u8>, E>> + Send,
    timer: impl AnswerTimer,
) -> ProviderError {
    let (body, _) = read_body(Vec::new(), bytes, ERROR_BYTES_MAX, ERROR_WAIT, timer).await;
    let text = String::from_utf8_lossy(&body);
    let value = sse::is_small(&text).then(|| serde_json::from_str(&text).ok());
    let said = value.flatten().as_ref().and_then(error_body::parse_body);
    said.unwrap_or_else(|| error_body::parse_text(&text))
}

/// The end of a body, as far as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyEnd {
    /// The whole body was read.
    Whole,
    /// The body is longer than the bound.
    Cut,
    /// The connection broke.
    Broken,
    /// The body did not arrive in time.
    Late,
}

/// Reads a body up to `bytes_max`, for at most `longest`.
async fn read_body<E: Send>(
    begin: Vec<u8>,
    bytes: impl Stream<Item = Result<Vec<u8>, E>> + Send,
    bytes_max: usize,
    longest: Duration,
    timer: impl AnswerTimer,
) -> (Vec<u8>, BodyEnd) {
    let mut body = begin;
    if body.len() > bytes_max {
        return (body, BodyEnd::Cut);
    }
    let mut bytes = pin!(bytes);
    let read = async {
        loop {
            match bytes.next().await {
                None => return BodyEnd::Whole,
                Some(Err(_)) => return BodyEnd::Broken,
                Some(Ok(chunk)) => {
                    let room = bytes_max - body.len();
                    body.extend_from_slice(&chunk[..chunk.len().min(room)]);
                    if chunk.len() > room {
                        return BodyEnd::Cut;
                    }
                }
            }
        }
    };
    let end = timer.run_until(Instant::now() + longest, read).await;
    (body, end.unwrap_or(BodyEnd::Late))
}

/// Most bytes that are searched for the first byte that is not blank.
const BEGIN_BYTES_MAX: usize = 64 << 10;

/// Reads an answer up to its first byte that is not blank, which tells a stream from a document. A
/// failure is left to the next read to report.
pub(super) async fn read_beginning<E: Send>(
    bytes: &mut (impl Stream<Item = Result<Vec<u8>, E>> + Send + Unpin),
    longest: Duration,
    timer: &impl AnswerTimer,
) -> Vec<u8> {
    let mut begin = Vec::new();
    let read = async {
        while first_byte(&begin).is_none() && begin.len() < BEGIN_BYTES_MAX {
            match bytes.next().await {
                Some(Ok(chunk)) => begin.extend_from_slice(&chunk),
                None | Some(Err(_)) => break,
            }
        }
    };
    let _ = timer.run_until(Instant::now() + longest, read).await;
    begin
}

/// Returns the first byte that is not blank, after a byte order mark.
fn first_byte(bytes: &[u8]) -> Option<u8> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    bytes
        .iter()
        .copied()
        .find(|byte| !byte.is_ascii_whitespace())
}

/// Returns true for an answer that is not an event stream. Its first byte decides, because some
/// servers send no content type or the wrong one. The content type decides only if that byte is
/// neither's.
pub(super) fn is_document(content_type: &str, begin: &[u8]) -> bool {
    match first_byte(begin) {
        Some(b'{' | b'[' | b'<') => true,
        // `data:`, `event:`, `id:`, `retry:`, a comment.
        Some(b'd' | b'e' | b'i' | b'r' | b':') => false,
        _ => ["application/json", "application/problem+json", "text/html"]
            .iter()
            .any(|other| content_type.starts_with(other)),
    }
}

fn to_stream_fault(broken: sse::SseError) -> ExchangeFault {
    match broken {
        sse::SseError::Transport => ExchangeFault::Disconnected,
        sse::SseError::TooLarge => ExchangeFault::TooLarge,
        sse::SseError::NotText => ExchangeFault::BadChunk,
    }
}

/// A timer for answers that are in memory: it never ends a wait.
#[cfg(test)]
pub(super) struct EndlessTimer;

#[cfg(test)]
impl AnswerTimer for EndlessTimer {
    async fn run_until<F: Future + Send>(
        &self,
        _deadline: Instant,
        future: F,
    ) -> Option<F::Output> {
        Some(future.await)
    }
}
