//! Anthropic's messages over HTTP, and servers that speak the same.
//!
//! One call of [`Llm::complete`](super::Llm::complete) is one `POST {base_url}/v1/messages` with `stream: true`. `wire` makes the body,
//! `reply` puts the reply together; the exchange itself is that of every adapter over HTTP.

mod reply;
mod wire;

use super::http::normal::EncodeError;
use super::http::{self, Adapter, Endpoint, SetupError, Times};
use super::{Request, Secret};
use reqwest::Url;

/// The version of the wire that the adapter speaks.
const VERSION: &str = "2023-06-01";

/// How to reach a provider.
#[derive(Debug, Clone)]
pub struct AnthropicOptions {
    /// `http` or `https`, with or without the version at its end: `https://api.anthropic.com`. No user, query or
    /// fragment.
    pub base_url: String,
    /// Sent as `x-api-key`. Local servers may need none.
    pub key: Option<Secret>,
    /// How long it is waited for.
    pub times: Times,
    /// Ask the provider to cache what it has read of a conversation (on by default). A request is the beginning of
    /// the next one, so every turn after the first reads its beginning at a tenth of the price; what is new costs a
    /// quarter more. Off for a server that refuses the field.
    pub cache: bool,
}

impl AnthropicOptions {
    /// Without a key, and with times that suit hosted and local servers.
    pub fn new(base_url: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            key: None,
            times: Times::default(),
            cache: true,
        }
    }
}

/// A provider that speaks Anthropic's messages.
#[derive(Debug)]
pub struct Anthropic {
    endpoint: Endpoint,
    cache: bool,
}

impl Anthropic {
    /// Set a provider up. Connects to nothing.
    ///
    /// # Errors
    /// If the address or the key cannot be used, or there are no certificates to trust.
    pub fn new(options: AnthropicOptions) -> Result<Self, SetupError> {
        let mut endpoint = Endpoint::new(messages_url(&options.base_url)?, options.times)?;
        endpoint.header("anthropic-version", VERSION);
        if let Some(key) = options.key {
            endpoint.key("x-api-key", "", key)?;
        }
        Ok(Self {
            endpoint,
            cache: options.cache,
        })
    }
}

impl Adapter for Anthropic {
    type Reply = reply::Reply;

    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn encode(&self, request: &Request) -> Result<Vec<u8>, EncodeError> {
        wire::encode(request, self.cache)
    }
}

/// The address with the version that people leave out, as they are used to, or do not.
fn messages_url(base: &str) -> Result<Url, SetupError> {
    let mut url = http::address(base)?;
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix("/v1").unwrap_or(path);
    let path = format!("{path}/v1/messages");
    url.set_path(&path);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (base, want) in [
            (
                "https://api.anthropic.com",
                Ok("https://api.anthropic.com/v1/messages"),
            ),
            (
                "https://api.anthropic.com/v1/",
                Ok("https://api.anthropic.com/v1/messages"),
            ),
            (
                " http://127.0.0.1:80/anthropic/ ",
                Ok("http://127.0.0.1/anthropic/v1/messages"),
            ),
            ("ftp://host", Err(SetupError::Scheme)),
            ("https://user:secret@host", Err(SetupError::Parts)),
        ] {
            let got = messages_url(base).map(|url| url.to_string());
            assert_eq!(got.as_deref().map_err(Clone::clone), want, "{base}");
        }
    }

    #[test]
    fn setting_up_repeats_no_key() {
        let options = |key: &str| AnthropicOptions {
            key: Some(Secret::new(key)),
            ..AnthropicOptions::new("https://host")
        };
        let error = Anthropic::new(options("sk-ant-0123456789\n")).unwrap_err();
        assert_eq!(error, SetupError::Key);
        let made = Anthropic::new(options("sk-ant-0123456789")).unwrap();
        let shown = format!("{made:?} {error} {:?}", options("sk-ant-0123456789"));
        assert!(!shown.contains("sk-ant"), "{shown}");
    }
}
