//! Sizes of messages: tokens by the estimate, and bytes.

use crate::estimate::{IMAGE_TOKENS, estimate_tokens};
use crate::history::ProviderText;

/// Size of messages as JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContentSize {
    /// Estimated tokens.
    pub tokens: u64,
    /// Bytes.
    pub bytes: u64,
}

impl ContentSize {
    /// Measures a text.
    pub fn of(text: &str) -> Self {
        Self {
            tokens: estimate_tokens(text),
            bytes: text.len() as u64,
        }
    }

    /// Measures a message, with its images.
    pub fn of_message(message: &ProviderText) -> Self {
        let text = Self::of(&message.json);
        let images = message.images.saturating_mul(IMAGE_TOKENS);
        Self {
            tokens: text.tokens.saturating_add(images),
            ..text
        }
    }

    /// Returns the sum of both sizes.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// Returns what is left of this size beside another.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(other.tokens),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// Returns true if neither its tokens nor its bytes are above those of `most`.
    pub fn fits(self, most: Self) -> bool {
        self.tokens <= most.tokens && self.bytes <= most.bytes
    }
}
