//! The live window of a thread, as its head counts it: what the next request to its model has, in
//! tokens as the provider counts them, in estimated tokens, and in bytes.

use super::Head;
use crate::estimate::{TokenScale, estimate_tokens};

/// Bytes that a token is taken for where a head of an earlier program has counted tokens alone.
const BYTES_OF_TOKEN: u64 = 4;

impl Head {
    /// The scale of estimates, as this thread's provider counts.
    pub fn token_scale(&self) -> TokenScale {
        TokenScale {
            counted: self.context,
            estimated: self.estimated,
        }
    }

    /// Adds a text to the window. `counted` says that the provider's count has it already.
    pub fn add_to_window(&mut self, text: &str, counted: bool) {
        self.fill_in_counts();
        let estimate = estimate_tokens(text);
        if !counted {
            let scaled = self.token_scale().apply(estimate);
            self.context = self.context.saturating_add(scaled);
        }
        self.estimated = self.estimated.saturating_add(estimate);
        self.window_bytes = self.window_bytes.saturating_add(text.len() as u64);
    }

    /// Takes over the provider's count of the window.
    pub fn anchor_context(&mut self, tokens: u64) {
        self.fill_in_counts();
        self.context = tokens;
    }

    /// Fills in the counts that a head of an earlier program does not have, from its tokens.
    fn fill_in_counts(&mut self) {
        if self.estimated == 0 {
            self.estimated = self.context;
        }
        if self.window_bytes == 0 {
            self.window_bytes = self.context.saturating_mul(BYTES_OF_TOKEN);
        }
    }
}
