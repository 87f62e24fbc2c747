//! Writes answers to standard output, everything else to standard error.
//!
//! With `--json`, standard output gets one document and nothing else; characters in it that a
//! terminal would obey or hide are escaped. Text for a terminal passes [`crate::printable`]; a file
//! or a pipe gets it unchanged. Standard error is for people and is always made safe, before styles
//! are put around it ([`crate::style`]). A closed pipe
//! does not end a command: its effect on threads matters more than its output. Nor does a full
//! disk, but then the answer is lost, and [`OutputScreen::finish`] reports it.

use crate::answer::CommandAnswer;
use crate::args::OutputArgs;
use crate::exit::{CommandExit, CommandFault};
use crate::parse::ParseReply;
use crate::printable;
use crate::style::{StyledLine, TextRole};
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
    /// Standard output gets styles.
    pub out_styled: bool,
    /// Standard error gets styles.
    pub err_styled: bool,
    /// Returns the columns of the terminal that standard error or output is, if they are known.
    pub columns: fn() -> Option<usize>,
    /// True for the native program; false for one that has not all of its commands.
    pub is_native: bool,
    /// The instant to which relative times refer; none is the clock.
    pub now: Option<Timestamp>,
}

/// The words of this crate for the program that has all of the commands.
const NATIVE_PROGRAM: &str = "native program";

/// The commands that only the native program has.
pub const NATIVE_COMMANDS: [&str; 9] = [
    "chat", "doctor", "audit", "import", "copy", "prune", "repair", "init", "top",
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
    /// True if standard error is in the middle of a line, of [`OutputScreen::print_aside`].
    open_aside: bool,
    /// The options of the user about what is printed.
    asked: OutputArgs,
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

/// Columns of a terminal that does not tell.
const COLUMNS_DEFAULT: usize = 80;

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
            open_aside: false,
            asked: OutputArgs::default(),
            threads_lost: false,
            write_error: None,
            lost_hint: LOST_ANSWER_HINT.to_owned(),
        }
    }

    /// Sets what the user asked to be printed.
    pub fn set_output_args(&mut self, asked: OutputArgs) {
        self.asked = asked;
    }

    /// Sets which streams get styles, for a host that knows its environment late.
    pub fn set_styled(&mut self, out: bool, err: bool) {
        self.properties.out_styled = out;
        self.properties.err_styled = err;
    }

    /// Returns true if the user wants no progress.
    pub fn is_quiet(&self) -> bool {
        self.asked.quiet
    }

    /// Returns true if times are of interest: to a user who watches, or has asked for them.
    pub fn shows_times(&self) -> bool {
        self.properties.err_terminal || self.asked.verbose
    }

    /// Returns the columns of the terminal that standard error is; none elsewhere.
    pub fn columns(&self) -> Option<usize> {
        let columns = || (self.properties.columns)().unwrap_or(COLUMNS_DEFAULT);
        self.properties.err_terminal.then(columns)
    }

    /// Returns the columns of the terminal that standard output is; none elsewhere.
    pub fn out_columns(&self) -> Option<usize> {
        let columns = || (self.properties.columns)().unwrap_or(COLUMNS_DEFAULT);
        self.properties.out_terminal.then(columns)
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
        let message = format!("standard output cannot be written: {error}");
        let hint = self.lost_hint.clone();
        self.print_err_fault(&message, Some(&hint));
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
        if self.properties.out_terminal {
            self.end_aside();
        }
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
        self.print_text(&format!("{}\n", printable::line(line)));
    }

    /// Ends the line that [`OutputScreen::print_text`] has left open.
    pub fn end_line(&mut self) {
        if self.open_line {
            self.print_text("\n");
        }
    }

    /// Prints a line for the user on standard error. Nothing with `--json` or `--quiet`.
    pub fn note(&mut self, line: &str) {
        self.note_line(&StyledLine::plain(line));
    }

    /// As [`OutputScreen::note`], for a line with styles.
    pub fn note_line(&mut self, line: &StyledLine) {
        if !self.asked.quiet {
            self.report(line);
        }
    }

    /// Prints a line for the user who asked for more with `--verbose`.
    pub fn note_detail(&mut self, line: &str) {
        if self.asked.verbose {
            self.note(line);
        }
    }

    /// Prints a line that the user needs, with `--quiet` too. Nothing with `--json`.
    pub fn report(&mut self, line: &StyledLine) {
        if !self.properties.json {
            self.print_err(line);
        }
    }

    /// Prints a warning on standard error, with `--json` too.
    pub fn warn(&mut self, line: &str) {
        let label = StyledLine::default().with(TextRole::Warning, "warning:");
        self.print_err(&label.with(TextRole::Plain, &format!(" {line}")));
    }

    /// Prints a part of a text that stands beside the answer, such as thinking, on standard error.
    /// Nothing with `--json` or `--quiet`.
    pub fn print_aside(&mut self, text: &str) {
        if self.properties.json || self.asked.quiet || text.is_empty() {
            return;
        }
        self.erase();
        self.leave_answer_line();
        let shown = printable::text(text);
        let styled = TextRole::Aside.paint(&shown, self.properties.err_styled);
        let _ = write!(self.err, "{styled}");
        let _ = self.err.flush();
        self.open_aside = !shown.ends_with('\n');
    }

    /// Ends the line that [`OutputScreen::print_aside`] has left open.
    fn end_aside(&mut self) {
        if std::mem::take(&mut self.open_aside) {
            let _ = writeln!(self.err);
        }
    }

    /// Ends the line of an answer before something else is written to the same terminal.
    fn leave_answer_line(&mut self) {
        if self.open_line && self.properties.out_terminal && self.properties.err_terminal {
            self.print_text("\n");
        }
    }

    fn print_err(&mut self, line: &StyledLine) {
        self.erase();
        self.end_aside();
        // Both streams are the same terminal: a note does not begin in the middle of the answer's
        // line.
        self.leave_answer_line();
        // It stays one line: what a file or a model wrote in it must not pass for another.
        let rendered = line.render(self.properties.err_styled);
        let plain = line.render(false);
        let named = self.name_native(&plain);
        let added = named.strip_prefix(&*plain).unwrap_or_default();
        let _ = writeln!(self.err, "{rendered}{added}");
    }

    /// Shows a line that the next one replaces, on a terminal; nothing elsewhere, or while an
    /// answer's line is open.
    pub fn show_live(&mut self, line: &str) {
        let shared = self.open_line && self.properties.out_terminal;
        let silent = self.properties.json || self.asked.quiet;
        let Some(columns) = self.columns().filter(|_| !silent && !shared) else {
            return;
        };
        self.end_aside();
        // A line that wraps could not be erased.
        let line = StyledLine::default().with(TextRole::Aside, line);
        let line = line.cut_to(columns.saturating_sub(1));
        let shown = line.render(self.properties.err_styled);
        let _ = write!(self.err, "{ERASE}{shown}");
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
        self.end_lines();
        let _ = write!(self.err, "{text}");
        let _ = self.err.flush();
    }

    /// Ends every line that is open, before another program writes to the terminal.
    pub fn end_lines(&mut self) {
        self.erase();
        self.end_aside();
        self.end_line();
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
        self.print_err_fault(&fault.message, fault.hint.as_deref());
        fault.exit
    }

    fn print_err_fault(&mut self, message: &str, hint: Option<&str>) {
        let label = StyledLine::default().with(TextRole::Failure, "error:");
        self.print_err(&label.with(TextRole::Plain, &format!(" {message}")));
        if let Some(hint) = hint {
            let label = StyledLine::default().with(TextRole::Aside, "  next:");
            self.print_err(&label.with(TextRole::Plain, &format!(" {hint}")));
        }
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
            ParseReply::Text {
                plain,
                styled,
                details,
                ..
            } => {
                let text = if self.properties.out_styled {
                    styled
                } else {
                    plain
                };
                self.write_out(format!("{}\n", text.trim_end()).as_bytes());
                for (name, value) in details {
                    self.write_out(format!("{name:<9}  {value}\n").as_bytes());
                }
                if !self.properties.is_native {
                    let native = NATIVE_COMMANDS.join(", ");
                    self.note(&format!("the native program alone has: {native}"));
                }
            }
            ParseReply::Wrong { plain, .. } => {
                let plain = printable::text(plain.trim_end());
                let (label, rest) = match plain.strip_prefix("error:") {
                    Some(rest) => ("error:", rest),
                    None => ("", &*plain),
                };
                let label = TextRole::Failure.paint(label, self.properties.err_styled);
                let _ = writeln!(self.err, "{label}{rest}");
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
pub(crate) mod tests;
