//! Faults of commits, applied before and after a store that keeps the contract.

use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{
    COMMIT_OPS_MAX, CommitOp, CommitOutcome, RecordExpectation, RecordKey, StorageBackend,
    StorageError, StoredRecord, VALUE_BYTES_MAX,
};

use super::store::StoreFault;

/// The operations as a store with this fault reads them.
pub(super) fn alter_ops(fault: StoreFault, ops: &[CommitOp], store: &MemoryStore) -> Vec<CommitOp> {
    let ops = match fault {
        StoreFault::DeletesPrefix => with_prefixes(ops, store),
        StoreFault::AppendAnywhere => fit_appends(ops, store),
        StoreFault::TwiceNamedTaken => first_of_each(ops),
        StoreFault::VersionNotCounted => without_same(ops, store),
        _ => ops.to_vec(),
    };
    // Operations that the contract refuses stay refused.
    if threadkeep::storage::check_commit(&ops).is_err() && fault != StoreFault::ValueLimitLax {
        return ops;
    }
    ops.into_iter()
        .filter_map(|op| alter_op(fault, op))
        .collect()
}

fn alter_op(fault: StoreFault, op: CommitOp) -> Option<CommitOp> {
    Some(match (fault, op) {
        (StoreFault::ChecksIgnored, CommitOp::Check { .. })
        | (StoreFault::DeleteIgnored, CommitOp::Delete { .. })
        | (StoreFault::TrimIgnored, CommitOp::Trim { .. }) => return None,
        (fault, CommitOp::Put { key, expect, value }) => alter_put(fault, key, expect, value),
        (
            fault,
            CommitOp::Trim {
                log,
                partition,
                below,
            },
        ) => CommitOp::Trim {
            log,
            partition,
            below: match fault {
                StoreFault::TrimsTooMuch => below.saturating_add(1),
                StoreFault::TrimsTooLittle => below.saturating_sub(1),
                _ => below,
            },
        },
        (
            StoreFault::LogsAreOne,
            CommitOp::Append {
                partition,
                at,
                value,
                ..
            },
        ) => CommitOp::Append {
            log: "history".to_owned(),
            partition,
            at,
            value,
        },
        (_, op) => op,
    })
}

fn alter_put(
    fault: StoreFault,
    key: RecordKey,
    expect: RecordExpectation,
    mut value: String,
) -> CommitOp {
    let expect = match (fault, expect) {
        (StoreFault::AbsentIsAny, RecordExpectation::Absent)
        | (StoreFault::VersionIsAny, RecordExpectation::Version(_)) => RecordExpectation::Any,
        (_, expect) => expect,
    };
    match fault {
        StoreFault::CutsAtNul => value.truncate(value.find('\0').unwrap_or(value.len())),
        StoreFault::ValueLimitLax => value.truncate(value.floor_char_boundary(VALUE_BYTES_MAX)),
        _ => {}
    }
    CommitOp::Put { key, expect, value }
}

/// The answer that a store with this fault gives.
pub(super) fn alter_answer(
    fault: StoreFault,
    ops: &[CommitOp],
    answer: Result<CommitOutcome, StorageError>,
    store: &MemoryStore,
) -> Result<CommitOutcome, StorageError> {
    match (fault, answer) {
        (
            StoreFault::HalfOfRefused,
            answer @ (Ok(CommitOutcome::Conflict) | Err(StorageError::Corrupt { .. })),
        ) => {
            let bare = without_conditions(ops);
            if let Some(first) = bare.first() {
                // The first operation may be the one that does not fit.
                let _ = store.commit(std::slice::from_ref(first), false);
            }
            answer
        }
        (StoreFault::CorruptBeforeConflict, Ok(CommitOutcome::Conflict)) => {
            let appends: Vec<CommitOp> = ops
                .iter()
                .filter(|op| matches!(op, CommitOp::Append { .. }))
                .cloned()
                .collect();
            match fit_appends(&appends, store) == appends {
                true => Ok(CommitOutcome::Conflict),
                false => Err(StorageError::Corrupt {
                    message: "it does not fit".to_owned(),
                }),
            }
        }
        (StoreFault::QuotaBeforeConflict, Ok(CommitOutcome::Conflict)) => {
            let bare = without_conditions(ops);
            let growing =
                |op: &CommitOp| matches!(op, CommitOp::Put { value, .. } if value.len() > 9_900);
            match bare.iter().any(growing) {
                true => Err(StorageError::QuotaExceeded {
                    limit: 10_000,
                    used: 10_000,
                }),
                false => Ok(CommitOutcome::Conflict),
            }
        }
        (_, answer) => answer,
    }
}

/// Reads records one by one, so that nothing bounds them together.
pub(super) fn get_one_by_one<'a>(
    keys: impl Iterator<Item = &'a RecordKey>,
    store: &MemoryStore,
) -> Result<Vec<StoredRecord>, StorageError> {
    let mut found = Vec::new();
    for key in keys {
        found.extend(store.get(std::slice::from_ref(key))?);
    }
    Ok(found)
}

/// The condition of an operation as one that writes nothing.
pub(super) fn check_of(op: &CommitOp) -> Option<CommitOp> {
    match op {
        CommitOp::Check { key, expect } | CommitOp::Put { key, expect, .. }
            if *expect != RecordExpectation::Any =>
        {
            Some(CommitOp::Check {
                key: key.clone(),
                expect: *expect,
            })
        }
        _ => None,
    }
}

/// The writes of the operations, without their conditions.
pub(super) fn without_conditions(ops: &[CommitOp]) -> Vec<CommitOp> {
    let bare = |op: &CommitOp| match op {
        CommitOp::Check { .. } => None,
        CommitOp::Put { key, value, .. } => Some(CommitOp::Put {
            key: key.clone(),
            expect: RecordExpectation::Any,
            value: value.clone(),
        }),
        other => Some(other.clone()),
    };
    ops.iter().filter_map(bare).collect()
}

pub(super) fn record_of(op: &CommitOp) -> Option<&RecordKey> {
    match op {
        CommitOp::Check { key, .. } | CommitOp::Put { key, .. } | CommitOp::Delete { key } => {
            Some(key)
        }
        CommitOp::Append { .. } | CommitOp::Trim { .. } => None,
    }
}

/// The operation with other names in it.
pub(super) fn rename_op(op: &CommitOp, names: &dyn Fn(&str) -> String) -> CommitOp {
    let mut op = op.clone();
    match &mut op {
        CommitOp::Check { key, .. } | CommitOp::Put { key, .. } | CommitOp::Delete { key } => {
            key.name = names(&key.name)
        }
        CommitOp::Append { partition, .. } | CommitOp::Trim { partition, .. } => {
            *partition = names(partition)
        }
    }
    op
}

pub(super) fn refuse_keys<'a>(
    mut keys: impl Iterator<Item = &'a RecordKey>,
    bytes: usize,
) -> Result<(), StorageError> {
    match keys.find(|key| key.name.len() == bytes) {
        Some(_) => Err(too_large("key", bytes)),
        None => Ok(()),
    }
}

pub(super) fn refuse_names(ops: &[CommitOp], bytes: usize) -> Result<(), StorageError> {
    refuse_keys(ops.iter().filter_map(record_of), bytes)
}

pub(super) fn refuse_count(ops: &[CommitOp]) -> Result<(), StorageError> {
    match ops.len() {
        COMMIT_OPS_MAX => Err(too_large("operations", COMMIT_OPS_MAX)),
        _ => Ok(()),
    }
}

fn too_large(what: &'static str, actual: usize) -> StorageError {
    StorageError::TooLarge {
        what,
        limit: actual as u64 - 1,
        actual: actual as u64,
    }
}

/// Moves each append to the position that fits.
fn fit_appends(ops: &[CommitOp], store: &MemoryStore) -> Vec<CommitOp> {
    let mut lasts = std::collections::HashMap::new();
    let mut fit = |op: &CommitOp| match op {
        CommitOp::Append {
            log,
            partition,
            value,
            ..
        } => {
            let last = lasts
                .entry((log.clone(), partition.clone()))
                .or_insert_with(|| {
                    let lines = store
                        .read_log(log, partition, 0, 1, true)
                        .unwrap_or_default();
                    lines.first().map_or(0, |line| line.position)
                });
            *last += 1;
            CommitOp::Append {
                log: log.clone(),
                partition: partition.clone(),
                at: *last,
                value: value.clone(),
            }
        }
        other => other.clone(),
    };
    ops.iter().map(&mut fit).collect()
}

/// Extends each deletion to all names with the same beginning.
fn with_prefixes(ops: &[CommitOp], store: &MemoryStore) -> Vec<CommitOp> {
    let mut all = ops.to_vec();
    for op in ops {
        let CommitOp::Delete { key } = op else {
            continue;
        };
        let Ok(page) = store.scan(&key.collection, &key.name, "", 500, false) else {
            continue;
        };
        let alike = |item: &StoredRecord| item.key.name.starts_with(&key.name) && item.key != *key;
        let deleted = page.items.into_iter().filter(alike);
        all.extend(deleted.map(|item| CommitOp::Delete { key: item.key }));
    }
    all
}

/// Keeps only the first operation on each record.
fn first_of_each(ops: &[CommitOp]) -> Vec<CommitOp> {
    let mut seen = std::collections::HashSet::new();
    let new = |op: &&CommitOp| record_of(op).is_none_or(|key| seen.insert(key.clone()));
    ops.iter().filter(new).cloned().collect()
}

/// Removes each put that would replace a text by the same text.
fn without_same(ops: &[CommitOp], store: &MemoryStore) -> Vec<CommitOp> {
    let same = |op: &&CommitOp| match op {
        CommitOp::Put {
            key,
            expect: RecordExpectation::Version(version),
            value,
        } => store.get(std::slice::from_ref(key)).is_ok_and(|found| {
            found
                .first()
                .is_some_and(|item| item.value == *value && item.version == *version)
        }),
        _ => false,
    };
    ops.iter().filter(|op| !same(op)).cloned().collect()
}
