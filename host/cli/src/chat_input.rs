//! Parses the lines of a chat: messages of one line or several, and commands of a user at a
//! terminal.

use crate::exit::CommandFault;

/// The text of `/help`.
pub const HELP: &str = "  /cost          what this chat has cost, and what is left
  /model [NAME]  its model; NAME chooses one before the first message
  /title TEXT    give it a title
  /fork [N]      go on in a copy of it, as it was at version N
  /quit          leave; so do Ctrl-D, and Ctrl-C twice
  Ctrl-C         stop the reply that is under way
  a line that ends with \\ goes on in the next one; // begins a message with a /";

/// A parsed message or command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChatRequest {
    /// A message.
    Message(String),
    /// A title for the chat.
    Title(String),
    /// The cost of the chat.
    Cost,
    /// Its model, or another one for it.
    Model(Option<String>),
    /// A fork of the chat, at this version or the newest.
    Fork(Option<u64>),
    /// The help text.
    Help,
    /// The end of the chat.
    Quit,
    /// An unknown command, with its fault.
    Unknown(CommandFault),
}

/// A parser that joins lines to messages.
#[derive(Debug, Clone)]
pub struct ChatParser {
    commands: bool,
    open: Option<String>,
}

impl ChatParser {
    /// A parser before its first line. `commands`: a user types, so a line may be a command.
    pub fn new(commands: bool) -> Self {
        Self {
            commands,
            open: None,
        }
    }

    /// Returns true in the middle of a message.
    pub fn is_in_message(&self) -> bool {
        self.open.is_some()
    }

    /// Parses one more line. Returns the message or command that it completes; an empty line is
    /// none.
    pub fn parse_line(&mut self, line: &str) -> Option<ChatRequest> {
        let (line, more) = match line.strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        let first = self.open.is_none();
        let is_command = line.starts_with('/') && !line.starts_with("//") && !line.contains('\n');
        if first && self.commands && is_command {
            return Some(parse_command(line.trim_end()));
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
        (!text.trim().is_empty()).then_some(ChatRequest::Message(text))
    }

    /// Ends the input. Returns the message that was not finished.
    pub fn finish(self) -> Option<String> {
        self.open.filter(|text| !text.trim().is_empty())
    }
}

fn parse_command(line: &str) -> ChatRequest {
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (name, rest.trim()) {
        ("/quit" | "/exit", "") => ChatRequest::Quit,
        ("/help", "") => ChatRequest::Help,
        ("/cost", "") => ChatRequest::Cost,
        ("/model", "") => ChatRequest::Model(None),
        ("/model", name) if !name.contains(char::is_whitespace) => {
            ChatRequest::Model(Some(name.to_owned()))
        }
        ("/fork", "") => ChatRequest::Fork(None),
        ("/fork", version) if version.parse::<u64>().is_ok() => {
            ChatRequest::Fork(version.parse().ok())
        }
        ("/title", title) if !title.is_empty() => ChatRequest::Title(title.to_owned()),
        ("/quit" | "/exit" | "/help" | "/cost" | "/model" | "/fork" | "/title", rest) => {
            let takes = match name {
                "/model" => "one name, or nothing",
                "/fork" => "a version, or nothing",
                "/title" => "the title",
                _ => "nothing",
            };
            let given = match rest {
                "" => String::new(),
                rest => format!(", and was given {rest:?}"),
            };
            let fault = CommandFault::usage(format!("{name} takes {takes}{given}"));
            ChatRequest::Unknown(fault.with_hint("// begins a message with a /"))
        }
        _ => {
            let fault = CommandFault::usage(format!("{line:?} is no command of a chat"));
            ChatRequest::Unknown(
                fault.with_hint("/help says which there are; // begins a message with a /"),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_lines(commands: bool, lines: &[&str]) -> (Vec<ChatRequest>, Option<String>) {
        let mut talk = ChatParser::new(commands);
        let said = lines
            .iter()
            .filter_map(|line| talk.parse_line(line))
            .collect();
        (said, talk.finish())
    }

    fn message(text: &str) -> ChatRequest {
        ChatRequest::Message(text.to_owned())
    }

    #[test]
    fn lines_are_messages_and_a_backslash_joins_them() {
        let lines = [
            "one", "", " \t", "two\\", "", "three\\", "\\", "four", "five\\",
        ];
        let expected = vec![message("one"), message("two\n"), message("three\n\nfour")];
        assert_eq!(
            parse_lines(false, &lines),
            (expected, Some("five".to_owned()))
        );
        assert_eq!(parse_lines(true, &["\\", ""]), (Vec::new(), None));
    }

    #[test]
    fn only_a_person_has_commands() {
        let lines = ["/quit", "//x", "/title A  b ", "a\\", "/quit"];
        let pasted = "/quit\nis pasted";
        assert_eq!(parse_lines(true, &[pasted]).0, [message(pasted)]);
        let plain = lines[..3].iter().map(|line| message(line));
        let plain: Vec<ChatRequest> = plain.chain([message("a\n/quit")]).collect();
        assert_eq!(parse_lines(false, &lines).0, plain);
        let titled = ChatRequest::Title("A  b".to_owned());
        let person = vec![
            ChatRequest::Quit,
            message("/x"),
            titled,
            message("a\n/quit"),
        ];
        assert_eq!(parse_lines(true, &lines).0, person);
    }

    #[test]
    fn unknown_commands_are_reported() {
        for (line, expected) in [
            ("/help", ChatRequest::Help),
            ("/cost", ChatRequest::Cost),
            ("/model", ChatRequest::Model(None)),
            ("/model fast", ChatRequest::Model(Some("fast".to_owned()))),
            ("/fork", ChatRequest::Fork(None)),
            ("/fork 7 ", ChatRequest::Fork(Some(7))),
        ] {
            assert_eq!(parse_lines(true, &[line]).0, [expected], "{line}");
        }
        for line in [
            "/quti",
            "/title",
            "/title  ",
            "/quit now",
            "/",
            "/cost x",
            "/model a b",
            "/fork x",
            "/fork -1",
        ] {
            let (said, _) = parse_lines(true, &[line]);
            assert!(
                matches!(&said[..], [ChatRequest::Unknown(fault)] if fault.hint.is_some()),
                "{line}"
            );
        }
        for (line, expected) in [
            ("/title", "/title takes the title"),
            ("/cost now", "/cost takes nothing, and was given \"now\""),
            (
                "/fork x",
                "/fork takes a version, or nothing, and was given \"x\"",
            ),
        ] {
            let (said, _) = parse_lines(true, &[line]);
            assert!(
                matches!(&said[..], [ChatRequest::Unknown(fault)] if fault.message == expected),
                "{said:?}"
            );
        }
    }
}
