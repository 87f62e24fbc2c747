//! The exchange that every wire over HTTP shares: one `POST` whose answer is a stream of events,
//! read within bounds. The connection and the time are the host's.
//!
//! The modules:
//!
//! - `profile` prepares requests to one provider and words its failures; `setup` checks its
//!   settings.
//! - `normal_form` parses the conversation as it is stored, `conversation` makes the form that
//!   servers accept, `origin` handles the fields that go back to one provider alone.
//! - `answer` decides what an answer is, `body` reads it, `sse` its events, `error_body` its
//!   errors; `reply_size` bounds it.
//! - `finish` interprets finish reasons, `classify` faults; `redact` decides how much of a
//!   provider's sentence is shown.
//!
//! Each wire supplies the body and the assembly of its reply. A reply is complete once its finish
//! reason has arrived. After that only its usage is awaited, and not for long; nothing that happens
//! then invalidates the reply.

mod answer;
mod body;
pub(super) mod classify;
pub(super) mod conversation;
pub(super) mod error_body;
pub(super) mod finish;
pub(super) mod normal_form;
pub(super) mod origin;
mod profile;
mod redact;
pub(super) mod reply_size;
mod setup;
mod sse;

pub use answer::{AnswerHead, ProviderAnswer};
pub use body::AnswerTimer;
pub use classify::{ExchangeFault, ProviderError};
pub use normal_form::EncodeError;
pub use profile::ProviderProfile;
pub(super) use setup::parse_base_url;
pub use setup::{ProviderTimeouts, SetupError};

use super::{CompletionRequest, ModelCompletion, OnDelta, ProviderOptions, Usage};
use serde_json::Value;
use url::Url;

/// The effect of an event on the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventEffect {
    /// It added content, the end or the usage: the provider is working on the reply.
    Substance,
    /// It added nothing; it is a keep-alive.
    Nothing,
}

/// Assembles a reply from the events of one answer.
pub trait ReplyBuilder: Send {
    /// Consumes the data of one event, which is not blank.
    fn take_event(
        &mut self,
        data: &str,
        on_delta: OnDelta<'_>,
    ) -> Result<EventEffect, ExchangeFault>;
    /// Consumes a whole answer that is not a stream. `None` if it is not a reply.
    fn take_document(
        &mut self,
        answer: &Value,
        on_delta: OnDelta<'_>,
    ) -> Option<Result<(), ExchangeFault>>;
    /// Returns true once a finish reason has arrived, which makes the reply complete.
    fn is_finished(&self) -> bool;
    /// Returns true once the provider has announced that nothing more follows.
    fn is_ended(&self) -> bool;
    /// Returns the text so far, for a failure.
    fn text(&self) -> String;
    /// Returns the usage so far, for a failure; `None` if it is unknown.
    fn usage(&self) -> Option<Usage>;
    /// Returns the completion, or the fault that prevents one.
    fn complete(&mut self) -> Result<ModelCompletion, ExchangeFault>;
}

/// The part of an exchange that differs by wire: the address, the body, and the assembly of the
/// reply.
pub trait ModelWire {
    /// The assembly of a reply.
    type WireReply: ReplyBuilder;
    /// Returns the address of the requests. `base` is the provider's base address.
    fn request_url(base: &str) -> Result<Url, SetupError>;
    /// Returns the end of the path that errors show behind the shown address of these options.
    fn shown_path(options: &ProviderOptions) -> &'static str;
    /// Headers of every request, unless the provider's entry names them already.
    const HEADERS: &'static [(&'static str, &'static str)];
    /// Encodes the body of a request.
    fn encode(
        profile: &ProviderProfile,
        request: &CompletionRequest,
    ) -> Result<Vec<u8>, EncodeError>;
    /// Makes a reply of which nothing has arrived yet.
    fn begin_reply(profile: &ProviderProfile, request: &CompletionRequest) -> Self::WireReply;
}

/// Parses a count as servers write it: a whole number, also as a decimal or as text.
pub(super) fn parse_count(value: &Value) -> Option<u64> {
    /// Above this, a float cannot represent every whole number.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::String(text) => text.trim().parse().ok(),
        Value::Number(number) => number.as_u64().or_else(|| {
            let decimal = number.as_f64()?;
            let whole = decimal.fract() == 0.0 && (0.0..=EXACT_MAX).contains(&decimal);
            whole.then_some(decimal as u64)
        }),
        _ => None,
    }
}

/// Feeds a stream of these chunks to a reply; returns its result and the deltas.
#[cfg(test)]
pub(super) async fn replay<R: ReplyBuilder>(
    mut reply: R,
    chunks: Vec<Vec<u8>>,
) -> (
    Result<ModelCompletion, ExchangeFault>,
    Vec<super::ReplyDelta>,
) {
    let deltas = std::sync::Mutex::new(Vec::new());
    let on_delta = |delta| deltas.lock().unwrap().push(delta);
    let bytes = futures_util::stream::iter(chunks.into_iter().map(Ok::<_, ()>));
    let bounds = body::AnswerBounds {
        idle: ProviderTimeouts::default().idle,
        whole: ProviderTimeouts::default().answer,
        bytes_max: super::answer_bytes_max(u64::MAX),
    };
    let result = body::read_stream(bytes, bounds, body::EndlessTimer, &mut reply, &on_delta).await;
    (result, deltas.into_inner().unwrap())
}
