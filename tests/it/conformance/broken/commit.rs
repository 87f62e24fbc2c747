//! Faults of commits, applied before and after a store that keeps the contract.

use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{
    COMMIT_OPS_MAX, Expect, Item, Key, Op, Outcome, Storage, StorageError, VALUE_BYTES_MAX,
};

use super::store::Fault;

/// The operations as a store with this fault reads them.
pub(super) fn altered(fault: Fault, ops: &[Op], store: &MemoryStore) -> Vec<Op> {
    let ops = match fault {
        Fault::DeletesPrefix => with_prefixes(ops, store),
        Fault::AppendAnywhere => fitted(ops, store),
        Fault::TwiceNamedTaken => first_of_each(ops),
        Fault::VersionNotCounted => without_same(ops, store),
        _ => ops.to_vec(),
    };
    // Operations that the contract refuses stay refused.
    if threadkeep::storage::check_commit(&ops).is_err() && fault != Fault::ValueLimitLax {
        return ops;
    }
    ops.into_iter()
        .filter_map(|op| altered_one(fault, op))
        .collect()
}

fn altered_one(fault: Fault, op: Op) -> Option<Op> {
    Some(match (fault, op) {
        (Fault::ChecksIgnored, Op::Check { .. })
        | (Fault::DeleteIgnored, Op::Delete { .. })
        | (Fault::TrimIgnored, Op::Trim { .. }) => return None,
        (fault, Op::Put { key, expect, value }) => altered_put(fault, key, expect, value),
        (
            fault,
            Op::Trim {
                log,
                partition,
                below,
            },
        ) => Op::Trim {
            log,
            partition,
            below: match fault {
                Fault::TrimsTooMuch => below.saturating_add(1),
                Fault::TrimsTooLittle => below.saturating_sub(1),
                _ => below,
            },
        },
        (
            Fault::LogsAreOne,
            Op::Append {
                partition,
                at,
                value,
                ..
            },
        ) => Op::Append {
            log: "history".to_owned(),
            partition,
            at,
            value,
        },
        (_, op) => op,
    })
}

fn altered_put(fault: Fault, key: Key, expect: Expect, mut value: String) -> Op {
    let expect = match (fault, expect) {
        (Fault::AbsentIsAny, Expect::Absent) | (Fault::VersionIsAny, Expect::Version(_)) => {
            Expect::Any
        }
        (_, expect) => expect,
    };
    match fault {
        Fault::CutsAtNul => value.truncate(value.find('\0').unwrap_or(value.len())),
        Fault::ValueLimitLax => value.truncate(value.floor_char_boundary(VALUE_BYTES_MAX)),
        _ => {}
    }
    Op::Put { key, expect, value }
}

/// The answer that a store with this fault gives.
pub(super) fn answered(
    fault: Fault,
    ops: &[Op],
    answer: Result<Outcome, StorageError>,
    store: &MemoryStore,
) -> Result<Outcome, StorageError> {
    match (fault, answer) {
        (
            Fault::HalfOfRefused,
            answer @ (Ok(Outcome::Conflict(_)) | Err(StorageError::Corrupt { .. })),
        ) => {
            let bare = without_conditions(ops);
            if let Some(first) = bare.first() {
                // The first operation may be the one that does not fit.
                let _ = store.commit(std::slice::from_ref(first), false);
            }
            answer
        }
        (Fault::ConflictFindsNothing, Ok(Outcome::Conflict(_))) => Ok(Outcome::Conflict(vec![])),
        (Fault::ConflictFindsAll, Ok(Outcome::Conflict(_))) => {
            let keys: Vec<Key> = ops.iter().filter_map(record_of).cloned().collect();
            Ok(Outcome::Conflict(store.get(&keys)?))
        }
        (Fault::ConflictUnbounded, Ok(Outcome::Conflict(_))) => {
            let checks: Vec<Op> = ops.iter().filter_map(check_of).collect();
            let keys = checks.iter().filter_map(record_of);
            Ok(Outcome::Conflict(each(keys, store)?))
        }
        (Fault::CorruptBeforeConflict, Ok(Outcome::Conflict(found))) => {
            let appends: Vec<Op> = ops
                .iter()
                .filter(|op| matches!(op, Op::Append { .. }))
                .cloned()
                .collect();
            match fitted(&appends, store) == appends {
                true => Ok(Outcome::Conflict(found)),
                false => Err(StorageError::Corrupt {
                    message: "it does not fit".to_owned(),
                }),
            }
        }
        (Fault::QuotaBeforeConflict, Ok(Outcome::Conflict(found))) => {
            let bare = without_conditions(ops);
            let growing = |op: &Op| matches!(op, Op::Put { value, .. } if value.len() > 9_900);
            match bare.iter().any(growing) {
                true => Err(StorageError::QuotaExceeded {
                    limit: 10_000,
                    used: 10_000,
                }),
                false => Ok(Outcome::Conflict(found)),
            }
        }
        (_, answer) => answer,
    }
}

/// Reads records one by one, so that nothing bounds them together.
pub(super) fn each<'a>(
    keys: impl Iterator<Item = &'a Key>,
    store: &MemoryStore,
) -> Result<Vec<Item>, StorageError> {
    let mut found = Vec::new();
    for key in keys {
        found.extend(store.get(std::slice::from_ref(key))?);
    }
    Ok(found)
}

/// The condition of an operation as one that writes nothing.
pub(super) fn check_of(op: &Op) -> Option<Op> {
    match op {
        Op::Check { key, expect } | Op::Put { key, expect, .. } if *expect != Expect::Any => {
            Some(Op::Check {
                key: key.clone(),
                expect: *expect,
            })
        }
        _ => None,
    }
}

/// The writes of the operations, without their conditions.
pub(super) fn without_conditions(ops: &[Op]) -> Vec<Op> {
    let bare = |op: &Op| match op {
        Op::Check { .. } => None,
        Op::Put { key, value, .. } => Some(Op::Put {
            key: key.clone(),
            expect: Expect::Any,
            value: value.clone(),
        }),
        other => Some(other.clone()),
    };
    ops.iter().filter_map(bare).collect()
}

pub(super) fn record_of(op: &Op) -> Option<&Key> {
    match op {
        Op::Check { key, .. } | Op::Put { key, .. } | Op::Delete { key } => Some(key),
        Op::Append { .. } | Op::Trim { .. } => None,
    }
}

/// The operation with other names in it.
pub(super) fn renamed(op: &Op, names: &dyn Fn(&str) -> String) -> Op {
    let mut op = op.clone();
    match &mut op {
        Op::Check { key, .. } | Op::Put { key, .. } | Op::Delete { key } => {
            key.name = names(&key.name)
        }
        Op::Append { partition, .. } | Op::Trim { partition, .. } => *partition = names(partition),
    }
    op
}

pub(super) fn refuse_keys<'a>(
    mut keys: impl Iterator<Item = &'a Key>,
    bytes: usize,
) -> Result<(), StorageError> {
    match keys.find(|key| key.name.len() == bytes) {
        Some(_) => Err(too_large("key", bytes)),
        None => Ok(()),
    }
}

pub(super) fn refuse_names(ops: &[Op], bytes: usize) -> Result<(), StorageError> {
    refuse_keys(ops.iter().filter_map(record_of), bytes)
}

pub(super) fn refuse_count(ops: &[Op]) -> Result<(), StorageError> {
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
fn fitted(ops: &[Op], store: &MemoryStore) -> Vec<Op> {
    let mut lasts = std::collections::HashMap::new();
    let mut fit = |op: &Op| match op {
        Op::Append {
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
            Op::Append {
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
fn with_prefixes(ops: &[Op], store: &MemoryStore) -> Vec<Op> {
    let mut all = ops.to_vec();
    for op in ops {
        let Op::Delete { key } = op else { continue };
        let Ok(page) = store.scan(&key.collection, &key.name, "", 500, false) else {
            continue;
        };
        let alike = |item: &Item| item.key.name.starts_with(&key.name) && item.key != *key;
        let deleted = page.items.into_iter().filter(alike);
        all.extend(deleted.map(|item| Op::Delete { key: item.key }));
    }
    all
}

/// Keeps only the first operation on each record.
fn first_of_each(ops: &[Op]) -> Vec<Op> {
    let mut seen = std::collections::HashSet::new();
    let new = |op: &&Op| record_of(op).is_none_or(|key| seen.insert(key.clone()));
    ops.iter().filter(new).cloned().collect()
}

/// Removes each put that would replace a text by the same text.
fn without_same(ops: &[Op], store: &MemoryStore) -> Vec<Op> {
    let same = |op: &&Op| match op {
        Op::Put {
            key,
            expect: Expect::Version(version),
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
