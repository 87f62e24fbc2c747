//! The version that a transcript reaches, read from the file's own end: no second record of it
//! could be wrong.
//!
//! A transcript is a head (the manifest line, or a title), followed by the text of each entry. Its
//! last whole unit (a line, or an entry with its comment) names a version; anything after it is
//! torn. The caller compares the unit with the records, because anyone may have written the file.

use super::Document;
use serde::Deserialize;
use std::io;
use threadkeep_storage::directory::TreeFile;

/// Bytes that are read first from a file's end: more than most entries have.
const TAIL_BYTES_FIRST: u64 = 64 << 10;

/// Most bytes that are read from it. An entry has at most 1 MiB as it is stored. Quoting, times and
/// versions make the document larger, but less than four times.
pub(super) const TAIL_BYTES_MAX: u64 = 4 << 20;

/// Beginning of the comment after an entry; see `markdown` in the component's core.
const COMMENT: &[u8] = b"<!-- version ";

/// The end of a transcript.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TranscriptTail {
    /// The version that the last whole unit names; 0 if there is none.
    pub(super) version: u64,
    /// The file's bytes of that version, up to its last whole unit.
    pub(super) last: Vec<u8>,
    /// Offset of their end. Anything after it is torn.
    pub(super) whole: u64,
}

/// The last whole unit in a part of a file.
#[derive(Debug, PartialEq, Eq)]
enum TailUnit {
    /// The unit belongs to this version, of which the part holds these bytes.
    Found {
        version: u64,
        start: usize,
        end: usize,
    },
    /// There is no unit.
    None,
    /// More of the file must be read.
    NeedsMore,
    /// The content is not a transcript of this program.
    Foreign,
}

/// Reads the end of a transcript whose head has `head` bytes; `None` if it cannot be continued. It
/// blocks.
pub(super) fn read_tail(
    file: &mut dyn TreeFile,
    document: Document,
    head: u64,
) -> io::Result<Option<TranscriptTail>> {
    let length = file.size()?;
    for window in [TAIL_BYTES_FIRST, TAIL_BYTES_MAX] {
        let from = head.max(length.saturating_sub(window));
        let bytes = read_at(file, from, length.saturating_sub(from))?;
        match last_unit(&bytes, document, from == head) {
            TailUnit::Found {
                version,
                start,
                end,
            } => {
                return Ok(Some(TranscriptTail {
                    version,
                    last: bytes[start..end].to_vec(),
                    whole: from + end as u64,
                }));
            }
            TailUnit::None => {
                return Ok(Some(TranscriptTail {
                    version: 0,
                    last: Vec::new(),
                    whole: head,
                }));
            }
            TailUnit::NeedsMore => {}
            TailUnit::Foreign => return Ok(None),
        }
    }
    Ok(None)
}

/// Reads up to `count` bytes from a position; fewer at the end of the file. The caller bounds
/// `count`.
pub(super) fn read_at(file: &mut dyn TreeFile, from: u64, count: u64) -> io::Result<Vec<u8>> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    file.read_at(from, count)
}

/// Returns the version up to which the first `matched` bytes of a piece are whole; `after` is the
/// version before the piece. The piece is made from records, so it is parsed from its beginning,
/// where no text in it can be mistaken for an entry's end.
pub(super) fn reached_version(piece: &[u8], matched: usize, document: Document, after: u64) -> u64 {
    match document {
        Document::Markdown => version_by_entries(&piece[..matched], after),
        Document::Jsonl | Document::Thread => version_by_lines(piece, matched, after),
    }
}

fn version_by_lines(piece: &[u8], matched: usize, after: u64) -> u64 {
    let (mut reached, mut end) = (after, 0);
    for line in piece.split_inclusive(|&byte| byte == b'\n') {
        end += line.len();
        match parse_event_id(line) {
            // All lines of earlier entries are present, but not all lines of this entry.
            Some((version, _)) if end > matched => return reached.min(version - 1),
            Some((version, _)) => reached = version,
            None => return reached,
        }
    }
    reached
}

fn version_by_entries(piece: &[u8], after: u64) -> u64 {
    let (mut reached, mut start, mut from) = (after, 0, 0);
    while let Some(found) = find_bytes(&piece[from..], COMMENT) {
        let at = from + found;
        from = at + COMMENT.len();
        if let Some((version, count, size)) = parse_comment(&piece[at..])
            && count == at - start
        {
            (reached, start) = (version, at + size);
        }
    }
    reached
}

fn find_bytes(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

fn last_unit(bytes: &[u8], document: Document, from_head: bool) -> TailUnit {
    let found = match document {
        Document::Markdown => last_entry(bytes, from_head),
        Document::Jsonl | Document::Thread => last_lines(bytes, from_head),
    };
    match found {
        TailUnit::None | TailUnit::Foreign if !from_head => TailUnit::NeedsMore,
        found => found,
    }
}

/// Finds the lines of the last whole line's entry: the line's index is the number of lines before
/// it.
fn last_lines(bytes: &[u8], from_head: bool) -> TailUnit {
    let Some(end) = bytes.iter().rposition(|&byte| byte == b'\n') else {
        return TailUnit::None;
    };
    let mut starts = line_starts_before(bytes, end, from_head);
    let Some(last) = starts.next() else {
        return TailUnit::NeedsMore;
    };
    let Some((version, index)) = parse_event_id(&bytes[last..=end]) else {
        return TailUnit::Foreign;
    };
    let first = match index.checked_sub(1) {
        None => Some(last),
        Some(before) => starts.nth(before),
    };
    match first {
        Some(start) => TailUnit::Found {
            version,
            start,
            end: end + 1,
        },
        None if from_head => TailUnit::Foreign,
        None => TailUnit::NeedsMore,
    }
}

/// Returns the starts of lines, backwards from the line that ends at `end`. The start of the part
/// counts only if it directly follows the head.
fn line_starts_before(
    bytes: &[u8],
    end: usize,
    from_head: bool,
) -> impl Iterator<Item = usize> + '_ {
    let feeds = (0..end).rev().filter(|&at| bytes[at] == b'\n');
    feeds.map(|at| at + 1).chain(from_head.then_some(0))
}

/// Parses the event's version and index in a line.
fn parse_event_id(line: &[u8]) -> Option<(u64, usize)> {
    #[derive(Deserialize)]
    struct EventLine {
        event: (u64, u32),
    }
    let line: EventLine = serde_json::from_slice(line).ok()?;
    (line.event.0 > 0).then_some((line.event.0, line.event.1 as usize))
}

/// Finds the last entry that is closed by its comment.
fn last_entry(bytes: &[u8], from_head: bool) -> TailUnit {
    let mut until = bytes.len();
    loop {
        let found = bytes[..until].windows(COMMENT.len());
        let Some(at) = found.into_iter().rposition(|window| window == COMMENT) else {
            return TailUnit::None;
        };
        let begins = if at == 0 {
            from_head
        } else {
            bytes[at - 1] == b'\n'
        };
        match parse_comment(&bytes[at..]).filter(|_| begins) {
            Some((version, count, size)) => {
                return match at.checked_sub(count) {
                    Some(start) => TailUnit::Found {
                        version,
                        start,
                        end: at + size,
                    },
                    None if from_head => TailUnit::Foreign,
                    None => TailUnit::NeedsMore,
                };
            }
            None => until = at,
        }
    }
}

/// Parses a comment: version, bytes of the entry, and bytes of the comment itself with the empty
/// line after it.
fn parse_comment(bytes: &[u8]) -> Option<(u64, usize, usize)> {
    /// Two numbers of at most 20 digits and the words around them.
    const COMMENT_BYTES_MAX: usize = 80;
    let bytes = &bytes[..bytes.len().min(COMMENT_BYTES_MAX)];
    let end = find_bytes(bytes, b"\n\n")?;
    let text = std::str::from_utf8(&bytes[COMMENT.len()..end]).ok()?;
    let (version, count) = text.strip_suffix(" bytes -->")?.split_once(", ")?;
    let version = version.parse().ok().filter(|&version: &u64| version > 0)?;
    Some((version, count.parse().ok()?, end + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_unit(version: u64, start: usize, end: usize) -> TailUnit {
        TailUnit::Found {
            version,
            start,
            end,
        }
    }

    #[test]
    fn the_last_lines_of_a_part() {
        let (first, second) = (r#"{"event":[4,0]}"#, r#"{"event":[4,1]}"#);
        let both = format!("{first}\n{second}\n");
        let other = format!("{{\"event\":[3,0]}}\n{both}");
        for (text, from_head, expected) in [
            ("", true, TailUnit::None),
            ("", false, TailUnit::NeedsMore),
            ("{\"ev", true, TailUnit::None),
            ("x\n", true, TailUnit::Foreign),
            ("{\"event\":[0,0]}\n", true, TailUnit::Foreign),
            ("{\"event\":[1,-1]}\n", true, TailUnit::Foreign),
            ("{\"event\":[1,7]}\n", true, TailUnit::Foreign),
            ("{\"event\":[1,7]}\n", false, TailUnit::NeedsMore),
            (&both, true, found_unit(4, 0, 32)),
            (&both, false, TailUnit::NeedsMore),
            (&other, false, found_unit(4, 16, 48)),
            (&other[..other.len() - 1], true, found_unit(4, 16, 32)),
            (
                &format!("{other}{{\"event\":[5"),
                true,
                found_unit(4, 16, 48),
            ),
        ] {
            assert_eq!(
                last_unit(text.as_bytes(), Document::Jsonl, from_head),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn the_last_entry_of_a_part() {
        let one = "abc\n<!-- version 7, 4 bytes -->\n\n";
        let whole = one.len();
        for (text, from_head, expected) in [
            ("", true, TailUnit::None),
            ("abc", false, TailUnit::NeedsMore),
            (one, true, found_unit(7, 0, whole)),
            (&one[..whole - 1], true, TailUnit::None),
            (
                &format!("x\n{one}torn <!-- version 8, 5 bytes -->\n\n"),
                false,
                found_unit(7, 2, whole + 2),
            ),
            (
                "c\n<!-- version 7, 4 bytes -->\n\n",
                false,
                TailUnit::NeedsMore,
            ),
            (
                "c\n<!-- version 7, 4 bytes -->\n\n",
                true,
                TailUnit::Foreign,
            ),
            ("<!-- version 0, 0 bytes -->\n\n", true, TailUnit::None),
            (
                "<!-- version 99999999999999999999999, 0 bytes -->\n\n",
                true,
                TailUnit::None,
            ),
        ] {
            assert_eq!(
                last_unit(text.as_bytes(), Document::Markdown, from_head),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn a_version_is_reached_when_all_its_lines_are_there() {
        let piece = b"{\"event\":[4,0]}\n{\"event\":[4,1]}\n{\"event\":[6,0]}\n";
        for (matched, expected) in [(0, 2), (15, 2), (16, 3), (31, 3), (32, 4), (47, 4), (48, 6)] {
            assert_eq!(
                reached_version(piece, matched, Document::Jsonl, 2),
                expected,
                "{matched}"
            );
        }
        let first = "<!-- version 9, 9 bytes -->\n\n<!-- version 4, 29 bytes -->\n\n";
        let piece = format!("{first}abc\n<!-- version 6, 4 bytes -->\n\n");
        let (one, all) = (first.len(), piece.len());
        for (matched, expected) in [
            (0, 2),
            (29, 2),
            (one - 1, 2),
            (one, 4),
            (all - 1, 4),
            (all, 6),
        ] {
            let found = reached_version(piece.as_bytes(), matched, Document::Markdown, 2);
            assert_eq!(found, expected, "{matched}");
        }
    }
}
