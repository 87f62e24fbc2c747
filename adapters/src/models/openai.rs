//! OpenAI-compatible chat completions (OpenAI, Ollama, vLLM, llama.cpp, OpenRouter and others).
//!
//! One call is one `POST {base_url}/chat/completions` with `stream: true`. `wire` makes the body,
//! `reply` puts the reply together; the exchange itself is that of every wire over HTTP.

mod calls;
mod reply;
mod usage;
mod wire;

use super::wire::{EncodeError, ModelWire, ProviderProfile, SetupError, parse_base_url};
use super::{CompletionRequest, ProviderOptions};
use url::Url;

/// OpenAI's chat completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenAiWire;

impl ModelWire for OpenAiWire {
    type WireReply = reply::OpenAiReply;
    const HEADERS: &'static [(&'static str, &'static str)] = &[];

    fn request_url(base: &str) -> Result<Url, SetupError> {
        completions_url(base)
    }

    fn shown_path(_options: &ProviderOptions) -> &'static str {
        "/chat/completions"
    }

    fn encode(
        profile: &ProviderProfile,
        request: &CompletionRequest,
    ) -> Result<Vec<u8>, EncodeError> {
        let dialect = profile.dialect.dialect_for(&request.model);
        let options = profile.model_options(&request.model);
        wire::encode(request, &profile.name, dialect, options)
    }

    fn begin_reply(profile: &ProviderProfile, request: &CompletionRequest) -> reply::OpenAiReply {
        reply::OpenAiReply::new(&profile.name, request.output_max)
    }
}

fn completions_url(base: &str) -> Result<Url, SetupError> {
    let mut url = parse_base_url(base)?;
    let path = url.path().trim_end_matches('/');
    // Some people configure the whole address.
    let path = path.strip_suffix("/chat/completions").unwrap_or(path);
    let path = format!("{path}/chat/completions");
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
                "https://api.openai.com/v1",
                Ok("https://api.openai.com/v1/chat/completions"),
            ),
            (
                "http://127.0.0.1:11434/v1/",
                Ok("http://127.0.0.1:11434/v1/chat/completions"),
            ),
            (" http://host ", Ok("http://host/chat/completions")),
            (
                "http://host/v1/chat/completions",
                Ok("http://host/v1/chat/completions"),
            ),
            ("ftp://host/v1", Err(SetupError::Scheme)),
            ("localhost:8080", Err(SetupError::Scheme)),
            ("https://user:secret@host/v1", Err(SetupError::Parts)),
            ("https://host/v1?key=secret", Err(SetupError::Parts)),
            ("https://host/v1#x", Err(SetupError::Parts)),
        ] {
            let got = completions_url(base).map(|url| url.to_string());
            assert_eq!(got.as_deref().map_err(Clone::clone), want, "{base}");
        }
        assert!(matches!(
            completions_url("host/v1"),
            Err(SetupError::Address { .. })
        ));
    }
}
