//! A custom store: two ordered maps under a lock. The conformance suite of the checkout runs over
//! it.
//!
//! The library has the checks that every store makes alike. What is left is to keep records and
//! logs, to decide whether a commit succeeds, and then to apply all of it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use threadkeep::storage::{
    BoundedRecords, CommitOp, CommitOutcome, LogEntry, PAGE_BYTES_MAX, RecordExpectation,
    RecordKey, RecordPage, StorageBackend, StorageError, StoredRecord, check_commit, check_get,
    check_log, check_scan,
};

/// Records by collection and name, logs by kind and partition.
#[derive(Default)]
pub struct MapStore {
    kept: Mutex<MapData>,
}

#[derive(Clone, Default)]
struct MapData {
    records: BTreeMap<(String, String), (u64, String)>,
    logs: BTreeMap<(String, String), BTreeMap<u64, String>>,
}

impl MapStore {
    fn lock(&self) -> MutexGuard<'_, MapData> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StorageBackend for MapStore {
    fn get(&self, keys: &[RecordKey]) -> Result<Vec<StoredRecord>, StorageError> {
        check_get(keys)?;
        let kept = self.lock();
        let mut answer = BoundedRecords::new();
        for item in keys.iter().filter_map(|key| kept.item(key)) {
            answer.push(item)?;
        }
        Ok(answer.into_items())
    }

    fn scan(
        &self,
        collection: &str,
        start: &str,
        end: &str,
        limit: u32,
        reverse: bool,
    ) -> Result<RecordPage, StorageError> {
        check_scan(collection, start, end, limit)?;
        let kept = self.lock();
        let from = (collection.to_owned(), start.to_owned());
        let all = kept
            .records
            .range((Bound::Included(from), Bound::Unbounded));
        let names = all
            .take_while(|((of, name), _)| {
                of == collection && (end.is_empty() || name.as_str() < end)
            })
            .map(|((_, name), _)| RecordKey::new(collection, name));
        let names: Vec<RecordKey> = match reverse {
            true => names.collect::<Vec<_>>().into_iter().rev().collect(),
            false => names.collect(),
        };
        Ok(kept.page(&names, limit, reverse))
    }

    fn read_log(
        &self,
        log: &str,
        partition: &str,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<LogEntry>, StorageError> {
        check_log(log, partition, limit)?;
        let kept = self.lock();
        let Some(entries) = kept.logs.get(&(log.to_owned(), partition.to_owned())) else {
            return Ok(Vec::new());
        };
        let last = if start == 0 { u64::MAX } else { start };
        Ok(match reverse {
            true => collect_lines(entries.range(..=last).rev(), limit),
            false => collect_lines(entries.range(start..), limit),
        })
    }

    fn commit(&self, ops: &[CommitOp], _closing: bool) -> Result<CommitOutcome, StorageError> {
        check_commit(ops)?;
        let mut kept = self.lock();
        if !kept.meets_conditions(ops) {
            return Ok(CommitOutcome::Conflict);
        }
        // On a copy, so that an append that does not fit leaves nothing behind. A real store has
        // transactions.
        let mut after = kept.clone();
        ops.iter().try_for_each(|op| after.apply(op))?;
        *kept = after;
        Ok(CommitOutcome::Committed)
    }
}

impl MapData {
    fn item(&self, key: &RecordKey) -> Option<StoredRecord> {
        let (version, value) = self
            .records
            .get(&(key.collection.clone(), key.name.clone()))?;
        Some(StoredRecord {
            key: key.clone(),
            version: *version,
            value: value.clone(),
        })
    }

    /// Builds a page, which ends at its limit and before its largest size; its cursor is the start
    /// of the next page.
    fn page(&self, keys: &[RecordKey], limit: u32, reverse: bool) -> RecordPage {
        let mut page = RecordPage::default();
        let mut bytes = 0;
        for (at, item) in keys.iter().filter_map(|key| self.item(key)).enumerate() {
            bytes += item.value.len();
            if at > 0 && (at == limit as usize || bytes > PAGE_BYTES_MAX) {
                let next = if reverse { &keys[at - 1] } else { &keys[at] };
                page.cursor = Some(next.name.clone());
                break;
            }
            page.items.push(item);
        }
        page
    }

    fn meets_conditions(&self, ops: &[CommitOp]) -> bool {
        ops.iter().all(|op| {
            let (CommitOp::Check { key, expect } | CommitOp::Put { key, expect, .. }) = op else {
                return true;
            };
            let version = self.item(key).map(|item| item.version);
            match expect {
                RecordExpectation::Any => true,
                RecordExpectation::Absent => version.is_none(),
                RecordExpectation::Version(wanted) => version == Some(*wanted),
            }
        })
    }

    fn apply(&mut self, op: &CommitOp) -> Result<(), StorageError> {
        match op {
            CommitOp::Check { .. } => {}
            CommitOp::Put { key, value, .. } => {
                let name = (key.collection.clone(), key.name.clone());
                let version = self.records.get(&name).map_or(0, |(version, _)| *version);
                self.records.insert(name, (version + 1, value.clone()));
            }
            CommitOp::Delete { key } => {
                self.records
                    .remove(&(key.collection.clone(), key.name.clone()));
            }
            CommitOp::Append {
                log,
                partition,
                at,
                value,
            } => {
                let entries = self
                    .logs
                    .entry((log.clone(), partition.clone()))
                    .or_default();
                let last = entries
                    .last_key_value()
                    .map_or(0, |(position, _)| *position);
                if *at != last + 1 {
                    let message =
                        format!("{log}/{partition} ends at {last}, and {at} was to be added");
                    return Err(StorageError::Corrupt { message });
                }
                entries.insert(*at, value.clone());
            }
            CommitOp::Trim {
                log,
                partition,
                below,
            } => {
                let name = (log.clone(), partition.clone());
                if let Some(entries) = self.logs.get_mut(&name) {
                    *entries = entries.split_off(below);
                    if entries.is_empty() {
                        self.logs.remove(&name);
                    }
                }
            }
        }
        Ok(())
    }
}

fn collect_lines<'a>(
    entries: impl Iterator<Item = (&'a u64, &'a String)>,
    limit: u32,
) -> Vec<LogEntry> {
    let mut bytes = 0;
    let fits = |(at, (_, value)): &(usize, (&u64, &String))| {
        bytes += value.len();
        *at == 0 || bytes <= PAGE_BYTES_MAX
    };
    let some = entries.take(limit as usize).enumerate().take_while(fits);
    some.map(|(_, (position, value))| LogEntry {
        position: *position,
        value: value.clone(),
    })
    .collect()
}
