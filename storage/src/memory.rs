//! A store in memory: for tests and for hosts that persist nothing.
//!
//! Ordered maps under one lock. A commit is planned without changing anything, admitted, then
//! applied without failing. It is the simplest implementation of the contract, and the other
//! backends are compared with it.

use crate::locks::RwLock;
use std::collections::{BTreeMap, VecDeque};

use super::growth::{StoreContents, meets_conditions, plan_growth};
use super::record_map::{KeptRecord, RecordMap};
use super::whole_store::{ListedStore, LogName, logs_after};
use super::{
    CommitOp, CommitOutcome, LogEntry, PAGE_BYTES_MAX, RecordKey, RecordPage, StorageBackend,
    StorageError, StorageQuota, StoredRecord, check_commit, check_log,
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

impl ListedStore for MemoryStore {
    fn list_collections(&self) -> Result<Vec<String>, StorageError> {
        Ok(self.state.read().records.collection_names())
    }

    fn list_logs(&self, after: Option<&LogName>) -> Result<Vec<LogName>, StorageError> {
        Ok(logs_after(&self.state.read().logs, after))
    }
}

#[derive(Debug, Default)]
struct MemoryState {
    records: RecordMap,
    /// By log and partition.
    logs: BTreeMap<String, BTreeMap<String, MemoryLog>>,
    used_bytes: u64,
    quota: Option<StorageQuota>,
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
        self.state.read().records.get(keys)
    }

    fn scan(
        &self,
        collection: &str,
        start: &str,
        end: &str,
        limit: u32,
        reverse: bool,
    ) -> Result<RecordPage, StorageError> {
        let state = self.state.read();
        state.records.scan(collection, (start, end), limit, reverse)
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
        if !meets_conditions(&*state, ops) {
            return Ok(CommitOutcome::Conflict);
        }
        let growth = plan_growth(&*state, ops)?;
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
    fn find_log(&self, log: &str, partition: &str) -> Option<&MemoryLog> {
        self.logs.get(log)?.get(partition)
    }

    fn apply_op(&mut self, op: &CommitOp) {
        match op {
            CommitOp::Check { .. } => {}
            CommitOp::Put { key, value, .. } => {
                let found = self.records.find(&key.collection, &key.name);
                let version = found.map_or(1, |record| record.version + 1);
                let value = value.clone();
                let record = KeptRecord { version, value };
                self.records
                    .replace_record(&key.collection, &key.name, record);
            }
            CommitOp::Delete { key } => {
                self.records.remove(&key.collection, &key.name);
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

impl StoreContents for MemoryState {
    fn record(&self, key: &RecordKey) -> Option<(u64, usize)> {
        let found = self.records.find(&key.collection, &key.name);
        found.map(|record| (record.version, record.value.len()))
    }

    fn log_bounds(&self, log: &str, partition: &str) -> Option<(u64, u64)> {
        self.find_log(log, partition)
            .map(|log| (log.first, log.next_position()))
    }

    fn entry_size(&self, log: &str, partition: &str, position: u64) -> Result<usize, StorageError> {
        let found = self
            .find_log(log, partition)
            .and_then(|log| log.entry_at(position));
        Ok(found.map_or(0, String::len))
    }
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
