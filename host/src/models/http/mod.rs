//! What every adapter over HTTP shares: one `POST` whose answer is a stream of events, read within bounds.
//!
//! An [`Endpoint`] makes exactly one request for each exchange: no retry, no redirect, no proxy from the environment.
//! `normal` is the conversation as it is stored, `conversation` as servers take it, `origin` what goes back to one
//! provider alone; `sse` reads the events, `room` bounds the reply, `finish` knows why it ended, `classify` says what a
//! fault means, `said` what an error body says, `redact` what of it may be shown, `tls` whom to trust. What stands in the
//! body, and how events become a reply, is the adapter's.
//!
//! A reply is whole once its finish reason has arrived. After it, only what reports its usage is still awaited, and
//! not for long; nothing that happens then takes the reply away.

pub(super) mod classify;
pub(super) mod conversation;
pub(super) mod finish;
pub(super) mod normal;
pub(super) mod origin;
mod redact;
pub(super) mod room;
pub(super) mod said;
mod sse;
mod tls;

use super::dialect::{KeyHeader, LearnedDialect};
use super::{
    BoxFuture, Completion, Delta, Failure, IDLE_TIME, Llm, OnDelta, ProviderOptions, Request,
    Secret, Usage, answer_bytes_max,
};
use classify::{Fault, Said};
use futures_util::{Stream, StreamExt, TryStreamExt};
use normal::EncodeError;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, Response, Url};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::time::Instant;

/// Most bytes of an error body that are read: it is a sentence, and a page of HTML at worst.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// Longest time in which an error body is awaited: the status alone says enough.
const ERROR_WAIT: Duration = Duration::from_secs(10);
/// Longest wait after the finish reason, in all. The reply is whole by then; only its usage may be missing.
const USAGE_WAIT: Duration = Duration::from_secs(5);

/// Why a provider cannot be set up. Nothing of the key or the address is repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The address cannot be read.
    #[error("the provider's base_url is not an address like https://host/v1: {problem}")]
    Address {
        /// What is wrong with it.
        problem: String,
    },
    /// The address is neither `http` nor `https`.
    #[error("the provider's base_url must begin with http:// or https://")]
    Scheme,
    /// The address has a user, a password, a query or a fragment: they would be sent or logged where nobody expects.
    #[error(
        "the provider's base_url must not have a user, a password, a query or a fragment; the key has a field of its own"
    )]
    Parts,
    /// A header or a query parameter of its own cannot be sent.
    #[error("the provider's header {name} cannot be sent: {problem}")]
    Header {
        /// Its name.
        name: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// The key has characters that no header can carry.
    #[error(
        "the provider's key has a character that it cannot have; look for a line break at its end"
    )]
    Key,
    /// The HTTP client could not be made, for example because there are no certificates to trust.
    #[error("the HTTP client cannot be set up: {problem}")]
    Client {
        /// What the client library says.
        problem: String,
    },
}

/// What an event added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// A part of the reply, its end, or its usage: the provider works on it.
    Substance,
    /// Nothing: a sign of life.
    Nothing,
}

/// A reply that is put together from the events of one answer.
pub(super) trait Reply: Send {
    /// Takes the data of one event. It is not blank.
    fn take(&mut self, data: &str, on_delta: OnDelta<'_>) -> Result<Taken, Fault>;
    /// Takes a whole answer that is no stream. `None` if it is no reply.
    fn take_whole(&mut self, answer: &Value, on_delta: OnDelta<'_>) -> Option<Result<(), Fault>>;
    /// True once a finish reason has arrived: the provider's word that the reply is whole.
    fn is_finished(&self) -> bool;
    /// True once the provider has said that nothing more comes.
    fn is_ended(&self) -> bool;
    /// The text so far, for a failure.
    fn text(&self) -> String;
    /// The usage so far, for a failure: none if nobody knows.
    fn usage(&self) -> Option<Usage>;
    /// The completion, if there is one.
    fn complete(&mut self) -> Result<Completion, Fault>;
}

/// How long a provider is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Longest time to make a connection.
    pub connect: Duration,
    /// Longest time until an answer begins. Servers that queue begin late.
    pub answer: Duration,
    /// Longest time in which a stream may bring nothing of a reply. Comments, pings and empty pieces are nothing.
    pub idle: Duration,
}

impl Default for Times {
    /// Times that suit hosted and local servers, and models that think in silence: 10 s to connect, 600 s to begin, 300 s
    /// of silence.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(600),
            idle: IDLE_TIME,
        }
    }
}

/// What one wire adds to the exchange: a body, and a way to put a reply together.
pub(super) trait Adapter: Send + Sync {
    /// Puts a reply together.
    type Reply: Reply;
    /// Where its requests go.
    fn endpoint(&self) -> &Endpoint;
    /// The body of a request.
    fn encode(&self, request: &Request) -> Result<Vec<u8>, EncodeError>;
    /// A reply of which nothing has arrived.
    fn begin_reply(&self) -> Self::Reply;
}

impl<A: Adapter> Llm for A {
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<Completion, Failure>> {
        let body = self.encode(request);
        let exchange = self
            .endpoint()
            .exchange(request, body, self.begin_reply(), on_delta);
        Box::pin(exchange)
    }
}

/// One address that answers with streams.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// The provider's name.
    pub name: String,
    /// What its servers demand and refuse, with what they have shown so far.
    pub dialect: LearnedDialect,
    client: Client,
    url: Url,
    /// The address as errors name it.
    shown_url: String,
    headers: HeaderMap,
    secrets: Vec<Secret>,
    times: Times,
    model_options: BTreeMap<String, Map<String, Value>>,
}

impl Endpoint {
    /// Sets it up for requests to `url`, whose path ends in `path`. Connects to nothing.
    pub fn new(mut url: Url, path: &str, options: ProviderOptions) -> Result<Self, SetupError> {
        let client = client(&url, options.times)?;
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
            let (name, value) = own_header(name, value)?;
            headers.insert(name, value);
        }
        let own = options.headers.into_iter().map(|(_, value)| value);
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
            url,
            headers,
            secrets: options.key.into_iter().chain(own).collect(),
            times: options.times,
            model_options: options.model_options,
        })
    }

    /// Sends this header, too.
    pub fn header(&mut self, name: &'static str, value: &'static str) {
        let name = HeaderName::from_static(name);
        self.headers.insert(name, HeaderValue::from_static(value));
    }

    /// The fields that are added to the body of requests for this model.
    pub fn model_options(&self, model: &str) -> &Map<String, Value> {
        static NONE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
        self.model_options.get(model).unwrap_or(&NONE)
    }

    /// Exchanges one request for one reply.
    pub async fn exchange<R: Reply>(
        &self,
        request: &Request,
        body: Result<Vec<u8>, EncodeError>,
        mut reply: R,
        on_delta: OnDelta<'_>,
    ) -> Result<Completion, Failure> {
        let failed = |fault: Fault| self.failure(request, &fault, String::new(), None);
        let body = body.map_err(Fault::Encode).map_err(failed)?;
        let response = self.send(body).await.map_err(failed)?;
        if !response.status().is_success() {
            let fault = refused(response).await;
            return Err(failed(self.learned(request, fault)));
        }
        let read = if is_other_content(response.headers()) {
            read_whole(response, request, &mut reply, on_delta).await
        } else {
            let bytes = response.bytes_stream();
            let bytes = bytes.inspect_ok(|chunk| on_delta(Delta::Received(chunk.len() as u64)));
            let bytes_max = answer_bytes_max(request.output_max);
            read(bytes, self.times.idle, bytes_max, &mut reply, on_delta).await
        };
        read.map_err(|fault| self.failure(request, &fault, reply.text(), reply.usage()))
    }

    async fn send(&self, body: Vec<u8>) -> Result<Response, Fault> {
        let request = self.client.post(self.url.clone());
        let request = request.headers(self.headers.clone()).body(body);
        match tokio::time::timeout(self.times.answer, request.send()).await {
            Err(_) => Err(Fault::Timeout(self.times.answer)),
            Ok(Err(error)) => Err(unanswered(&error.without_url())),
            Ok(Ok(response)) => Ok(response),
        }
    }

    /// A refusal of a field that the next request will not have is one of the field alone.
    fn learned(&self, request: &Request, fault: Fault) -> Fault {
        match fault {
            Fault::Status {
                status: 400 | 422,
                said,
                ..
            } if self.dialect.learn(&said.words(), &request.model) => Fault::FieldRefused(said),
            fault => fault,
        }
    }

    fn failure(
        &self,
        request: &Request,
        fault: &Fault,
        partial: String,
        usage: Option<Usage>,
    ) -> Failure {
        let verdict = classify::classify(fault, &self.shown_url);
        let message = match fault {
            Fault::Status { said, .. }
            | Fault::FieldRefused(said)
            | Fault::StreamError(said)
            | Fault::NotAStream(said) => self.with_words(request, &verdict.sentence, said),
            _ => verdict.sentence,
        };
        let message = match classify::advice(fault, self.url.path()) {
            Some(advice) => format!("{message}; {advice}"),
            None => message,
        };
        // A status instead of a stream is a refusal, and nobody bills one: nothing is charged for it.
        let is_refusal = matches!(fault, Fault::Status { .. } | Fault::FieldRefused(_));
        Failure {
            kind: verdict.kind,
            code: verdict.code,
            message,
            retry_after: verdict.retry_after,
            sent: verdict.sent,
            usage: usage.or(is_refusal.then(Usage::default)),
            partial,
        }
    }

    /// Our sentence and the provider's, as far as it may be shown.
    fn with_words(&self, request: &Request, sentence: &str, said: &Said) -> String {
        let words = said.words();
        if words.is_empty() {
            return sentence.to_owned();
        }
        match redact::shown(&words, &self.secrets, request) {
            Some(shown) => format!("{sentence}: {shown}"),
            None => format!(
                "{sentence}; its words are withheld, they repeat the key or the conversation"
            ),
        }
    }
}

/// Headers that the exchange itself sets.
const OWN_HEADERS: [&str; 6] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
];

fn own_header(name: &str, value: &Secret) -> Result<(HeaderName, HeaderValue), SetupError> {
    let wrong = |problem| SetupError::Header {
        name: name.to_owned(),
        problem,
    };
    let header = HeaderName::try_from(name).map_err(|_| wrong("no header has such a name"))?;
    if OWN_HEADERS.contains(&header.as_str()) {
        return Err(wrong("the exchange sets it by itself"));
    }
    let value = HeaderValue::try_from(value.expose());
    let mut value = value.map_err(|_| wrong("its value has a character that it cannot have"))?;
    value.set_sensitive(true);
    Ok((header, value))
}

/// A count as servers write it: a whole number, also as a decimal or as text.
pub(super) fn number(value: &Value) -> Option<u64> {
    /// Beyond it, not every whole number is a decimal of a computer.
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

/// Reads a stream into a reply, until it is whole and nothing more is to be known of it.
async fn read<R: Reply, B: AsRef<[u8]>, E>(
    bytes: impl Stream<Item = Result<B, E>>,
    idle: Duration,
    bytes_max: u64,
    reply: &mut R,
    on_delta: OnDelta<'_>,
) -> Result<Completion, Fault> {
    let mut events = std::pin::pin!(sse::events(bytes, bytes_max));
    let mut deadline = Instant::now() + idle;
    let mut finished = false;
    while !reply.is_ended() {
        let taken = match tokio::time::timeout_at(deadline, events.next()).await {
            Err(_) => Err(Fault::Stalled(idle)),
            Ok(None) => break,
            Ok(Some(Ok(data))) if data.trim().is_empty() => Ok(Taken::Nothing),
            Ok(Some(Ok(data))) => reply.take(&data, on_delta),
            Ok(Some(Err(broken))) => Err(broken_stream(broken)),
        };
        match taken {
            // The reply is whole: whatever comes behind it takes nothing away.
            Err(_) if reply.is_finished() => break,
            Err(fault) => return Err(fault),
            Ok(_) if finished => {}
            Ok(_) if reply.is_finished() => {
                finished = true;
                deadline = Instant::now() + USAGE_WAIT;
            }
            Ok(Taken::Substance) => deadline = Instant::now() + idle,
            Ok(Taken::Nothing) => {}
        }
    }
    reply.complete()
}

/// Reads an answer that is no stream: a whole reply of a server that does not stream, or an error.
async fn read_whole<R: Reply>(
    response: Response,
    request: &Request,
    reply: &mut R,
    on_delta: OnDelta<'_>,
) -> Result<Completion, Fault> {
    let bytes_max = answer_bytes_max(request.output_max).min(sse::EVENT_BYTES_MAX as u64);
    let body = read_body(response, bytes_max as usize, Times::default().answer).await;
    on_delta(Delta::Received(body.len() as u64));
    let text = String::from_utf8_lossy(&body);
    let value = sse::is_small(&text)
        .then(|| serde_json::from_str::<Value>(&text).ok())
        .flatten();
    let Some(value) = value else {
        return Err(Fault::NotAStream(said::of_text(&text)));
    };
    if let Some(said) = said::of_body(&value).filter(|_| value.get("choices").is_none()) {
        return Err(Fault::StreamError(said));
    }
    match reply.take_whole(&value, on_delta) {
        None => Err(Fault::NotAStream(Said::default())),
        Some(taken) => taken.and_then(|()| reply.complete()),
    }
}

/// The address of a provider, checked. The adapter adds its path.
pub(super) fn address(base: &str) -> Result<Url, SetupError> {
    let url = Url::parse(base.trim()).map_err(|error| SetupError::Address {
        problem: error.to_string(),
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(SetupError::Scheme);
    }
    let named = !url.username().is_empty() || url.password().is_some();
    if named || url.query().is_some() || url.fragment().is_some() {
        return Err(SetupError::Parts);
    }
    Ok(url)
}

/// A client that makes one request when it is asked for one. (Its pool may take another connection if the one it
/// picked was closed before anything was written to it; nothing is ever written twice.)
fn client(url: &Url, times: Times) -> Result<Client, SetupError> {
    let failed = |problem: String| SetupError::Client { problem };
    let tls = tls::config(url.scheme() == "https").map_err(|error| failed(error.to_string()))?;
    Client::builder()
        .user_agent(concat!("threadkeep/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(times.connect)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .retry(reqwest::retry::never())
        .no_proxy()
        .tls_backend_preconfigured(tls)
        .build()
        .map_err(|error| failed(chain(&error.without_url())))
}

/// An error of the client library with its causes: it names hosts and system errors, never headers or bodies.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Why no answer began. Only a failure to connect is certain not to have sent anything.
fn unanswered(error: &reqwest::Error) -> Fault {
    if !error.is_connect() {
        return Fault::Disconnected;
    }
    match tls::certificate_problem(error) {
        Some(problem) => Fault::Certificate { problem },
        None => Fault::Connect {
            problem: chain(error),
        },
    }
}

async fn refused(response: Response) -> Fault {
    let headers = response.headers();
    let header = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    let retry_after = classify::retry_after(header, jiff::Timestamp::now());
    let status = response.status().as_u16();
    let location = header(LOCATION.as_str()).filter(|_| (300..400).contains(&status));
    let said = read_error(response).await;
    Fault::Status {
        status,
        said,
        retry_after,
        location,
    }
}

/// What an error body says, whatever its shape.
async fn read_error(response: Response) -> Said {
    let body = read_body(response, ERROR_BYTES_MAX, ERROR_WAIT).await;
    let text = String::from_utf8_lossy(&body);
    let value = serde_json::from_str(&text).ok();
    let said = value.as_ref().and_then(said::of_body);
    said.unwrap_or_else(|| said::of_text(&text))
}

/// The beginning of a body, as far as it comes in time.
async fn read_body(mut response: Response, bytes_max: usize, longest: Duration) -> Vec<u8> {
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            let room = bytes_max - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if body.len() == bytes_max {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(longest, read).await;
    body
}

/// True for content that is certainly no event stream. Some servers name no type, or the wrong one.
fn is_other_content(headers: &HeaderMap) -> bool {
    let content = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    ["application/json", "text/html"]
        .iter()
        .any(|other| content.starts_with(other))
}

fn broken_stream(broken: sse::Broken) -> Fault {
    match broken {
        sse::Broken::Transport => Fault::Disconnected,
        sse::Broken::TooLarge => Fault::TooLarge,
        sse::Broken::NotText => Fault::BadChunk,
    }
}

/// What a reply makes of a stream that comes in these chunks, and the deltas that it tells.
#[cfg(test)]
pub(super) async fn replay<R: Reply>(
    mut reply: R,
    chunks: Vec<Vec<u8>>,
) -> (Result<Completion, Fault>, Vec<super::Delta>) {
    let deltas = std::sync::Mutex::new(Vec::new());
    let on_delta = |delta| deltas.lock().unwrap().push(delta);
    let bytes = futures_util::stream::iter(chunks.into_iter().map(Ok::<_, ()>));
    let (idle, most) = (Times::default().idle, answer_bytes_max(u64::MAX));
    let result = read(bytes, idle, most, &mut reply, &on_delta).await;
    (result, deltas.into_inner().unwrap())
}
