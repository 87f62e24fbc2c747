//! Estimates the tokens of a text that no provider has counted yet: by script, in quarters of a
//! token.

/// Most bytes of a text that one estimated token stands for: two characters of three bytes. No
/// tokenizer makes more than one token of a byte.
pub const TOKEN_BYTES_MAX: u64 = 6;

/// Estimates the tokens of a text, rounded up. Four ASCII characters, two characters of other
/// alphabets, or one of anything else (CJK, emoji) make a token.
pub fn estimate_tokens(text: &str) -> u64 {
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    let quarters = |bytes: &[u8]| bytes.iter().map(|byte| quarter_tokens(*byte)).sum::<u64>();
    let whole = words.iter().map(|word| match word.is_ascii() {
        true => 8,
        false => quarters(word),
    });
    (whole.sum::<u64>() + quarters(rest)).div_ceil(4)
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

#[cfg(test)]
mod tests {
    use super::*;

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
