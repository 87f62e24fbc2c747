//! Tokens of a text that no provider has counted yet: by script, in quarters of a token.

/// An estimate, rounded up: four ASCII characters, two of other alphabets, or one of anything else (CJK, emoji) make a
/// token.
pub fn tokens(text: &str) -> u64 {
    let quarters: u64 = text
        .chars()
        .map(|c| match c as u32 {
            0..=0x7f => 1,
            0x80..=0x1fff => 2,
            _ => 4,
        })
        .sum();
    quarters.div_ceil(4)
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
        ] {
            assert_eq!(tokens(text), expected, "{text:?}");
        }
    }
}
