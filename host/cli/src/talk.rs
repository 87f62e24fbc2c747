//! Parses the lines of a chat: messages of one line or several, and commands of a user at a
//! terminal.

use crate::exit::Fault;

/// The text of `/help`.
pub const HELP: &str = "  /title TEXT   give this chat a title
  /quit         leave; so do Ctrl-D, and Ctrl-C twice
  Ctrl-C        stop the reply that is under way
  a line that ends with \\ goes on in the next one; // begins a message with a /";

/// A parsed message or command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// A message.
    Message(String),
    /// A title for the chat.
    Title(String),
    /// A request for the help text.
    Help(&'static str),
    /// The end of the chat.
    Quit,
    /// An unknown command, with its fault.
    Unknown(Fault),
}

/// A parser that joins lines to messages.
#[derive(Debug, Clone)]
pub struct Talk {
    commands: bool,
    open: Option<String>,
}

impl Talk {
    /// A parser before its first line. `commands`: a user types, so a line may be a command.
    pub fn new(commands: bool) -> Self {
        Self {
            commands,
            open: None,
        }
    }

    /// Returns true in the middle of a message.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Parses one more line. Returns the message or command that it completes; an empty line is
    /// none.
    pub fn line(&mut self, line: &str) -> Option<Said> {
        let (line, more) = match line.strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        let first = self.open.is_none();
        if first && self.commands && line.starts_with('/') && !line.starts_with("//") {
            return Some(command(line.trim_end()));
        }
        let line = match first && self.commands && line.starts_with("//") {
            true => &line[1..],
            false => line,
        };
        let text = match self.open.take() {
            Some(open) => format!("{open}\n{line}"),
            None => line.to_owned(),
        };
        if more {
            self.open = Some(text);
            return None;
        }
        (!text.trim().is_empty()).then_some(Said::Message(text))
    }

    /// Ends the input. Returns the message that was not finished.
    pub fn end(self) -> Option<String> {
        self.open.filter(|text| !text.trim().is_empty())
    }
}

fn command(line: &str) -> Said {
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (name, rest.trim()) {
        ("/quit" | "/exit", "") => Said::Quit,
        ("/help", "") => Said::Help(HELP),
        ("/title", title) if !title.is_empty() => Said::Title(title.to_owned()),
        _ => {
            let fault = Fault::usage(format!("{line:?} is no command of a chat"));
            Said::Unknown(fault.hint("/help, /title TEXT, /quit; // begins a message with a /"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(commands: bool, lines: &[&str]) -> (Vec<Said>, Option<String>) {
        let mut talk = Talk::new(commands);
        let said = lines.iter().filter_map(|line| talk.line(line)).collect();
        (said, talk.end())
    }

    fn message(text: &str) -> Said {
        Said::Message(text.to_owned())
    }

    #[test]
    fn lines_are_messages_and_a_backslash_joins_them() {
        let lines = [
            "one", "", " \t", "two\\", "", "three\\", "\\", "four", "five\\",
        ];
        let expected = vec![message("one"), message("two\n"), message("three\n\nfour")];
        assert_eq!(said(false, &lines), (expected, Some("five".to_owned())));
        assert_eq!(said(true, &["\\", ""]), (Vec::new(), None));
    }

    #[test]
    fn only_a_person_has_commands() {
        let lines = ["/quit", "//x", "/title A  b ", "a\\", "/quit"];
        let plain = lines[..3].iter().map(|line| message(line));
        let plain: Vec<Said> = plain.chain([message("a\n/quit")]).collect();
        assert_eq!(said(false, &lines).0, plain);
        let titled = Said::Title("A  b".to_owned());
        let person = vec![Said::Quit, message("/x"), titled, message("a\n/quit")];
        assert_eq!(said(true, &lines).0, person);
    }

    #[test]
    fn what_is_no_command_is_named() {
        for line in ["/quti", "/title", "/title  ", "/quit now", "/"] {
            let (said, _) = said(true, &[line]);
            assert!(
                matches!(&said[..], [Said::Unknown(fault)] if fault.hint.is_some()),
                "{line}"
            );
        }
    }
}
