//! OpenAI-compatible chat completions over HTTP (OpenAI, Ollama, vLLM, llama.cpp, OpenRouter and
//! others).
//!
//! One call of [`ModelProvider::complete`](super::ModelProvider::complete) is one `POST
//! {base_url}/chat/completions` with `stream: true`. `wire` makes the body, `reply` puts the reply
//! together; the exchange itself is that of every adapter over HTTP.

mod calls;
mod reply;
mod usage;
mod wire;

use super::http::normal_form::EncodeError;
use super::http::{self, ProviderEndpoint, SetupError, WireAdapter};
use super::{CompletionRequest, ProviderOptions};
use reqwest::Url;

/// A provider that speaks OpenAI's chat completions.
#[derive(Debug)]
pub struct OpenAiProvider {
    endpoint: ProviderEndpoint,
}

impl OpenAiProvider {
    /// Sets a provider up. Connects to nothing.
    ///
    /// # Errors
    /// If the address, a header or the key cannot be used, or there are no certificates to trust.
    pub fn new(options: ProviderOptions) -> Result<Self, SetupError> {
        let url = completions_url(&options.base_url)?;
        let endpoint = ProviderEndpoint::new(url, "/chat/completions", options)?;
        Ok(Self { endpoint })
    }
}

impl WireAdapter for OpenAiProvider {
    type WireReply = reply::OpenAiReply;

    fn endpoint(&self) -> &ProviderEndpoint {
        &self.endpoint
    }

    fn encode(&self, request: &CompletionRequest) -> Result<Vec<u8>, EncodeError> {
        let dialect = self.endpoint.dialect.dialect_for(&request.model);
        let options = self.endpoint.model_options(&request.model);
        wire::encode(request, &self.endpoint.name, dialect, options)
    }

    fn begin_reply(&self, request: &CompletionRequest) -> reply::OpenAiReply {
        reply::OpenAiReply::new(&self.endpoint.name, request.output_max)
    }
}

fn completions_url(base: &str) -> Result<Url, SetupError> {
    let mut url = http::parse_base_url(base)?;
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
    use crate::models::SecretText;

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

    #[test]
    fn setting_up_repeats_no_key_and_leaves_nothing_global() {
        let options = |base: &str, key: &str| ProviderOptions {
            key: Some(SecretText::new(key)),
            ..ProviderOptions::openai(base)
        };
        let error = OpenAiProvider::new(options("http://host/v1", "sk-0123456789\n")).unwrap_err();
        assert_eq!(error, SetupError::Key);
        assert!(!error.to_string().contains("sk-"), "{error}");
        let made = OpenAiProvider::new(options("http://host/v1", "sk-0123456789")).unwrap();
        assert!(!format!("{made:?}").contains("sk-"), "{made:?}");
        OpenAiProvider::new(options("https://host/v1", "sk-0123456789")).unwrap();
        // Symptom: an embedder's own choice of cryptography was refused. Cause: setting up an https
        // provider chose it for the whole process. Fix: the client gets a configuration of its own.
        assert!(rustls::crypto::CryptoProvider::get_default().is_none());
    }
}
