//! The contents of a store as they are after its newest commit that was read: records in memory,
//! and the places of log entries.

use super::commit_text::{CommitHeader, WrittenOp, read_body};
use super::segment::SegmentIndex;
use super::{EntryPlace, StoreFault};
use crate::quota::record_bytes;
use crate::record_map::{KeptRecord, RecordMap};
use std::collections::{BTreeMap, VecDeque};

/// The identity of a commit: no two commits have the same, whatever their number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct CommitIdentity {
    /// Its number.
    pub number: u64,
    /// The name that its writer gave it.
    pub writer: String,
    /// Its hash.
    pub hash: String,
}

impl From<&CommitHeader> for CommitIdentity {
    fn from(header: &CommitHeader) -> Self {
        Self {
            number: header.number,
            writer: header.writer.clone(),
            hash: header.hash.clone(),
        }
    }
}

/// A commit that is in no segment yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LooseCommit {
    /// The name that its writer gave it.
    pub writer: String,
    /// Bytes of its file.
    pub bytes: u64,
}

/// The contents of a store; see the documentation of the module.
#[derive(Debug, Default)]
pub(super) struct StoreView {
    /// The newest commit that was read.
    pub tip: CommitIdentity,
    pub records: RecordMap,
    /// Places of entries, by log and partition. A log without entries is not there.
    pub logs: BTreeMap<String, BTreeMap<String, LogPlaces>>,
    /// Bytes that count for the quota.
    pub used_bytes: u64,
    /// Commits that are in no segment that is known, by number.
    pub loose: BTreeMap<u64, LooseCommit>,
    /// First and last commit of each segment that is known, in order.
    pub segments: Vec<(u64, u64)>,
    /// Bytes of all records, names included.
    pub record_bytes: u64,
    /// Bytes of the commits since the newest snapshot that was read or written.
    pub bytes_since_snapshot: u64,
}

/// The places of the entries of one log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogPlaces {
    /// Position of the first entry.
    pub first: u64,
    /// Entries in segments, in order.
    pub runs: Vec<SegmentRun>,
    /// Position of the first entry in a loose commit.
    pub loose_first: u64,
    /// The places of those, in order.
    pub loose: VecDeque<EntryPlace>,
}

/// Entries of one log in one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentRun {
    /// Position of the first.
    pub first: u64,
    /// Number of entries.
    pub count: u64,
    /// First commit of the segment.
    pub segment: u64,
}

impl LogPlaces {
    fn new() -> Self {
        Self {
            first: 1,
            runs: Vec::new(),
            loose_first: 1,
            loose: VecDeque::new(),
        }
    }

    /// The position that the next entry gets.
    pub(super) fn next_position(&self) -> u64 {
        self.loose_first + self.loose.len() as u64
    }

    /// The place of an entry that is in a loose commit.
    pub(super) fn loose_place(&self, position: u64) -> Option<EntryPlace> {
        let at = position.checked_sub(self.loose_first)?;
        self.loose.get(usize::try_from(at).ok()?).copied()
    }

    /// The run that holds an entry which is in a segment.
    pub(super) fn run_of(&self, position: u64) -> Option<SegmentRun> {
        let after = self.runs.partition_point(|run| run.first <= position);
        let run = *self.runs.get(after.checked_sub(1)?)?;
        (position < run.first + run.count).then_some(run)
    }

    /// Removes the entries below a position.
    fn trim(&mut self, below: u64) {
        self.first = self.first.max(below.min(self.next_position()));
        while self.loose_first < self.first && self.loose.pop_front().is_some() {
            self.loose_first += 1;
        }
        self.loose_first = self.loose_first.max(self.first);
        let first = self.first;
        self.runs.retain(|run| run.first + run.count > first);
    }
}

impl StoreView {
    /// The last commit that is in a segment; 0 if there is none.
    pub(super) fn last_packed(&self) -> u64 {
        self.segments.last().map_or(0, |(_, last)| *last)
    }

    pub(super) fn find_log(&self, log: &str, partition: &str) -> Option<&LogPlaces> {
        self.logs.get(log)?.get(partition)
    }

    /// Reads the next commit into the view.
    pub(super) fn apply(
        &mut self,
        header: &CommitHeader,
        body: &str,
        name: &str,
    ) -> Result<(), StoreFault> {
        let mut ops = Vec::new();
        read_body(body, header.line_bytes, name, &mut |op| ops.push(op))?;
        for op in ops {
            self.apply_op(header.number, op, name)?;
        }
        self.used_bytes = header.used;
        let bytes = header.total_bytes() as u64;
        self.bytes_since_snapshot += bytes;
        let writer = header.writer.clone();
        let loose = LooseCommit { writer, bytes };
        self.loose.insert(header.number, loose);
        self.tip = header.into();
        Ok(())
    }

    fn apply_op(&mut self, commit: u64, op: WrittenOp<'_>, file: &str) -> Result<(), StoreFault> {
        match op {
            WrittenOp::Put {
                collection,
                name,
                version,
                value,
            } => {
                let bytes = record_bytes(name.len(), value.len());
                let value = value.to_owned();
                let record = KeptRecord { version, value };
                let before = self.records.replace_record(collection, name, record);
                self.count_records(bytes - usage(name, before.as_ref()));
            }
            WrittenOp::Delete { collection, name } => {
                let before = self.records.remove(collection, name);
                self.count_records(-usage(name, before.as_ref()));
            }
            WrittenOp::Append {
                log,
                partition,
                at,
                value,
                offset,
            } => {
                let place = EntryPlace::new(commit, offset, value.len());
                self.append_place((log, partition), at, place, file)?;
            }
            WrittenOp::Trim {
                log,
                partition,
                below,
            } => {
                self.trim_log(log, partition, below);
            }
        }
        Ok(())
    }

    fn count_records(&mut self, growth: i64) {
        self.record_bytes = self.record_bytes.saturating_add_signed(growth);
    }

    fn append_place(
        &mut self,
        (log, partition): (&str, &str),
        at: u64,
        place: EntryPlace,
        file: &str,
    ) -> Result<(), StoreFault> {
        let logs = self.logs.entry(log.to_owned()).or_default();
        let places = logs
            .entry(partition.to_owned())
            .or_insert_with(LogPlaces::new);
        if places.next_position() != at {
            let last = places.next_position() - 1;
            return Err(StoreFault::corrupt(format!(
                "{file} adds entry {at} to log {log}/{partition}, whose last is {last}"
            )));
        }
        places.loose.push_back(place);
        Ok(())
    }

    fn trim_log(&mut self, log: &str, partition: &str, below: u64) {
        let Some(logs) = self.logs.get_mut(log) else {
            return;
        };
        if let Some(places) = logs.get_mut(partition) {
            places.trim(below);
            if places.first == places.next_position() {
                logs.remove(partition);
            }
        }
    }

    /// Takes note of a segment: its commits are loose no more.
    pub(super) fn absorb(&mut self, index: &SegmentIndex) -> Result<(), StoreFault> {
        let (first, last) = index.range;
        for ((log, partition), run) in &index.runs {
            let places = self.logs.get_mut(log).and_then(|of| of.get_mut(partition));
            let Some(places) = places else { continue };
            let packed = places.loose.iter();
            let packed = packed.take_while(|place| place.commit <= last).count() as u64;
            if packed == 0 {
                continue;
            }
            let count = run.places.len() as u64;
            if run.first + count != places.loose_first + packed {
                return Err(StoreFault::corrupt(format!(
                    "the segment of the commits {first} to {last} has other entries of log \
                     {log}/{partition} than its commits"
                )));
            }
            places.loose.drain(..usize::try_from(packed).unwrap_or(0));
            places.loose_first += packed;
            places.runs.push(SegmentRun {
                first: run.first,
                count,
                segment: first,
            });
        }
        self.loose = self.loose.split_off(&(last + 1));
        self.segments.push((first, last));
        Ok(())
    }
}

/// The bytes that a record counts for.
fn usage(name: &str, record: Option<&KeptRecord>) -> i64 {
    record.map_or(0, |record| record_bytes(name.len(), record.value.len()))
}
