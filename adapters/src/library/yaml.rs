//! Exact conversion of YAML text to a JSON value.
//!
//! Scalars follow the core schema of YAML 1.2: `no`, `on` and `1_000` are text, and a number keeps
//! the digits it was written with. Anchors, aliases, tags, a second document, duplicate keys and
//! numbers with two readings are refused: they would make a small file large or a clear file
//! ambiguous. The meaning of the keys is decided elsewhere.

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};
use serde_json::{Map, Number, Value};
use std::collections::HashMap;

/// Largest text. Settings and front matter are a few kilobytes; parsing this much takes
/// milliseconds.
pub const TEXT_BYTES_MAX: usize = 256 << 10;

/// Deepest nesting, so that no code that recurses over a value can overflow a stack. Real files use
/// six.
pub const DEPTH_MAX: usize = 32;

/// Most values and keys in one text, so that many tiny nodes cannot cost a hundred times their size
/// in memory.
pub const NODES_MAX: usize = 16_384;

/// Longest number. Money and token counts need twenty digits.
pub const NUMBER_BYTES_MAX: usize = 64;

/// Longest key, the limit that YAML itself sets for a key without a question mark.
pub const KEY_BYTES_MAX: usize = 1_024;

/// An error in a YAML text. Line and column begin at 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct YamlError {
    /// The line, counted from the first one given to [`parse`].
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
    /// The problem.
    pub problem: YamlProblem,
}

/// A problem in a YAML text. Each sentence ends in what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "each variant's doc and message say what its fields are"
)]
pub enum YamlProblem {
    /// Larger than [`TEXT_BYTES_MAX`].
    #[error("this YAML is {bytes} bytes long; the most is {TEXT_BYTES_MAX}")]
    TooLarge { bytes: usize },
    /// A character that YAML does not allow.
    #[error("the control character U+{code:04X} is not allowed in YAML; remove it")]
    ControlCharacter { code: u32 },
    /// Not YAML.
    #[error(
        "this is not valid YAML ({message}); check the indentation, and quote text that holds \
         special characters"
    )]
    Syntax { message: String },
    /// Nested deeper than [`DEPTH_MAX`].
    #[error("values are nested deeper than {DEPTH_MAX} levels; flatten them")]
    TooDeep,
    /// More than [`NODES_MAX`] values and keys.
    #[error("there are more than {NODES_MAX} values; split the file")]
    TooManyNodes,
    /// `&name`.
    #[error(
        "anchors (&name) are not allowed; write the value out, or quote text that begins with &"
    )]
    Anchor,
    /// `*name`.
    #[error(
        "aliases (*name) are not allowed; write the value out, or quote text that begins with *"
    )]
    Alias,
    /// `!name`.
    #[error("tags (!name) are not allowed; remove it, or quote text that begins with !")]
    Tag,
    /// A sequence or a mapping as a key.
    #[error("a key must be a plain text; quote text that begins with [ or {{")]
    ComplexKey,
    /// A key without text.
    #[error("a key is missing before the colon; name it")]
    EmptyKey,
    /// Longer than [`KEY_BYTES_MAX`].
    #[error("a key is longer than {KEY_BYTES_MAX} bytes; shorten it")]
    LongKey,
    /// The same key twice in one mapping.
    #[error("the key \"{key}\" stands twice, first in line {first}; remove one of them")]
    DuplicateKey { key: String, first: usize },
    /// `.nan`, `.inf`.
    #[error(
        "{text} is not a number that can be stored; write null for \"unlimited\", or quote it if \
         it is text"
    )]
    NotFinite { text: String },
    /// `0x1f`, `0o17`.
    #[error("{text} is a number in another base; write it in decimal, or quote it if it is text")]
    OtherBase { text: String },
    /// `007`.
    #[error("{text} begins with zeros; write the number without them, or quote it if it is text")]
    LeadingZeros { text: String },
    /// Longer than [`NUMBER_BYTES_MAX`].
    #[error(
        "a number has more than {NUMBER_BYTES_MAX} characters; shorten it, or quote it if it is \
         text"
    )]
    LongNumber,
    /// `---` in the middle.
    #[error("a second document begins here; a file holds one, so remove the line that begins it")]
    SecondDocument,
}

/// Parses a YAML text; an empty one is `null`. Errors count lines from `first_line`, for a text
/// that is cut out of a larger file.
pub fn parse(text: &str, first_line: usize) -> Result<Value, YamlError> {
    parse_with_path(text, first_line, &[]).map(|(value, _)| value)
}

/// Returns the line of the key at `path` (mapping keys and list indexes) in a text that [`parse`]
/// accepts, or the line of its nearest ancestor that exists. It parses again, so that only errors
/// pay for it.
pub fn line_of(text: &str, first_line: usize, path: &[&str]) -> usize {
    parse_with_path(text, first_line, path).map_or(first_line, |(_, line)| line)
}

fn parse_with_path(
    text: &str,
    first_line: usize,
    path: &[&str],
) -> Result<(Value, usize), YamlError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    check_text(text).map_err(|error| error.shift_lines(first_line))?;
    let mut builder = ValueBuilder::new(path);
    builder
        .read(Parser::new_from_str(text))
        .map_err(|error| error.shift_lines(first_line))?;
    let line = builder.found.saturating_sub(1) + first_line;
    Ok((builder.root.unwrap_or(Value::Null), line))
}

/// Checks size and characters. The parser treats a NUL as the end of the text, so what follows
/// would be lost silently.
fn check_text(text: &str) -> Result<(), YamlError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(YamlError {
            line: 1,
            column: 1,
            problem: YamlProblem::TooLarge { bytes: text.len() },
        });
    }
    let allowed = |c: char| !c.is_control() || matches!(c, '\t' | '\n' | '\r' | '\u{85}');
    let Some((at, bad)) = text.char_indices().find(|(_, c)| !allowed(*c)) else {
        return Ok(());
    };
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .chars()
        .count()
        + 1;
    Err(YamlError {
        line,
        column,
        problem: YamlProblem::ControlCharacter { code: bad.into() },
    })
}

impl YamlError {
    fn at_span(span: Span, problem: YamlProblem) -> Self {
        Self {
            line: span.start.line().max(1),
            column: span.start.col() + 1,
            problem,
        }
    }

    fn shift_lines(mut self, first_line: usize) -> Self {
        let before = first_line.saturating_sub(1);
        self.line += before;
        if let YamlProblem::DuplicateKey { first, .. } = &mut self.problem {
            *first += before;
        }
        self
    }
}

impl From<ScanError> for YamlError {
    fn from(error: ScanError) -> Self {
        // The parser reports an alias as an unknown anchor, because anchors are refused before.
        let problem = match error.info().contains("unknown anchor") {
            true => YamlProblem::Alias,
            false => YamlProblem::Syntax {
                message: error.info().to_owned(),
            },
        };
        Self {
            line: error.marker().line().max(1),
            column: error.marker().col() + 1,
            problem,
        }
    }
}

/// A list or table that is not finished.
enum OpenContainer {
    List(Vec<Value>),
    Table {
        values: Map<String, Value>,
        lines: HashMap<String, usize>,
        key: Option<String>,
    },
}

struct ValueBuilder<'a> {
    root: Option<Value>,
    frames: Vec<OpenContainer>,
    nodes: usize,
    documents: usize,
    /// The path that [`line_of`] looks for, the number of its parts that the open frames match, and
    /// the line of the best match so far.
    wanted: &'a [&'a str],
    matched: usize,
    found: usize,
}

impl<'a> ValueBuilder<'a> {
    fn new(wanted: &'a [&'a str]) -> Self {
        Self {
            root: None,
            frames: Vec::new(),
            nodes: 0,
            documents: 0,
            wanted,
            matched: 0,
            found: 1,
        }
    }

    fn read(&mut self, mut parser: Parser<'_, StrInput<'_>>) -> Result<(), YamlError> {
        while let Some(next) = parser.next_event() {
            let (event, span) = next?;
            self.handle_event(event, span)
                .map_err(|problem| YamlError::at_span(span, problem))?;
        }
        Ok(())
    }

    fn handle_event(&mut self, event: Event<'_>, span: Span) -> Result<(), YamlProblem> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => self.begin_document(),
            Event::Alias(_) => Err(YamlProblem::Alias),
            Event::Scalar(text, style, anchor, tag) => {
                self.count_node(anchor, tag.is_some())?;
                match self.expects_key() {
                    true => self.add_key(&text, style, span.start.line()),
                    false => parse_scalar(&text, style)
                        .map(|value| self.add_scalar(value, span.start.line())),
                }
            }
            Event::SequenceStart(anchor, tag) => {
                self.count_node(anchor, tag.is_some())?;
                self.open_container(OpenContainer::List(Vec::new()), span.start.line())
            }
            Event::MappingStart(anchor, tag) => {
                self.count_node(anchor, tag.is_some())?;
                let table = OpenContainer::Table {
                    values: Map::new(),
                    lines: HashMap::new(),
                    key: None,
                };
                self.open_container(table, span.start.line())
            }
            Event::SequenceEnd | Event::MappingEnd => {
                self.close_container();
                Ok(())
            }
        }
    }

    fn begin_document(&mut self) -> Result<(), YamlProblem> {
        self.documents += 1;
        if self.documents > 1 {
            Err(YamlProblem::SecondDocument)
        } else {
            Ok(())
        }
    }

    fn count_node(&mut self, anchor: usize, tagged: bool) -> Result<(), YamlProblem> {
        self.nodes += 1;
        match () {
            () if anchor != 0 => Err(YamlProblem::Anchor),
            () if tagged => Err(YamlProblem::Tag),
            () if self.nodes > NODES_MAX => Err(YamlProblem::TooManyNodes),
            () => Ok(()),
        }
    }

    /// Returns true if the innermost container is a mapping that expects a key.
    fn expects_key(&self) -> bool {
        matches!(
            self.frames.last(),
            Some(OpenContainer::Table { key: None, .. })
        )
    }

    fn add_key(&mut self, text: &str, style: ScalarStyle, line: usize) -> Result<(), YamlProblem> {
        if text.is_empty() || (style == ScalarStyle::Plain && is_null(text)) {
            return Err(YamlProblem::EmptyKey);
        }
        if text.len() > KEY_BYTES_MAX {
            return Err(YamlProblem::LongKey);
        }
        self.match_path_part(text, line);
        let Some(OpenContainer::Table { lines, key, .. }) = self.frames.last_mut() else {
            return Ok(());
        };
        if let Some(first) = lines.insert(text.to_owned(), line) {
            return Err(YamlProblem::DuplicateKey {
                key: truncate_text(text),
                first,
            });
        }
        *key = Some(text.to_owned());
        Ok(())
    }

    fn open_container(&mut self, frame: OpenContainer, line: usize) -> Result<(), YamlProblem> {
        if self.expects_key() {
            return Err(YamlProblem::ComplexKey);
        }
        if self.frames.len() == DEPTH_MAX {
            return Err(YamlProblem::TooDeep);
        }
        self.match_list_item(line);
        self.frames.push(frame);
        Ok(())
    }

    fn close_container(&mut self) {
        let value = match self.frames.pop() {
            Some(OpenContainer::List(values)) => Value::Array(values),
            Some(OpenContainer::Table { values, .. }) => Value::Object(values),
            None => return,
        };
        self.add_value(value);
    }

    fn add_scalar(&mut self, value: Value, line: usize) {
        self.match_list_item(line);
        self.add_value(value);
    }

    fn add_value(&mut self, value: Value) {
        match self.frames.last_mut() {
            Some(OpenContainer::List(values)) => values.push(value),
            Some(OpenContainer::Table { values, key, .. }) => {
                if let Some(key) = key.take() {
                    values.insert(key, value);
                }
            }
            None => self.root = Some(value),
        }
        self.matched = self.matched.min(self.frames.len().saturating_sub(1));
    }

    fn match_list_item(&mut self, line: usize) {
        if let Some(OpenContainer::List(values)) = self.frames.last() {
            self.match_path_part(&values.len().to_string(), line);
        }
    }

    /// Compares a name at the current depth with the next part of the wanted path.
    fn match_path_part(&mut self, name: &str, line: usize) {
        let level = self.frames.len() - 1;
        if self.matched == level && self.wanted.get(level) == Some(&name) {
            self.matched += 1;
            self.found = line;
        }
    }
}

/// Converts a scalar by the core schema. Text in quotes or in a block stays text.
fn parse_scalar(text: &str, style: ScalarStyle) -> Result<Value, YamlProblem> {
    if style != ScalarStyle::Plain {
        return Ok(Value::String(text.to_owned()));
    }
    match text {
        _ if is_null(text) => Ok(Value::Null),
        "true" | "True" | "TRUE" => Ok(Value::Bool(true)),
        "false" | "False" | "FALSE" => Ok(Value::Bool(false)),
        _ if is_not_finite(text) => Err(YamlProblem::NotFinite {
            text: truncate_text(text),
        }),
        _ if is_other_base(text) => Err(YamlProblem::OtherBase {
            text: truncate_text(text),
        }),
        _ => parse_number(text)
            .map(|number| number.unwrap_or_else(|| Value::String(text.to_owned()))),
    }
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

fn is_not_finite(text: &str) -> bool {
    let bare = text.strip_prefix(['-', '+']).unwrap_or(text);
    matches!(bare, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN")
}

fn is_other_base(text: &str) -> bool {
    let digits = |rest: &str, base| !rest.is_empty() && rest.chars().all(|c| c.is_digit(base));
    text.strip_prefix("0x").is_some_and(|rest| digits(rest, 16))
        || text.strip_prefix("0o").is_some_and(|rest| digits(rest, 8))
}

/// Converts a decimal number with its digits kept; `None` if the text is not a number. JSON
/// requires a digit on both sides of the point.
fn parse_number(text: &str) -> Result<Option<Value>, YamlProblem> {
    let Some((whole, fraction, exponent)) = number_parts(text) else {
        return Ok(None);
    };
    if text.len() > NUMBER_BYTES_MAX {
        return Err(YamlProblem::LongNumber);
    }
    if whole.len() > 1 && whole.starts_with('0') {
        return Err(YamlProblem::LeadingZeros {
            text: truncate_text(text),
        });
    }
    let sign = if text.starts_with('-') { "-" } else { "" };
    let whole = if whole.is_empty() { "0" } else { whole };
    let mut json = format!("{sign}{whole}");
    if let Some(fraction) = fraction {
        json.push('.');
        json.push_str(if fraction.is_empty() { "0" } else { fraction });
    }
    if let Some(exponent) = exponent {
        json.push('e');
        json.push_str(exponent);
    }
    Ok(json.parse::<Number>().ok().map(Value::Number))
}

/// Returns whole part, fraction and exponent of `[-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE]
/// [-+]? [0-9]+ )?`.
fn number_parts(text: &str) -> Option<(&str, Option<&str>, Option<&str>)> {
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let bare = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match bare.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (bare, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let exponent_digits = exponent.map(|part| part.strip_prefix(['-', '+']).unwrap_or(part));
    let some_digits = !whole.is_empty() || fraction.is_some_and(|part| !part.is_empty());
    let valid = some_digits
        && digits(whole)
        && fraction.is_none_or(digits)
        && exponent_digits.is_none_or(|part| !part.is_empty() && digits(part));
    valid.then_some((whole, fraction, exponent))
}

/// Truncates a text for an error.
fn truncate_text(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests;
