//! Characters that change what a reader sees and show nothing themselves.
//!
//! Records keep every text as it was given, so hashes and what a provider is sent stay the same.
//! Documents and output escape these characters: no text in them can move a cursor, reverse what
//! stands around it or hide a part of a name. This is the one list; no other place has its own.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns true for control characters (C0, DEL, C1), ends of lines and paragraphs, marks,
/// embeddings, overrides and isolates of a writing direction, and what has no width.
///
/// U+200C, U+200D, variation selectors and tags are none of them: scripts and emoji are written
/// with them.
pub fn is_hidden_control(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
        )
}

/// Appends the number of a character as Rust writes it: `\u{202e}`.
pub fn push_visible(out: &mut String, c: char) {
    // Writing to a String cannot fail.
    let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
}

/// Escapes the hidden controls that stand unescaped in a JSON text: the same value, written
/// visibly. Below U+007F there are none in a string, and outside of strings they are the white
/// space of JSON.
pub fn escape_json(json: &str) -> Cow<'_, str> {
    let hidden = |c: char| c >= '\u{7f}' && is_hidden_control(c);
    if !json.contains(hidden) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match hidden(c) {
            // All of them have four digits. Writing to a String cannot fail.
            true => drop(write!(escaped, "\\u{:04x}", u32::from(c))),
            false => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every character of the Basic Multilingual Plane and beyond in one string.
    fn every() -> String {
        (0..0x11_0000).filter_map(char::from_u32).collect()
    }

    #[test]
    fn what_scripts_and_emoji_need_is_no_hidden_control() {
        for c in "aä漢ע\u{200c}\u{200d}\u{fe0f}\u{301}🙂\u{e0067} \u{a0}\u{ad}".chars() {
            assert!(!is_hidden_control(c), "{c:?}");
        }
        for c in "\0\t\n\r\x1b\x7f\u{80}\u{85}\u{9b}\u{9f}\u{61c}\u{200b}\u{200e}\u{200f}\
                  \u{2028}\u{2029}\u{202a}\u{202e}\u{2060}\u{2066}\u{2069}\u{feff}"
            .chars()
        {
            assert!(is_hidden_control(c), "{c:?}");
        }
    }

    #[test]
    fn escaped_json_has_the_same_value_and_hides_nothing() {
        let text = every();
        let compact = serde_json::to_string(&text).unwrap();
        let list = serde_json::to_string_pretty(&[&text]).unwrap();
        let value = |json: &str| serde_json::from_str::<serde_json::Value>(json).unwrap();
        for written in [compact, list] {
            let escaped = escape_json(&written);
            assert_eq!(value(&escaped), value(&written));
            let raw: Vec<char> = escaped.chars().filter(|c| is_hidden_control(*c)).collect();
            assert!(raw.iter().all(|c| *c == '\n'), "{raw:?}");
        }
        assert_eq!(
            escape_json("\"\u{7f}\u{9b}\u{202e}\""),
            r#""\u007f\u009b\u202e""#
        );
        assert!(matches!(escape_json("\"漢🙂\u{200d}\""), Cow::Borrowed(_)));
    }

    #[test]
    fn a_hidden_control_is_shown_by_its_number() {
        let mut out = String::new();
        push_visible(&mut out, '\u{202e}');
        push_visible(&mut out, '\x1b');
        assert_eq!(out, "\\u{202e}\\u{1b}");
    }
}
