//! The whole contents of a store: listed, copied into an empty store, and compared.
//!
//! A copy has the same records and log entries. The versions of its records begin anew: they are
//! compared by whoever has read one, and nothing keeps them.

use super::{
    COMMIT_OPS_MAX, CommitOp, CommitOutcome, LogEntry, PAGE_ENTRIES_MAX, RecordExpectation,
    StorageBackend, StorageError, StoredRecord,
};
use std::collections::VecDeque;

/// Bytes of keys and values with which a commit of a copy is complete. One more value fits it.
const BATCH_BYTES: usize = 1 << 20;

/// The name of one log.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogName {
    /// The kind of log.
    pub log: String,
    /// The name of the log of that kind.
    pub partition: String,
}

/// A store that can say which collections and logs it has.
pub trait ListedStore: StorageBackend {
    /// Returns the names of the collections that have records, in order.
    fn list_collections(&self) -> Result<Vec<String>, StorageError>;

    /// Returns the logs that have entries and come after this one, in order, at most
    /// [`PAGE_ENTRIES_MAX`].
    fn list_logs(&self, after: Option<&LogName>) -> Result<Vec<LogName>, StorageError>;
}

/// The size of what was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopiedContents {
    /// Number of records.
    pub records: u64,
    /// Number of log entries.
    pub entries: u64,
    /// Bytes of their names and values.
    pub bytes: u64,
}

/// Reason why the contents of a store could not be copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// A store cannot be read.
    #[error("the store cannot be read: {0}")]
    Unreadable(StorageError),
    /// The copy cannot be written.
    #[error("the copy cannot be written: {0}")]
    Target(StorageError),
    /// A record cannot be read.
    #[error("the record {collection}/{name} cannot be read: {message}")]
    Damaged {
        /// Its collection.
        collection: String,
        /// Its name, as far as it can be read.
        name: String,
        /// The problem.
        message: String,
    },
    /// The store for the copy has contents.
    #[error("the store for the copy is not empty")]
    NotEmpty,
    /// The copy is not the same as the store.
    #[error("the copy differs from the store in {what}: was the store changed meanwhile?")]
    Differs {
        /// A record, a log, or a list of them.
        what: String,
    },
}

/// Copies all records and log entries into an empty store, and calls `progress` after each commit.
///
/// # Errors
/// [`CopyError`]; what was copied until then stays in the store for the copy.
pub fn copy_contents(
    source: &dyn ListedStore,
    target: &dyn ListedStore,
    progress: &mut dyn FnMut(CopiedContents),
) -> Result<CopiedContents, CopyError> {
    let has_records = !target
        .list_collections()
        .map_err(CopyError::Unreadable)?
        .is_empty();
    if has_records || LogReader::new(target).next_log()?.is_some() {
        return Err(CopyError::NotEmpty);
    }
    let mut batch = CopyBatch {
        target,
        ops: Vec::new(),
        bytes: 0,
        copied: CopiedContents::default(),
        progress,
    };
    for collection in source.list_collections().map_err(CopyError::Unreadable)? {
        let mut records = RecordReader::new(source, &collection);
        while let Some(StoredRecord { key, value, .. }) = records.next_record()? {
            batch.copied.records += 1;
            let bytes = key.name.len() + value.len();
            let expect = RecordExpectation::Absent;
            batch.add(CommitOp::Put { key, expect, value }, bytes)?;
        }
    }
    let mut logs = LogReader::new(source);
    while let Some(name) = logs.next_log()? {
        copy_log(source, &name, &mut batch)?;
    }
    batch.write()?;
    Ok(batch.copied)
}

/// Copies one log. Where its beginning was removed, the copy gets empty entries, which are removed
/// as soon as the first entry that is left is there.
fn copy_log(
    source: &dyn ListedStore,
    name: &LogName,
    batch: &mut CopyBatch<'_>,
) -> Result<(), CopyError> {
    let LogName { log, partition } = name;
    let append = |at: u64, value: String| CommitOp::Append {
        log: log.clone(),
        partition: partition.clone(),
        at,
        value,
    };
    let mut entries = EntryReader::new(source, name);
    let mut next = 1;
    while let Some(LogEntry { position, value }) = entries.next_entry()? {
        let first = next == 1 && position > 1;
        for at in next..position {
            batch.add(append(at, String::new()), partition.len())?;
        }
        let bytes = partition.len() + value.len();
        batch.copied.entries += 1;
        batch.add(append(position, value), bytes)?;
        if first {
            let trim = CommitOp::Trim {
                log: log.clone(),
                partition: partition.clone(),
                below: position,
            };
            batch.add(trim, partition.len())?;
        }
        next = position + 1;
    }
    Ok(())
}

/// Checks that both stores have the same records and log entries, whatever the versions of records.
///
/// # Errors
/// [`CopyError::Differs`] with the first difference, or that of a store that cannot be read.
pub fn compare_contents(source: &dyn ListedStore, copy: &dyn ListedStore) -> Result<(), CopyError> {
    let differs = |what: String| Err(CopyError::Differs { what });
    let collections = source.list_collections().map_err(CopyError::Unreadable)?;
    if copy.list_collections().map_err(CopyError::Unreadable)? != collections {
        return differs("the names of its collections".to_owned());
    }
    for collection in &collections {
        let mut records = RecordReader::new(source, collection);
        let mut copies = RecordReader::new(copy, collection);
        loop {
            let (record, copied) = (records.next_record()?, copies.next_record()?);
            let content = |it: Option<StoredRecord>| it.map(|it| (it.key.name, it.value));
            match (content(record), content(copied)) {
                (None, None) => break,
                (record, copied) if record == copied => {}
                (record, copied) => {
                    let names = record.into_iter().chain(copied).map(|(name, _)| name);
                    let name = names.min().unwrap_or_default();
                    return differs(format!("the record {collection}/{name}"));
                }
            }
        }
    }
    let (mut logs, mut copies) = (LogReader::new(source), LogReader::new(copy));
    loop {
        match (logs.next_log()?, copies.next_log()?) {
            (None, None) => return Ok(()),
            (Some(name), Some(copied)) if name == copied => {
                if let Some(position) = find_other_entry(source, copy, &name)? {
                    let LogName { log, partition } = name;
                    return differs(format!("entry {position} of the log {log}/{partition}"));
                }
            }
            _ => return differs("the names of its logs".to_owned()),
        }
    }
}

/// The position of the first entry that only one of the stores has, or that differs.
fn find_other_entry(
    source: &dyn ListedStore,
    copy: &dyn ListedStore,
    name: &LogName,
) -> Result<Option<u64>, CopyError> {
    let mut entries = EntryReader::new(source, name);
    let mut copies = EntryReader::new(copy, name);
    loop {
        match (entries.next_entry()?, copies.next_entry()?) {
            (None, None) => return Ok(None),
            (entry, copied) if entry == copied => {}
            (entry, copied) => {
                let positions = entry.into_iter().chain(copied).map(|entry| entry.position);
                return Ok(positions.min());
            }
        }
    }
}

/// Operations of a copy that are not written yet.
struct CopyBatch<'a> {
    target: &'a dyn ListedStore,
    ops: Vec<CommitOp>,
    bytes: usize,
    copied: CopiedContents,
    progress: &'a mut dyn FnMut(CopiedContents),
}

impl CopyBatch<'_> {
    fn add(&mut self, op: CommitOp, bytes: usize) -> Result<(), CopyError> {
        self.ops.push(op);
        self.bytes += bytes;
        self.copied.bytes += bytes as u64;
        match self.ops.len() == COMMIT_OPS_MAX || self.bytes >= BATCH_BYTES {
            true => self.write(),
            false => Ok(()),
        }
    }

    fn write(&mut self) -> Result<(), CopyError> {
        match self.target.commit(&self.ops, false) {
            Ok(CommitOutcome::Committed) => {}
            Ok(CommitOutcome::Conflict) => return Err(CopyError::NotEmpty),
            Err(error) => return Err(CopyError::Target(error)),
        }
        self.ops.clear();
        self.bytes = 0;
        (self.progress)(self.copied);
        Ok(())
    }
}

/// The records of a collection in order, a page at a time.
struct RecordReader<'a> {
    store: &'a dyn ListedStore,
    collection: &'a str,
    page: VecDeque<StoredRecord>,
    /// Start of the next page; `None` after the last.
    next: Option<String>,
}

impl<'a> RecordReader<'a> {
    fn new(store: &'a dyn ListedStore, collection: &'a str) -> Self {
        Self {
            store,
            collection,
            page: VecDeque::new(),
            next: Some(String::new()),
        }
    }

    fn next_record(&mut self) -> Result<Option<StoredRecord>, CopyError> {
        while self.page.is_empty()
            && let Some(start) = self.next.take()
        {
            let page = self
                .store
                .scan(self.collection, &start, "", PAGE_ENTRIES_MAX, false);
            let page = page.map_err(CopyError::Unreadable)?;
            if let Some(damaged) = page.damaged.into_iter().next() {
                return Err(CopyError::Damaged {
                    collection: self.collection.to_owned(),
                    name: damaged.name,
                    message: damaged.message,
                });
            }
            self.page = page.items.into();
            self.next = page.cursor;
        }
        Ok(self.page.pop_front())
    }
}

/// The names of all logs in order, a page at a time.
struct LogReader<'a> {
    store: &'a dyn ListedStore,
    page: VecDeque<LogName>,
    last: Option<LogName>,
}

impl<'a> LogReader<'a> {
    fn new(store: &'a dyn ListedStore) -> Self {
        Self {
            store,
            page: VecDeque::new(),
            last: None,
        }
    }

    fn next_log(&mut self) -> Result<Option<LogName>, CopyError> {
        if self.page.is_empty() {
            let page = self.store.list_logs(self.last.as_ref());
            self.page = page.map_err(CopyError::Unreadable)?.into();
        }
        self.last = self.page.pop_front();
        Ok(self.last.clone())
    }
}

/// The entries of a log in order, a page at a time.
struct EntryReader<'a> {
    store: &'a dyn ListedStore,
    name: &'a LogName,
    page: VecDeque<LogEntry>,
    next: u64,
}

impl<'a> EntryReader<'a> {
    fn new(store: &'a dyn ListedStore, name: &'a LogName) -> Self {
        Self {
            store,
            name,
            page: VecDeque::new(),
            next: 1,
        }
    }

    fn next_entry(&mut self) -> Result<Option<LogEntry>, CopyError> {
        if self.page.is_empty() {
            let LogName { log, partition } = self.name;
            let page = self
                .store
                .read_log(log, partition, self.next, PAGE_ENTRIES_MAX, false);
            self.page = page.map_err(CopyError::Unreadable)?.into();
        }
        let entry = self.page.pop_front();
        if let Some(entry) = &entry {
            self.next = entry.position + 1;
        }
        Ok(entry)
    }
}

/// Names of logs after one, out of ordered maps: what [`ListedStore::list_logs`] returns.
pub(crate) fn logs_after<T>(
    logs: &std::collections::BTreeMap<String, std::collections::BTreeMap<String, T>>,
    after: Option<&LogName>,
) -> Vec<LogName> {
    use std::ops::Bound;
    let from = after.map_or("", |after| after.log.as_str());
    let kinds = logs.range::<str, _>((Bound::Included(from), Bound::Unbounded));
    let named = kinds.flat_map(|(log, partitions)| {
        let beyond = match after {
            Some(after) if after.log == *log => Bound::Excluded(after.partition.as_str()),
            _ => Bound::Unbounded,
        };
        let partitions = partitions.range::<str, _>((beyond, Bound::Unbounded));
        partitions.map(|(partition, _)| LogName {
            log: log.clone(),
            partition: partition.clone(),
        })
    });
    named.take(PAGE_ENTRIES_MAX as usize).collect()
}
