//! Makes text of models, tools and files safe for a terminal: characters that a terminal would obey
//! become visible.
//!
//! Line feeds, tabs and plain characters are kept. Escape, the other control characters of C0 and
//! C1, the characters that reorder the text around them and those without a width are written as
//! their number, so that no text can move the cursor, set a title, fill a clipboard or pass for
//! another. The core defines these characters, for documents too. Each character is judged alone: a
//! text that comes in pieces is as safe as a whole one.

use std::borrow::Cow;
use threadkeep_units::printable::{is_hidden_control, push_visible};

/// Makes a text safe for a terminal. Drops carriage returns: alone they would overwrite a line.
pub fn text(text: &str) -> Cow<'_, str> {
    escape_controls(text, |c| matches!(c, '\n' | '\t'))
}

/// Makes a text safe and puts it on one line, for cells, names and messages.
pub fn line(text: &str) -> Cow<'_, str> {
    escape_controls(text, |_| false)
}

fn escape_controls(text: &str, kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let bad = |c: char| is_hidden_control(c) && !kept(c);
    if !text.contains(bad) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\r' => {}
            c if !bad(c) => safe.push(c),
            '\n' | '\t' => safe.push(' '),
            c => push_visible(&mut safe, c),
        }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_controls_are_made_visible() {
        for (given, expected) in [
            ("plain\n\ttext", "plain\n\ttext"),
            ("漢🙂 é e\u{301} \u{200d}", "漢🙂 é e\u{301} \u{200d}"),
            ("\x1b[2J", "\\u{1b}[2J"),
            ("\x1b]0;title\x07", "\\u{1b}]0;title\\u{7}"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("\x7f\x08", "\\u{7f}\\u{8}"),
            ("a\r\nb", "a\nb"),
            ("safe\revil", "safeevil"),
            ("\u{202e}txt", "\\u{202e}txt"),
            // Symptom: a direction mark alone reversed a line. Fix: direction marks are escaped
            // too.
            ("a\u{200f}b\u{200e}\u{61c}", "a\\u{200f}b\\u{200e}\\u{61c}"),
            ("in\u{200b}visible\u{feff}", "in\\u{200b}visible\\u{feff}"),
            ("a\u{2028}b", "a\\u{2028}b"),
            ("\0", "\\u{0}"),
        ] {
            assert_eq!(text(given), expected, "{given:?}");
        }
    }

    #[test]
    fn a_line_is_one_line() {
        assert_eq!(line("a\nb\tc\r\n"), "a b c ");
        assert!(matches!(line("a b"), Cow::Borrowed(_)));
    }

    #[test]
    fn pieces_are_as_safe_as_the_whole() {
        let given = "a\x1b[31mred\u{9b}0m\r\nb";
        let pieces: String = given
            .chars()
            .map(|c| text(&c.to_string()).into_owned())
            .collect();
        assert_eq!(pieces, text(given));
    }

    #[test]
    fn no_control_character_passes() {
        let every: String = (0..0x11_0000).filter_map(char::from_u32).collect();
        let safe = text(&every);
        assert!(
            safe.chars()
                .all(|c| matches!(c, '\n' | '\t') || !is_hidden_control(c))
        );
    }
}
