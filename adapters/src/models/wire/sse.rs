//! Server-sent events of an answer, parsed within bounds.
//!
//! The rules are those of the WHATWG HTML specification, section 9.2.6: lines end with LF, CR or
//! CRLF, a byte order mark may stand before the first, and a blank line ends an event. Only the
//! `data` of events is used: their names repeat its type, and an answer cannot be resumed by an id.
//! A line without an end, and an event without the blank line after it, are dropped at the end of
//! the stream, as the specification says.

use crate::models::REPLY_BYTES_MAX;
use futures_util::stream::{self, Stream, StreamExt};
use std::pin::Pin;

/// Most bytes of one event. Some servers send a whole reply as one event: 128 Ki tokens, the
/// longest output that models have, of eight bytes each, and twice that where JSON escapes them. An
/// event is in memory several times while it is read.
pub(super) const EVENT_BYTES_MAX: usize = REPLY_BYTES_MAX / 2;
/// Most values and names in the JSON of one event. Each costs some 200 bytes of memory but may be
/// two bytes of text, so a bound on bytes alone does not bound the memory. A usual event has some
/// ten; one with the arguments of a call as JSON has some thousand.
const EVENT_VALUES_MAX: usize = 1 << 16;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// An error that ends a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SseError {
    /// The connection broke.
    Transport,
    /// An event or the stream is larger than its bound, or an event has too many values.
    TooLarge,
    /// The bytes are not UTF-8, or not an event stream.
    NotText,
}

/// Parses the `data` of each event of a byte stream. The stream has at most `bytes_max` bytes,
/// comments and empty events included, because a provider could send them for ever. The caller
/// bounds the time.
pub(super) fn parse_events<S, B, E>(
    bytes: S,
    bytes_max: u64,
) -> impl Stream<Item = Result<String, SseError>>
where
    S: Stream<Item = Result<B, E>>,
    B: AsRef<[u8]>,
{
    let reader = EventReader {
        bytes: Box::pin(bytes),
        bytes_max,
        buffer: Vec::new(),
        start: 0,
        scanned: 0,
        total: 0,
        event: 0,
        data: None,
        first: true,
    };
    // The stream ends after its first error.
    stream::unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        let event = reader.next_event().await?;
        let rest = event.is_ok().then_some(reader);
        Some((event, rest))
    })
}

/// Returns true if a JSON text is within the bounds of one event. Only then it is parsed.
pub(super) fn is_small(json: &str) -> bool {
    json.len() <= EVENT_BYTES_MAX && count_values(json) <= EVENT_VALUES_MAX
}

/// Counts the values and names of a JSON text without parsing it: each but the first follows one of
/// the four characters below.
fn count_values(json: &str) -> usize {
    let (mut values, mut within, mut escaped) = (1, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = within,
            b'"' => within = !within,
            b',' | b':' | b'[' | b'{' if !within => values += 1,
            _ => {}
        }
    }
    values
}

struct EventReader<S> {
    bytes: Pin<Box<S>>,
    bytes_max: u64,
    buffer: Vec<u8>,
    /// Start of the current line in `buffer`.
    start: usize,
    /// `buffer` has no line end before this offset.
    scanned: usize,
    total: u64,
    /// Bytes of the current event so far.
    event: usize,
    /// The values of its `data` fields so far; `None` if it has none.
    data: Option<String>,
    first: bool,
}

impl<S, B, E> EventReader<S>
where
    S: Stream<Item = Result<B, E>>,
    B: AsRef<[u8]>,
{
    /// Returns the data of the next event; `None` at the end of the stream.
    async fn next_event(&mut self) -> Option<Result<String, SseError>> {
        loop {
            match self.read_line() {
                Some(Ok(None)) => continue,
                Some(Ok(Some(data))) => return Some(Ok(data)),
                Some(Err(error)) => return Some(Err(error)),
                None => {}
            }
            if self.buffer.len() - self.start > EVENT_BYTES_MAX {
                return Some(Err(SseError::TooLarge));
            }
            match self.bytes.next().await {
                None => return None,
                Some(Err(_)) => return Some(Err(SseError::Transport)),
                Some(Ok(chunk)) => self.push_chunk(chunk.as_ref()),
            }
            if self.total > self.bytes_max {
                return Some(Err(SseError::TooLarge));
            }
        }
    }

    fn push_chunk(&mut self, chunk: &[u8]) {
        self.total += chunk.len() as u64;
        self.buffer.drain(..self.start);
        self.scanned -= self.start;
        self.start = 0;
        self.buffer.extend_from_slice(chunk);
    }

    /// Reads the next line in the buffer, if it holds a whole one; returns the data of the event
    /// that the line ends, if it ends one with data.
    fn read_line(&mut self) -> Option<Result<Option<String>, SseError>> {
        let (end, next) = self.find_line_end()?;
        let start = std::mem::replace(&mut self.start, next);
        self.scanned = next;
        let mut line = &self.buffer[start..end];
        if std::mem::take(&mut self.first) {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        if line.is_empty() {
            self.event = 0;
            return Some(match self.data.take() {
                Some(data) if count_values(&data) > EVENT_VALUES_MAX => Err(SseError::TooLarge),
                data => Ok(data),
            });
        }
        self.event += line.len();
        if self.event > EVENT_BYTES_MAX {
            return Some(Err(SseError::TooLarge));
        }
        let Ok(line) = std::str::from_utf8(line) else {
            return Some(Err(SseError::NotText));
        };
        if let Some(value) = data_value(line) {
            match &mut self.data {
                None => self.data = Some(value.to_owned()),
                Some(data) => data.extend(["\n", value]),
            }
        }
        Some(Ok(None))
    }

    /// Returns the end of the current line and the start of the next one. A carriage return at the
    /// end of the buffer may be half of a pair, so it does not end the line yet.
    fn find_line_end(&mut self) -> Option<(usize, usize)> {
        let found = self.buffer[self.scanned..]
            .iter()
            .position(|byte| matches!(byte, b'\n' | b'\r'));
        let Some(end) = found.map(|at| self.scanned + at) else {
            self.scanned = self.buffer.len();
            return None;
        };
        self.scanned = end;
        match (self.buffer[end], self.buffer.get(end + 1)) {
            (b'\r', None) => None,
            (b'\r', Some(b'\n')) => Some((end, end + 2)),
            _ => Some((end, end + 1)),
        }
    }
}

/// Returns the value of a `data` field; `None` if the line is a comment or another field.
fn data_value(line: &str) -> Option<&str> {
    let (name, value) = line.split_once(':').unwrap_or((line, ""));
    (name == "data").then(|| value.strip_prefix(' ').unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_MAX: u64 = 10 << 20;

    async fn read(chunks: Vec<Vec<u8>>) -> Vec<Result<String, SseError>> {
        let bytes = stream::iter(chunks.into_iter().map(Ok::<_, ()>));
        parse_events(bytes, BYTES_MAX).collect().await
    }

    #[tokio::test]
    async fn events_whatever_the_chunks_and_line_ends() {
        for text in [
            "data: a\n\n: comment\n\ndata: ä\ndata: b\n\ndata: lost\n",
            "data: a\r\n\r\n: comment\r\n\r\ndata: ä\r\ndata: b\r\n\r\ndata: lost",
            "\u{FEFF}data: a\r\r:\r\rdata:ä\rdata: b\r\r.",
            "event: x\nid: 1\nretry: 5\ndata: a\n\ndata: ä\ndata: b\n\n",
        ] {
            for size in [1, 2, 3, 7, 1_000] {
                let chunks = text.as_bytes().chunks(size).map(<[u8]>::to_vec).collect();
                let want = vec![Ok("a".to_owned()), Ok("ä\nb".to_owned())];
                assert_eq!(read(chunks).await, want, "{text:?} in chunks of {size}");
            }
        }
    }

    #[tokio::test]
    async fn only_data_fields_make_events() {
        for (text, want) in [
            ("data\n\n", vec![""]),
            ("data:\ndata:  a:b\n\n", vec!["\n a:b"]),
            (
                "id: 1\nevent: data\n\ndatab: x\n data: x\n:data: x\n\n",
                vec![],
            ),
            // One mark is dropped; what follows a second one is the name of no field.
            ("\u{FEFF}\u{FEFF}data: x\ndata: a\n\n", vec!["a"]),
        ] {
            let want: Vec<_> = want.into_iter().map(|data| Ok(data.to_owned())).collect();
            assert_eq!(read(vec![text.into()]).await, want, "{text:?}");
        }
    }

    #[tokio::test]
    async fn bytes_that_are_not_text_end_it() {
        let got = read(vec![b"data: a\n\ndata: \xFF\n\n".to_vec()]).await;
        assert_eq!(got, [Ok("a".to_owned()), Err(SseError::NotText)]);
    }

    #[tokio::test]
    async fn a_line_and_an_event_are_bounded() {
        let line = vec![b'x'; EVENT_BYTES_MAX + 1];
        assert_eq!(read(vec![line.clone()]).await, [Err(SseError::TooLarge)]);
        let half = [&line[..EVENT_BYTES_MAX / 2], b"\n"].concat();
        assert_eq!(
            read(vec![half.clone(), half.clone(), half]).await,
            [Err(SseError::TooLarge)]
        );
    }

    /// Symptom: an event of 8 MB took 70 times as much memory. Cause: it was a list of small
    /// numbers, and each became a value of its own. Fix: values are counted before they are made.
    #[tokio::test]
    async fn an_event_of_many_values_is_refused_before_they_are_made() {
        for (text, expected) in [
            (r#"{"a":[1,{"b":"c"}],"d":",:[{"}"#, 9),
            (r#"["\"",",\\",1]"#, 4),
            ("", 1),
        ] {
            assert_eq!(count_values(text), expected, "{text}");
        }
        let event = |values: usize| format!("data: [{}0]\n\n", "0,".repeat(values)).into_bytes();
        let most = EVENT_VALUES_MAX - 2;
        assert!(read(vec![event(most)]).await[0].is_ok());
        assert_eq!(read(vec![event(most + 1)]).await, [Err(SseError::TooLarge)]);
        let words = format!("data: {{\"a\":\"{}\"}}\n\n", ",".repeat(EVENT_VALUES_MAX));
        assert!(read(vec![words.into_bytes()]).await[0].is_ok());
    }

    #[tokio::test]
    async fn a_stream_is_bounded_even_if_nothing_is_said() {
        let comments = [b":".repeat(10_000), b"\n\n".to_vec()].concat().repeat(100);
        let bytes = stream::repeat(Ok::<_, ()>(comments));
        let mut events = std::pin::pin!(parse_events(bytes, BYTES_MAX));
        assert_eq!(events.next().await, Some(Err(SseError::TooLarge)));
    }

    #[tokio::test]
    async fn a_broken_connection_is_told() {
        let cut = stream::iter([Ok(b"data: a\n\n".to_vec()), Err(())]);
        let got: Vec<_> = parse_events(cut, BYTES_MAX).collect().await;
        assert_eq!(got, [Ok("a".to_owned()), Err(SseError::Transport)]);
    }
}
