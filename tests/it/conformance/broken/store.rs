//! A store in memory with one planted fault, each a mistake that a backend could make.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{
    Item, KEY_BYTES_MAX, Key, Line, Op, Outcome, Page, Storage, StorageError,
};

use super::commit;

/// The gap that a fault leaves for other threads to step into.
const GAP: Duration = Duration::from_micros(200);

/// The planted fault of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Fault {
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
    ConflictStale,
    ConflictEarly,
    ConflictFindsNothing,
    ConflictFindsAll,
    ConflictUnbounded,
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
pub(super) struct Broken {
    fault: Fault,
    inner: Arc<MemoryStore>,
    /// Commits acknowledged so far, for a store that writes them too late.
    journal: Arc<Mutex<Vec<Vec<Op>>>>,
    /// The older store that [`Fault::ConflictEarly`] reads: `inner` is ahead of it.
    behind: Arc<MemoryStore>,
    kept: Mutex<HashMap<Key, Option<Item>>>,
    older: Mutex<HashMap<Key, Item>>,
}

impl Broken {
    pub(super) fn new(
        fault: Fault,
        inner: Arc<MemoryStore>,
        behind: Arc<MemoryStore>,
        journal: Arc<Mutex<Vec<Vec<Op>>>>,
    ) -> Self {
        Self {
            fault,
            inner,
            journal,
            behind,
            kept: Mutex::default(),
            older: Mutex::default(),
        }
    }

    fn readable(&self) -> &MemoryStore {
        match self.fault {
            Fault::ConflictEarly => &self.behind,
            _ => &self.inner,
        }
    }

    fn get_cached(&self, keys: &[Key]) -> Result<Vec<Item>, StorageError> {
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

    fn get_torn(&self, keys: &[Key]) -> Result<Vec<Item>, StorageError> {
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
    ) -> Result<Page, StorageError> {
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
    fn commit_unguarded(&self, ops: &[Op], closing: bool) -> Result<Outcome, StorageError> {
        let checks: Vec<Op> = ops.iter().filter_map(commit::check_of).collect();
        match self.inner.commit(&checks, closing)? {
            Outcome::Conflict(found) => return Ok(Outcome::Conflict(found)),
            Outcome::Committed => std::thread::sleep(GAP),
        }
        let bare = commit::without_conditions(ops);
        self.inner.commit(&bare, closing)
    }

    /// Commits one operation after the other; the ones before a refusal stay.
    fn commit_one_by_one(&self, ops: &[Op], closing: bool) -> Result<Outcome, StorageError> {
        let checks: Vec<Op> = ops.iter().filter_map(commit::check_of).collect();
        if let Outcome::Conflict(found) = self.inner.commit(&checks, closing)? {
            return Ok(Outcome::Conflict(found));
        }
        for op in commit::without_conditions(ops) {
            self.inner.commit(&[op], closing)?;
            std::thread::sleep(GAP);
        }
        Ok(Outcome::Committed)
    }

    /// Answers with a conflict before the conflicting record can be read.
    fn commit_ahead(&self, ops: &[Op], closing: bool) -> Result<Outcome, StorageError> {
        let outcome = {
            let mut journal = lock(&self.journal);
            let outcome = self.inner.commit(ops, closing)?;
            if outcome == Outcome::Committed {
                journal.push(commit::without_conditions(ops));
            }
            outcome
        };
        if outcome == Outcome::Committed {
            std::thread::sleep(GAP);
            let mut journal = lock(&self.journal);
            for ops in journal.drain(..) {
                self.behind.commit(&ops, true)?;
            }
        }
        Ok(outcome)
    }

    /// Remembers each record from before its last change, and reads that.
    fn commit_stale(&self, ops: &[Op], closing: bool) -> Result<Outcome, StorageError> {
        let keys: Vec<Key> = ops.iter().filter_map(commit::record_of).cloned().collect();
        let before = self.inner.get(&keys).unwrap_or_default();
        let mut older = lock(&self.older);
        match self.inner.commit(ops, closing)? {
            Outcome::Committed => {
                older.extend(before.into_iter().map(|item| (item.key.clone(), item)));
                Ok(Outcome::Committed)
            }
            Outcome::Conflict(found) => {
                let stale = |item: Item| older.get(&item.key).cloned().unwrap_or(item);
                Ok(Outcome::Conflict(found.into_iter().map(stale).collect()))
            }
        }
    }

    fn names(&self, name: &str) -> String {
        match self.fault {
            Fault::CaseBlind => name.to_lowercase(),
            Fault::CutsAtNul => name.split('\0').next().unwrap_or_default().to_owned(),
            Fault::KeyLimitLax if name.len() == KEY_BYTES_MAX + 1 => {
                name[..KEY_BYTES_MAX].to_owned()
            }
            _ => name.to_owned(),
        }
    }
}

impl Storage for Broken {
    fn get(&self, keys: &[Key]) -> Result<Vec<Item>, StorageError> {
        let mut keys: Vec<Key> = keys
            .iter()
            .map(|key| Key::new(&key.collection, self.names(&key.name)))
            .collect();
        match self.fault {
            Fault::GetSorts => keys.sort(),
            Fault::GetOnce => keys.dedup(),
            Fault::GetTorn => return self.get_torn(&keys),
            Fault::GetUnbounded => return commit::each(keys.iter(), &self.inner),
            Fault::GetCaches => return self.get_cached(&keys),
            Fault::KeyLimitTight => commit::refuse_keys(keys.iter(), KEY_BYTES_MAX)?,
            _ => {}
        }
        match self.readable().get(&keys) {
            Err(StorageError::Other { code, .. })
                if (self.fault, code) == (Fault::UnknownIsEmpty, "unknown-collection") =>
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
    ) -> Result<Page, StorageError> {
        let next = |name: &str| format!("{name}\0");
        let bounded = !end.is_empty();
        let (start, end, limit) = match self.fault {
            Fault::ScanTakesEnd if bounded && !reverse => (start.to_owned(), next(end), limit),
            Fault::ScanReverseTakesEnd if bounded && reverse => {
                (start.to_owned(), next(end), limit)
            }
            Fault::ScanLosesStart if !start.is_empty() => (next(start), end.to_owned(), limit),
            Fault::PageOverLimit if limit < 500 => (start.to_owned(), end.to_owned(), limit + 1),
            Fault::PageOverBytes if !reverse && limit > 0 => {
                return self.scan_over_bytes(collection, (start, end), limit);
            }
            _ => (start.to_owned(), end.to_owned(), limit),
        };
        let mut page = self
            .readable()
            .scan(collection, &start, &end, limit, reverse)?;
        match self.fault {
            Fault::ScanWrongOrder => page.items.sort_by_key(|item| item.key.name.to_lowercase()),
            Fault::ScanSkipsAtCursor => page.cursor = page.cursor.as_deref().map(next),
            Fault::ScanLosesCursor => page.cursor = None,
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
    ) -> Result<Vec<Line>, StorageError> {
        let (log, start, limit) = match self.fault {
            Fault::LogAfterStart if start > 0 => (log, start.saturating_add(1), limit),
            Fault::LogDownFromZero if reverse && start == 0 => (log, 1, limit),
            Fault::LogsAreOne if log == "blob" => ("history", start, limit),
            Fault::PageOverLimit if limit < 500 => (log, start, limit + 1),
            _ => (log, start, limit),
        };
        let partition = self.names(partition);
        self.readable()
            .read_log(log, &partition, start, limit, reverse)
    }

    fn commit(&self, ops: &[Op], closing: bool) -> Result<Outcome, StorageError> {
        let named: Vec<Op> = ops
            .iter()
            .map(|op| commit::renamed(op, &|name| self.names(name)))
            .collect();
        let ops = commit::altered(self.fault, &named, &self.inner);
        match self.fault {
            Fault::LostUpdates => return self.commit_unguarded(&ops, closing),
            Fault::NoTransaction => return self.commit_one_by_one(&ops, closing),
            Fault::ConflictEarly => return self.commit_ahead(&ops, closing),
            Fault::ConflictStale => return self.commit_stale(&ops, closing),
            Fault::KeyLimitTight => commit::refuse_names(&ops, KEY_BYTES_MAX)?,
            Fault::OperationsLimitTight => commit::refuse_count(&ops)?,
            _ => {}
        }
        let closing = match self.fault {
            Fault::MarginForAll => true,
            Fault::MarginForNobody => false,
            _ => closing,
        };
        let answer = self.inner.commit(&ops, closing);
        if answer == Ok(Outcome::Committed) && self.fault == Fault::ForgetsLast {
            lock(&self.journal).push(commit::without_conditions(&ops));
        }
        commit::answered(self.fault, &ops, answer, &self.inner)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
