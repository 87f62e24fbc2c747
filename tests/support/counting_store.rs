//! A store that counts the calls that reach it, and the bytes of its answers.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use threadkeep::storage::{
    CommitOp, CommitOutcome, LogEntry, RecordKey, RecordPage, StorageBackend, StorageError,
    StoredRecord,
};

/// Calls that reached a store since it was asked last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StorageCalls {
    /// Reads of records by key.
    pub gets: usize,
    /// Reads of ranges.
    pub scans: usize,
    /// Reads of logs.
    pub reads: usize,
    /// Entries of logs that were answered.
    pub entries: usize,
    /// Commits.
    pub commits: usize,
    /// Bytes of the values that were answered.
    pub bytes: usize,
    /// Records that were asked for by key.
    pub keys: BTreeSet<RecordKey>,
}

impl StorageCalls {
    /// Returns the number of all calls.
    pub fn total(&self) -> usize {
        self.gets + self.scans + self.reads + self.commits
    }
}

/// A store that counts.
pub struct CallCountingStore {
    inner: Arc<dyn StorageBackend>,
    calls: Mutex<StorageCalls>,
}

impl CallCountingStore {
    /// A store over another.
    pub fn over(inner: Arc<dyn StorageBackend>) -> Arc<Self> {
        let calls = Mutex::default();
        Arc::new(Self { inner, calls })
    }

    fn lock(&self) -> MutexGuard<'_, StorageCalls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the calls since the last time, and begins to count anew.
    pub fn take_calls(&self) -> StorageCalls {
        std::mem::take(&mut *self.lock())
    }
}

impl StorageBackend for CallCountingStore {
    fn get(&self, keys: &[RecordKey]) -> Result<Vec<StoredRecord>, StorageError> {
        let found = self.inner.get(keys)?;
        let mut calls = self.lock();
        calls.gets += 1;
        calls.bytes += found.iter().map(|item| item.value.len()).sum::<usize>();
        calls.keys.extend(keys.iter().cloned());
        Ok(found)
    }

    fn scan(
        &self,
        collection: &str,
        start: &str,
        end: &str,
        limit: u32,
        reverse: bool,
    ) -> Result<RecordPage, StorageError> {
        let page = self.inner.scan(collection, start, end, limit, reverse)?;
        let items = page.items.iter();
        let bytes = items.map(|item| item.key.name.len() + item.value.len());
        let mut calls = self.lock();
        calls.scans += 1;
        calls.bytes += bytes.sum::<usize>();
        Ok(page)
    }

    fn read_log(
        &self,
        log: &str,
        partition: &str,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<LogEntry>, StorageError> {
        let lines = self.inner.read_log(log, partition, start, limit, reverse)?;
        let mut calls = self.lock();
        calls.reads += 1;
        calls.entries += lines.len();
        calls.bytes += lines.iter().map(|line| line.value.len()).sum::<usize>();
        Ok(lines)
    }

    fn commit(&self, ops: &[CommitOp], closing: bool) -> Result<CommitOutcome, StorageError> {
        let outcome = self.inner.commit(ops, closing)?;
        self.lock().commits += 1;
        Ok(outcome)
    }
}
