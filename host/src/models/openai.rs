//! OpenAI-compatible chat completions over HTTP (OpenAI, Ollama, vLLM, llama.cpp, OpenRouter and
//! others).
//!
//! One call of [`ModelProvider::complete`](super::ModelProvider::complete) is one `POST
//! {base_url}/chat/completions` with `stream: true`, as
//! [`threadkeep_adapters::models::openai`] makes and reads it.

use super::http::{ProviderEndpoint, WireAdapter};
use super::{ProviderOptions, SetupError};
use threadkeep_adapters::models::openai::OpenAiWire;

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
        let endpoint = ProviderEndpoint::new::<OpenAiWire>(options)?;
        Ok(Self { endpoint })
    }
}

impl WireAdapter for OpenAiProvider {
    type SpokenWire = OpenAiWire;

    fn endpoint(&self) -> &ProviderEndpoint {
        &self.endpoint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::SecretText;

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
