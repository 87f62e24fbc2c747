//! OpenAI-compatible chat completions over HTTP (OpenAI, Ollama, vLLM, llama.cpp, OpenRouter and others).
//!
//! One call of [`Llm::complete`](super::Llm::complete) is one `POST {base_url}/chat/completions` with `stream: true`. `wire` makes the body,
//! `reply` puts the reply together; the exchange itself is that of every adapter over HTTP.

mod reply;
mod wire;

use super::http::normal::EncodeError;
use super::http::{self, Adapter, Endpoint, SetupError, Times};
use super::{Request, Secret};
use reqwest::Url;

/// How to reach a provider.
#[derive(Debug, Clone)]
pub struct OpenAiOptions {
    /// `http` or `https`, up to and including the version: `https://api.openai.com/v1`. No user, query or fragment.
    pub base_url: String,
    /// Sent as a bearer token. Local servers need none.
    pub key: Option<Secret>,
    /// How long it is waited for.
    pub times: Times,
    /// Name the output maximum `max_completion_tokens`. By default it is `max_tokens`, which every compatible server
    /// knows; OpenAI's own reasoning models insist on the new name.
    pub max_completion_tokens: bool,
    /// Send thinking back as `reasoning_content`. Some servers insist on it between a call and its result; most
    /// ignore or refuse it.
    pub return_thinking: bool,
}

impl OpenAiOptions {
    /// Without a key, and with times that suit hosted and local servers.
    pub fn new(base_url: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            key: None,
            times: Times::default(),
            max_completion_tokens: false,
            return_thinking: false,
        }
    }
}

/// A provider that speaks OpenAI's chat completions.
#[derive(Debug)]
pub struct OpenAi {
    endpoint: Endpoint,
    dialect: wire::Dialect,
}

impl OpenAi {
    /// Set a provider up. Connects to nothing.
    ///
    /// # Errors
    /// If the address or the key cannot be used, or there are no certificates to trust.
    pub fn new(options: OpenAiOptions) -> Result<Self, SetupError> {
        let mut endpoint = Endpoint::new(completions_url(&options.base_url)?, options.times)?;
        if let Some(key) = options.key {
            endpoint.key("authorization", "Bearer ", key)?;
        }
        let dialect = wire::Dialect {
            max_completion_tokens: options.max_completion_tokens,
            return_thinking: options.return_thinking,
        };
        Ok(Self { endpoint, dialect })
    }
}

impl Adapter for OpenAi {
    type Reply = reply::Reply;

    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn encode(&self, request: &Request) -> Result<Vec<u8>, EncodeError> {
        wire::encode(request, self.dialect)
    }
}

fn completions_url(base: &str) -> Result<Url, SetupError> {
    let mut url = http::address(base)?;
    let path = format!("{}/chat/completions", url.path().trim_end_matches('/'));
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
        let options = |base: &str, key: &str| OpenAiOptions {
            key: Some(Secret::new(key)),
            ..OpenAiOptions::new(base)
        };
        let error = OpenAi::new(options("http://host/v1", "sk-0123456789\n")).unwrap_err();
        assert_eq!(error, SetupError::Key);
        assert!(!error.to_string().contains("sk-"), "{error}");
        let made = OpenAi::new(options("http://host/v1", "sk-0123456789")).unwrap();
        assert!(!format!("{made:?}").contains("sk-"), "{made:?}");
        OpenAi::new(options("https://host/v1", "sk-0123456789")).unwrap();
        // Symptom: an embedder's own choice of cryptography was refused. Cause: setting up an https provider chose it
        // for the whole process. Fix: the client gets a configuration of its own.
        assert!(rustls::crypto::CryptoProvider::get_default().is_none());
    }
}
