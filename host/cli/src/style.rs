//! Lines with styles for a terminal.
//!
//! The text of each part passes [`crate::printable`] before its style is put around it, so the only
//! escapes of a line are those of [`TextRole`]: no text of a model, a tool or a file can style,
//! move or end anything.

use crate::printable;
use anstyle::{AnsiColor, Style};
use std::borrow::Cow;
use unicode_width::UnicodeWidthChar;

/// The meaning of a part of a line, from which its style follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextRole {
    /// Ordinary text.
    Plain,
    /// Text beside the matter: labels, figures, thinking.
    Aside,
    /// A name that the reader may use again: a tool, a thread, a command.
    Name,
    /// What went well.
    Success,
    /// What needs the reader: a suspension, a warning.
    Warning,
    /// What failed.
    Failure,
}

impl TextRole {
    /// Returns the role of the status of a thread.
    pub fn from_status(status: &str) -> Self {
        match status {
            "completed" | "idle" | "continued" => Self::Success,
            "suspended" | "waiting" => Self::Warning,
            "error" | "killed" | "cancelled" => Self::Failure,
            _ => Self::Plain,
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Aside => Style::new().dimmed(),
            Self::Name => AnsiColor::Cyan.on_default(),
            Self::Success => AnsiColor::Green.on_default(),
            Self::Warning => AnsiColor::Yellow.on_default(),
            Self::Failure => AnsiColor::Red.on_default().bold(),
        }
    }

    /// Puts the style of the role around a text that is printable already.
    pub(crate) fn paint(self, printable: &str, styled: bool) -> Cow<'_, str> {
        if !styled || self == Self::Plain || printable.is_empty() {
            return Cow::Borrowed(printable);
        }
        let style = self.style();
        Cow::Owned(format!("{style}{printable}{style:#}"))
    }
}

/// A line of parts with a role each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StyledLine {
    parts: Vec<(TextRole, String)>,
}

impl StyledLine {
    /// A line of one ordinary text.
    pub fn plain(text: &str) -> Self {
        Self::default().with(TextRole::Plain, text)
    }

    /// Adds a part behind the others.
    #[must_use]
    pub fn with(mut self, role: TextRole, text: &str) -> Self {
        self.parts.push((role, printable::line(text).into_owned()));
        self
    }

    /// Cuts the line to this many columns, with an ellipsis where something is left out.
    #[must_use]
    pub fn cut_to(mut self, columns: usize) -> Self {
        let whole: usize = self.parts.iter().map(|(_, text)| text_width(text)).sum();
        if whole <= columns {
            return self;
        }
        let mut room = columns.saturating_sub(1);
        for (_, text) in &mut self.parts {
            let kept = fitting_bytes(text, room);
            room = match kept == text.len() {
                true => room - text_width(text),
                false => 0,
            };
            text.truncate(kept);
        }
        self.parts.push((TextRole::Plain, "…".to_owned()));
        self
    }

    /// Returns the line, with escapes if it is `styled`.
    pub fn render(&self, styled: bool) -> String {
        let parts = self.parts.iter();
        parts
            .map(|(role, text)| role.paint(text, styled))
            .collect::<String>()
    }
}

/// Returns the columns that a printable text takes.
pub fn text_width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

fn char_width(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// Returns the bytes of the longest beginning that takes at most this many columns.
fn fitting_bytes(text: &str, columns: usize) -> usize {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += char_width(c);
        if used > columns {
            return at;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_roles_write_escapes() {
        let evil = "\x1b[2J\u{9b}31m\nname";
        let line = StyledLine::plain("a ")
            .with(TextRole::Name, evil)
            .with(TextRole::Failure, "");
        let safe = "\\u{1b}[2J\\u{9b}31m name";
        assert_eq!(line.render(false), format!("a {safe}"));
        assert_eq!(line.render(true), format!("a \x1b[36m{safe}\x1b[0m"));
    }

    #[test]
    fn lines_are_cut_to_columns() {
        let line = || StyledLine::plain("ab").with(TextRole::Name, "漢字cd");
        for (columns, expected) in [
            (8, "ab漢字cd"),
            (7, "ab漢字…"),
            (6, "ab漢…"),
            (5, "ab漢…"),
            (4, "ab…"),
            (2, "a…"),
            (0, "…"),
        ] {
            let cut = line().cut_to(columns).render(false);
            assert_eq!(cut, expected, "{columns}");
            assert!(text_width(&cut) <= columns.max(1), "{columns}");
        }
    }

    #[test]
    fn every_status_has_a_role() {
        for (status, role) in [
            ("completed", TextRole::Success),
            ("suspended", TextRole::Warning),
            ("error", TextRole::Failure),
            ("created", TextRole::Plain),
        ] {
            assert_eq!(TextRole::from_status(status), role, "{status}");
        }
    }
}
