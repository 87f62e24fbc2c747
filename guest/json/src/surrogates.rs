//! Escapes of lone surrogates. Writers of JSON in other languages write half of a character where
//! a text was cut in its middle; such an escape names no character, and no parser of Rust takes it.

use super::scan::find_backslash;
use std::borrow::Cow;

/// The escape of U+FFFD, which stands for what cannot be told.
const REPLACEMENT: &str = "\\ufffd";

/// Length of an escape: `\u` and four digits.
const ESCAPE_BYTES: usize = 6;

/// Returns a JSON text in which each escape of a lone surrogate is one of U+FFFD.
pub fn mend_surrogates(text: &str) -> Cow<'_, str> {
    if !has_surrogate_escape(text.as_bytes()) {
        return Cow::Borrowed(text);
    }
    let mut mended = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.find('\\') {
        let (before, escape) = rest.split_at(place);
        mended.push_str(before);
        let bytes = match (escaped_unit(escape), escape.get(ESCAPE_BYTES..)) {
            (Some(0xd800..=0xdbff), Some(after)) => match escaped_unit(after) {
                Some(0xdc00..=0xdfff) => 2 * ESCAPE_BYTES,
                _ => 0,
            },
            (Some(0xdc00..=0xdfff), _) => 0,
            (Some(_), _) => ESCAPE_BYTES,
            // The backslash and the character behind it: `\\u` begins no escape of a unit.
            (None, _) => 1 + escape[1..].chars().next().map_or(0, char::len_utf8),
        };
        let kept = if bytes == 0 {
            REPLACEMENT
        } else {
            &escape[..bytes]
        };
        mended.push_str(kept);
        rest = &escape[bytes.max(kept.len())..];
    }
    mended.push_str(rest);
    Cow::Owned(mended)
}

/// Returns true if the text may hold the escape of a surrogate.
fn has_surrogate_escape(mut rest: &[u8]) -> bool {
    while let Some(place) = find_backslash(rest) {
        if let [_, b'u', b'd' | b'D', ..] = rest[place..] {
            return true;
        }
        rest = &rest[place + 1..];
    }
    false
}

/// Returns the UTF-16 unit of the escape `\uXXXX` that a text begins with.
fn escaped_unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u16::from_str_radix(digits, 16).ok().filter(|_| hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_are_replaced_and_nothing_else_is() {
        for (text, expected) in [
            ("\"plain\"", "\"plain\""),
            (r#""\ud83d\ude42""#, r#""\ud83d\ude42""#),
            (r#""\uD83D\uDE42""#, r#""\uD83D\uDE42""#),
            (r#""a\ud83d""#, r#""a\ufffd""#),
            (r#""\ud83dx""#, r#""\ufffdx""#),
            (r#""\ude42\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\ud83d\ud83d\ude42""#, r#""\ufffd\ud83d\ude42""#),
            (r#""\ud83d\n""#, r#""\ufffd\n""#),
            (r#""\\ud83d""#, r#""\\ud83d""#),
            (r#""\\\ud83d""#, r#""\\\ufffd""#),
            (r#""\u00e9\ud83d é""#, r#""\u00e9\ufffd é""#),
            (r#""\ud83"#, r#""\ud83"#),
            (r#""\ud83d\"#, r#""\ufffd\"#),
            ("\"\\ud83é\"", "\"\\ud83é\""),
        ] {
            assert_eq!(mend_surrogates(text), expected, "{text}");
        }
    }
}
