//! The end of a command: its exit code, and a fault as text or JSON.

use crate::printable;
use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

/// The exit code of the process, and the field `exit` of every JSON document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandExit {
    /// Done.
    Done,
    /// The command failed, or the run did not end well.
    Error,
    /// The command line is wrong.
    Usage,
    /// The run is suspended: it needs the user and can be resumed.
    Suspended,
    /// Another process holds the thread, or an item of this name or version exists already.
    Busy,
    /// The user stopped it at once (the second Ctrl-C).
    Stopped,
}

impl CommandExit {
    /// The number.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Error => 1,
            Self::Usage => 2,
            Self::Suspended => 3,
            Self::Busy => 4,
            Self::Stopped => 130,
        }
    }

    /// Returns the exit code of a command whose run has this status.
    pub fn from_status(status: &str) -> Self {
        match status {
            "completed" | "idle" | "continued" | "created" => Self::Done,
            "suspended" | "waiting" => Self::Suspended,
            "running" => Self::Busy,
            _ => Self::Error,
        }
    }
}

impl Serialize for CommandExit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.code())
    }
}

/// Longest message and longest hint of a fault, in bytes: they may repeat text of the command line
/// or of a file.
const FAULT_TEXT_BYTES_MAX: usize = 2_000;

/// A problem, its place and what to do next. Each text is one line, printable and bounded, whatever
/// it quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandFault {
    /// A stable code.
    pub code: String,
    /// The problem and its place.
    pub message: String,
    /// The next thing to do, if there is one.
    pub hint: Option<String>,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandFault {
    /// A fault without a hint.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: bounded_line(&message.into()),
            hint: None,
            exit: CommandExit::Error,
        }
    }

    /// A fault of the command line.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            exit: CommandExit::Usage,
            ..Self::new("usage", message)
        }
    }

    /// The same fault with a hint about what to do next.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(bounded_line(&hint.into()));
        self
    }
}

fn bounded_line(words: &str) -> String {
    let shown = printable::line(words);
    match shown.len() > FAULT_TEXT_BYTES_MAX {
        true => format!(
            "{}…",
            &shown[..shown.floor_char_boundary(FAULT_TEXT_BYTES_MAX - 3)]
        ),
        false => shown.into_owned(),
    }
}

impl Serialize for CommandFault {
    /// `{"error": {"code", "message", "hint"}, "exit"}`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct ErrorBody<'a> {
            code: &'a str,
            message: &'a str,
            hint: Option<&'a str>,
        }
        let error = ErrorBody {
            code: &self.code,
            message: &self.message,
            hint: self.hint.as_deref(),
        };
        let mut document = serializer.serialize_struct("Fault", 2)?;
        document.serialize_field("error", &error)?;
        document.serialize_field("exit", &self.exit)?;
        document.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_one_document() {
        let fault = CommandFault::usage("no such thing").with_hint("try another");
        let text = serde_json::to_string(&fault).unwrap();
        assert_eq!(
            text,
            r#"{"error":{"code":"usage","message":"no such thing","hint":"try another"},"exit":2}"#
        );
        let bare = serde_json::to_string(&CommandFault::new("x", "y")).unwrap();
        assert_eq!(
            bare,
            r#"{"error":{"code":"x","message":"y","hint":null},"exit":1}"#
        );
    }

    #[test]
    fn fault_texts_are_bounded_and_printable() {
        let long = format!("a\0b\n\u{1b}[2J{}", "漢".repeat(FAULT_TEXT_BYTES_MAX));
        let fault = CommandFault::usage(long.clone()).with_hint(long);
        for said in [fault.message, fault.hint.unwrap()] {
            assert!(
                said.starts_with("a\\u{0}b \\u{1b}[2J漢") && said.ends_with("漢…"),
                "{said}"
            );
            assert!(said.len() <= FAULT_TEXT_BYTES_MAX);
        }
    }

    #[test]
    fn every_status_has_an_exit_code() {
        for (status, code) in [
            ("completed", 0),
            ("idle", 0),
            ("continued", 0),
            ("created", 0),
            ("error", 1),
            ("cancelled", 1),
            ("killed", 1),
            ("a status of a later version", 1),
            ("suspended", 3),
            ("waiting", 3),
            ("running", 4),
        ] {
            assert_eq!(CommandExit::from_status(status).code(), code, "{status}");
        }
        assert_eq!(CommandExit::Usage.code(), 2);
        assert_eq!(CommandExit::Stopped.code(), 130);
    }
}
