//! Estimates the tokens of a text that no provider has counted yet: by script, in quarters of a
//! token.

use crate::json;

/// Most bytes of a text that one estimated token stands for: two characters of three bytes. No
/// tokenizer makes more than one token of a byte.
pub const TOKEN_BYTES_MAX: u64 = 6;

/// Estimated tokens of an image, whatever its size: the bytes say little of its width and height.
/// Anthropic counts width times height over 750, at most about 1,600 for most models and 4,000 for
/// the newest; OpenAI's tiles come to at most 1,445, and to 25,501 for `gpt-4o-mini`, which is
/// still within [`TOKEN_BYTES_MAX`] times twice this, what is believed of a call. The provider's
/// own count corrects the estimate with the first reply.
pub const IMAGE_TOKENS: u64 = 2_200;

/// Estimates the tokens of a text, rounded up. Four ASCII characters, two characters of other
/// alphabets, or one of anything else (CJK, emoji) make a token.
pub fn estimate_tokens(text: &str) -> u64 {
    let (mut rest, mut quarters) = (text.as_bytes(), 0_u64);
    while !rest.is_empty() {
        let (ascii, others) = rest.split_at(json::count_ascii_bytes(rest));
        let others = others.iter().take_while(|byte| !byte.is_ascii());
        rest = &rest[ascii.len() + others.clone().count()..];
        let counted = others.map(|byte| quarter_tokens(*byte)).sum::<u64>();
        quarters += ascii.len() as u64 + counted;
    }
    quarters.div_ceil(4)
}

/// Returns the longest beginning of a text that is estimated to have at most `tokens` tokens.
pub fn cut_to_tokens(text: &str, tokens: u64) -> &str {
    let most = tokens.saturating_mul(4);
    let mut quarters = 0_u64;
    for (at, byte) in text.bytes().enumerate() {
        quarters += quarter_tokens(byte);
        if quarters > most {
            return &text[..at];
        }
    }
    text
}

/// Returns the quarters of a token that a character counts, by its first byte in UTF-8. The bytes
/// after the first count nothing.
fn quarter_tokens(byte: u8) -> u64 {
    match byte {
        0..=0x7f => 1,
        0x80..=0xbf => 0,
        // Characters up to U+1FFF.
        0xc0..=0xe1 => 2,
        0xe2..=0xff => 4,
    }
}

/// Ratio of a provider's count of a conversation to the estimate of the same text. Estimates of
/// more text are scaled by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenScale {
    /// Tokens as the provider counts them; 0 where it has not counted yet.
    pub counted: u64,
    /// Estimated tokens of the same text.
    pub estimated: u64,
}

impl TokenScale {
    /// Most by which an estimate is scaled up. More is no matter of the tokenizer: the provider
    /// counts something that is not in the conversation.
    pub const FACTOR_MAX: u64 = 4;
    /// Most by which an estimate is divided.
    pub const DIVISOR_MAX: u64 = 2;

    /// Scales an estimate, rounded up.
    pub fn apply(self, estimate: u64) -> u64 {
        if self.counted == 0 || self.estimated == 0 {
            return estimate;
        }
        let wide = u128::from(estimate) * u128::from(self.counted);
        let scaled = wide.div_ceil(u128::from(self.estimated));
        let least = estimate.div_ceil(Self::DIVISOR_MAX);
        let most = estimate.saturating_mul(Self::FACTOR_MAX);
        u64::try_from(scaled).unwrap_or(u64::MAX).clamp(least, most)
    }

    /// Returns the largest estimate that is scaled to at most so many tokens, or a little less.
    pub fn revert(self, tokens: u64) -> u64 {
        if self.counted == 0 || self.estimated == 0 {
            return tokens;
        }
        let wide = u128::from(tokens) * u128::from(self.estimated);
        let estimate = wide / u128::from(self.counted);
        let least = tokens / Self::FACTOR_MAX;
        let most = tokens.saturating_mul(Self::DIVISOR_MAX);
        u64::try_from(estimate)
            .unwrap_or(u64::MAX)
            .clamp(least, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text of one script and of several is counted byte by byte, however long its parts are.
    #[test]
    fn each_character_counts_by_its_script() {
        let parts = [
            "",
            "a",
            "plain words of one line",
            "é",
            "мир",
            "\u{1fff}",
            "漢字",
            "😀",
        ];
        for (one, two) in parts.iter().flat_map(|one| parts.map(|two| (*one, two))) {
            for times in [1, 7, 40] {
                let text = [one.repeat(times), two.to_owned(), one.to_owned()].concat();
                let quarters = text.bytes().map(quarter_tokens).sum::<u64>();
                assert_eq!(estimate_tokens(&text), quarters.div_ceil(4), "{text}");
            }
        }
        assert_eq!(estimate_tokens("four"), 1);
        assert_eq!(estimate_tokens("мир"), 2);
        assert_eq!(estimate_tokens("漢字😀"), 3);
    }

    #[test]
    fn reverted_estimates_are_scaled_to_no_more() {
        for (counted, estimated) in [(0, 0), (0, 7), (7, 7), (9, 7), (7, 9), (900, 1), (1, 900)] {
            let scale = TokenScale { counted, estimated };
            for tokens in [0, 1, 2, 7, 100, 12_345, u64::MAX] {
                let estimate = scale.revert(tokens);
                assert!(scale.apply(estimate) <= tokens, "{scale:?} {tokens}");
                assert!(estimate >= tokens / 4, "{scale:?} {tokens}: {estimate}");
            }
        }
    }

    #[test]
    fn estimates_are_scaled_within_bounds() {
        let most = u64::MAX;
        for (counted, estimated, estimate, expected) in [
            (0, 0, 7, 7),
            (0, 9, 7, 7),
            (9, 0, 7, 7),
            (10, 10, 7, 7),
            (15, 10, 7, 11),
            (10, 15, 7, 5),
            (100, 10, 7, 28),
            (10, 100, 7, 4),
            (10, 7, 0, 0),
            (most, most, most, most),
            (most, 1, most, most),
        ] {
            let scale = TokenScale { counted, estimated };
            assert_eq!(scale.apply(estimate), expected, "{scale:?} {estimate}");
        }
    }

    #[test]
    fn counts_by_script() {
        for (text, expected) in [
            ("", 0),
            ("abc", 1),
            ("abcdefgh", 2),
            ("привет", 3),
            ("漢字", 2),
            ("🙂", 1),
            ("\u{80}\u{7ff}\u{800}\u{1fff}", 2),
            ("\u{2000}\u{ffff}\u{10000}\u{10ffff}", 4),
            ("eight by eight, then Привет", 9),
        ] {
            assert_eq!(estimate_tokens(text), expected, "{text:?}");
            assert!(text.len() as u64 <= TOKEN_BYTES_MAX * expected, "{text:?}");
            assert_eq!(cut_to_tokens(text, expected), text);
            for tokens in 0..expected {
                let cut = cut_to_tokens(text, tokens);
                let longer = text[cut.len()..].chars().next().expect("it is cut");
                assert!(estimate_tokens(cut) <= tokens, "{text:?} to {tokens}");
                assert!(
                    estimate_tokens(&format!("{cut}{longer}")) > tokens,
                    "{text:?}"
                );
            }
        }
    }
}
