//! A command in a terminal of its own, with a person who types; and the screen that it leaves.
//!
//! The terminal is one that `script` of util-linux makes; the screen is drawn by `vt100`, an
//! emulator by other authors.

use crate::binary::{self, ProcessOutput, RunningProcess};
use std::io::Write;
use std::num::NonZeroU16;
use std::process::{ChildStdin, Command, Stdio};

/// Rows of the terminals: more than any test writes.
pub const ROWS: NonZeroU16 = NonZeroU16::new(60).unwrap();
/// Columns of the terminals.
pub const COLUMNS: NonZeroU16 = NonZeroU16::new(80).unwrap();

/// A command that runs in a terminal.
#[derive(Debug)]
pub struct TerminalProcess {
    running: RunningProcess,
    keys: ChildStdin,
}

impl TerminalProcess {
    /// Starts a command in a terminal of [`COLUMNS`]. `None`, with a printed line, where none can be
    /// made.
    ///
    /// # Panics
    /// In CI, if none can be made.
    pub fn start(command: &Command) -> Option<Self> {
        let size = format!("stty cols {COLUMNS} rows {ROWS}; exec ");
        let mut wrapped = binary::in_terminal_after(&size, command)?;
        wrapped.stdin(Stdio::piped()).env("TERM", "xterm");
        let mut running = binary::start(wrapped);
        let keys = running.take_input();
        Some(Self { running, keys })
    }

    /// Types these keys; `\r` is Enter, `\x03` Ctrl-C.
    ///
    /// # Panics
    /// If the terminal is gone.
    pub fn type_keys(&mut self, keys: &str) {
        let typed = self.keys.write_all(keys.as_bytes());
        typed.and_then(|()| self.keys.flush()).expect("a terminal");
    }

    /// Waits until the terminal was sent this text.
    ///
    /// # Panics
    /// If the text does not come in time.
    pub fn await_text(&self, text: &str) {
        self.running.await_out(text);
    }

    /// Waits for the end of the command; what the terminal was sent is its standard output.
    ///
    /// # Panics
    /// If the command does not end in time.
    pub fn wait_for_end(self) -> ProcessOutput {
        let Self { running, keys } = self;
        let output = running.wait_for_end();
        drop(keys);
        output
    }
}

/// Returns the lines of the screen after this output, without empty ones at the end.
pub fn draw_screen(output: &str) -> String {
    let mut parser = vt100::Parser::new(ROWS, COLUMNS, 0);
    parser.process(output.as_bytes());
    let contents = parser.screen().contents();
    let lines = contents.lines().map(str::trim_end);
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    format!("{}\n", text.trim_end())
}
