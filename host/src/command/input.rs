//! Lines of standard input as a stream. A thread of its own reads them, so that waiting for a user
//! blocks nothing else.

use std::io::{BufRead, Read, stdin};
use tokio::sync::mpsc;

/// Longest line, in bytes: more than any message or event that the component accepts, and little
/// enough for memory.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// One item of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A line, without its end.
    Text(String),
    /// A line that cannot be used, and why. The lines after it are not read.
    Bad(String),
}

/// The lines of standard input.
pub struct Input {
    lines: mpsc::Receiver<Line>,
}

impl Input {
    /// Starts the reading thread. It reads at most one line ahead.
    pub fn read() -> Self {
        let (sender, lines) = mpsc::channel(1);
        std::thread::spawn(move || forward(&mut stdin().lock(), &sender));
        Self { lines }
    }

    /// Returns the next line; none at the end.
    pub async fn next(&mut self) -> Option<Line> {
        self.lines.recv().await
    }
}

fn forward(reader: &mut impl BufRead, sender: &mpsc::Sender<Line>) {
    while let Some(line) = next_line(reader) {
        let last = matches!(line, Line::Bad(_));
        if sender.blocking_send(line).is_err() || last {
            return;
        }
    }
}

fn next_line(reader: &mut impl BufRead) -> Option<Line> {
    let mut bytes = Vec::new();
    let mut bounded = reader.take(LINE_BYTES_MAX as u64 + 1);
    match bounded.read_until(b'\n', &mut bytes) {
        Ok(0) => return None,
        Ok(_) => {}
        Err(error) => return Some(Line::Bad(format!("cannot be read: {error}"))),
    }
    if bytes.ends_with(b"\n") {
        bytes.pop();
        bytes.pop_if(|last| *last == b'\r');
    }
    if bytes.len() > LINE_BYTES_MAX {
        return Some(Line::Bad(format!(
            "has a line of more than {LINE_BYTES_MAX} bytes"
        )));
    }
    Some(match String::from_utf8(bytes) {
        Ok(text) => Line::Text(text),
        Err(_) => Line::Bad("has a line that is not UTF-8".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Vec<Line> {
        let mut reader = bytes;
        std::iter::from_fn(|| next_line(&mut reader)).collect()
    }

    #[test]
    fn lines_lose_their_ends_and_nothing_else() {
        let text = |text: &str| Line::Text(text.to_owned());
        assert_eq!(lines(b""), []);
        assert_eq!(lines(b"\n"), [text("")]);
        assert_eq!(
            lines("a \r\n\r\n漢\rb\nlast".as_bytes()),
            [text("a "), text(""), text("漢\rb"), text("last")]
        );
    }

    #[test]
    fn what_cannot_be_used_is_told() {
        let longest = vec![b'x'; LINE_BYTES_MAX];
        assert_eq!(lines(&longest).len(), 1);
        assert!(matches!(&lines(&longest)[0], Line::Text(line) if line.len() == LINE_BYTES_MAX));
        let longer = vec![b'x'; LINE_BYTES_MAX + 1];
        assert!(matches!(&lines(&longer)[0], Line::Bad(why) if why.contains("more than")));
        assert!(matches!(&lines(b"\xff\n")[0], Line::Bad(why) if why.contains("UTF-8")));
    }
}
