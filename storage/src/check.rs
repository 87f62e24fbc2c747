//! Checks that every backend makes before it looks at its contents: names and sizes.
//!
//! The order is fixed, because the conformance suite compares the answers of all backends: the
//! number of things first, then each thing in the order given, then the sum.

use std::collections::HashSet;

use super::{
    COMMIT_BYTES_MAX, COMMIT_OPS_MAX, CommitOp, KEY_BYTES_MAX, PAGE_ENTRIES_MAX, RecordExpectation,
    RecordKey, SET_NAME_BYTES_MAX, StorageError, VALUE_BYTES_MAX,
};

/// Most bytes of a name that an error repeats.
const SHOWN_BYTES_MAX: usize = 100;

/// Checks the arguments of [`super::StorageBackend::get`].
///
/// # Errors
/// As `wit/storage.wit` names them.
pub fn check_get(keys: &[RecordKey]) -> Result<(), StorageError> {
    check_at_most("keys", keys.len(), PAGE_ENTRIES_MAX as usize)?;
    keys.iter().try_for_each(check_key)
}

/// Checks the arguments of [`super::StorageBackend::scan`].
pub fn check_scan(
    collection: &str,
    start: &str,
    end: &str,
    limit: u32,
) -> Result<(), StorageError> {
    check_collection(collection)?;
    check_at_most("key", start.len(), KEY_BYTES_MAX)?;
    check_at_most("key", end.len(), KEY_BYTES_MAX)?;
    check_limit(limit)
}

/// Checks the arguments of [`super::StorageBackend::read_log`].
pub fn check_log(log: &str, partition: &str, limit: u32) -> Result<(), StorageError> {
    check_partition(log, partition)?;
    check_limit(limit)
}

/// Checks the operations of [`super::StorageBackend::commit`].
pub fn check_commit(ops: &[CommitOp]) -> Result<(), StorageError> {
    check_at_most("operations", ops.len(), COMMIT_OPS_MAX)?;
    let mut named = HashSet::with_capacity(ops.len());
    let mut bytes = 0_usize;
    for op in ops {
        // Each term is at most KEY_BYTES_MAX + VALUE_BYTES_MAX and there are at most
        // COMMIT_OPS_MAX: no overflow.
        bytes += check_op(op)?;
        if let Some(key) = record_key(op)
            && !named.insert(key)
        {
            let message = format!(
                "{}/{} is named twice in one commit",
                key.collection, key.name
            );
            return Err(other_error("key-named-twice", message));
        }
    }
    check_at_most("commit", bytes, COMMIT_BYTES_MAX)
}

fn check_collection(name: &str) -> Result<(), StorageError> {
    check_set_name("invalid-collection", "a collection", name)
}

/// Checks the name of a collection or log.
fn check_set_name(code: &'static str, what: &str, name: &str) -> Result<(), StorageError> {
    let fits = (1..=SET_NAME_BYTES_MAX).contains(&name.len());
    if fits && name.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return Ok(());
    }
    let cut = &name[..name.floor_char_boundary(SHOWN_BYTES_MAX)];
    let message = format!(
        "{cut:?} is no name of {what}: it has 1 to {SET_NAME_BYTES_MAX} letters from a to z"
    );
    Err(other_error(code, message))
}

/// The condition that an operation puts on a record, if any.
pub fn condition_of(op: &CommitOp) -> Option<(&RecordKey, RecordExpectation)> {
    match op {
        CommitOp::Check { key, expect } | CommitOp::Put { key, expect, .. } => match expect {
            RecordExpectation::Any => None,
            RecordExpectation::Absent | RecordExpectation::Version(_) => Some((key, *expect)),
        },
        CommitOp::Delete { .. } | CommitOp::Append { .. } | CommitOp::Trim { .. } => None,
    }
}

/// True if a record at `version`, or its absence, meets the expectation.
pub fn meets_condition(expect: RecordExpectation, version: Option<u64>) -> bool {
    match expect {
        RecordExpectation::Any => true,
        RecordExpectation::Absent => version.is_none(),
        RecordExpectation::Version(expected) => version == Some(expected),
    }
}

/// The error of an append at any position but the one after the last.
pub fn position_error(log: &str, partition: &str, at: u64, last: u64) -> StorageError {
    let message = format!(
        "an entry was to become number {at} of log {log}/{partition}, whose last is {last}"
    );
    StorageError::Corrupt { message }
}

/// Makes a [`StorageError::Other`].
pub fn other_error(code: &'static str, message: impl Into<String>) -> StorageError {
    StorageError::Other {
        code,
        message: message.into(),
    }
}

/// Checks one operation; returns its bytes in the commit.
fn check_op(op: &CommitOp) -> Result<usize, StorageError> {
    match op {
        CommitOp::Check {
            expect: RecordExpectation::Any,
            key,
        } => {
            check_key(key)?;
            Err(other_error(
                "not-a-condition",
                format!(
                    "the check of {}/{} expects nothing",
                    key.collection, key.name
                ),
            ))
        }
        CommitOp::Check { key, .. } | CommitOp::Delete { key } => {
            check_key(key)?;
            Ok(key.name.len())
        }
        CommitOp::Put { key, value, .. } => {
            check_key(key)?;
            check_at_most("value", value.len(), VALUE_BYTES_MAX)?;
            Ok(key.name.len() + value.len())
        }
        CommitOp::Append {
            log,
            partition,
            value,
            ..
        } => {
            check_partition(log, partition)?;
            check_at_most("value", value.len(), VALUE_BYTES_MAX)?;
            Ok(partition.len() + value.len())
        }
        CommitOp::Trim { log, partition, .. } => {
            check_partition(log, partition)?;
            Ok(partition.len())
        }
    }
}

fn record_key(op: &CommitOp) -> Option<&RecordKey> {
    match op {
        CommitOp::Check { key, .. } | CommitOp::Put { key, .. } | CommitOp::Delete { key } => {
            Some(key)
        }
        CommitOp::Append { .. } | CommitOp::Trim { .. } => None,
    }
}

fn check_key(key: &RecordKey) -> Result<(), StorageError> {
    check_collection(&key.collection)?;
    if key.name.is_empty() {
        return Err(other_error(
            "empty-key",
            format!("a key of collection {} is empty", key.collection),
        ));
    }
    check_at_most("key", key.name.len(), KEY_BYTES_MAX)
}

fn check_partition(log: &str, partition: &str) -> Result<(), StorageError> {
    check_set_name("invalid-log", "a log", log)?;
    if partition.is_empty() {
        return Err(other_error(
            "empty-key",
            format!("a partition of log {log} is empty"),
        ));
    }
    check_at_most("partition", partition.len(), KEY_BYTES_MAX)
}

fn check_limit(limit: u32) -> Result<(), StorageError> {
    if limit == 0 {
        return Err(other_error(
            "empty-page",
            "a page of no entries was asked for",
        ));
    }
    check_at_most("page", limit as usize, PAGE_ENTRIES_MAX as usize)
}

fn check_at_most(what: &'static str, actual: usize, limit: usize) -> Result<(), StorageError> {
    if actual <= limit {
        return Ok(());
    }
    Err(StorageError::TooLarge {
        what,
        limit: limit as u64,
        actual: actual as u64,
    })
}
