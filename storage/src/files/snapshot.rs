//! A snapshot: the records of a store and the places of its log entries after one commit, so that
//! opening a store need not read what came before.
//!
//! ```text
//! threadkeep-snapshot 1 <number> <writer> <hash of the commit> <used> <last packed> <bytes> <hash>
//! record <collection> <bytes of the name> <version> <bytes of the value>
//! <name><value>
//! log <log> <bytes of the name> <first> <first loose> <runs> <loose>
//! <name>
//! <first> <count> <segment>                            for each run
//! <commit> <offset in the commit> <bytes>              for each loose entry
//! loose <number> <writer> <bytes>                      for each loose commit
//! segment <first> <last>                               for each segment
//! ```

use super::StoreFault;
use super::commit_text::{BodyReader, HEADER_BYTES_MAX, check_format, sha256_hex};
use super::segment::read_places;
use super::view::{CommitIdentity, LogPlaces, LooseCommit, SegmentRun, StoreView};
use crate::quota::record_bytes;
use crate::record_map::KeptRecord;
use std::fmt::Write;

/// First word of a snapshot.
const MAGIC: &str = "threadkeep-snapshot";

/// Writes the snapshot of a view.
pub(super) fn write_snapshot(view: &StoreView) -> String {
    let mut body = String::new();
    for (collection, name, record) in view.records.iter() {
        let KeptRecord { version, value } = record;
        let (name_bytes, bytes) = (name.len(), value.len());
        let _ = writeln!(
            body,
            "record {collection} {name_bytes} {version} {bytes}\n{name}{value}"
        );
    }
    for (log, partitions) in &view.logs {
        for (partition, places) in partitions {
            write_log(&mut body, log, partition, places);
        }
    }
    for (number, commit) in &view.loose {
        let _ = writeln!(body, "loose {number} {} {}", commit.writer, commit.bytes);
    }
    for (first, last) in &view.segments {
        let _ = writeln!(body, "segment {first} {last}");
    }
    let CommitIdentity {
        number,
        writer,
        hash,
    } = &view.tip;
    let (used, packed, bytes) = (view.used_bytes, view.last_packed(), body.len());
    let start = format!("{MAGIC} 1 {number} {writer} {hash} {used} {packed} {bytes} ");
    let own = sha256_hex(&[&start, &body]);
    format!("{start}{own}\n{body}")
}

fn write_log(body: &mut String, log: &str, partition: &str, places: &LogPlaces) {
    let (bytes, runs, loose) = (partition.len(), places.runs.len(), places.loose.len());
    let (first, loose_first) = (places.first, places.loose_first);
    let _ = writeln!(
        body,
        "log {log} {bytes} {first} {loose_first} {runs} {loose}\n{partition}"
    );
    for run in &places.runs {
        let _ = writeln!(body, "{} {} {}", run.first, run.count, run.segment);
    }
    for place in &places.loose {
        let _ = writeln!(body, "{} {} {}", place.commit, place.offset, place.bytes);
    }
}

/// Reads a snapshot, checked by its hash.
pub(super) fn read_snapshot(content: &[u8], name: &str) -> Result<StoreView, StoreFault> {
    let torn = || StoreFault::corrupt(format!("{name} is torn, or was edited: its hash differs"));
    let end = content
        .iter()
        .take(HEADER_BYTES_MAX)
        .position(|byte| *byte == b'\n');
    let text = std::str::from_utf8(content).map_err(|_| torn())?;
    let (line, body) = text.split_at(end.ok_or_else(torn)? + 1);
    let words: Vec<&str> = line.trim_end().split(' ').collect();
    check_format(&words, MAGIC, name)?;
    let [_, _, number, writer, commit_hash, used, _, _, hash] = words[..] else {
        return Err(torn());
    };
    let start = &line[..line.len() - hash.len() - 1];
    if sha256_hex(&[start, body]) != hash {
        return Err(torn());
    }
    let mut view = StoreView {
        tip: CommitIdentity {
            number: number.parse().map_err(|_| torn())?,
            writer: writer.to_owned(),
            hash: commit_hash.to_owned(),
        },
        used_bytes: used.parse().map_err(|_| torn())?,
        ..StoreView::default()
    };
    let mut reader = BodyReader::new(body, name);
    while let Some(words) = reader.next_line()? {
        read_item(&mut view, &mut reader, &words)?;
    }
    Ok(view)
}

fn read_item(
    view: &mut StoreView,
    reader: &mut BodyReader<'_>,
    words: &[&str],
) -> Result<(), StoreFault> {
    match *words {
        ["record", collection, name, version, value] => {
            let (name, value) = (reader.count(name)?, reader.count(value)?);
            let version = reader.number(version)?;
            let name = reader.take(name)?;
            let value = reader.take_line(value)?.to_owned();
            let bytes = record_bytes(name.len(), value.len());
            view.record_bytes = view.record_bytes.saturating_add_signed(bytes);
            view.records
                .replace_record(collection, name, KeptRecord { version, value });
        }
        ["log", log, partition, first, loose_first, runs, loose] => {
            let (first, loose_first) = (reader.number(first)?, reader.number(loose_first)?);
            let (runs, loose) = (reader.count(runs)?, reader.count(loose)?);
            let partition = reader.count(partition)?;
            let partition = reader.take_line(partition)?.to_owned();
            let runs = read_runs(reader, runs)?;
            let loose = read_places(reader, loose)?.into();
            let places = LogPlaces {
                first,
                runs,
                loose_first,
                loose,
            };
            view.logs
                .entry(log.to_owned())
                .or_default()
                .insert(partition, places);
        }
        ["loose", number, writer, bytes] => {
            let (number, bytes) = (reader.number(number)?, reader.number(bytes)?);
            let writer = writer.to_owned();
            view.loose.insert(number, LooseCommit { writer, bytes });
        }
        ["segment", first, last] => {
            view.segments
                .push((reader.number(first)?, reader.number(last)?));
        }
        _ => return Err(reader.fault()),
    }
    Ok(())
}

fn read_runs(reader: &mut BodyReader<'_>, count: usize) -> Result<Vec<SegmentRun>, StoreFault> {
    let mut runs = Vec::new();
    for _ in 0..count {
        let words = reader.next_line()?.unwrap_or_default();
        let [first, count, segment] = words[..] else {
            return Err(reader.fault());
        };
        runs.push(SegmentRun {
            first: reader.number(first)?,
            count: reader.number(count)?,
            segment: reader.number(segment)?,
        });
    }
    Ok(runs)
}
