//! Conversions between WIT and core on the side of the imports: storage and library.

use crate::component::threadkeep::threads::{library, storage};
use crate::ports::{LibraryError, RecordDamage, StorageError, StoredItem};
use threadkeep_core::plan::{StoreWrite, WriteCondition};

pub fn key(collection: &str, name: &str) -> storage::Key {
    owned_key(collection, name.to_owned())
}

fn owned_key(collection: &str, name: String) -> storage::Key {
    let collection = collection.to_owned();
    storage::Key { collection, name }
}

/// Converts the reason why a store cannot give a record.
pub fn record_damage(why: storage::Failure) -> RecordDamage {
    let storage::Failure { code, message } = why;
    RecordDamage { code, message }
}

pub fn item(item: storage::Item) -> StoredItem {
    StoredItem {
        collection: item.key.collection,
        name: item.key.name,
        version: item.version,
        value: item.value,
    }
}

fn expectation(expect: WriteCondition) -> storage::Expectation {
    match expect {
        WriteCondition::Any => storage::Expectation::Any,
        WriteCondition::Absent => storage::Expectation::Absent,
        WriteCondition::Version(version) => storage::Expectation::Version(version),
    }
}

pub fn op(write: StoreWrite) -> storage::Op {
    match write {
        StoreWrite::Check {
            collection,
            key: name,
            expect,
        } => storage::Op::Check(storage::CheckOp {
            key: owned_key(collection, name),
            expect: expectation(expect),
        }),
        StoreWrite::Put {
            collection,
            key: name,
            expect,
            value,
        } => storage::Op::Put(storage::PutOp {
            key: owned_key(collection, name),
            expect: expectation(expect),
            value,
        }),
        StoreWrite::Delete {
            collection,
            key: name,
        } => storage::Op::Delete(owned_key(collection, name)),
        StoreWrite::Append {
            log,
            partition,
            at,
            value,
        } => storage::Op::Append(storage::AppendOp {
            log: log.to_owned(),
            partition,
            at,
            value,
        }),
        StoreWrite::Trim {
            log,
            partition,
            below,
        } => storage::Op::Trim(storage::TrimOp {
            log: log.to_owned(),
            partition,
            below,
        }),
    }
}

pub fn storage_error(error: storage::StorageError) -> StorageError {
    match error {
        storage::StorageError::Unavailable(f) => StorageError::Unavailable(f.code, f.message),
        storage::StorageError::OutcomeUnknown(f) => StorageError::OutcomeUnknown(f.code, f.message),
        storage::StorageError::QuotaExceeded(f) => StorageError::QuotaExceeded(f.code, f.message),
        storage::StorageError::TooLarge(f) => StorageError::TooLarge(f.code, f.message),
        storage::StorageError::Corrupt(f) => StorageError::Corrupt(f.code, f.message),
        storage::StorageError::Other(f) => StorageError::Other(f.code, f.message),
    }
}

pub fn library_error(error: library::LibraryError) -> LibraryError {
    match error {
        library::LibraryError::Invalid(i) => LibraryError::Invalid {
            field: i.field,
            value: i.value,
            problem: i.problem,
            nearest: i.nearest,
        },
        library::LibraryError::Unavailable(f) => LibraryError::Unavailable(f.code, f.message),
        library::LibraryError::Other(f) => LibraryError::Other(f.code, f.message),
    }
}
