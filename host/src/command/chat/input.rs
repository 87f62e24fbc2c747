//! Where the messages of a chat come from: a person at a terminal, the lines of a pipe, or a whole
//! pipe.

use super::line_editor::{LineEditor, TypedLine};
use crate::command::input::{InputLine, InputLines};
use threadkeep_cli::screen::OutputScreen;

/// The input of a chat.
pub enum ChatInput {
    /// A person with a line editor.
    Edited(LineEditor),
    /// Lines, each for itself.
    Lines(InputLines),
    /// All of standard input, as one text.
    Whole(InputLines),
}

impl ChatInput {
    /// The input of a chat. `each_line`: each line of a file or a pipe is a message.
    pub fn start(each_line: bool, screen: &OutputScreen) -> Self {
        let ends = screen.properties();
        match (ends.in_terminal, ends.json) {
            (true, false) => match LineEditor::start(!ends.out_terminal) {
                Some(editor) => Self::Edited(editor),
                None => Self::Lines(InputLines::start()),
            },
            (true, true) => Self::Lines(InputLines::start()),
            (false, _) if each_line => Self::Lines(InputLines::start()),
            (false, _) => Self::Whole(InputLines::start_whole()),
        }
    }

    /// Returns true if what is read is one message, whatever it holds.
    pub fn is_whole(&self) -> bool {
        matches!(self, Self::Whole(_))
    }

    /// Returns the next line.
    pub async fn next(&mut self, prompt: &'static str, screen: &mut OutputScreen) -> TypedLine {
        let lines = match self {
            Self::Edited(editor) => {
                screen.end_lines();
                return editor.next(prompt).await;
            }
            Self::Lines(lines) | Self::Whole(lines) => lines,
        };
        screen.prompt(prompt);
        match lines.next().await {
            Some(InputLine::Text(text)) => TypedLine::Text(text),
            Some(InputLine::Bad(why)) => TypedLine::Bad(why),
            None => TypedLine::End,
        }
    }

    /// Ends the line of a prompt that got no input; a line editor has done so.
    pub fn end_prompt(&self, screen: &mut OutputScreen) {
        if !matches!(self, Self::Edited(_)) {
            screen.end_prompt();
        }
    }

    /// Adds a line to the history of a person.
    pub fn remember(&self, line: &str) {
        if let Self::Edited(editor) = self {
            editor.remember(line);
        }
    }

    /// Drops what a person has typed ahead; the lines of a program stay.
    pub fn discard_typed(&self) {
        if let Self::Edited(editor) = self {
            editor.discard_typed();
        }
    }
}
