//! A store in memory: for tests and for hosts that persist nothing.
//!
//! Ordered maps under one lock. A commit is planned without changing anything, admitted, then
//! applied without failing. It is the simplest implementation of the contract, and the other
//! backends are compared with it.

use parking_lot::RwLock;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use super::check::{condition_of, meets_condition, position_error};
use super::quota::{entry_bytes, partition_bytes, record_bytes};
use super::{
    BoundedRecords, CommitOp, CommitOutcome, LogEntry, PAGE_BYTES_MAX, RecordKey, RecordPage,
    StorageBackend, StorageError, StorageQuota, StoredRecord, check_commit, check_get, check_log,
    check_scan,
};

/// A store in memory; see the documentation of the module.
#[derive(Debug)]
pub struct MemoryStore {
    state: RwLock<MemoryState>,
}

impl MemoryStore {
    /// An empty store without a quota.
    #[expect(
        clippy::new_without_default,
        reason = "a store is opened on purpose, never by default"
    )]
    pub fn new() -> Self {
        Self {
            state: RwLock::default(),
        }
    }

    /// An empty store with a quota.
    pub fn with_quota(quota: StorageQuota) -> Self {
        let store = Self::new();
        store.set_quota(Some(quota));
        store
    }

    /// Sets or removes the quota. Existing contents stay, even where they exceed the quota.
    pub fn set_quota(&self, quota: Option<StorageQuota>) {
        let mut state = self.state.write();
        state.quota = quota;
    }
}

#[derive(Debug, Default)]
struct MemoryState {
    /// By collection and name.
    records: BTreeMap<String, BTreeMap<String, MemoryRecord>>,
    /// By log and partition.
    logs: BTreeMap<String, BTreeMap<String, MemoryLog>>,
    used_bytes: u64,
    quota: Option<StorageQuota>,
}

#[derive(Debug)]
struct MemoryRecord {
    version: u64,
    value: String,
}

/// The entries of one log. A log without entries is not in the map.
#[derive(Debug)]
struct MemoryLog {
    /// Position of the first entry.
    first: u64,
    lines: VecDeque<String>,
}

impl MemoryLog {
    /// The position that the next entry gets.
    fn next_position(&self) -> u64 {
        self.first + self.lines.len() as u64
    }

    fn entry_at(&self, position: u64) -> Option<&String> {
        let place = position.checked_sub(self.first)?;
        self.lines.get(usize::try_from(place).ok()?)
    }
}

impl StorageBackend for MemoryStore {
    fn get(&self, keys: &[RecordKey]) -> Result<Vec<StoredRecord>, StorageError> {
        check_get(keys)?;
        let state = self.state.read();
        let mut answer = BoundedRecords::new();
        for key in keys {
            if let Some(item) = state.read_item(key) {
                answer.push(item)?;
            }
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
        if !end.is_empty() && start >= end {
            return Ok(RecordPage::default());
        }
        let upper = if end.is_empty() {
            Bound::Unbounded
        } else {
            Bound::Excluded(end)
        };
        let state = self.state.read();
        let Some(records) = state.records.get(collection) else {
            return Ok(RecordPage::default());
        };
        let range = records.range::<str, _>((Bound::Included(start), upper));
        Ok(if reverse {
            build_page(collection, range.rev(), limit, true)
        } else {
            build_page(collection, range, limit, false)
        })
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
        let state = self.state.read();
        let Some(log) = state.find_log(log, partition) else {
            return Ok(Vec::new());
        };
        Ok(if reverse {
            let above = if start == 0 {
                log.next_position()
            } else {
                log.next_position().min(start.saturating_add(1))
            };
            read_entries(log, (log.first..above).rev(), limit)
        } else {
            read_entries(log, log.first.max(start)..log.next_position(), limit)
        })
    }

    fn commit(&self, ops: &[CommitOp], closing: bool) -> Result<CommitOutcome, StorageError> {
        check_commit(ops)?;
        let mut state = self.state.write();
        if !state.meets_conditions(ops) {
            return Ok(CommitOutcome::Conflict);
        }
        let growth = state.plan_growth(ops)?;
        let used_bytes = match state.quota {
            Some(quota) => quota.admit(state.used_bytes, growth, closing)?,
            None => state.used_bytes.saturating_add_signed(growth),
        };
        // The point of no return: names, conditions, positions and the quota are checked.
        ops.iter().for_each(|op| state.apply_op(op));
        state.used_bytes = used_bytes;
        Ok(CommitOutcome::Committed)
    }
}

impl MemoryState {
    fn find_record(&self, key: &RecordKey) -> Option<&MemoryRecord> {
        self.records.get(&key.collection)?.get(&key.name)
    }

    fn find_log(&self, log: &str, partition: &str) -> Option<&MemoryLog> {
        self.logs.get(log)?.get(partition)
    }

    fn read_item(&self, key: &RecordKey) -> Option<StoredRecord> {
        self.find_record(key).map(|record| StoredRecord {
            key: key.clone(),
            version: record.version,
            value: record.value.clone(),
        })
    }

    fn meets_conditions(&self, ops: &[CommitOp]) -> bool {
        ops.iter().filter_map(condition_of).all(|(key, expect)| {
            meets_condition(expect, self.find_record(key).map(|record| record.version))
        })
    }

    /// The change of the store's bytes by `ops`, or the error of an append that does not fit.
    fn plan_growth(&self, ops: &[CommitOp]) -> Result<i64, StorageError> {
        let mut growth = 0;
        let mut logs = BTreeMap::new();
        for op in ops {
            growth += match op {
                CommitOp::Check { .. } => 0,
                CommitOp::Put { key, value, .. } => {
                    record_bytes(key.name.len(), value.len()) - self.record_usage(key)
                }
                CommitOp::Delete { key } => -self.record_usage(key),
                CommitOp::Append {
                    log,
                    partition,
                    at,
                    value,
                } => {
                    let planned = self.planned_log(&mut logs, log, partition);
                    planned
                        .plan_append(*at, value.len())
                        .map_err(|last| position_error(log, partition, *at, last))?
                }
                CommitOp::Trim {
                    log,
                    partition,
                    below,
                } => self
                    .planned_log(&mut logs, log, partition)
                    .plan_trim(*below),
            };
        }
        Ok(growth)
    }

    /// The bytes that an existing record counts for.
    fn record_usage(&self, key: &RecordKey) -> i64 {
        self.find_record(key)
            .map_or(0, |record| record_bytes(key.name.len(), record.value.len()))
    }

    fn planned_log<'plan, 'ops, 'state>(
        &'state self,
        logs: &'plan mut BTreeMap<(&'ops str, &'ops str), PlannedLog<'state, 'ops>>,
        log: &'ops str,
        partition: &'ops str,
    ) -> &'plan mut PlannedLog<'state, 'ops> {
        let begin = || PlannedLog::begin_plan(partition, self.find_log(log, partition));
        logs.entry((log, partition)).or_insert_with(begin)
    }

    fn apply_op(&mut self, op: &CommitOp) {
        match op {
            CommitOp::Check { .. } => {}
            CommitOp::Put { key, value, .. } => {
                let records = self.records.entry(key.collection.clone()).or_default();
                let version = records
                    .get(&key.name)
                    .map_or(1, |record| record.version + 1);
                records.insert(
                    key.name.clone(),
                    MemoryRecord {
                        version,
                        value: value.clone(),
                    },
                );
            }
            CommitOp::Delete { key } => {
                if let Some(records) = self.records.get_mut(&key.collection) {
                    records.remove(&key.name);
                }
            }
            CommitOp::Append {
                log,
                partition,
                at,
                value,
            } => {
                let logs = self.logs.entry(log.clone()).or_default();
                let log = logs.entry(partition.clone()).or_insert_with(|| MemoryLog {
                    first: 1,
                    lines: VecDeque::new(),
                });
                debug_assert_eq!(log.next_position(), *at, "the plan checked it");
                log.lines.push_back(value.clone());
            }
            CommitOp::Trim {
                log,
                partition,
                below,
            } => {
                if let Some(logs) = self.logs.get_mut(log) {
                    trim_log(logs, partition, *below);
                }
            }
        }
    }
}

fn trim_log(logs: &mut BTreeMap<String, MemoryLog>, partition: &str, below: u64) {
    let Some(log) = logs.get_mut(partition) else {
        return;
    };
    while log.first < below && log.lines.pop_front().is_some() {
        log.first += 1;
    }
    if log.lines.is_empty() {
        logs.remove(partition);
    }
}

/// State of one log after the operations planned so far.
struct PlannedLog<'state, 'ops> {
    partition: &'ops str,
    /// The existing entries, below `fresh`.
    base: Option<&'state MemoryLog>,
    /// Position of the first entry.
    first: u64,
    /// Position of the first entry that this commit adds.
    fresh: u64,
    /// Sizes of the values that this commit adds.
    added: Vec<usize>,
}

impl<'state, 'ops> PlannedLog<'state, 'ops> {
    fn begin_plan(partition: &'ops str, base: Option<&'state MemoryLog>) -> Self {
        let (first, fresh) = base.map_or((1, 1), |log| (log.first, log.next_position()));
        Self {
            partition,
            base,
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
    fn plan_trim(&mut self, below: u64) -> i64 {
        let next = self.next_position();
        let below = below.min(next);
        let before = self.first;
        let mut growth = 0;
        while self.first < below {
            growth -= entry_bytes(self.entry_size(self.first));
            self.first += 1;
        }
        if self.first == next && before != next {
            // All entries are gone: the log begins again.
            growth -= partition_bytes(self.partition.len());
            *self = Self::begin_plan(self.partition, None);
        }
        growth
    }

    fn entry_size(&self, position: u64) -> usize {
        match position.checked_sub(self.fresh) {
            Some(place) => usize::try_from(place)
                .ok()
                .and_then(|place| self.added.get(place))
                .map_or(0, |size| *size),
            None => self
                .base
                .and_then(|log| log.entry_at(position))
                .map_or(0, String::len),
        }
    }
}

fn build_page<'a>(
    collection: &str,
    range: impl Iterator<Item = (&'a String, &'a MemoryRecord)>,
    limit: u32,
    reverse: bool,
) -> RecordPage {
    let mut page = RecordPage::default();
    let mut bytes = 0;
    for (name, record) in range {
        bytes += record.value.len();
        let full = page.items.len() == limit as usize || bytes > PAGE_BYTES_MAX;
        if full && let Some(last) = page.items.last() {
            page.cursor = Some(if reverse {
                last.key.name.clone()
            } else {
                name.clone()
            });
            break;
        }
        let key = RecordKey::new(collection, name);
        page.items.push(StoredRecord {
            key,
            version: record.version,
            value: record.value.clone(),
        });
    }
    page
}

fn read_entries(
    log: &MemoryLog,
    positions: impl Iterator<Item = u64>,
    limit: u32,
) -> Vec<LogEntry> {
    let mut lines = Vec::new();
    let mut bytes = 0;
    for position in positions.take(limit as usize) {
        let Some(value) = log.entry_at(position) else {
            break;
        };
        bytes += value.len();
        if bytes > PAGE_BYTES_MAX && !lines.is_empty() {
            break;
        }
        lines.push(LogEntry {
            position,
            value: value.clone(),
        });
    }
    lines
}
