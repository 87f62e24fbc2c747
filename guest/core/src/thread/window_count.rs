//! The live window of a thread, as its head counts it: what the next request to its model has, in
//! tokens as the provider counts them, in estimated tokens, and in bytes.

use super::Head;
use crate::estimate::{IMAGE_TOKENS, TokenScale, estimate_tokens};
use crate::history::ProviderText;

/// Bytes that a token is taken for where a head of an earlier program has counted tokens alone.
const BYTES_OF_TOKEN: u64 = 4;

/// The counts of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowCount {
    /// Tokens, as the provider counts them.
    pub tokens: u64,
    /// Estimated tokens.
    pub estimated: u64,
    /// Bytes of the texts.
    pub bytes: u64,
}

impl WindowCount {
    /// The scale of estimates, as the provider counts.
    pub fn token_scale(self) -> TokenScale {
        TokenScale {
            counted: self.tokens,
            estimated: self.estimated,
        }
    }

    /// Adds a text. `counted` says that the provider's count has it already.
    pub fn add_text(&mut self, text: &str, counted: bool) {
        self.add(text, 0, counted);
    }

    /// Adds a message. `counted` says that the provider's count has it already.
    pub fn add_message(&mut self, message: &ProviderText, counted: bool) {
        self.add(&message.json, message.images, counted);
    }

    fn add(&mut self, text: &str, images: u64, counted: bool) {
        let estimate = estimate_tokens(text).saturating_add(images.saturating_mul(IMAGE_TOKENS));
        if !counted {
            let scaled = self.token_scale().apply(estimate);
            self.tokens = self.tokens.saturating_add(scaled);
        }
        self.estimated = self.estimated.saturating_add(estimate);
        self.bytes = self.bytes.saturating_add(text.len() as u64);
    }
}

impl Head {
    /// The scale of estimates, as this thread's provider counts.
    pub fn token_scale(&self) -> TokenScale {
        self.window_count().token_scale()
    }

    /// Adds a text to the window. `counted` says that the provider's count has it already.
    pub fn add_to_window(&mut self, text: &str, counted: bool) {
        let mut count = self.window_count();
        count.add_text(text, counted);
        self.set_window_count(count);
    }

    /// Adds a message to the window. `counted` says that the provider's count has it already.
    pub fn add_message_to_window(&mut self, message: &ProviderText, counted: bool) {
        let mut count = self.window_count();
        count.add_message(message, counted);
        self.set_window_count(count);
    }

    /// Takes over the provider's count of the window.
    pub fn anchor_context(&mut self, tokens: u64) {
        let count = self.window_count();
        self.set_window_count(WindowCount { tokens, ..count });
    }

    /// Replaces the counts of the window.
    pub fn set_window_count(&mut self, count: WindowCount) {
        self.context = count.tokens;
        self.estimated = count.estimated;
        self.window_bytes = count.bytes;
    }

    /// Returns the counts of the window. Those that a head of an earlier program does not have are
    /// made from its tokens.
    fn window_count(&self) -> WindowCount {
        let tokens = self.context;
        let or_else = |count: u64, other: u64| if count == 0 { other } else { count };
        WindowCount {
            tokens,
            estimated: or_else(self.estimated, tokens),
            bytes: or_else(self.window_bytes, tokens.saturating_mul(BYTES_OF_TOKEN)),
        }
    }
}
