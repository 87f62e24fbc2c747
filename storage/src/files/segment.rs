//! A segment: commits, as they were written, one after the other, and an index of the log entries
//! in them. Which commits a segment has follows from their sizes alone, so two packers write the
//! same file.
//!
//! ```text
//! <commit><commit>...
//! commit <bytes>                                       for each commit
//! log <log> <bytes of the name> <first> <count>        for each log: its newest entries here
//! <name>
//! <commit> <offset in the commit> <bytes>              for each entry
//! threadkeep-segment 1 <first> <last> <place of the index> <hash of the index>
//! ```

use super::commit_text::{BodyReader, WrittenOp, check_format, read_body, read_commit, sha256_hex};
use super::view::CommitIdentity;
use super::{EntryPlace, StoreFault};
use crate::directory::DirectoryFile;
use std::collections::BTreeMap;
use std::fmt::Write;

/// First word of the last line.
const MAGIC: &str = "threadkeep-segment";
/// Bytes of the last line: its numbers have a fixed width.
const TRAILER_BYTES: usize = MAGIC.len() + 3 + 13 + 13 + 16 + 64 + 1;

/// The index of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SegmentIndex {
    /// First and last commit.
    pub range: (u64, u64),
    /// Place and bytes of each commit, in order.
    pub commits: Vec<(u64, u64)>,
    /// The newest run of entries of each log, by log and partition.
    pub runs: BTreeMap<(String, String), IndexedRun>,
}

/// Entries of one log, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IndexedRun {
    /// Position of the first.
    pub first: u64,
    /// Places, in order.
    pub places: Vec<EntryPlace>,
}

impl SegmentIndex {
    /// Place and bytes of a commit in the file.
    pub(super) fn commit_place(&self, number: u64) -> Option<(u64, u64)> {
        let at = number.checked_sub(self.range.0)?;
        self.commits.get(usize::try_from(at).ok()?).copied()
    }

    /// Place of a log entry.
    pub(super) fn entry_place(&self, log: &str, partition: &str, at: u64) -> Option<EntryPlace> {
        let run = self.runs.get(&(log.to_owned(), partition.to_owned()))?;
        let at = at.checked_sub(run.first)?;
        run.places.get(usize::try_from(at).ok()?).copied()
    }

    fn write(&self) -> String {
        let mut text = String::new();
        for (_, bytes) in &self.commits {
            let _ = writeln!(text, "commit {bytes}");
        }
        for ((log, partition), run) in &self.runs {
            let (bytes, count) = (partition.len(), run.places.len());
            let _ = writeln!(text, "log {log} {bytes} {} {count}\n{partition}", run.first);
            for place in &run.places {
                let _ = writeln!(text, "{} {} {}", place.commit, place.offset, place.bytes);
            }
        }
        text
    }

    fn read(range: (u64, u64), text: &str, name: &str) -> Result<Self, StoreFault> {
        let mut reader = BodyReader::new(text, name);
        let (mut commits, mut runs, mut offset) = (Vec::new(), BTreeMap::new(), 0);
        while let Some(words) = reader.next_line()? {
            match words[..] {
                ["commit", bytes] => {
                    let bytes = reader.number(bytes)?;
                    commits.push((offset, bytes));
                    offset += bytes;
                }
                ["log", log, partition, first, count] => {
                    let (first, count) = (reader.number(first)?, reader.count(count)?);
                    let partition = reader.count(partition)?;
                    let partition = reader.take_line(partition)?.to_owned();
                    let places = read_places(&mut reader, count)?;
                    let run = IndexedRun { first, places };
                    runs.insert((log.to_owned(), partition), run);
                }
                _ => return Err(reader.fault()),
            }
        }
        Ok(Self {
            range,
            commits,
            runs,
        })
    }
}

/// Reads lines of places.
pub(super) fn read_places(
    reader: &mut BodyReader<'_>,
    count: usize,
) -> Result<Vec<EntryPlace>, StoreFault> {
    let mut places = Vec::new();
    for _ in 0..count {
        let words = reader.next_line()?.unwrap_or_default();
        let [commit, offset, bytes] = words[..] else {
            return Err(reader.fault());
        };
        let (offset, bytes) = (reader.count(offset)?, reader.count(bytes)?);
        places.push(EntryPlace::new(reader.number(commit)?, offset, bytes));
    }
    Ok(places)
}

/// Builder of a segment from its commits, in order.
#[derive(Debug)]
pub(super) struct SegmentBuilder {
    content: String,
    index: SegmentIndex,
    /// The commit that was added last; the one before the first, at first.
    last: CommitIdentity,
}

impl SegmentBuilder {
    /// Begins a segment with the commit of this number.
    pub(super) fn new(first: u64) -> Self {
        Self {
            content: String::new(),
            index: SegmentIndex {
                range: (first, first),
                commits: Vec::new(),
                runs: BTreeMap::new(),
            },
            last: CommitIdentity::default(),
        }
    }

    /// Adds the next commit, as it stands in its file.
    pub(super) fn add(&mut self, commit: &[u8], name: &str) -> Result<(), StoreFault> {
        let (header, body) = read_commit(commit, name)?;
        let follows = self.index.commits.is_empty()
            || (header.number == self.last.number + 1 && header.previous == self.last.hash);
        if !follows {
            let before = self.last.number;
            return Err(StoreFault::corrupt(format!(
                "{name} does not follow commit {before}"
            )));
        }
        let place = (self.content.len() as u64, commit.len() as u64);
        read_body(body, header.line_bytes, name, &mut |op| {
            if let WrittenOp::Append {
                log,
                partition,
                at,
                value,
                offset,
            } = op
            {
                let place = EntryPlace::new(header.number, offset, value.len());
                let key = (log.to_owned(), partition.to_owned());
                let begin = || IndexedRun {
                    first: at,
                    places: Vec::new(),
                };
                let run = self.index.runs.entry(key).or_insert_with(begin);
                if run.first + run.places.len() as u64 != at {
                    // All entries were removed, and the log begins again.
                    *run = begin();
                }
                run.places.push(place);
            }
        })?;
        self.index.commits.push(place);
        self.index.range.1 = header.number;
        self.last = (&header).into();
        // A commit that was read is text.
        self.content
            .push_str(std::str::from_utf8(commit).unwrap_or_default());
        Ok(())
    }

    /// The file, and what stands in it.
    pub(super) fn finish(mut self) -> (String, SegmentIndex) {
        let index = self.index.write();
        let (first, last) = self.index.range;
        let place = self.content.len();
        let hash = sha256_hex(&[&index]);
        self.content.push_str(&index);
        let _ = writeln!(
            self.content,
            "{MAGIC} 1 {first:012} {last:012} {place:015} {hash}"
        );
        (self.content, self.index)
    }
}

/// Reads what stands in a segment, without its commits.
pub(super) fn read_index(
    file: &mut dyn DirectoryFile,
    range: (u64, u64),
    name: &str,
) -> Result<SegmentIndex, StoreFault> {
    let io = |error| StoreFault::io(name, error);
    let torn = || StoreFault::corrupt(format!("{name} is torn, or was edited"));
    let size = file.size().map_err(io)?;
    let end = size.checked_sub(TRAILER_BYTES as u64).ok_or_else(torn)?;
    let trailer = file.read_at(end, TRAILER_BYTES).map_err(io)?;
    let trailer = String::from_utf8(trailer).map_err(|_| torn())?;
    let words: Vec<&str> = trailer.trim_end().split(' ').collect();
    check_format(&words, MAGIC, name)?;
    let [_, _, first, last, place, hash] = words[..] else {
        return Err(torn());
    };
    let number = |word: &str| word.parse::<u64>().map_err(|_| torn());
    let place = number(place)?;
    if (number(first)?, number(last)?) != range {
        return Err(torn());
    }
    let bytes = end.checked_sub(place).ok_or_else(torn)?;
    let text = file.read_at(place, usize::try_from(bytes).map_err(|_| torn())?);
    let text = String::from_utf8(text.map_err(io)?).map_err(|_| torn())?;
    if sha256_hex(&[&text]) != hash {
        return Err(torn());
    }
    SegmentIndex::read(range, &text, name)
}
