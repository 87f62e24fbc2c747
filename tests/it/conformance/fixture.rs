//! Short words for the operations, and the two helpers through which cases commit: one for success,
//! one for refusal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use tempfile::TempDir;
use threadkeep::storage::directory::GrantedDirectory;
use threadkeep::storage::files::{FilesOptions, FilesStore};
use threadkeep::storage::sqlite::{CommitDurability, SqliteOptions, SqliteStore, StorePool};
use threadkeep::storage::{
    COLLECTIONS, CommitOp, CommitOutcome, LOGS, LogEntry, RecordExpectation, RecordKey,
    StorageBackend, StorageError, StorageQuota, StoredRecord,
};

use super::suite::StoreHome;

pub(super) const MIB: usize = 1 << 20;
/// Names of collections and logs that no version of the component uses: the shortest, the longest,
/// one that a table of SQLite has in its name, and one of a log or collection.
pub(super) const OTHER_NAMES: [&str; 4] = ["a", "abcdefghijklmnop", "other", "history"];
/// Texts that are no names of collections and logs.
pub(super) const BAD_NAMES: [&str; 10] = [
    "",
    "abcdefghijklmnopq",
    "Thread",
    "thread ",
    "thread1",
    "a_b",
    "a-b",
    "é",
    "a\0",
    "a'; --",
];
/// Name of the file in the tests' directories.
pub(super) const FILE: &str = "registry.db";

/// A directory for a SQLite store.
pub(super) struct SqliteFixture {
    pub(super) temp: TempDir,
    pub(super) dir: Dir,
    quota: Option<StorageQuota>,
}

impl StoreHome for SqliteFixture {
    fn open(&self) -> Arc<dyn StorageBackend> {
        Arc::new(self.open_with(self.quota))
    }
}

impl SqliteFixture {
    pub(super) fn new() -> Self {
        Self::with_quota(None)
    }

    pub(super) fn with_quota(quota: Option<StorageQuota>) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(temp.path(), ambient_authority()).unwrap();
        Self { temp, dir, quota }
    }

    pub(super) fn open(&self) -> SqliteStore {
        self.open_with(None)
    }

    /// Opens without waiting for a disk: the suite tests which commits succeed, the crash tests
    /// which are durable.
    pub(super) fn open_with(&self, quota: Option<StorageQuota>) -> SqliteStore {
        self.try_open(options(quota)).unwrap()
    }

    pub(super) fn try_open(&self, options: SqliteOptions) -> Result<SqliteStore, StorageError> {
        SqliteStore::open(&self.dir, FILE, options)
    }

    /// A plain connection to the same file, for changes that the store itself never makes.
    pub(super) fn shell(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.temp.path().join(FILE)).unwrap()
    }
}

/// A directory for a SQLite store that opens on first use.
pub(super) struct LazyFixture {
    fixture: SqliteFixture,
    stores: StorePool,
}

impl LazyFixture {
    pub(super) fn new(stores: &StorePool, quota: Option<StorageQuota>) -> Self {
        Self {
            fixture: SqliteFixture::with_quota(quota),
            stores: stores.clone(),
        }
    }
}

impl StoreHome for LazyFixture {
    fn open(&self) -> Arc<dyn StorageBackend> {
        let dir = self.fixture.dir.try_clone().unwrap();
        let options = options(self.fixture.quota);
        Arc::new(self.stores.store(move || dir.try_clone(), FILE, options))
    }
}

/// A directory for a store of files. Each opening is as one of another process.
pub(super) struct FilesFixture {
    temp: TempDir,
    quota: Option<StorageQuota>,
    openings: AtomicU64,
}

impl FilesFixture {
    pub(super) fn with_quota(quota: Option<StorageQuota>) -> Self {
        Self {
            temp: tempfile::tempdir().unwrap(),
            quota,
            openings: AtomicU64::new(0),
        }
    }
}

impl StoreHome for FilesFixture {
    fn open(&self) -> Arc<dyn StorageBackend> {
        let number = self.openings.fetch_add(1, Ordering::Relaxed);
        let dir = Dir::open_ambient_dir(self.temp.path(), ambient_authority()).unwrap();
        let options = FilesOptions {
            writer: format!("opening{number}"),
            durable: false,
            quota: self.quota,
        };
        Arc::new(FilesStore::open(Box::new(GrantedDirectory::new(dir)), options).unwrap())
    }
}

pub(super) fn options(quota: Option<StorageQuota>) -> SqliteOptions {
    let mut options = SqliteOptions {
        durability: CommitDurability::Normal,
        ..SqliteOptions::local()
    };
    if let Some(quota) = quota {
        options.quota_bytes = Some(quota.limit_bytes);
        options.closing_margin_bytes = quota.closing_margin_bytes;
    }
    options
}

pub(super) fn key(collection: &str, name: &str) -> RecordKey {
    RecordKey::new(collection, name)
}

pub(super) fn put_op(
    collection: &str,
    name: &str,
    expect: RecordExpectation,
    value: &str,
) -> CommitOp {
    CommitOp::Put {
        key: key(collection, name),
        expect,
        value: value.to_owned(),
    }
}

pub(super) fn check(collection: &str, name: &str, expect: RecordExpectation) -> CommitOp {
    CommitOp::Check {
        key: key(collection, name),
        expect,
    }
}

pub(super) fn delete(collection: &str, name: &str) -> CommitOp {
    CommitOp::Delete {
        key: key(collection, name),
    }
}

pub(super) fn append(log: &str, partition: &str, at: u64, value: &str) -> CommitOp {
    CommitOp::Append {
        log: log.to_owned(),
        partition: partition.to_owned(),
        at,
        value: value.to_owned(),
    }
}

pub(super) fn trim(log: &str, partition: &str, below: u64) -> CommitOp {
    CommitOp::Trim {
        log: log.to_owned(),
        partition: partition.to_owned(),
        below,
    }
}

pub(super) fn item(collection: &str, name: &str, version: u64, value: &str) -> StoredRecord {
    StoredRecord {
        key: key(collection, name),
        version,
        value: value.to_owned(),
    }
}

/// Commits operations that must succeed.
#[track_caller]
pub(super) fn commit(store: &dyn StorageBackend, ops: &[CommitOp]) {
    assert_eq!(store.commit(ops, false), Ok(CommitOutcome::Committed));
}

/// Commits operations that must be refused with `expected`, and checks that nothing has changed.
#[track_caller]
pub(super) fn refuse(store: &dyn StorageBackend, ops: &[CommitOp], expected: &StorageError) {
    let before = contents(store);
    assert_eq!(store.commit(ops, false).as_ref(), Err(expected));
    assert_eq!(
        contents(store),
        before,
        "a refused commit changed something"
    );
}

/// Commits operations that must be corrupt, and checks that nothing has changed.
#[track_caller]
pub(super) fn refuse_corrupt(store: &dyn StorageBackend, ops: &[CommitOp]) {
    let before = contents(store);
    let answer = store.commit(ops, false);
    assert!(
        matches!(answer, Err(StorageError::Corrupt { .. })),
        "{answer:?}"
    );
    assert_eq!(
        contents(store),
        before,
        "a refused commit changed something"
    );
}

/// Commits operations that must be refused with this code, and checks that nothing has changed.
#[track_caller]
pub(super) fn refuse_code(store: &dyn StorageBackend, ops: &[CommitOp], expected: &str) {
    let before = contents(store);
    assert_code(store.commit(ops, false), expected);
    assert_eq!(
        contents(store),
        before,
        "a refused commit changed something"
    );
}

/// Commits operations that must conflict, and checks that nothing has changed and that `found` is
/// read afterwards.
#[track_caller]
pub(super) fn conflict(store: &dyn StorageBackend, ops: &[CommitOp], found: &[StoredRecord]) {
    let before = contents(store);
    assert_eq!(store.commit(ops, false), Ok(CommitOutcome::Conflict));
    let keys: Vec<RecordKey> = found.iter().map(|item| item.key.clone()).collect();
    assert_eq!(store.get(&keys).as_deref(), Ok(found));
    assert_eq!(contents(store), before, "a conflict changed something");
}

#[track_caller]
pub(super) fn assert_code<T: std::fmt::Debug>(answer: Result<T, StorageError>, expected: &str) {
    match answer {
        Err(StorageError::Other { code, .. }) => assert_eq!(code, expected),
        answer => panic!("{answer:?} instead of {expected}"),
    }
}

pub(super) fn too_large(what: &'static str, limit: usize, actual: usize) -> StorageError {
    StorageError::TooLarge {
        what,
        limit: limit as u64,
        actual: actual as u64,
    }
}

/// Reads one record.
pub(super) fn get(
    store: &dyn StorageBackend,
    collection: &str,
    name: &str,
) -> Option<StoredRecord> {
    store.get(&[key(collection, name)]).unwrap().pop()
}

/// Reads a log from its first entry, as (position, value), a page at a time.
pub(super) fn log(store: &dyn StorageBackend, log: &str, partition: &str) -> Vec<(u64, String)> {
    let mut all = Vec::new();
    let mut start = 0;
    loop {
        let lines = store.read_log(log, partition, start, 500, false).unwrap();
        let Some(last) = lines.last() else { return all };
        assert!(last.position >= start, "reading up does not go on");
        start = last.position + 1;
        all.extend(
            lines
                .into_iter()
                .map(|LogEntry { position, value }| (position, value)),
        );
    }
}

/// Reads a collection from its first record, a page at a time.
pub(super) fn records(store: &dyn StorageBackend, collection: &str) -> Vec<StoredRecord> {
    let mut all = Vec::new();
    let mut start = String::new();
    loop {
        let page = store.scan(collection, &start, "", 500, false).unwrap();
        all.extend(page.items);
        let Some(cursor) = page.cursor else {
            return all;
        };
        assert!(cursor > start, "a scan does not go on");
        start = cursor;
    }
}

/// The collections that the component uses, and others.
pub(super) fn collections() -> impl Iterator<Item = &'static str> {
    let known = COLLECTIONS.iter().map(|(name, _)| *name);
    known.chain(OTHER_NAMES)
}

/// The logs that the component uses, and others.
pub(super) fn logs() -> impl Iterator<Item = &'static str> {
    let known = LOGS.into_iter();
    known.chain(OTHER_NAMES.into_iter().filter(|name| !LOGS.contains(name)))
}

/// Reads every record, and the logs that the cases use.
pub(super) fn contents(store: &dyn StorageBackend) -> (Vec<StoredRecord>, Vec<(u64, String)>) {
    let items = collections()
        .flat_map(|collection| records(store, collection))
        .collect();
    let pairs = logs().flat_map(|name| ["p", "q"].map(|partition| (name, partition)));
    (
        items,
        pairs
            .flat_map(|(name, partition)| log(store, name, partition))
            .collect(),
    )
}
