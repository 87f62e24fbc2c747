//! A store in memory with one planted fault, each a mistake that a backend could make.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{
    CommitOp, CommitOutcome, KEY_BYTES_MAX, LogEntry, RecordKey, RecordPage, StorageBackend,
    StorageError, StoredRecord,
};

use super::commit;

/// The gap that a fault leaves for other threads to step into.
const GAP: Duration = Duration::from_micros(200);

/// The planted fault of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum StoreFault {
    None,
    GetSorts,
    GetOnce,
    GetTorn,
    GetCaches,
    GetUnbounded,
    UnknownIsEmpty,
    CaseBlind,
    CutsAtNul,
    ScanWrongOrder,
    ScanSkipsAtCursor,
    ScanLosesCursor,
    ScanTakesEnd,
    ScanLosesStart,
    ScanReverseTakesEnd,
    PageOverLimit,
    PageOverBytes,
    LogAfterStart,
    LogDownFromZero,
    LogsAreOne,
    AppendAnywhere,
    TrimsTooMuch,
    TrimsTooLittle,
    TrimIgnored,
    ChecksIgnored,
    AbsentIsAny,
    VersionIsAny,
    VersionNotCounted,
    DeleteIgnored,
    DeletesPrefix,
    HalfOfRefused,
    NoTransaction,
    LostUpdates,
    ConflictEarly,
    CorruptBeforeConflict,
    QuotaIgnored,
    QuotaBeforeConflict,
    MarginForAll,
    MarginForNobody,
    KeyLimitLax,
    KeyLimitTight,
    ValueLimitLax,
    OperationsLimitTight,
    TwiceNamedTaken,
    ForgetsLast,
    OpeningsApart,
}

/// One opening of such a store.
pub(super) struct BrokenStore {
    fault: StoreFault,
    inner: Arc<MemoryStore>,
    /// Commits acknowledged so far, for a store that writes them too late.
    journal: Arc<Mutex<Vec<Vec<CommitOp>>>>,
    /// The older store that [`StoreFault::ConflictEarly`] reads: `inner` is ahead of it.
    behind: Arc<MemoryStore>,
    kept: Mutex<HashMap<RecordKey, Option<StoredRecord>>>,
}

impl BrokenStore {
    pub(super) fn new(
        fault: StoreFault,
        inner: Arc<MemoryStore>,
        behind: Arc<MemoryStore>,
        journal: Arc<Mutex<Vec<Vec<CommitOp>>>>,
    ) -> Self {
        Self {
            fault,
            inner,
            journal,
            behind,
            kept: Mutex::default(),
        }
    }

    fn readable(&self) -> &MemoryStore {
        match self.fault {
            StoreFault::ConflictEarly => &self.behind,
            _ => &self.inner,
        }
    }

    fn get_cached(&self, keys: &[RecordKey]) -> Result<Vec<StoredRecord>, StorageError> {
        let mut kept = lock(&self.kept);
        let mut found = Vec::new();
        for key in keys {
            if !kept.contains_key(key) {
                let item = self.inner.get(std::slice::from_ref(key))?.pop();
                kept.insert(key.clone(), item);
            }
            found.extend(kept[key].clone());
        }
        Ok(found)
    }

    fn get_torn(&self, keys: &[RecordKey]) -> Result<Vec<StoredRecord>, StorageError> {
        let mut found = Vec::new();
        for key in keys {
            found.extend(self.inner.get(std::slice::from_ref(key))?);
            std::thread::sleep(GAP);
        }
        Ok(found)
    }

    /// Reads pages until there are as many records as requested.
    fn scan_over_bytes(
        &self,
        collection: &str,
        (start, end): (&str, &str),
        limit: u32,
    ) -> Result<RecordPage, StorageError> {
        let mut page = self.inner.scan(collection, start, end, limit, false)?;
        while let Some(cursor) = page.cursor.clone()
            && page.items.len() < limit as usize
        {
            let more = limit - page.items.len() as u32;
            let next = self.inner.scan(collection, &cursor, end, more, false)?;
            page.items.extend(next.items);
            page.cursor = next.cursor;
        }
        Ok(page)
    }

    /// Checks the conditions, then commits without them: a change in between is overwritten.
    fn commit_unguarded(
        &self,
        ops: &[CommitOp],
        closing: bool,
    ) -> Result<CommitOutcome, StorageError> {
        let checks: Vec<CommitOp> = ops.iter().filter_map(commit::check_of).collect();
        match self.inner.commit(&checks, closing)? {
            CommitOutcome::Conflict => return Ok(CommitOutcome::Conflict),
            CommitOutcome::Committed => std::thread::sleep(GAP),
        }
        let bare = commit::without_conditions(ops);
        self.inner.commit(&bare, closing)
    }

    /// Commits one operation after the other; the ones before a refusal stay.
    fn commit_one_by_one(
        &self,
        ops: &[CommitOp],
        closing: bool,
    ) -> Result<CommitOutcome, StorageError> {
        let checks: Vec<CommitOp> = ops.iter().filter_map(commit::check_of).collect();
        if self.inner.commit(&checks, closing)? == CommitOutcome::Conflict {
            return Ok(CommitOutcome::Conflict);
        }
        for op in commit::without_conditions(ops) {
            self.inner.commit(&[op], closing)?;
            std::thread::sleep(GAP);
        }
        Ok(CommitOutcome::Committed)
    }

    /// Answers with a conflict before the conflicting record can be read.
    fn commit_ahead(&self, ops: &[CommitOp], closing: bool) -> Result<CommitOutcome, StorageError> {
        let outcome = {
            let mut journal = lock(&self.journal);
            let outcome = self.inner.commit(ops, closing)?;
            if outcome == CommitOutcome::Committed {
                journal.push(commit::without_conditions(ops));
            }
            outcome
        };
        if outcome == CommitOutcome::Committed {
            std::thread::sleep(GAP);
            let mut journal = lock(&self.journal);
            for ops in journal.drain(..) {
                self.behind.commit(&ops, true)?;
            }
        }
        Ok(outcome)
    }

    fn names(&self, name: &str) -> String {
        match self.fault {
            StoreFault::CaseBlind => name.to_lowercase(),
            StoreFault::CutsAtNul => name.split('\0').next().unwrap_or_default().to_owned(),
            StoreFault::KeyLimitLax if name.len() == KEY_BYTES_MAX + 1 => {
                name[..KEY_BYTES_MAX].to_owned()
            }
            _ => name.to_owned(),
        }
    }
}

impl StorageBackend for BrokenStore {
    fn get(&self, keys: &[RecordKey]) -> Result<Vec<StoredRecord>, StorageError> {
        let mut keys: Vec<RecordKey> = keys
            .iter()
            .map(|key| RecordKey::new(&key.collection, self.names(&key.name)))
            .collect();
        match self.fault {
            StoreFault::GetSorts => keys.sort(),
            StoreFault::GetOnce => keys.dedup(),
            StoreFault::GetTorn => return self.get_torn(&keys),
            StoreFault::GetUnbounded => return commit::get_one_by_one(keys.iter(), &self.inner),
            StoreFault::GetCaches => return self.get_cached(&keys),
            StoreFault::KeyLimitTight => commit::refuse_keys(keys.iter(), KEY_BYTES_MAX)?,
            _ => {}
        }
        match self.readable().get(&keys) {
            Err(StorageError::Other { code, .. })
                if (self.fault, code) == (StoreFault::UnknownIsEmpty, "invalid-collection") =>
            {
                Ok(vec![])
            }
            answer => answer,
        }
    }

    fn scan(
        &self,
        collection: &str,
        start: &str,
        end: &str,
        limit: u32,
        reverse: bool,
    ) -> Result<RecordPage, StorageError> {
        let next = |name: &str| format!("{name}\0");
        let bounded = !end.is_empty();
        let (start, end, limit) = match self.fault {
            StoreFault::ScanTakesEnd if bounded && !reverse => (start.to_owned(), next(end), limit),
            StoreFault::ScanReverseTakesEnd if bounded && reverse => {
                (start.to_owned(), next(end), limit)
            }
            StoreFault::ScanLosesStart if !start.is_empty() => (next(start), end.to_owned(), limit),
            StoreFault::PageOverLimit if limit < 500 => {
                (start.to_owned(), end.to_owned(), limit + 1)
            }
            StoreFault::PageOverBytes if !reverse && limit > 0 => {
                return self.scan_over_bytes(collection, (start, end), limit);
            }
            _ => (start.to_owned(), end.to_owned(), limit),
        };
        let mut page = self
            .readable()
            .scan(collection, &start, &end, limit, reverse)?;
        match self.fault {
            StoreFault::ScanWrongOrder => {
                page.items.sort_by_key(|item| item.key.name.to_lowercase())
            }
            StoreFault::ScanSkipsAtCursor => page.cursor = page.cursor.as_deref().map(next),
            StoreFault::ScanLosesCursor => page.cursor = None,
            _ => {}
        }
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
        let (log, start, limit) = match self.fault {
            StoreFault::LogAfterStart if start > 0 => (log, start.saturating_add(1), limit),
            StoreFault::LogDownFromZero if reverse && start == 0 => (log, 1, limit),
            StoreFault::LogsAreOne if log == "blob" => ("history", start, limit),
            StoreFault::PageOverLimit if limit < 500 => (log, start, limit + 1),
            _ => (log, start, limit),
        };
        let partition = self.names(partition);
        self.readable()
            .read_log(log, &partition, start, limit, reverse)
    }

    fn commit(&self, ops: &[CommitOp], closing: bool) -> Result<CommitOutcome, StorageError> {
        let named: Vec<CommitOp> = ops
            .iter()
            .map(|op| commit::rename_op(op, &|name| self.names(name)))
            .collect();
        let ops = commit::alter_ops(self.fault, &named, &self.inner);
        match self.fault {
            StoreFault::LostUpdates => return self.commit_unguarded(&ops, closing),
            StoreFault::NoTransaction => return self.commit_one_by_one(&ops, closing),
            StoreFault::ConflictEarly => return self.commit_ahead(&ops, closing),
            StoreFault::KeyLimitTight => commit::refuse_names(&ops, KEY_BYTES_MAX)?,
            StoreFault::OperationsLimitTight => commit::refuse_count(&ops)?,
            _ => {}
        }
        let closing = match self.fault {
            StoreFault::MarginForAll => true,
            StoreFault::MarginForNobody => false,
            _ => closing,
        };
        let answer = self.inner.commit(&ops, closing);
        if answer == Ok(CommitOutcome::Committed) && self.fault == StoreFault::ForgetsLast {
            lock(&self.journal).push(commit::without_conditions(&ops));
        }
        commit::alter_answer(self.fault, &ops, answer, &self.inner)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
