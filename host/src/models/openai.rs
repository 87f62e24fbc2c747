//! OpenAI-compatible chat completions over HTTP (OpenAI, Ollama, vLLM, llama.cpp, OpenRouter and others).
//!
//! One call of [`Llm::complete`] is one `POST {base_url}/chat/completions` with `stream: true`: no retry, no redirect,
//! no proxy from the environment. `wire` makes the body, `sse` reads the events, `reply` puts the reply together,
//! `classify` says what a fault means, `redact` what of a provider's sentence may be shown.
//!
//! A reply is whole once its finish reason has arrived. After it, only the usage is still awaited, and not for long.

mod classify;
mod redact;
mod reply;
mod sse;
mod wire;

use super::{BoxFuture, Completion, Failure, Llm, OnDelta, Request, Secret, Usage};
use classify::{Fault, Said};
use futures_util::StreamExt;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Response, Url};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// Most bytes of an error body that are read: it is a sentence, and a page of HTML at worst.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// Longest time in which an error body is awaited: the status alone says enough.
const ERROR_WAIT: Duration = Duration::from_secs(10);
/// Longest wait for each event after the finish reason. The reply is whole by then; only its usage may be missing.
const USAGE_WAIT: Duration = Duration::from_secs(5);

/// How to reach a provider.
#[derive(Debug, Clone)]
pub struct OpenAiOptions {
    /// `http` or `https`, up to and including the version: `https://api.openai.com/v1`. No user, query or fragment.
    pub base_url: String,
    /// Sent as a bearer token. Local servers need none.
    pub key: Option<Secret>,
    /// Longest time to make a connection.
    pub connect_timeout: Duration,
    /// Longest time until an answer begins. Servers that queue begin late.
    pub answer_timeout: Duration,
    /// Longest time in which a stream may send nothing, not even a comment.
    pub idle_timeout: Duration,
    /// Name the output maximum `max_completion_tokens`. By default it is `max_tokens`, which every compatible server
    /// knows; OpenAI's own reasoning models insist on the new name.
    pub max_completion_tokens: bool,
    /// Send thinking back as `reasoning_content`. Some servers insist on it between a call and its result; most
    /// ignore or refuse it.
    pub return_thinking: bool,
}

impl OpenAiOptions {
    /// Without a key and with times that suit hosted and local servers: 10 s to connect, 300 s to begin, 180 s of
    /// silence.
    pub fn new(base_url: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            key: None,
            connect_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(300),
            idle_timeout: Duration::from_secs(180),
            max_completion_tokens: false,
            return_thinking: false,
        }
    }
}

/// Why a provider cannot be set up. Nothing of the key or the address is repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenAiSetupError {
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

/// A provider that speaks OpenAI's chat completions.
#[derive(Debug)]
pub struct OpenAi {
    client: Client,
    url: Url,
    authorization: Option<HeaderValue>,
    options: OpenAiOptions,
    dialect: wire::Dialect,
}

impl OpenAi {
    /// Set a provider up. Connects to nothing.
    pub fn new(options: OpenAiOptions) -> Result<Self, OpenAiSetupError> {
        let url = completions_url(&options.base_url)?;
        let authorization = options.key.as_ref().map(bearer).transpose()?;
        let client = client(&url, &options)?;
        let dialect = wire::Dialect {
            max_completion_tokens: options.max_completion_tokens,
            return_thinking: options.return_thinking,
        };
        Ok(Self {
            client,
            url,
            authorization,
            options,
            dialect,
        })
    }

    async fn exchange(
        &self,
        request: &Request,
        on_delta: OnDelta<'_>,
    ) -> Result<Completion, Failure> {
        let failed = |fault: Fault| self.failure(request, &fault, String::new(), None);
        let body = wire::encode(request, self.dialect)
            .map_err(Fault::Encode)
            .map_err(failed)?;
        let response = self.send(body).await.map_err(failed)?;
        if !response.status().is_success() {
            return Err(failed(refused(response).await));
        }
        if is_other_content(response.headers()) {
            let said = read_error(response).await;
            return Err(failed(said.map_or(Fault::NotAStream, Fault::StreamError)));
        }
        let mut reply = reply::Reply::default();
        match self.read(response, &mut reply, on_delta).await {
            Ok(completion) => Ok(completion),
            Err(fault) => Err(self.failure(request, &fault, reply.text(), reply.usage())),
        }
    }

    async fn send(&self, body: Vec<u8>) -> Result<Response, Fault> {
        let mut request = self.client.post(self.url.clone()).body(body);
        request = request
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        match tokio::time::timeout(self.options.answer_timeout, request.send()).await {
            Err(_) => Err(Fault::Timeout(self.options.answer_timeout)),
            Ok(Err(error)) => Err(unanswered(&error.without_url())),
            Ok(Ok(response)) => Ok(response),
        }
    }

    async fn read(
        &self,
        response: Response,
        reply: &mut reply::Reply,
        on_delta: OnDelta<'_>,
    ) -> Result<Completion, Fault> {
        let idle = self.options.idle_timeout;
        let mut events = std::pin::pin!(sse::events(response.bytes_stream(), idle));
        loop {
            let event = if reply.is_finished() {
                tokio::time::timeout(USAGE_WAIT, events.next())
                    .await
                    .unwrap_or(None)
            } else {
                events.next().await
            };
            match event {
                None => break,
                Some(Ok(data)) if data.trim() == "[DONE]" => break,
                Some(Ok(data)) => reply.take(&data, on_delta)?,
                Some(Err(sse::Broken::Transport | sse::Broken::Stalled)) if reply.is_finished() => {
                    break;
                }
                Some(Err(broken)) => return Err(broken_stream(broken, idle)),
            }
        }
        reply.complete()
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
        match redact::shown(&words.join(": "), self.options.key.as_ref(), request) {
            Some(shown) => format!("{sentence}: {shown}"),
            None => format!(
                "{sentence}; its words are withheld, they repeat the key or the conversation"
            ),
        }
    }
}

impl Llm for OpenAi {
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<Completion, Failure>> {
        Box::pin(self.exchange(request, on_delta))
    }
}

fn completions_url(base: &str) -> Result<Url, OpenAiSetupError> {
    let mut url = Url::parse(base.trim()).map_err(|error| OpenAiSetupError::Address {
        problem: error.to_string(),
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(OpenAiSetupError::Scheme);
    }
    let named = !url.username().is_empty() || url.password().is_some();
    if named || url.query().is_some() || url.fragment().is_some() {
        return Err(OpenAiSetupError::Parts);
    }
    let path = format!("{}/chat/completions", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
}

fn bearer(key: &Secret) -> Result<HeaderValue, OpenAiSetupError> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", key.expose()))
        .map_err(|_| OpenAiSetupError::Key)?;
    value.set_sensitive(true);
    Ok(value)
}

/// A client that makes one request when it is asked for one. (Its pool may take another connection if the one it
/// picked was closed before anything was written to it; nothing is ever written twice.)
fn client(url: &Url, options: &OpenAiOptions) -> Result<Client, OpenAiSetupError> {
    let failed = |problem: String| OpenAiSetupError::Client { problem };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut builder = Client::builder()
        .user_agent(concat!("threadkeep/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(options.connect_timeout)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .retry(reqwest::retry::never())
        .no_proxy();
    if url.scheme() == "http" {
        // No certificates are needed, and a machine without any must still reach its local server.
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(error.to_string()))?
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        builder = builder.tls_backend_preconfigured(tls);
    } else if rustls::crypto::CryptoProvider::get_default().is_none() {
        // The client takes the certificates that the system trusts only together with the process's provider. If
        // somebody else installs one at the same moment, that one serves as well.
        let _ = rustls::crypto::CryptoProvider::install_default(Arc::unwrap_or_clone(provider));
    }
    builder
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
    if is_certificate(error) {
        Fault::Certificate
    } else {
        Fault::Connect {
            problem: chain(error),
        }
    }
}

fn is_certificate(error: &dyn Error) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        let inner = cause
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref);
        let tls = inner
            .and_then(|inner| inner.downcast_ref::<rustls::Error>())
            .or_else(|| cause.downcast_ref::<rustls::Error>());
        if matches!(tls, Some(rustls::Error::InvalidCertificate(_))) {
            return true;
        }
        source = cause.source();
    }
    false
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (base, want) in [
            (
                "https://api.openai.com/v1",
                Ok("https://api.openai.com/v1/chat/completions"),
            ),
            (
                "http://127.0.0.1:11434/v1/",
                Ok("http://127.0.0.1:11434/v1/chat/completions"),
            ),
            (" http://host ", Ok("http://host/chat/completions")),
            ("ftp://host/v1", Err(OpenAiSetupError::Scheme)),
            ("localhost:8080", Err(OpenAiSetupError::Scheme)),
            ("https://user:secret@host/v1", Err(OpenAiSetupError::Parts)),
            ("https://host/v1?key=secret", Err(OpenAiSetupError::Parts)),
            ("https://host/v1#x", Err(OpenAiSetupError::Parts)),
        ] {
            let got = completions_url(base).map(|url| url.to_string());
            assert_eq!(got.as_deref().map_err(Clone::clone), want, "{base}");
        }
        assert!(matches!(
            completions_url("host/v1"),
            Err(OpenAiSetupError::Address { .. })
        ));
    }

    #[test]
    fn setting_up_repeats_no_key_and_needs_no_process_wide_provider() {
        let options = |base: &str, key: &str| OpenAiOptions {
            key: Some(Secret::new(key)),
            ..OpenAiOptions::new(base)
        };
        let error = OpenAi::new(options("http://host/v1", "sk-0123456789\n")).unwrap_err();
        assert_eq!(error, OpenAiSetupError::Key);
        assert!(!error.to_string().contains("sk-"), "{error}");
        let made = OpenAi::new(options("http://host/v1", "sk-0123456789")).unwrap();
        assert!(!format!("{made:?}").contains("sk-"), "{made:?}");
        for _ in 0..2 {
            OpenAi::new(options("https://host/v1", "sk-0123456789")).unwrap();
        }
    }
}
