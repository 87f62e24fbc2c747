//! A SQLite store in a hostile environment: links, files of other users, full disks, damage, and
//! many tenants.

mod cut_commits;
mod damaged_files;
mod directory_confinement;
mod lazy;
mod migrations;
mod planted_schema;
mod posix_locks;
mod projects;
mod replaced_files;
mod transfers;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use std::path::Path;
use threadkeep::storage::sqlite::{CommitDurability, SqliteOptions, SqliteStore};
use threadkeep::storage::{
    CommitOp, CommitOutcome, RecordExpectation, RecordKey, StorageBackend, StorageError,
};

/// Name of the store in the tests' directories.
const FILE: &str = "registry.db";

fn dir(path: &Path) -> Dir {
    Dir::open_ambient_dir(path, ambient_authority()).unwrap()
}

/// Options without waiting for a disk: the crash tests check durability.
fn options() -> SqliteOptions {
    SqliteOptions {
        durability: CommitDurability::Normal,
        ..SqliteOptions::local()
    }
}

fn try_open(path: &Path) -> Result<SqliteStore, StorageError> {
    SqliteStore::open(&dir(path), FILE, options())
}

fn open(path: &Path) -> SqliteStore {
    try_open(path).unwrap()
}

fn put_op(name: &str, value: &str) -> CommitOp {
    CommitOp::Put {
        key: RecordKey::new("head", name),
        expect: RecordExpectation::Any,
        value: value.to_owned(),
    }
}

fn append(partition: &str, at: u64, value: &str) -> CommitOp {
    CommitOp::Append {
        log: "history".to_owned(),
        partition: partition.to_owned(),
        at,
        value: value.to_owned(),
    }
}

#[track_caller]
fn commit(store: &dyn StorageBackend, ops: &[CommitOp]) {
    assert_eq!(store.commit(ops, false), Ok(CommitOutcome::Committed));
}

fn get(store: &dyn StorageBackend, name: &str) -> Result<Option<String>, StorageError> {
    let items = store.get(&[RecordKey::new("head", name)])?;
    Ok(items.into_iter().next().map(|item| item.value))
}

/// The answer in one word.
fn code<T>(answer: &Result<T, StorageError>) -> &'static str {
    match answer {
        Ok(_) => "ok",
        Err(StorageError::Unavailable { .. }) => "unavailable",
        Err(StorageError::OutcomeUnknown { .. }) => "outcome-unknown",
        Err(StorageError::QuotaExceeded { .. }) => "quota-exceeded",
        Err(StorageError::TooLarge { .. }) => "too-large",
        Err(StorageError::Corrupt { .. }) => "corrupt",
        Err(StorageError::Other { code, .. }) => code,
    }
}

/// Names and bytes of every file of a directory, except the lock file and the memory that
/// connections share.
fn files(path: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(path).unwrap().map(Result::unwrap);
    let mut files: Vec<_> = entries
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .filter(|(name, _)| !name.ends_with(".lock") && !name.ends_with("-shm"))
        .map(|(name, path)| (name, std::fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}
