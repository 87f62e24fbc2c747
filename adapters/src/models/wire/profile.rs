//! One provider as requests are made to it: its address, headers, dialect and secrets, and the
//! words for what goes wrong.

use super::classify::{self, ExchangeFault, ProviderError};
use super::setup::{ProviderTimeouts, SetupError, parse_header};
use super::{ModelWire, finish, redact};
use crate::models::dialect::{KeyHeader, LearnedDialect, ServerDialect};
use crate::models::{
    CompletionRequest, ModelCompletion, ModelFailure, ProviderOptions, SecretText, Usage,
};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::LazyLock;
use url::Url;

/// Longest id of a reply or name of a model that is kept, in bytes.
const LABEL_BYTES_MAX: usize = 128;

/// One address of a provider, with what is sent to it and what is known of it.
#[derive(Debug)]
pub struct ProviderProfile {
    /// The provider's name.
    pub name: String,
    /// The dialect of its servers, with what their refusals have shown so far.
    pub dialect: LearnedDialect,
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

impl ProviderProfile {
    /// Prepares requests of this wire to a provider. Connects to nothing.
    ///
    /// # Errors
    /// If the address, a header or the key cannot be used, or the address is a number that is out
    /// of reach.
    pub fn new<W: ModelWire>(options: ProviderOptions) -> Result<Self, SetupError> {
        let mut url = W::request_url(&options.base_url)?;
        let path = W::shown_path(&options);
        let host = url.host_str().unwrap_or_default();
        let number: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
        if number.is_some_and(|number| !options.reach.allows(number)) {
            return Err(SetupError::OutOfReach);
        }
        if !options.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&options.query);
        }
        let headers = request_headers::<W>(&options)?;
        let hidden = match &options.shown_url {
            Some(shown) if shown.contains("${") => hidden_parts(&url),
            _ => Vec::new(),
        };
        let own = options.headers.into_iter().map(|(_, value)| value);
        let own = own.filter(SecretText::is_secret);
        Ok(Self {
            name: options.name,
            dialect: LearnedDialect::new(options.dialect),
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

    /// Returns the address of the requests.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the headers of the requests. Those that carry a key are marked as sensitive.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns the timeouts of its calls.
    pub fn times(&self) -> ProviderTimeouts {
        self.times
    }

    /// Returns the fields that are added to the body of requests for this model.
    pub fn model_options(&self, model: &str) -> &Map<String, Value> {
        static NONE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
        self.model_options.get(model).unwrap_or(&NONE)
    }

    /// Redacts what a completion says by itself and is stored and shown.
    pub(super) fn redact_completion(
        &self,
        request: &CompletionRequest,
        completion: ModelCompletion,
    ) -> ModelCompletion {
        let completion = self.redact_labels(request, completion);
        self.redact_finish(request, completion)
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

    /// Turns a refusal of a single field into [`ExchangeFault::FieldRefused`], if the next request
    /// will differ.
    pub(super) fn learn_refusal(
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

    pub(super) fn to_failure(
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

/// Makes the headers of every request, the provider's own and its key included.
fn request_headers<W: ModelWire>(options: &ProviderOptions) -> Result<HeaderMap, SetupError> {
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
    for (name, value) in W::HEADERS {
        let entry = headers.entry(HeaderName::from_static(name));
        entry.or_insert(HeaderValue::from_static(value));
    }
    Ok(headers)
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
