//! Anthropic's messages over HTTP, and servers that speak the same.
//!
//! One call of [`ModelProvider::complete`](super::ModelProvider::complete) is one `POST
//! {base_url}/v1/messages` with `stream: true`, as
//! [`threadkeep_adapters::models::anthropic`] makes and reads it.

use super::http::{ProviderEndpoint, WireAdapter};
use super::{ProviderOptions, SetupError};
use threadkeep_adapters::models::anthropic::AnthropicWire;

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
        let endpoint = ProviderEndpoint::new::<AnthropicWire>(options)?;
        Ok(Self { endpoint })
    }
}

impl WireAdapter for AnthropicProvider {
    type SpokenWire = AnthropicWire;

    fn endpoint(&self) -> &ProviderEndpoint {
        &self.endpoint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::SecretText;

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
