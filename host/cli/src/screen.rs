//! Writes answers to standard output, everything else to standard error.
//!
//! With `--json`, standard output gets one document and nothing else; characters in it that a
//! terminal would obey or hide are escaped. Text for a terminal passes [`crate::printable`]; a file
//! or a pipe gets it unchanged. Standard error is for people and is always made safe. A closed pipe
//! does not end a command: its effect on threads matters more than its output. Nor does a full
//! disk, but then the answer is lost, and [`OutputScreen::finish`] reports it.

use crate::answer::CommandAnswer;
use crate::exit::{CommandExit, CommandFault};
use crate::parse::ParseReply;
use crate::printable;
use jiff::Timestamp;
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, ErrorKind, Write};
use threadkeep_units::printable::escape_json;

/// Properties of standard input and output.
#[derive(Debug, Clone, Copy)]
pub struct StreamProperties {
    /// One JSON document on standard output.
    pub json: bool,
    /// Standard input is a terminal: a user types.
    pub in_terminal: bool,
    /// Standard output is a terminal.
    pub out_terminal: bool,
    /// Standard error is a terminal.
    pub err_terminal: bool,
    /// True for the native program; false for one that has not all of its commands.
    pub is_native: bool,
    /// The instant to which relative times refer; none is the clock.
    pub now: Option<Timestamp>,
}

/// The words of this crate for the program that has all of the commands.
const NATIVE_PROGRAM: &str = "native program";

/// The commands that only the native program has.
pub const NATIVE_COMMANDS: [&str; 7] = [
    "chat", "doctor", "audit", "import", "copy", "prune", "repair",
];

/// Standard output and standard error.
pub struct OutputScreen {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    properties: StreamProperties,
    /// True if standard output is in the middle of a line.
    open_line: bool,
    /// True if standard error shows a line that is erased before the next.
    live: bool,
    /// True if threads are lost when the command ends.
    threads_lost: bool,
    /// The first error of writing standard output.
    write_error: Option<io::Error>,
    /// The hint for a lost answer.
    lost_hint: String,
}

/// The hint for a lost answer, where a command sets none.
const LOST_ANSWER_HINT: &str = "only the answer is lost, not what was done: `threadkeep list` and \
                                `threadkeep show` say it again";

/// Shown in place of a next step for a thread that is lost.
const LOST_THREAD_NOTICE: &str =
    "it was kept in memory and is gone now: leave out --store memory to go on with one";

impl std::fmt::Debug for OutputScreen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen")
            .field("ends", &self.properties)
            .finish_non_exhaustive()
    }
}

/// Moves to the beginning of the line and erases it.
const ERASE: &str = "\r\x1b[K";

impl OutputScreen {
    /// A screen over these two streams.
    pub fn new(
        out: Box<dyn Write + Send>,
        err: Box<dyn Write + Send>,
        ends: StreamProperties,
    ) -> Self {
        Self {
            out,
            err,
            properties: ends,
            open_line: false,
            live: false,
            threads_lost: false,
            write_error: None,
            lost_hint: LOST_ANSWER_HINT.to_owned(),
        }
    }

    /// Sets the hint for a lost answer, which held something that no other command shows.
    pub fn set_lost_hint(&mut self, what: String) {
        self.lost_hint = what;
    }

    /// Returns the exit code of the process: a command whose answer was lost has failed, whatever
    /// it did. A closed pipe is no loss.
    pub fn finish(&mut self, exit: CommandExit) -> CommandExit {
        let Some(error) = self.write_error.take() else {
            return exit;
        };
        self.print_err(&format!(
            "error: standard output cannot be written: {error}"
        ));
        let next = format!("  next: {}", self.lost_hint);
        self.print_err(&next);
        match exit {
            CommandExit::Done => CommandExit::Error,
            exit => exit,
        }
    }

    /// Writes bytes to standard output and flushes it.
    fn write_out(&mut self, bytes: &[u8]) {
        let written = self.out.write_all(bytes).and_then(|()| self.out.flush());
        if let Err(error) = written
            && error.kind() != ErrorKind::BrokenPipe
        {
            self.write_error.get_or_insert(error);
        }
    }

    /// Marks threads as lost when the command ends: no next step is suggested that would need one.
    pub fn mark_threads_lost(&mut self) {
        self.threads_lost = true;
    }

    /// Returns the next step for a thread, if it will still exist.
    pub fn next_step_for<'a>(&self, what: &'a str) -> &'a str {
        if self.threads_lost {
            LOST_THREAD_NOTICE
        } else {
            what
        }
    }

    /// Returns a text of the program's own that may name a command line as the next step. Where
    /// such a command is the native program's alone, the text says so.
    pub fn name_native<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let names = |command: &str| {
            let line = format!("threadkeep {command}");
            let mut found = text.match_indices(&line);
            found.any(|(at, _)| {
                let after = text[at + line.len()..].chars().next();
                !after.is_some_and(|letter| letter.is_alphanumeric() || letter == '-')
            })
        };
        let is_said = self.properties.is_native || text.contains(NATIVE_PROGRAM);
        let named = NATIVE_COMMANDS.into_iter().find(|command| names(command));
        match named.filter(|_| !is_said) {
            None => Cow::Borrowed(text),
            Some("chat") => Cow::Owned(format!(
                "{text} (`chat` is a command of the native program; here: resume THREAD MESSAGE)"
            )),
            Some(command) => Cow::Owned(format!(
                "{text} (`{command}` is a command of the native program)"
            )),
        }
    }

    /// The properties of standard input and output.
    pub fn properties(&self) -> StreamProperties {
        self.properties
    }

    /// The instant to which relative times refer.
    pub fn now(&self) -> Timestamp {
        self.properties.now.unwrap_or_else(Timestamp::now)
    }

    /// Prints a part of an answer's text. Nothing with `--json`.
    pub fn print_text(&mut self, text: &str) {
        if self.properties.json || text.is_empty() {
            return;
        }
        self.erase();
        let shown = match self.properties.out_terminal {
            true => printable::text(text),
            false => text.into(),
        };
        self.open_line = !shown.ends_with('\n');
        self.write_out(shown.as_bytes());
    }

    /// Prints a line of an answer. Nothing with `--json`. It stays one line, whatever a name in it
    /// holds: the others are the program's own.
    pub fn print_line(&mut self, line: &str) {
        self.print_text(&printable::line(line));
        self.print_text("\n");
    }

    /// Ends the line that [`OutputScreen::print_text`] has left open.
    pub fn end_line(&mut self) {
        if self.open_line {
            self.print_text("\n");
        }
    }

    /// Prints a line for the user on standard error. Nothing with `--json`.
    pub fn note(&mut self, line: &str) {
        if !self.properties.json {
            self.print_err(line);
        }
    }

    /// Prints a warning on standard error, with `--json` too.
    pub fn warn(&mut self, line: &str) {
        self.print_err(&format!("warning: {line}"));
    }

    fn print_err(&mut self, line: &str) {
        self.erase();
        // Both streams are the same terminal: a note does not begin in the middle of the answer's
        // line.
        if self.open_line && self.properties.out_terminal && self.properties.err_terminal {
            self.print_text("\n");
        }
        let line = self.name_native(line);
        // It stays one line: what a file or a model wrote in it must not pass for another.
        let _ = writeln!(self.err, "{}", printable::line(&line));
    }

    /// Shows a line that the next one replaces, on a terminal; nothing elsewhere, or while an
    /// answer's line is open.
    pub fn show_live(&mut self, line: &str) {
        let shared = self.open_line && self.properties.out_terminal;
        if self.properties.json || !self.properties.err_terminal || shared {
            return;
        }
        let _ = write!(self.err, "{ERASE}{}", printable::line(line));
        let _ = self.err.flush();
        self.live = true;
    }

    /// Shows a prompt before a line that the user types. Nothing where no user types or reads it.
    pub fn prompt(&mut self, text: &str) {
        let StreamProperties {
            json,
            in_terminal,
            err_terminal,
            ..
        } = self.properties;
        if json || !in_terminal || !err_terminal {
            return;
        }
        self.erase();
        self.end_line();
        let _ = write!(self.err, "{text}");
        let _ = self.err.flush();
    }

    /// Ends the line of a prompt that got no input.
    pub fn end_prompt(&mut self) {
        self.prompt("\n");
    }

    fn erase(&mut self) {
        if std::mem::take(&mut self.live) {
            let _ = write!(self.err, "{ERASE}");
            let _ = self.err.flush();
        }
    }

    /// Prints the answer of a command and returns its exit code.
    pub fn print_answer(&mut self, answer: &impl CommandAnswer) -> CommandExit {
        match self.properties.json {
            true => self.print_document(answer),
            false => {
                self.end_line();
                answer.print(self);
                self.end_line();
            }
        }
        answer.exit()
    }

    /// Prints a fault and returns its exit code.
    pub fn print_fault(&mut self, fault: &CommandFault) -> CommandExit {
        if self.properties.json {
            let mut fault = fault.clone();
            fault.message = self.name_native(&fault.message).into_owned();
            fault.hint = fault.hint.map(|hint| self.name_native(&hint).into_owned());
            self.print_document(&fault);
            return fault.exit;
        }
        self.print_err(&format!("error: {}", fault.message));
        if let Some(hint) = &fault.hint {
            self.print_err(&format!("  next: {hint}"));
        }
        fault.exit
    }

    /// Prints help, version, or a fault of the command line.
    pub fn print_reply(&mut self, said: &ParseReply) -> CommandExit {
        if self.properties.json {
            self.print_document(&said.to_document());
            return said.exit();
        }
        // clap's text quotes arguments as they came: the styled form is only for text that clap
        // wrote itself.
        match said {
            ParseReply::Text { plain, styled, .. } => {
                let text = if self.properties.out_terminal {
                    styled
                } else {
                    plain
                };
                self.write_out(format!("{}\n", text.trim_end()).as_bytes());
                if !self.properties.is_native {
                    let native = NATIVE_COMMANDS.join(", ");
                    self.note(&format!("the native program alone has: {native}"));
                }
            }
            ParseReply::Wrong { plain, .. } => {
                let _ = writeln!(self.err, "{}", printable::text(plain.trim_end()));
            }
        }
        said.exit()
    }

    fn print_document(&mut self, document: &impl Serialize) {
        // A document of ours has no map keys that are not text: only writing it can fail.
        if let Ok(text) = serde_json::to_string(document) {
            let mut text = escape_json(&text).into_owned();
            text.push('\n');
            self.write_out(text.as_bytes());
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// The bytes written to one stream.
    #[derive(Clone, Default)]
    pub(crate) struct WrittenBytes(Arc<Mutex<Vec<u8>>>);

    impl WrittenBytes {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for WrittenBytes {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// A screen whose output can be read.
    pub(crate) fn screen(json: bool, terminal: bool) -> (OutputScreen, WrittenBytes, WrittenBytes) {
        let (out, err) = (WrittenBytes::default(), WrittenBytes::default());
        let ends = StreamProperties {
            json,
            in_terminal: terminal,
            out_terminal: terminal,
            err_terminal: terminal,
            is_native: true,
            now: "2026-03-10T12:00:00Z".parse().ok(),
        };
        let screen = OutputScreen::new(Box::new(out.clone()), Box::new(err.clone()), ends);
        (screen, out, err)
    }

    const EVIL: &str = "\x1b[2J漢\n";

    #[test]
    fn only_a_terminal_is_protected_and_only_json_is_silent() {
        for (json, terminal, expected) in [
            (false, true, "\\u{1b}[2J漢\n"),
            (false, false, EVIL),
            (true, true, ""),
            (true, false, ""),
        ] {
            let (mut screen, out, err) = screen(json, terminal);
            screen.print_text(EVIL);
            screen.note(EVIL);
            assert_eq!(out.text(), expected);
            assert_eq!(err.text().is_empty(), json);
            assert!(!err.text().contains('\x1b'), "standard error is for people");
        }
    }

    /// Symptom: with `--json`, a terminal obeyed controls in a thread's title. Cause: JSON demands
    /// an escape for C0 alone. Fix: DEL, C1 and characters that hide or reverse text are escaped,
    /// and the value stays the same.
    #[test]
    fn a_document_escapes_what_a_terminal_would_obey() {
        let text = "\x1b\x7f\u{9b}31m\u{202e}\u{200f}\u{61c}\u{200b}漢🙂\u{200d}";
        for terminal in [false, true] {
            let (mut screen, out, _) = screen(true, terminal);
            screen.print_document(&text);
            let expected = r#""\u001b\u007f\u009b31m\u202e\u200f\u061c\u200b漢🙂"#;
            assert_eq!(out.text(), format!("{expected}\u{200d}\"\n"));
            let read: String = serde_json::from_str(&out.text()).unwrap();
            assert_eq!(read, text);
        }
    }

    #[test]
    fn notes_begin_on_their_own_line() {
        let (mut screen, out, err) = screen(false, true);
        screen.print_text("half");
        screen.show_live("never shown in the middle of a line");
        screen.note("note");
        screen.print_text("other half");
        screen.end_line();
        screen.end_line();
        assert_eq!(out.text(), "half\nother half\n");
        assert_eq!(err.text(), "note\n");
    }

    #[test]
    fn a_live_line_is_erased_and_needs_a_terminal() {
        let (mut on_terminal, _, err) = screen(false, true);
        on_terminal.show_live("1 s");
        on_terminal.show_live("2 s");
        on_terminal.note("done");
        assert_eq!(err.text(), format!("{ERASE}1 s{ERASE}2 s{ERASE}done\n"));
        let (mut piped, _, err) = screen(false, false);
        piped.show_live("1 s");
        assert_eq!(err.text(), "");
    }

    #[test]
    fn a_fault_says_what_to_do_next() {
        let fault = CommandFault::new("not-found", "there is no thread \"x\x1b\"")
            .with_hint("did you mean y?");
        let (mut person, out, err) = screen(false, true);
        assert_eq!(person.print_fault(&fault), CommandExit::Error);
        assert_eq!(out.text(), "");
        assert_eq!(
            err.text(),
            "error: there is no thread \"x\\u{1b}\"\n  next: did you mean y?\n"
        );
        let (mut program, out, err) = screen(true, true);
        program.print_fault(&fault);
        assert_eq!(out.text().lines().count(), 1);
        assert!(out.text().contains(r"\\u{1b}"), "{}", out.text());
        assert_eq!(err.text(), "");
    }

    /// Symptom: `open > /dev/full` ended with 0 and the token was lost. Cause: every failed write
    /// was taken for a closed pipe. Fix: only a closed pipe is one.
    #[test]
    fn a_reader_that_goes_away_ends_nothing_and_a_full_disk_is_told() {
        struct BrokenWriter(ErrorKind);
        impl Write for BrokenWriter {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Err(self.0.into())
            }
        }
        for (kind, before, after, said) in [
            (
                ErrorKind::BrokenPipe,
                CommandExit::Done,
                CommandExit::Done,
                false,
            ),
            (
                ErrorKind::StorageFull,
                CommandExit::Done,
                CommandExit::Error,
                true,
            ),
            (
                ErrorKind::StorageFull,
                CommandExit::Suspended,
                CommandExit::Suspended,
                true,
            ),
        ] {
            for json in [false, true] {
                let (whole, _, err) = screen(json, false);
                let mut screen = OutputScreen::new(
                    Box::new(BrokenWriter(kind)),
                    Box::new(err.clone()),
                    whole.properties(),
                );
                screen.set_lost_hint("look elsewhere".to_owned());
                screen.print_line("text");
                screen.print_document(&"text");
                assert_eq!(screen.finish(before), after, "{kind}");
                let told = err.text();
                let expected = ["standard output cannot be written", "next: look elsewhere"];
                assert!(
                    expected.iter().all(|words| told.contains(words) == said),
                    "{told}"
                );
                assert_eq!(told.is_empty(), !said, "{told}");
            }
        }
    }

    #[test]
    fn commands_of_the_native_program_are_named_as_such() {
        let with = |is_native| {
            let (mut screen, _, err) = screen(false, false);
            screen.properties.is_native = is_native;
            (screen, err)
        };
        for (line, is_named) in [
            ("next: threadkeep chat a", true),
            ("`threadkeep doctor` shows the models", true),
            ("next: threadkeep resume a", false),
            ("threadkeep auditors are none", false),
            ("the native program has it: threadkeep copy", false),
        ] {
            let (mut native, native_err) = with(true);
            native.note(line);
            assert_eq!(native_err.text(), format!("{line}\n"));
            let (mut other, other_err) = with(false);
            other.note(line);
            let shown = other_err.text();
            assert_eq!(shown.contains("of the native program"), is_named, "{shown}");
            assert!(shown.starts_with(line), "{shown}");
        }
        let fault = CommandFault::new("x", "wrong").with_hint("`threadkeep audit` tells");
        let (mut other, err) = with(false);
        other.print_fault(&fault);
        assert!(
            err.text().contains("command of the native program"),
            "{}",
            err.text()
        );
    }
}
