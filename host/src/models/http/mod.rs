//! The exchange that every adapter over HTTP shares: one `POST` whose answer is a stream of events,
//! read within bounds.
//!
//! A [`ProviderEndpoint`] makes exactly one request for each exchange: no retry, no redirect, no
//! proxy from the environment. The modules:
//!
//! - `normal_form` parses the conversation as it is stored, `conversation` makes the form that
//!   servers accept, `origin` handles the fields that go back to one provider alone.
//! - `body` reads the answer, `sse` its events, `error_body` its errors; `reply_size` bounds it.
//! - `finish` interprets finish reasons, `classify` faults; `redact` decides how much of a
//!   provider's sentence is shown.
//! - `resolver` limits the addresses that a name may resolve to, `tls` chooses the trusted
//!   certificates.
//!
//! Each adapter supplies the body and the assembly of its reply. A reply is complete once its
//! finish reason has arrived. After that only its usage is awaited, and not for long; nothing that
//! happens then invalidates the reply.

mod body;
pub(super) mod classify;
pub(super) mod conversation;
pub(super) mod error_body;
pub(super) mod finish;
pub(super) mod normal_form;
pub(super) mod origin;
mod redact;
pub(super) mod reply_size;
mod resolver;
mod setup;
mod sse;
mod tls;

use super::dialect::{KeyHeader, LearnedDialect, ServerDialect};
use super::{
    BoxFuture, CompletionRequest, IDLE_TIME, ModelCompletion, ModelFailure, ModelProvider, OnDelta,
    ProviderOptions, ReplyDelta, SecretText, Usage, answer_bytes_max,
};
use classify::{ExchangeFault, ProviderError};
use futures_util::{StreamExt, TryStreamExt, stream};
use normal_form::EncodeError;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, Response, Url};
use serde_json::{Map, Value};
pub use setup::SetupError;
pub(super) use setup::parse_base_url;
use setup::{build_client, parse_header};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::LazyLock;
use std::time::Duration;

/// The effect of an event on the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventEffect {
    /// It added content, the end or the usage: the provider is working on the reply.
    Substance,
    /// It added nothing; it is a keep-alive.
    Nothing,
}

/// Longest id of a reply or name of a model that is kept, in bytes.
const LABEL_BYTES_MAX: usize = 128;

/// Assembles a reply from the events of one answer.
pub(super) trait ReplyBuilder: Send {
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

/// Timeouts of the calls to a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderTimeouts {
    /// Longest time to make a connection.
    pub connect: Duration,
    /// Longest time until an answer begins. Servers that queue requests begin late.
    pub answer: Duration,
    /// Longest time in which a stream may bring nothing of a reply. Comments, pings and empty
    /// chunks do not count.
    pub idle: Duration,
}

impl Default for ProviderTimeouts {
    /// Times that suit hosted and local servers, and models that think in silence: 10 s to connect,
    /// 600 s to begin, 300 s of silence.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(600),
            idle: IDLE_TIME,
        }
    }
}

/// The part of an exchange that differs by wire: the body, and the assembly of the reply.
pub(super) trait WireAdapter: Send + Sync {
    /// The assembly of a reply.
    type WireReply: ReplyBuilder;
    /// The destination of the requests.
    fn endpoint(&self) -> &ProviderEndpoint;
    /// Encodes the body of a request.
    fn encode(&self, request: &CompletionRequest) -> Result<Vec<u8>, EncodeError>;
    /// Makes a reply of which nothing has arrived yet.
    fn begin_reply(&self, request: &CompletionRequest) -> Self::WireReply;
}

impl<A: WireAdapter> ModelProvider for A {
    fn complete<'a>(
        &'a self,
        request: &'a CompletionRequest,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<ModelCompletion, ModelFailure>> {
        let body = self.encode(request);
        let reply = self.begin_reply(request);
        let exchange = self.endpoint().exchange(request, body, reply, on_delta);
        Box::pin(exchange)
    }
}

/// One address of a provider, with the HTTP client and settings for it.
#[derive(Debug)]
pub(super) struct ProviderEndpoint {
    /// The provider's name.
    pub name: String,
    /// The dialect of its servers, with what their refusals have shown so far.
    pub dialect: LearnedDialect,
    client: Client,
    url: Url,
    /// The address as errors show it.
    shown_url: String,
    /// Parts of the address that come from an environment variable; errors hide them.
    hidden: Vec<String>,
    headers: HeaderMap,
    secrets: Vec<SecretText>,
    times: ProviderTimeouts,
    model_options: BTreeMap<String, Map<String, Value>>,
}

impl ProviderEndpoint {
    /// Prepares requests to `url`, whose path ends in `path`. Connects to nothing.
    pub fn new(mut url: Url, path: &str, options: ProviderOptions) -> Result<Self, SetupError> {
        let client = build_client(&url, options.times, options.reach)?;
        if !options.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&options.query);
        }
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(key) = &options.key {
            let (name, words) = match options.dialect.key_header {
                KeyHeader::Bearer => ("authorization", "Bearer "),
                KeyHeader::Plain(name) => (name, ""),
            };
            let value = HeaderValue::try_from(format!("{words}{}", key.expose()));
            let mut value = value.map_err(|_| SetupError::Key)?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
        }
        for (name, value) in &options.headers {
            let (header, value) = parse_header(name, value)?;
            if headers.insert(header, value).is_some() {
                return Err(SetupError::Header {
                    name: name.clone(),
                    problem: "it is there twice, or carries the key already",
                });
            }
        }
        let hidden = match &options.shown_url {
            Some(shown) if shown.contains("${") => hidden_parts(&url),
            _ => Vec::new(),
        };
        let own = options.headers.into_iter().map(|(_, value)| value);
        let own = own.filter(SecretText::is_secret);
        Ok(Self {
            name: options.name,
            dialect: LearnedDialect::new(options.dialect),
            client,
            shown_url: match options.shown_url {
                Some(base) => format!("{}{path}", base.trim_end_matches('/')),
                None => url
                    .as_str()
                    .split('?')
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            },
            hidden,
            url,
            headers,
            secrets: options.key.into_iter().chain(own).collect(),
            times: options.times,
            model_options: options.model_options,
        })
    }

    /// Adds a header to every request, unless the provider's entry already names it.
    pub fn add_header(&mut self, name: &'static str, value: &'static str) {
        let entry = self.headers.entry(HeaderName::from_static(name));
        entry.or_insert(HeaderValue::from_static(value));
    }

    /// Returns the fields that are added to the body of requests for this model.
    pub fn model_options(&self, model: &str) -> &Map<String, Value> {
        static NONE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
        self.model_options.get(model).unwrap_or(&NONE)
    }

    /// Sends one request and reads one reply.
    pub async fn exchange<R: ReplyBuilder>(
        &self,
        request: &CompletionRequest,
        content: Result<Vec<u8>, EncodeError>,
        mut reply: R,
        on_delta: OnDelta<'_>,
    ) -> Result<ModelCompletion, ModelFailure> {
        let failed = |fault: ExchangeFault| self.to_failure(request, &fault, String::new(), None);
        let content = content.map_err(ExchangeFault::Encode).map_err(failed)?;
        // Read before the first await: a concurrent call may learn something meanwhile.
        let asked = self.dialect.dialect_for(&request.model);
        let response = self.send(content).await.map_err(failed)?;
        if !response.status().is_success() {
            let fault = self.learn_refusal(request, asked, status_fault(response).await);
            return Err(failed(fault));
        }
        let (begin, response) = body::read_beginning(response, self.times.idle).await;
        let bytes_max = answer_bytes_max(request.output_max);
        let is_document = body::is_document(response.headers(), &begin);
        let read = if is_document {
            let bounds = (self.times.answer, bytes_max);
            body::read_document(begin, response, bounds, &mut reply, on_delta).await
        } else {
            let begin = stream::once(std::future::ready(Ok(begin)));
            let bytes = begin.chain(response.bytes_stream().map_ok(Vec::from));
            let bytes =
                bytes.inspect_ok(|chunk| on_delta(ReplyDelta::Received(chunk.len() as u64)));
            body::read_stream(bytes, self.times.idle, bytes_max, &mut reply, on_delta).await
        };
        match read {
            Ok(completion) => {
                let completion = self.redact_labels(request, completion);
                Ok(self.redact_finish(request, completion))
            }
            Err(fault) => {
                let mut failure = self.to_failure(request, &fault, reply.text(), reply.usage());
                // A document without a reply is a refusal, whatever its status.
                failure.refused |= is_document && reply.text().is_empty();
                Err(failure)
            }
        }
    }

    /// Drops an id of the reply and a name of its model that are no such thing, or repeat a key or
    /// the conversation: they are stored and shown.
    fn redact_labels(
        &self,
        request: &CompletionRequest,
        completion: ModelCompletion,
    ) -> ModelCompletion {
        let shown = |label: Option<String>| {
            let label = label.filter(|label| is_label(label))?;
            let known = label == request.model;
            match known {
                true => Some(label),
                false => redact::redact_sentence(&label, &self.secrets, request),
            }
        };
        ModelCompletion {
            id: shown(completion.id),
            model: shown(completion.model),
            ..completion
        }
    }

    /// Redacts the finish reason if it is the provider's own word: it is stored and shown, and may
    /// be any text.
    fn redact_finish(
        &self,
        request: &CompletionRequest,
        completion: ModelCompletion,
    ) -> ModelCompletion {
        // The comparison reads the whole conversation, so it is skipped for the words of the closed
        // set.
        if finish::is_standard_word(&completion.finish) {
            return completion;
        }
        let finish = redact::redact_sentence(&completion.finish, &self.secrets, request);
        ModelCompletion {
            finish: finish.unwrap_or_else(|| "withheld".to_owned()),
            ..completion
        }
    }

    async fn send(&self, body: Vec<u8>) -> Result<Response, ExchangeFault> {
        let request = self.client.post(self.url.clone());
        let request = request.headers(self.headers.clone()).body(body);
        match tokio::time::timeout(self.times.answer, request.send()).await {
            Err(_) => Err(ExchangeFault::Timeout(self.times.answer)),
            Ok(Err(error)) => Err(send_fault(&error.without_url())),
            Ok(Ok(response)) => Ok(response),
        }
    }

    /// Turns a refusal of a single field into [`ExchangeFault::FieldRefused`], if the next request
    /// will differ.
    fn learn_refusal(
        &self,
        request: &CompletionRequest,
        asked: ServerDialect,
        fault: ExchangeFault,
    ) -> ExchangeFault {
        match fault {
            ExchangeFault::Status {
                status: 400 | 422,
                said,
                ..
            } if !said.is_overflow()
                && self.dialect.learn(&said.sentence(), &request.model, asked) =>
            {
                ExchangeFault::FieldRefused(said)
            }
            fault => fault,
        }
    }

    fn to_failure(
        &self,
        request: &CompletionRequest,
        fault: &ExchangeFault,
        partial: String,
        usage: Option<Usage>,
    ) -> ModelFailure {
        let verdict = classify::classify(fault, &self.shown_url);
        let message = match fault {
            ExchangeFault::Status { said, .. }
            | ExchangeFault::FieldRefused(said)
            | ExchangeFault::StreamError(said)
            | ExchangeFault::NotAStream(said) => {
                self.append_provider_words(request, &verdict.sentence, said)
            }
            _ => verdict.sentence,
        };
        let message = self.hide_address(match classify::advice(fault, self.url.path()) {
            Some(advice) => format!("{message}; {advice}"),
            None => message,
        });
        // Providers bill no refusal, and a status instead of a stream is one: nothing is charged.
        let is_refusal = matches!(
            fault,
            ExchangeFault::Status { .. } | ExchangeFault::FieldRefused(_)
        );
        ModelFailure {
            kind: verdict.kind,
            code: verdict.code,
            message,
            retry_after: verdict.retry_after,
            sent: verdict.sent,
            refused: is_refusal,
            usage,
            partial,
        }
    }

    /// Hides the parts of the address that come from a variable, where the provider repeats them.
    fn hide_address(&self, message: String) -> String {
        let mut message = message;
        for part in &self.hidden {
            message = message.replace(part.as_str(), "...");
        }
        message
    }

    /// Appends the provider's words to a sentence, as far as they may be shown.
    fn append_provider_words(
        &self,
        request: &CompletionRequest,
        sentence: &str,
        said: &ProviderError,
    ) -> String {
        let words = said.summary();
        if words.is_empty() {
            return sentence.to_owned();
        }
        match redact::redact_sentence(&words, &self.secrets, request) {
            Some(shown) => format!("{sentence}: {shown}"),
            None => format!(
                "{sentence}; its words are withheld, they repeat the key or the conversation"
            ),
        }
    }
}

/// Returns true for the text of an id or name.
fn is_label(text: &str) -> bool {
    (1..=LABEL_BYTES_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Returns host and path of an address, where they are specific enough to be worth hiding.
fn hidden_parts(url: &Url) -> Vec<String> {
    const SHORTEST: usize = 5;
    let host = url.host_str().unwrap_or_default();
    let authority = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let path = url.path().trim_end_matches("/chat/completions");
    let path = path.trim_end_matches("/messages").trim_end_matches("/v1");
    let parts = [path.to_owned(), authority, host.to_owned()];
    let parts = parts.into_iter().filter(|part| part.len() >= SHORTEST);
    parts.collect()
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

/// Returns an error of the client library with its causes. It names hosts and system errors, never
/// headers or bodies.
fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Classifies an error of sending a request. Only a failure to connect is certain to have sent
/// nothing.
fn send_fault(error: &reqwest::Error) -> ExchangeFault {
    if !error.is_connect() {
        return ExchangeFault::Disconnected;
    }
    if resolver::is_out_of_reach(error) {
        return ExchangeFault::OutOfReach;
    }
    if tls::is_plain_server(error) {
        return ExchangeFault::NoTls;
    }
    match tls::certificate_problem(error) {
        Some(problem) => ExchangeFault::Certificate { problem },
        None => ExchangeFault::Connect {
            problem: error_chain(error),
        },
    }
}

async fn status_fault(response: Response) -> ExchangeFault {
    let headers = response.headers();
    let header = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    let retry_after = classify::parse_retry_after(header, jiff::Timestamp::now());
    let status = response.status().as_u16();
    let location = header(LOCATION.as_str()).filter(|_| (300..400).contains(&status));
    let said = body::read_error(response).await;
    ExchangeFault::Status {
        status,
        said,
        retry_after,
        location,
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
    let (idle, most) = (ProviderTimeouts::default().idle, answer_bytes_max(u64::MAX));
    let result = body::read_stream(bytes, idle, most, &mut reply, &on_delta).await;
    (result, deltas.into_inner().unwrap())
}
