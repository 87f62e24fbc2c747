//! Lines of standard input, bounded.

use std::io::{BufRead, Read};

/// Longest line, in bytes: more than any message or event that the component accepts, and little
/// enough for memory.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// One item of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputLine {
    /// A line, without its end.
    Text(String),
    /// A line that cannot be used, and why. The lines after it are not read.
    Bad(String),
}

/// Reads the next line; none at the end. After a bad line nothing may be read.
pub fn next_line(reader: &mut impl BufRead) -> Option<InputLine> {
    let mut bytes = Vec::new();
    let mut bounded = reader.take(LINE_BYTES_MAX as u64 + 1);
    match bounded.read_until(b'\n', &mut bytes) {
        Ok(0) => return None,
        Ok(_) => {}
        Err(error) => return Some(InputLine::Bad(format!("cannot be read: {error}"))),
    }
    if bytes.ends_with(b"\n") {
        bytes.pop();
        bytes.pop_if(|last| *last == b'\r');
    }
    if bytes.len() > LINE_BYTES_MAX {
        return Some(InputLine::Bad(format!(
            "has a line of more than {LINE_BYTES_MAX} bytes"
        )));
    }
    Some(match String::from_utf8(bytes) {
        Ok(text) => InputLine::Text(text),
        Err(_) => InputLine::Bad("has a line that is not UTF-8".to_owned()),
    })
}

/// Reads all that there is as one text, without the end of its last line.
pub fn read_whole(reader: &mut impl BufRead) -> InputLine {
    let mut bytes = Vec::new();
    let mut bounded = reader.take(LINE_BYTES_MAX as u64 + 1);
    if let Err(error) = bounded.read_to_end(&mut bytes) {
        return InputLine::Bad(format!("cannot be read: {error}"));
    }
    if bytes.len() > LINE_BYTES_MAX {
        return InputLine::Bad(format!("has more than {LINE_BYTES_MAX} bytes"));
    }
    if bytes.ends_with(b"\n") {
        bytes.pop();
        bytes.pop_if(|last| *last == b'\r');
    }
    match String::from_utf8(bytes) {
        Ok(text) => InputLine::Text(text),
        Err(_) => InputLine::Bad("is not UTF-8".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_text_is_bounded_and_loses_its_last_end() {
        let text = |text: &str| InputLine::Text(text.to_owned());
        for (given, expected) in [("", ""), ("a\n\nb\r\n", "a\n\nb"), ("a\n\n", "a\n")] {
            assert_eq!(
                read_whole(&mut given.as_bytes()),
                text(expected),
                "{given:?}"
            );
        }
        let bad = |bytes: &[u8]| matches!(read_whole(&mut &*bytes), InputLine::Bad(_));
        assert!(bad(b"a\xff"));
        assert!(bad(&vec![b'x'; LINE_BYTES_MAX + 1]) && !bad(&vec![b'x'; LINE_BYTES_MAX]));
    }

    fn lines(bytes: &[u8]) -> Vec<InputLine> {
        let mut reader = bytes;
        std::iter::from_fn(|| next_line(&mut reader)).collect()
    }

    #[test]
    fn lines_lose_their_ends_and_nothing_else() {
        let text = |text: &str| InputLine::Text(text.to_owned());
        assert_eq!(lines(b""), []);
        assert_eq!(lines(b"\n"), [text("")]);
        assert_eq!(
            lines("a \r\n\r\n漢\rb\nlast".as_bytes()),
            [text("a "), text(""), text("漢\rb"), text("last")]
        );
    }

    #[test]
    fn unusable_lines_are_reported() {
        let longest = vec![b'x'; LINE_BYTES_MAX];
        assert_eq!(lines(&longest).len(), 1);
        assert!(
            matches!(&lines(&longest)[0], InputLine::Text(line) if line.len() == LINE_BYTES_MAX)
        );
        let longer = vec![b'x'; LINE_BYTES_MAX + 1];
        assert!(matches!(&lines(&longer)[0], InputLine::Bad(why) if why.contains("more than")));
        assert!(matches!(&lines(b"\xff\n")[0], InputLine::Bad(why) if why.contains("UTF-8")));
    }
}
