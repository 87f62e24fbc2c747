//! The text of a commit file: one line that says what follows and its hash, then the operations
//! with their texts as they are. A person can read it.
//!
//! ```text
//! threadkeep-commit 1 <number> <writer> <hash of the one before> <used> <bytes of the body> <hash>
//! put <collection> <bytes of the name> <version> <bytes of the value>
//! <name><value>
//! ```

use super::StoreFault;
use crate::{CommitOp, RecordKey};
use sha2::{Digest, Sha256};

/// The format of all files of this store.
pub(super) const FORMAT: u32 = 1;
/// Most bytes of the first line: its numbers, names and hashes.
pub(super) const HEADER_BYTES_MAX: usize = 400;
/// First word of a commit file.
const MAGIC: &str = "threadkeep-commit";

/// The first line of a commit file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommitHeader {
    /// Its number, from 1; 0 is the file that makes a store.
    pub number: u64,
    /// Name that its writer gave this commit alone.
    pub writer: String,
    /// Hash of the commit before.
    pub previous: String,
    /// Bytes of the store that count for its quota, after this commit.
    pub used: u64,
    /// Bytes of the body.
    pub body_bytes: usize,
    /// SHA-256 of what stands before it in the line and of the body, hex.
    pub hash: String,
    /// Bytes of the line.
    pub line_bytes: usize,
}

impl CommitHeader {
    /// Bytes of the whole commit.
    pub(super) fn total_bytes(&self) -> usize {
        self.line_bytes + self.body_bytes
    }

    /// Reads the first line of `content`, whose file is named for the error.
    pub(super) fn parse(content: &[u8], name: &str) -> Result<Self, StoreFault> {
        let torn =
            || StoreFault::corrupt(format!("{name} is no commit: it is torn, or was edited"));
        let end = content
            .iter()
            .take(HEADER_BYTES_MAX)
            .position(|byte| *byte == b'\n');
        let line = std::str::from_utf8(&content[..end.ok_or_else(torn)?]).map_err(|_| torn())?;
        let words: Vec<&str> = line.split(' ').collect();
        check_format(&words, MAGIC, name)?;
        let [_, _, number, writer, previous, used, bytes, hash] = words[..] else {
            return Err(torn());
        };
        Ok(Self {
            number: number.parse().map_err(|_| torn())?,
            writer: writer.to_owned(),
            previous: previous.to_owned(),
            used: used.parse().map_err(|_| torn())?,
            body_bytes: bytes.parse().map_err(|_| torn())?,
            hash: hash.to_owned(),
            line_bytes: line.len() + 1,
        })
    }
}

/// Checks the first two words of a file of the store.
pub(super) fn check_format(words: &[&str], magic: &str, name: &str) -> Result<(), StoreFault> {
    let torn = || StoreFault::corrupt(format!("{name} is torn, or was edited"));
    match words {
        [first, format, ..] if *first == magic => {
            match format.parse::<u32>().map_err(|_| torn())? {
                FORMAT => Ok(()),
                newer if newer > FORMAT => Err(StoreFault::newer(name, newer)),
                _ => Err(torn()),
            }
        }
        _ => Err(torn()),
    }
}

/// An operation as it is written: decided, with the version that a record got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WrittenOp<'a> {
    Put {
        collection: &'a str,
        name: &'a str,
        version: u64,
        value: &'a str,
    },
    Delete {
        collection: &'a str,
        name: &'a str,
    },
    Append {
        log: &'a str,
        partition: &'a str,
        at: u64,
        value: &'a str,
        /// Place of the value in the commit file; 0 where it is not read from one.
        offset: usize,
    },
    Trim {
        log: &'a str,
        partition: &'a str,
        below: u64,
    },
}

/// Writes the body of a commit; `version` tells the version that a put gives its record.
pub(super) fn write_body(ops: &[CommitOp], version: impl Fn(&RecordKey) -> u64) -> String {
    let mut body = String::new();
    for op in ops {
        match op {
            CommitOp::Check { .. } => {}
            CommitOp::Put { key, value, .. } => {
                let head = (key.name.len(), version(key), value.len());
                let line = format!("put {} {} {} {}\n", key.collection, head.0, head.1, head.2);
                write_parts(&mut body, &[&line, &key.name, value, "\n"]);
            }
            CommitOp::Delete { key } => {
                let line = format!("delete {} {}\n", key.collection, key.name.len());
                write_parts(&mut body, &[&line, &key.name, "\n"]);
            }
            CommitOp::Append {
                log,
                partition,
                at,
                value,
            } => {
                let line = format!("append {log} {} {at} {}\n", partition.len(), value.len());
                write_parts(&mut body, &[&line, partition, value, "\n"]);
            }
            CommitOp::Trim {
                log,
                partition,
                below,
            } => {
                let line = format!("trim {log} {} {below}\n", partition.len());
                write_parts(&mut body, &[&line, partition, "\n"]);
            }
        }
    }
    body
}

fn write_parts(out: &mut String, parts: &[&str]) {
    for part in parts {
        out.push_str(part);
    }
}

/// Writes a whole commit file; returns it with its header.
pub(super) fn write_commit(
    (number, writer): (u64, &str),
    previous: &str,
    used: u64,
    body: &str,
) -> (String, CommitHeader) {
    let bytes = body.len();
    let start = format!("{MAGIC} {FORMAT} {number} {writer} {previous} {used} {bytes} ");
    let hash = sha256_hex(&[&start, body]);
    let header = CommitHeader {
        number,
        writer: writer.to_owned(),
        previous: previous.to_owned(),
        used,
        body_bytes: bytes,
        line_bytes: start.len() + hash.len() + 1,
        hash,
    };
    let text = format!("{start}{}\n{body}", header.hash);
    (text, header)
}

/// Reads a whole commit, checked by its hash: header and body.
pub(super) fn read_commit<'a>(
    content: &'a [u8],
    name: &str,
) -> Result<(CommitHeader, &'a str), StoreFault> {
    let torn = || StoreFault::corrupt(format!("{name} is torn, or was edited: its hash differs"));
    let header = CommitHeader::parse(content, name)?;
    if content.len() != header.total_bytes() {
        return Err(torn());
    }
    let text = std::str::from_utf8(content).map_err(|_| torn())?;
    let (line, body) = text.split_at(header.line_bytes);
    let start = line
        .len()
        .checked_sub(header.hash.len() + 1)
        .ok_or_else(torn)?;
    if sha256_hex(&[&line[..start], body]) != header.hash {
        return Err(torn());
    }
    Ok((header, body))
}

/// Calls `each` for every operation of a body. `offset` is the place of the body in its file.
pub(super) fn read_body<'a>(
    body: &'a str,
    offset: usize,
    name: &str,
    each: &mut dyn FnMut(WrittenOp<'a>),
) -> Result<(), StoreFault> {
    let mut reader = BodyReader::new(body, name);
    while let Some(words) = reader.next_line()? {
        match words[..] {
            ["put", collection, name, version, value] => {
                let (name, version) = (reader.count(name)?, reader.number(version)?);
                let value = reader.count(value)?;
                each(WrittenOp::Put {
                    collection,
                    name: reader.take(name)?,
                    version,
                    value: reader.take_line(value)?,
                });
            }
            ["delete", collection, name] => {
                let name = reader.count(name)?;
                each(WrittenOp::Delete {
                    collection,
                    name: reader.take_line(name)?,
                });
            }
            ["append", log, partition, at, value] => {
                let (partition, at) = (reader.count(partition)?, reader.number(at)?);
                let value = reader.count(value)?;
                let partition = reader.take(partition)?;
                let offset = offset + reader.at;
                each(WrittenOp::Append {
                    log,
                    partition,
                    at,
                    value: reader.take_line(value)?,
                    offset,
                });
            }
            ["trim", log, partition, below] => {
                let (partition, below) = (reader.count(partition)?, reader.number(below)?);
                each(WrittenOp::Trim {
                    log,
                    partition: reader.take_line(partition)?,
                    below,
                });
            }
            _ => return Err(reader.fault()),
        }
    }
    Ok(())
}

/// Reader of lines that name the bytes after them.
pub(super) struct BodyReader<'a> {
    body: &'a str,
    /// Bytes that are read.
    pub at: usize,
    name: String,
}

impl<'a> BodyReader<'a> {
    pub(super) fn new(body: &'a str, name: &str) -> Self {
        let name = name.to_owned();
        Self { body, at: 0, name }
    }

    /// The file does not hold what it should.
    pub(super) fn fault(&self) -> StoreFault {
        let (name, at) = (&self.name, self.at);
        StoreFault::corrupt(format!("{name} cannot be read at byte {at} of its body"))
    }

    /// The words of the next line; `None` at the end.
    pub(super) fn next_line(&mut self) -> Result<Option<Vec<&'a str>>, StoreFault> {
        let rest = &self.body[self.at..];
        if rest.is_empty() {
            return Ok(None);
        }
        let end = rest.find('\n').ok_or_else(|| self.fault())?;
        self.at += end + 1;
        Ok(Some(rest[..end].split(' ').collect()))
    }

    pub(super) fn number(&self, word: &str) -> Result<u64, StoreFault> {
        word.parse().map_err(|_| self.fault())
    }

    pub(super) fn count(&self, word: &str) -> Result<usize, StoreFault> {
        word.parse().map_err(|_| self.fault())
    }

    /// The next bytes, as text.
    pub(super) fn take(&mut self, bytes: usize) -> Result<&'a str, StoreFault> {
        let end = self.at.checked_add(bytes).ok_or_else(|| self.fault())?;
        let taken = self.body.get(self.at..end).ok_or_else(|| self.fault())?;
        self.at = end;
        Ok(taken)
    }

    /// The next bytes, which end a line.
    pub(super) fn take_line(&mut self, bytes: usize) -> Result<&'a str, StoreFault> {
        let taken = self.take(bytes)?;
        match self.take(1)? {
            "\n" => Ok(taken),
            _ => Err(self.fault()),
        }
    }
}

/// SHA-256 of several texts, one after the other, as hex.
pub(super) fn sha256_hex(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.as_bytes());
    }
    let mut hex = String::with_capacity(64);
    for byte in hasher.finalize() {
        for nibble in [byte >> 4, byte & 15] {
            hex.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
        }
    }
    hex
}
