//! What every adapter over HTTP shares: one `POST` whose answer is a stream of events, read within bounds.
//!
//! An [`Endpoint`] makes exactly one request for each exchange: no retry, no redirect, no proxy from the environment.
//! `normal` is the conversation as adapters read it, `sse` reads the events, `room` bounds the reply, `classify` says
//! what a fault means, `redact` what of a provider's sentence may be shown, `tls` whom to trust. What stands in the
//! body, and how events become a reply, is the adapter's.
//!
//! A reply is whole once its finish reason has arrived. After it, only what reports its usage is still awaited, and
//! not for long.

pub(super) mod classify;
pub(super) mod normal;
mod redact;
pub(super) mod room;
mod sse;
mod tls;

use super::{
    BoxFuture, Completion, Delta, Failure, Llm, OnDelta, Request, Secret, Usage, answer_bytes_max,
};
use classify::{Fault, Said};
use futures_util::{Stream, StreamExt, TryStreamExt};
use normal::EncodeError;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};
use sse::Bounds;
use std::error::Error;
use std::time::Duration;

/// Most bytes of an error body that are read: it is a sentence, and a page of HTML at worst.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// Longest time in which an error body is awaited: the status alone says enough.
const ERROR_WAIT: Duration = Duration::from_secs(10);
/// Longest wait for each event after the finish reason. The reply is whole by then; only its usage may be missing.
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

/// A reply that is put together from the events of one answer.
pub(super) trait Reply: Default + Send {
    /// Take the data of one event.
    fn take(&mut self, data: &str, on_delta: OnDelta<'_>) -> Result<(), Fault>;
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
    /// Longest time in which a stream may send nothing, not even a comment or a ping.
    pub idle: Duration,
}

impl Default for Times {
    /// Times that suit hosted and local servers: 10 s to connect, 300 s to begin, 180 s of silence.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(300),
            idle: Duration::from_secs(180),
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
}

impl<A: Adapter> Llm for A {
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<Completion, Failure>> {
        let body = self.encode(request);
        Box::pin(
            self.endpoint()
                .exchange::<A::Reply>(request, body, on_delta),
        )
    }
}

/// One address that answers with streams.
#[derive(Debug)]
pub(super) struct Endpoint {
    client: Client,
    url: Url,
    headers: HeaderMap,
    key: Option<Secret>,
    times: Times,
}

impl Endpoint {
    /// Set it up. Connects to nothing.
    pub fn new(url: Url, times: Times) -> Result<Self, SetupError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        Ok(Self {
            client: client(&url, times)?,
            url,
            headers,
            key: None,
            times,
        })
    }

    /// Send this header, too.
    pub fn header(&mut self, name: &'static str, value: &'static str) {
        let name = HeaderName::from_static(name);
        self.headers.insert(name, HeaderValue::from_static(value));
    }

    /// Send this key in this header, behind these words.
    pub fn key(&mut self, name: &'static str, words: &str, key: Secret) -> Result<(), SetupError> {
        let mut value = HeaderValue::try_from(format!("{words}{}", key.expose()))
            .map_err(|_| SetupError::Key)?;
        value.set_sensitive(true);
        self.headers.insert(HeaderName::from_static(name), value);
        self.key = Some(key);
        Ok(())
    }

    /// Exchange one request for one reply.
    pub async fn exchange<R: Reply>(
        &self,
        request: &Request,
        body: Result<Vec<u8>, EncodeError>,
        on_delta: OnDelta<'_>,
    ) -> Result<Completion, Failure> {
        let failed = |fault: Fault| self.failure(request, &fault, String::new(), None);
        let body = body.map_err(Fault::Encode).map_err(failed)?;
        let response = self.send(body).await.map_err(failed)?;
        if !response.status().is_success() {
            return Err(failed(refused(response).await));
        }
        if is_other_content(response.headers()) {
            let said = read_error(response).await;
            return Err(failed(said.map_or(Fault::NotAStream, Fault::StreamError)));
        }
        let mut reply = R::default();
        let bytes = response.bytes_stream();
        let bytes = bytes.inspect_ok(|chunk| on_delta(Delta::Received(chunk.len() as u64)));
        let bounds = Bounds {
            idle: self.times.idle,
            bytes: answer_bytes_max(request.output_max),
        };
        match read(bytes, bounds, &mut reply, on_delta).await {
            Ok(completion) => Ok(completion),
            Err(fault) => Err(self.failure(request, &fault, reply.text(), reply.usage())),
        }
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

    fn failure(
        &self,
        request: &Request,
        fault: &Fault,
        partial: String,
        usage: Option<Usage>,
    ) -> Failure {
        let verdict = classify::classify(fault);
        let message = match fault {
            Fault::Status { said, .. } | Fault::StreamError(said) => {
                self.with_words(request, &verdict.sentence, said)
            }
            _ => verdict.sentence,
        };
        Failure {
            kind: verdict.kind,
            code: verdict.code,
            message,
            retry_after: verdict.retry_after,
            sent: verdict.sent,
            // A status instead of a stream is a refusal, and nobody bills one: nothing is charged for it.
            usage: usage.or(matches!(fault, Fault::Status { .. }).then(Usage::default)),
            partial,
        }
    }

    /// Our sentence and the provider's, as far as it may be shown.
    fn with_words(&self, request: &Request, sentence: &str, said: &Said) -> String {
        let word = if said.code.is_empty() {
            &said.r#type
        } else {
            &said.code
        };
        let words: Vec<&str> = [word.as_str(), &said.message]
            .into_iter()
            .filter(|word| !word.is_empty())
            .collect();
        if words.is_empty() {
            return sentence.to_owned();
        }
        match redact::shown(&words.join(": "), self.key.as_ref(), request) {
            Some(shown) => format!("{sentence}: {shown}"),
            None => format!(
                "{sentence}; its words are withheld, they repeat the key or the conversation"
            ),
        }
    }
}

/// Read a stream into a reply, until it is whole and nothing more is to be known of it.
async fn read<R: Reply, B: AsRef<[u8]>, E>(
    bytes: impl Stream<Item = Result<B, E>>,
    bounds: Bounds,
    reply: &mut R,
    on_delta: OnDelta<'_>,
) -> Result<Completion, Fault> {
    let mut events = std::pin::pin!(sse::events(bytes, bounds));
    while !reply.is_ended() {
        let event = if reply.is_finished() {
            tokio::time::timeout(USAGE_WAIT, events.next())
                .await
                .unwrap_or(None)
        } else {
            events.next().await
        };
        match event {
            None => break,
            Some(Ok(data)) => reply.take(&data, on_delta)?,
            Some(Err(sse::Broken::Transport | sse::Broken::Stalled)) if reply.is_finished() => {
                break;
            }
            Some(Err(broken)) => return Err(broken_stream(broken, bounds.idle)),
        }
    }
    reply.complete()
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
    if tls::is_certificate(error) {
        Fault::Certificate
    } else {
        Fault::Connect {
            problem: chain(error),
        }
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
    let said = read_error(response).await.unwrap_or_default();
    Fault::Status {
        status,
        said,
        retry_after,
    }
}

/// What an error body says; none if it is no JSON of a known shape or does not come in time.
async fn read_error(mut response: Response) -> Option<Said> {
    let read = async {
        let mut body = Vec::new();
        while let Ok(Some(chunk)) = response.chunk().await {
            let room = ERROR_BYTES_MAX - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if body.len() == ERROR_BYTES_MAX {
                break;
            }
        }
        body
    };
    let body = tokio::time::timeout(ERROR_WAIT, read).await.ok()?;
    classify::said(&serde_json::from_slice(&body).ok()?)
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

fn broken_stream(broken: sse::Broken, idle: Duration) -> Fault {
    match broken {
        sse::Broken::Transport => Fault::Disconnected,
        sse::Broken::Stalled => Fault::Stalled(idle),
        sse::Broken::TooLarge => Fault::TooLarge,
        sse::Broken::NotText => Fault::BadChunk,
    }
}

/// What a reply makes of a stream that comes in these chunks, and the deltas that it tells.
#[cfg(test)]
pub(super) async fn replay<R: Reply>(
    chunks: Vec<Vec<u8>>,
) -> (Result<Completion, Fault>, Vec<super::Delta>) {
    let deltas = std::sync::Mutex::new(Vec::new());
    let on_delta = |delta| deltas.lock().unwrap().push(delta);
    let bytes = futures_util::stream::iter(chunks.into_iter().map(Ok::<_, ()>));
    let mut reply = R::default();
    let bounds = Bounds {
        idle: Times::default().idle,
        bytes: answer_bytes_max(u64::MAX),
    };
    let result = read(bytes, bounds, &mut reply, &on_delta).await;
    (result, deltas.into_inner().unwrap())
}
