//! Anthropic's messages, and servers that speak the same.
//!
//! One call is one `POST {base_url}/v1/messages` with `stream: true`. `wire` makes the body,
//! `reply` puts the reply together; the exchange itself is that of every wire over HTTP.

mod reply;
mod wire;

use super::wire::{EncodeError, ModelWire, ProviderProfile, SetupError, parse_base_url};
use super::{CompletionRequest, ProviderOptions};
use url::Url;

/// The version of the wire that is spoken.
const VERSION: &str = "2023-06-01";

/// Anthropic's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnthropicWire;

impl ModelWire for AnthropicWire {
    type WireReply = reply::AnthropicReply;
    const HEADERS: &'static [(&'static str, &'static str)] = &[("anthropic-version", VERSION)];

    fn request_url(base: &str) -> Result<Url, SetupError> {
        messages_url(base)
    }

    fn shown_path(options: &ProviderOptions) -> &'static str {
        match options.shown_url.as_deref() {
            Some(shown) if shown.trim_end_matches('/').ends_with("/v1") => "/messages",
            _ => "/v1/messages",
        }
    }

    fn encode(
        profile: &ProviderProfile,
        request: &CompletionRequest,
    ) -> Result<Vec<u8>, EncodeError> {
        let cache = profile.dialect.dialect_for(&request.model).cache;
        let options = profile.model_options(&request.model);
        wire::encode(request, &profile.name, cache, options)
    }

    fn begin_reply(
        profile: &ProviderProfile,
        request: &CompletionRequest,
    ) -> reply::AnthropicReply {
        reply::AnthropicReply::new(&profile.name, request.output_max)
    }
}

/// Returns the address of the messages endpoint. `base` may end in `/v1` or leave it out.
fn messages_url(base: &str) -> Result<Url, SetupError> {
    let mut url = parse_base_url(base)?;
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
}
