//! The conditions of a commit, and the bytes by which it changes a store, decided without changing
//! anything.

use super::check::{condition_of, meets_condition, position_error};
use super::quota::{entry_bytes, partition_bytes, record_bytes};
use super::{CommitOp, RecordKey, StorageError};
use std::collections::BTreeMap;

/// The contents of a store, as far as a commit is decided by them.
pub(crate) trait StoreContents {
    /// Version of a record and bytes of its value, if it exists.
    fn record(&self, key: &RecordKey) -> Option<(u64, usize)>;

    /// The position of the first entry of a log and the one after its last; `None` for a log
    /// without entries.
    fn log_bounds(&self, log: &str, partition: &str) -> Option<(u64, u64)>;

    /// Bytes of an entry that exists.
    fn entry_size(&self, log: &str, partition: &str, position: u64) -> Result<usize, StorageError>;
}

/// True if the records meet all conditions of a commit.
pub(crate) fn meets_conditions(contents: &impl StoreContents, ops: &[CommitOp]) -> bool {
    ops.iter().filter_map(condition_of).all(|(key, expect)| {
        let version = contents.record(key).map(|(version, _)| version);
        meets_condition(expect, version)
    })
}

/// Returns the change of the store's bytes by `ops`, or the error of an append that does not fit.
pub(crate) fn plan_growth(
    contents: &impl StoreContents,
    ops: &[CommitOp],
) -> Result<i64, StorageError> {
    let record_usage = |key: &RecordKey| match contents.record(key) {
        Some((_, bytes)) => record_bytes(key.name.len(), bytes),
        None => 0,
    };
    let mut growth = 0;
    let mut logs: BTreeMap<(&str, &str), PlannedLog<'_>> = BTreeMap::new();
    for op in ops {
        growth += match op {
            CommitOp::Check { .. } => 0,
            CommitOp::Put { key, value, .. } => {
                record_bytes(key.name.len(), value.len()) - record_usage(key)
            }
            CommitOp::Delete { key } => -record_usage(key),
            CommitOp::Append {
                log,
                partition,
                at,
                value,
            } => {
                let begin = || PlannedLog::begin(log, partition, contents);
                let planned = logs.entry((log, partition)).or_insert_with(begin);
                planned
                    .plan_append(*at, value.len())
                    .map_err(|last| position_error(log, partition, *at, last))?
            }
            CommitOp::Trim {
                log,
                partition,
                below,
            } => {
                let begin = || PlannedLog::begin(log, partition, contents);
                let planned = logs.entry((log, partition)).or_insert_with(begin);
                planned.plan_trim(*below, contents)?
            }
        };
    }
    Ok(growth)
}

/// State of one log after the operations planned so far.
struct PlannedLog<'ops> {
    log: &'ops str,
    partition: &'ops str,
    /// Position of the first entry.
    first: u64,
    /// Position of the first entry that this commit adds.
    fresh: u64,
    /// Sizes of the values that this commit adds.
    added: Vec<usize>,
}

impl<'ops> PlannedLog<'ops> {
    fn begin(log: &'ops str, partition: &'ops str, contents: &impl StoreContents) -> Self {
        let (first, fresh) = contents.log_bounds(log, partition).unwrap_or((1, 1));
        Self {
            log,
            partition,
            first,
            fresh,
            added: Vec::new(),
        }
    }

    fn next_position(&self) -> u64 {
        self.fresh + self.added.len() as u64
    }

    /// Plans an append: the growth in bytes, or the last position if `at` does not follow it.
    fn plan_append(&mut self, at: u64, value_bytes: usize) -> Result<i64, u64> {
        let next = self.next_position();
        if at != next {
            return Err(next - 1);
        }
        let whole = if self.first == next {
            partition_bytes(self.partition.len())
        } else {
            0
        };
        self.added.push(value_bytes);
        Ok(whole + entry_bytes(value_bytes))
    }

    /// Plans a trim: the growth in bytes, never above zero.
    fn plan_trim(
        &mut self,
        below: u64,
        contents: &impl StoreContents,
    ) -> Result<i64, StorageError> {
        let next = self.next_position();
        let below = below.min(next);
        let before = self.first;
        let mut growth = 0;
        while self.first < below {
            growth -= entry_bytes(self.entry_size(self.first, contents)?);
            self.first += 1;
        }
        if self.first == next && before != next {
            // All entries are gone: the log begins again.
            growth -= partition_bytes(self.partition.len());
            (self.first, self.fresh) = (1, 1);
            self.added.clear();
        }
        Ok(growth)
    }

    fn entry_size(
        &self,
        position: u64,
        contents: &impl StoreContents,
    ) -> Result<usize, StorageError> {
        match position.checked_sub(self.fresh) {
            Some(place) => {
                let added = usize::try_from(place)
                    .ok()
                    .and_then(|at| self.added.get(at));
                Ok(added.copied().unwrap_or(0))
            }
            None => contents.entry_size(self.log, self.partition, position),
        }
    }
}
