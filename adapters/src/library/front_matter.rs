//! Front matter: YAML between two lines of `---` at the top of a Markdown file, and the body after
//! it.
//!
//! The body is exact: every byte after the newline of the closing line, line ends unchanged. The
//! guest decides what the fields mean.

use super::yaml::{self, YamlError};
use serde_json::{Map, Value};

/// The line that opens and closes front matter.
const FENCE: &str = "---";

/// A Markdown file, split into front matter and body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkdownFile {
    /// The front matter; empty if there is none.
    pub front: Map<String, Value>,
    /// Everything after the front matter.
    pub body: String,
}

/// An error in the front matter or encoding of a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "each variant's doc and message say what its fields are"
)]
#[non_exhaustive]
pub enum FrontError {
    /// A byte that is not UTF-8, at this offset from the start of the file.
    #[error("byte {offset} is not UTF-8; save the file as UTF-8")]
    NotUtf8 { offset: usize, line: usize },
    /// The first line opens front matter and no line closes it.
    #[error(
        "the front matter that the first line opens is never closed; add a line of --- after it"
    )]
    NotClosed,
    /// The front matter is not a mapping.
    #[error("the front matter must be keys with values, such as \"model: fast\", and not {found}")]
    NotMapping { found: &'static str },
    /// The front matter is not valid YAML, or uses YAML that is not accepted.
    #[error(transparent)]
    Yaml(#[from] YamlError),
}

impl FrontError {
    /// Returns the line of the file that has the error.
    pub fn line(&self) -> usize {
        match self {
            Self::NotUtf8 { line, .. } => *line,
            Self::NotClosed => 1,
            Self::NotMapping { .. } => 2,
            Self::Yaml(error) => error.line,
        }
    }

    /// Returns the problem without the line.
    pub fn problem(&self) -> String {
        match self {
            Self::Yaml(error) => format!("column {}: {}", error.column, error.problem),
            Self::NotUtf8 { .. } | Self::NotClosed | Self::NotMapping { .. } => self.to_string(),
        }
    }
}

/// Splits a file into front matter and body. A byte order mark at the start is dropped: editors
/// write it unasked, it belongs to the encoding and not to the text, and it would hide the opening
/// line.
pub fn parse(bytes: &[u8]) -> Result<MarkdownFile, FrontError> {
    let text = decode_utf8(bytes)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let Some(inside) = after_opening(text) else {
        return Ok(MarkdownFile {
            front: Map::new(),
            body: text.to_owned(),
        });
    };
    let (yaml, body) = split_at_closing(inside).ok_or(FrontError::NotClosed)?;
    let front = match yaml::parse(yaml, 2)? {
        Value::Null => Map::new(),
        Value::Object(front) => front,
        other => {
            return Err(FrontError::NotMapping {
                found: value_noun(&other),
            });
        }
    };
    Ok(MarkdownFile {
        front,
        body: body.to_owned(),
    })
}

/// Returns the text, or an error with the first byte that is not UTF-8.
pub fn decode_utf8(bytes: &[u8]) -> Result<&str, FrontError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let offset = error.valid_up_to();
        let line = bytes[..offset]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
            + 1;
        FrontError::NotUtf8 { offset, line }
    })
}

/// Returns the noun for a value in an error.
pub(crate) fn value_noun(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

/// Returns the text after the opening line; `None` if the first line does not open front matter.
fn after_opening(text: &str) -> Option<&str> {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    is_fence(first).then_some(rest)
}

/// Splits the text at the first closing line; returns the parts before and after it.
fn split_at_closing(inside: &str) -> Option<(&str, &str)> {
    let mut start = 0;
    for line in inside.split_inclusive('\n') {
        if is_fence(line) {
            return Some((&inside[..start], &inside[start + line.len()..]));
        }
        start += line.len();
    }
    None
}

fn is_fence(line: &str) -> bool {
    line.strip_prefix(FENCE)
        .is_some_and(|rest| rest.chars().all(|c| matches!(c, ' ' | '\t' | '\r' | '\n')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents() {
        let table: &[(&str, &str, &str)] = &[
            ("", "{}", ""),
            ("body", "{}", "body"),
            ("---\n---\n", "{}", ""),
            ("---\n---", "{}", ""),
            (
                "---\nmodel: fast\n---\nbody\n",
                r#"{"model":"fast"}"#,
                "body\n",
            ),
            (
                "---\r\nmodel: fast\r\n---\r\nbody\r\n",
                r#"{"model":"fast"}"#,
                "body\r\n",
            ),
            (
                "\u{feff}---\nmodel: fast\n---\nbody",
                r#"{"model":"fast"}"#,
                "body",
            ),
            ("\u{feff}body", "{}", "body"),
            (
                "--- \nspend: 0.10\n---\t\n\n\nbody  ",
                r#"{"spend":0.10}"#,
                "\n\nbody  ",
            ),
            ("---\n# only a comment\n---\nbody", "{}", "body"),
            ("---\na: 1\n---\nb\n---\nc\n", r#"{"a":1}"#, "b\n---\nc\n"),
            ("---\na: |\n  ---\n  x\n---\nb", r#"{"a":"---\nx\n"}"#, "b"),
            ("\n---\na: 1\n---\n", "{}", "\n---\na: 1\n---\n"),
            ("----\na: 1\n---\n", "{}", "----\na: 1\n---\n"),
            (" ---\na: 1\n---\n", "{}", " ---\na: 1\n---\n"),
            ("--- a\n", "{}", "--- a\n"),
            ("# Title\n\n---\n", "{}", "# Title\n\n---\n"),
        ];
        for (text, front, body) in table {
            let document =
                parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text:?}: {error}"));
            assert_eq!(
                Value::Object(document.front).to_string(),
                *front,
                "{text:?}"
            );
            assert_eq!(document.body, *body, "{text:?}");
        }
    }

    #[test]
    fn refusals() {
        let table: &[(&[u8], usize, &str)] = &[
            (b"---", 1, "never closed"),
            (b"---\n", 1, "never closed"),
            (b"---\na: 1\n", 1, "never closed"),
            (b"---\na: 1\n ---\n", 1, "never closed"),
            (b"---\na: 1\n----\n", 1, "never closed"),
            (b"---\na: 1\n...\nbody", 1, "never closed"),
            (b"---\n- a\n---\n", 2, "not a list"),
            (b"---\ntext\n---\n", 2, "not text"),
            (b"---\n5\n---\n", 2, "not a number"),
            (b"---\na: 1\nb: *x\n---\n", 3, "column 4"),
            (
                b"---\na: 1\na: 2\n---\n",
                3,
                "stands twice, first in line 2",
            ),
            (b"---\na: \xff\n---\n", 2, "byte 7 is not UTF-8"),
            (b"ok\n\xc3", 2, "byte 3 is not UTF-8"),
            (b"\xff\xfe-\0-\0", 1, "byte 0 is not UTF-8"),
        ];
        for (bytes, line, word) in table {
            let error = parse(bytes).expect_err("refused");
            assert_eq!(error.line(), *line, "{bytes:?}: {error}");
            assert!(
                error.problem().contains(word),
                "{bytes:?}: {}",
                error.problem()
            );
        }
    }
}
