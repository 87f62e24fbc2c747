//! Writes a tree as text: as short as JSON can be, or indented for people.

use super::number::write_u64;
use super::scan::count_plain_bytes;
use super::{JsonObject, JsonValue};
use std::fmt;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

impl fmt::Display for JsonValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        self.write(&mut out, None);
        f.write_str(&out)
    }
}

impl JsonValue<'_> {
    /// Returns the text with two spaces of indentation for each level.
    pub fn to_text_pretty(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, Some(0));
        out
    }

    /// Appends the text; `level` is its indentation level, or `None` for the short form.
    pub(super) fn write(&self, out: &mut String, level: Option<usize>) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(flag) => write_bool(out, *flag),
            Self::Number(number) => number.write(out),
            Self::String(text) => write_text(out, text),
            Self::Array(items) if items.is_empty() => out.push_str("[]"),
            Self::Array(items) => {
                let mut before = '[';
                for item in items {
                    out.push(before);
                    before = ',';
                    write_line_break(out, level.map(|level| level + 1));
                    item.write(out, level.map(|level| level + 1));
                }
                write_line_break(out, level);
                out.push(']');
            }
            Self::Object(map) => map.write(out, level),
        }
    }
}

impl JsonObject<'_> {
    fn write(&self, out: &mut String, level: Option<usize>) {
        if self.is_empty() {
            return out.push_str("{}");
        }
        let mut before = '{';
        for (name, value) in self.iter() {
            out.push(before);
            before = ',';
            write_line_break(out, level.map(|level| level + 1));
            write_text(out, name);
            out.push_str(if level.is_some() { ": " } else { ":" });
            value.write(out, level.map(|level| level + 1));
        }
        write_line_break(out, level);
        out.push('}');
    }
}

/// Appends a line break and the indentation, if the text is indented.
fn write_line_break(out: &mut String, level: Option<usize>) {
    if let Some(level) = level {
        out.push('\n');
        for _ in 0..level {
            out.push_str("  ");
        }
    }
}

pub(super) fn write_bool(out: &mut String, flag: bool) {
    out.push_str(if flag { "true" } else { "false" });
}

pub(super) fn write_i64(out: &mut String, whole: i64) {
    if whole < 0 {
        out.push('-');
    }
    write_u64(out, whole.unsigned_abs());
}

/// Appends a string. It escapes only the characters that JSON demands, each in its shortest form.
pub(super) fn write_text(out: &mut String, text: &str) {
    // Nearly every text is written without escapes.
    out.reserve(text.len() + 2);
    out.push('"');
    let mut rest = text;
    loop {
        let plain = count_plain_bytes(rest.as_bytes());
        out.push_str(&rest[..plain]);
        let Some(byte) = rest.as_bytes().get(plain) else {
            break;
        };
        write_escape(out, *byte);
        // Only ASCII is escaped, so this is a character boundary.
        rest = &rest[plain + 1..];
    }
    out.push('"');
}

fn write_escape(out: &mut String, byte: u8) {
    out.push('\\');
    match byte {
        b'"' | b'\\' => out.push(char::from(byte)),
        0x08 => out.push('b'),
        0x0c => out.push('f'),
        b'\n' => out.push('n'),
        b'\r' => out.push('r'),
        b'\t' => out.push('t'),
        _ => {
            out.push_str("u00");
            out.push(char::from(DIGITS[usize::from(byte >> 4)]));
            out.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
}
