//! Lines of standard input as a stream. A thread of its own reads them, so that waiting for a user
//! blocks nothing else.

use std::io::{BufRead, stdin};
use threadkeep_cli::input::{next_line, read_whole};
use tokio::sync::mpsc;

pub use threadkeep_cli::input::InputLine;

/// The lines of standard input.
pub struct InputLines {
    lines: mpsc::Receiver<InputLine>,
}

impl InputLines {
    /// Starts the reading thread. It reads at most one line ahead.
    pub fn start() -> Self {
        let (sender, lines) = mpsc::channel(1);
        std::thread::spawn(move || forward_lines(&mut stdin().lock(), &sender));
        Self { lines }
    }

    /// Starts a thread that reads all of standard input, as the one item of the stream.
    pub fn start_whole() -> Self {
        let (sender, lines) = mpsc::channel(1);
        std::thread::spawn(move || {
            // The receiver is gone where the command has ended.
            let _ = sender.blocking_send(read_whole(&mut stdin().lock()));
        });
        Self { lines }
    }

    /// Returns the next line; none at the end.
    pub async fn next(&mut self) -> Option<InputLine> {
        self.lines.recv().await
    }
}

fn forward_lines(reader: &mut impl BufRead, sender: &mpsc::Sender<InputLine>) {
    while let Some(line) = next_line(reader) {
        let last = matches!(line, InputLine::Bad(_));
        if sender.blocking_send(line).is_err() || last {
            return;
        }
    }
}
