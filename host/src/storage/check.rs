//! Checks that every backend makes before it looks at its contents: names and sizes.
//!
//! The order is fixed, because the conformance suite compares the answers of all backends: the
//! number of things first, then each thing in the order given, then the sum.

use std::collections::HashSet;

use super::{
    COLLECTIONS, COMMIT_BYTES_MAX, COMMIT_OPS_MAX, Expect, KEY_BYTES_MAX, Key, LOGS, Op,
    PAGE_ENTRIES_MAX, StorageError, VALUE_BYTES_MAX,
};

/// Checks the arguments of [`super::Storage::get`].
pub fn check_get(keys: &[Key]) -> Result<(), StorageError> {
    at_most("keys", keys.len(), PAGE_ENTRIES_MAX as usize)?;
    keys.iter().try_for_each(|key| check_key(key).map(drop))
}

/// Checks the arguments of [`super::Storage::scan`]; returns the index of the collection in
/// [`COLLECTIONS`].
pub fn check_scan(
    collection: &str,
    start: &str,
    end: &str,
    limit: u32,
) -> Result<usize, StorageError> {
    let place = collection_place(collection)?;
    at_most("key", start.len(), KEY_BYTES_MAX)?;
    at_most("key", end.len(), KEY_BYTES_MAX)?;
    check_limit(limit)?;
    Ok(place)
}

/// Checks the arguments of [`super::Storage::read_log`]; returns the index of the log in [`LOGS`].
pub fn check_log(log: &str, partition: &str, limit: u32) -> Result<usize, StorageError> {
    let place = check_partition(log, partition)?;
    check_limit(limit)?;
    Ok(place)
}

/// Checks the operations of [`super::Storage::commit`].
pub fn check_commit(ops: &[Op]) -> Result<(), StorageError> {
    at_most("operations", ops.len(), COMMIT_OPS_MAX)?;
    let mut named = HashSet::with_capacity(ops.len());
    let mut bytes = 0_usize;
    for op in ops {
        // Each term is at most KEY_BYTES_MAX + VALUE_BYTES_MAX and there are at most
        // COMMIT_OPS_MAX: no overflow.
        bytes += check_op(op)?;
        if let Some(key) = record_of(op)
            && !named.insert(key)
        {
            let message = format!(
                "{}/{} is named twice in one commit",
                key.collection, key.name
            );
            return Err(other("key-named-twice", message));
        }
    }
    at_most("commit", bytes, COMMIT_BYTES_MAX)
}

/// The index of a collection in [`COLLECTIONS`].
pub(super) fn collection_place(name: &str) -> Result<usize, StorageError> {
    COLLECTIONS
        .iter()
        .position(|(known, _)| *known == name)
        .ok_or_else(|| {
            other(
                "unknown-collection",
                format!("there is no collection {name:?}"),
            )
        })
}

/// The index of a log in [`LOGS`].
pub(super) fn log_place(name: &str) -> Result<usize, StorageError> {
    let unknown = || other("unknown-log", format!("there is no log {name:?}"));
    LOGS.iter()
        .position(|known| *known == name)
        .ok_or_else(unknown)
}

/// The condition that an operation puts on a record, if any.
pub(super) fn condition_of(op: &Op) -> Option<(&Key, Expect)> {
    match op {
        Op::Check { key, expect } | Op::Put { key, expect, .. } => match expect {
            Expect::Any => None,
            Expect::Absent | Expect::Version(_) => Some((key, *expect)),
        },
        Op::Delete { .. } | Op::Append { .. } | Op::Trim { .. } => None,
    }
}

/// True if a record at `version`, or its absence, meets the expectation.
pub(super) fn holds(expect: Expect, version: Option<u64>) -> bool {
    match expect {
        Expect::Any => true,
        Expect::Absent => version.is_none(),
        Expect::Version(expected) => version == Some(expected),
    }
}

/// The error of an append at any position but the one after the last.
pub(super) fn misfit(log: &str, partition: &str, at: u64, last: u64) -> StorageError {
    let message = format!(
        "an entry was to become number {at} of log {log}/{partition}, whose last is {last}"
    );
    StorageError::Corrupt { message }
}

/// Makes a [`StorageError::Other`].
pub(super) fn other(code: &'static str, message: impl Into<String>) -> StorageError {
    StorageError::Other {
        code,
        message: message.into(),
    }
}

/// Checks one operation; returns its bytes in the commit.
fn check_op(op: &Op) -> Result<usize, StorageError> {
    match op {
        Op::Check {
            expect: Expect::Any,
            key,
        } => {
            check_key(key)?;
            Err(other(
                "not-a-condition",
                format!(
                    "the check of {}/{} expects nothing",
                    key.collection, key.name
                ),
            ))
        }
        Op::Check { key, .. } | Op::Delete { key } => {
            check_key(key)?;
            Ok(key.name.len())
        }
        Op::Put { key, value, .. } => {
            check_key(key)?;
            at_most("value", value.len(), VALUE_BYTES_MAX)?;
            Ok(key.name.len() + value.len())
        }
        Op::Append {
            log,
            partition,
            value,
            ..
        } => {
            check_partition(log, partition)?;
            at_most("value", value.len(), VALUE_BYTES_MAX)?;
            Ok(partition.len() + value.len())
        }
        Op::Trim { log, partition, .. } => {
            check_partition(log, partition)?;
            Ok(partition.len())
        }
    }
}

fn record_of(op: &Op) -> Option<&Key> {
    match op {
        Op::Check { key, .. } | Op::Put { key, .. } | Op::Delete { key } => Some(key),
        Op::Append { .. } | Op::Trim { .. } => None,
    }
}

fn check_key(key: &Key) -> Result<usize, StorageError> {
    let place = collection_place(&key.collection)?;
    if key.name.is_empty() {
        return Err(other(
            "empty-key",
            format!("a key of collection {} is empty", key.collection),
        ));
    }
    at_most("key", key.name.len(), KEY_BYTES_MAX)?;
    Ok(place)
}

fn check_partition(log: &str, partition: &str) -> Result<usize, StorageError> {
    let place = log_place(log)?;
    if partition.is_empty() {
        return Err(other(
            "empty-key",
            format!("a partition of log {log} is empty"),
        ));
    }
    at_most("partition", partition.len(), KEY_BYTES_MAX)?;
    Ok(place)
}

fn check_limit(limit: u32) -> Result<(), StorageError> {
    if limit == 0 {
        return Err(other("empty-page", "a page of no entries was asked for"));
    }
    at_most("page", limit as usize, PAGE_ENTRIES_MAX as usize)
}

fn at_most(what: &'static str, actual: usize, limit: usize) -> Result<(), StorageError> {
    if actual <= limit {
        return Ok(());
    }
    Err(StorageError::TooLarge {
        what,
        limit: limit as u64,
        actual: actual as u64,
    })
}
