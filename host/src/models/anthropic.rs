//! Anthropic's messages over HTTP, and servers that speak the same.
//!
//! One call of [`ModelProvider::complete`](super::ModelProvider::complete) is one `POST
//! {base_url}/v1/messages` with `stream: true`. `wire` makes the body, `reply` puts the reply
//! together; the exchange itself is that of every adapter over HTTP.

mod reply;
mod wire;

use super::http::normal_form::EncodeError;
use super::http::{self, ProviderEndpoint, SetupError, WireAdapter};
use super::{CompletionRequest, ProviderOptions};
use reqwest::Url;

/// The version of the wire that the adapter speaks.
const VERSION: &str = "2023-06-01";

/// A provider that speaks Anthropic's messages.
///
/// With [`ServerDialect::cache`](super::dialect::ServerDialect::cache) every request asks for what
/// it holds to be cached. A request is the beginning of the next one, so every turn after the first
/// reads its beginning at a tenth of the price; what is new costs a quarter more.
#[derive(Debug)]
pub struct AnthropicProvider {
    endpoint: ProviderEndpoint,
}

impl AnthropicProvider {
    /// Sets a provider up. Connects to nothing.
    ///
    /// # Errors
    /// If the address, a header or the key cannot be used, or there are no certificates to trust.
    pub fn new(options: ProviderOptions) -> Result<Self, SetupError> {
        let url = messages_url(&options.base_url)?;
        let path = match options.shown_url.as_deref() {
            Some(shown) if shown.trim_end_matches('/').ends_with("/v1") => "/messages",
            _ => "/v1/messages",
        };
        let mut endpoint = ProviderEndpoint::new(url, path, options)?;
        endpoint.add_header("anthropic-version", VERSION);
        Ok(Self { endpoint })
    }
}

impl WireAdapter for AnthropicProvider {
    type WireReply = reply::AnthropicReply;

    fn endpoint(&self) -> &ProviderEndpoint {
        &self.endpoint
    }

    fn encode(&self, request: &CompletionRequest) -> Result<Vec<u8>, EncodeError> {
        let cache = self.endpoint.dialect.dialect_for(&request.model).cache;
        let options = self.endpoint.model_options(&request.model);
        wire::encode(request, &self.endpoint.name, cache, options)
    }

    fn begin_reply(&self, request: &CompletionRequest) -> reply::AnthropicReply {
        reply::AnthropicReply::new(&self.endpoint.name, request.output_max)
    }
}

/// Returns the address of the messages endpoint. `base` may end in `/v1` or leave it out.
fn messages_url(base: &str) -> Result<Url, SetupError> {
    let mut url = http::parse_base_url(base)?;
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix("/v1").unwrap_or(path);
    let path = format!("{path}/v1/messages");
    url.set_path(&path);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::SecretText;

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
        let options = |key: &str| ProviderOptions {
            key: Some(SecretText::new(key)),
            ..ProviderOptions::anthropic("https://host")
        };
        let error = AnthropicProvider::new(options("sk-ant-0123456789\n")).unwrap_err();
        assert_eq!(error, SetupError::Key);
        let made = AnthropicProvider::new(options("sk-ant-0123456789")).unwrap();
        let shown = format!("{made:?} {error} {:?}", options("sk-ant-0123456789"));
        assert!(!shown.contains("sk-ant"), "{shown}");
    }
}
