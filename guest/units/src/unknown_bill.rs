//! The charge for a model call whose usage is never reported: its connection broke, or the process
//! that made it died.

/// Output tokens a second of a model whose entry names no rate: no common model is faster.
pub const TOKENS_PER_SECOND: u64 = 200;

/// The operator's rule for such a charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownBill {
    /// The call is charged its input, and as output the tokens that arrived or that its time
    /// allowed, whichever are more.
    #[default]
    Estimate,
    /// The call is charged the most that it can have cost.
    Full,
}

impl UnknownBill {
    /// The words of a policy.
    pub const WORDS: [&str; 2] = ["estimate", "full"];

    /// Returns the word of a policy.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Estimate => "estimate",
            Self::Full => "full",
        }
    }

    /// Reads a word of [`UnknownBill::WORDS`]; `None` for any other.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Estimate, Self::Full]
            .into_iter()
            .find(|bill| bill.as_str() == word)
    }
}

/// Returns the output tokens that a model of this rate (tokens a second) can have written in this
/// time, rounded up.
pub fn output_tokens_in(rate: u64, millis: u64) -> u64 {
    rate.saturating_mul(millis).div_ceil(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_read_as_it_is_written() {
        for word in UnknownBill::WORDS {
            assert_eq!(
                UnknownBill::from_word(word).map(UnknownBill::as_str),
                Some(word)
            );
        }
        assert_eq!(UnknownBill::from_word("Full"), None);
    }

    #[test]
    fn tokens_round_up_and_never_wrap() {
        for (rate, millis, tokens) in [
            (200, 0, 0),
            (200, 1, 1),
            (200, 1_500, 300),
            (u64::MAX, u64::MAX, u64::MAX.div_ceil(1_000)),
        ] {
            assert_eq!(output_tokens_in(rate, millis), tokens, "{rate} {millis}");
        }
    }
}
