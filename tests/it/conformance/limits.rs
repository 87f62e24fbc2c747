//! Sizes of a commit: each limit at its bound and one above it.

use threadkeep::storage::{
    COMMIT_BYTES_MAX, COMMIT_OPS_MAX, CommitOp, KEY_BYTES_MAX, RecordExpectation::Absent,
    RecordExpectation::Any, StorageBackend, VALUE_BYTES_MAX,
};

use super::fixture::{
    append, check, commit, delete, get, item, log, put_op, records, refuse, refuse_code, too_large,
    trim,
};
use super::suite::StoreCase;

pub(super) const CASES: &[(&str, StoreCase)] = &[
    ("a name of 512 bytes fits", key_fits),
    ("a name of 513 bytes does not fit any operation", key_over),
    (
        "a partition of 513 bytes does not fit any operation",
        partition_over,
    ),
    ("a value of 1 MiB fits", value_fits),
    ("a value of 1 MiB and a byte does not fit", value_over),
    ("a value is measured in bytes", |store| {
        let value = "é".repeat(VALUE_BYTES_MAX / 2 + 1);
        refuse(
            store,
            &[put_op("head", "a", Any, &value)],
            &too_large("value", VALUE_BYTES_MAX, VALUE_BYTES_MAX + 2),
        );
    }),
    ("1,024 operations fit", |store| {
        let ops: Vec<_> = (0..COMMIT_OPS_MAX)
            .map(|n| put_op("due", &format!("{n:04}"), Absent, ""))
            .collect();
        commit(store, &ops);
        assert_eq!(records(store, "due").len(), COMMIT_OPS_MAX);
    }),
    ("1,025 operations do not fit", |store| {
        let ops: Vec<_> = (0..=COMMIT_OPS_MAX)
            .map(|n| check("due", &n.to_string(), Absent))
            .collect();
        refuse(
            store,
            &ops,
            &too_large("operations", COMMIT_OPS_MAX, COMMIT_OPS_MAX + 1),
        );
        let ops = vec![trim("history", "p", 1); COMMIT_OPS_MAX + 1];
        refuse(
            store,
            &ops,
            &too_large("operations", COMMIT_OPS_MAX, COMMIT_OPS_MAX + 1),
        );
    }),
    ("4 MiB in one commit fit", |store| {
        commit(store, &four_mib(0));
        assert_eq!(records(store, "partial").len(), 5);
    }),
    ("4 MiB and a byte in one commit do not fit", |store| {
        refuse(
            store,
            &four_mib(1),
            &too_large("commit", COMMIT_BYTES_MAX, COMMIT_BYTES_MAX + 1),
        );
    }),
    ("names of every operation count", |store| {
        let more = [
            check("due", "a", Absent),
            delete("due", "b"),
            trim("history", "c", 1),
            append("history", "d", 1, ""),
        ];
        for op in more {
            let mut ops = four_mib(0);
            ops.push(op);
            refuse(
                store,
                &ops,
                &too_large("commit", COMMIT_BYTES_MAX, COMMIT_BYTES_MAX + 1),
            );
        }
    }),
    ("the number of operations is looked at first", |store| {
        let mut ops = vec![put_op("nowhere", "", Any, ""); COMMIT_OPS_MAX];
        ops.insert(
            0,
            put_op("head", "a", Any, &"v".repeat(VALUE_BYTES_MAX + 1)),
        );
        refuse(
            store,
            &ops,
            &too_large("operations", COMMIT_OPS_MAX, COMMIT_OPS_MAX + 1),
        );
    }),
    (
        "operations are looked at in order, their sum last",
        |store| {
            let mut ops = four_mib(1);
            ops.push(put_op("no where", "a", Any, ""));
            ops.push(put_op("due", "", Any, ""));
            refuse_code(store, &ops, "invalid-collection");
        },
    ),
    ("a size is looked at before a condition", |store| {
        commit(store, &[put_op("head", "a", Any, "1")]);
        let ops = [
            put_op("head", "a", Absent, "2"),
            put_op("head", "b", Any, &"v".repeat(VALUE_BYTES_MAX + 1)),
        ];
        refuse(
            store,
            &ops,
            &too_large("value", VALUE_BYTES_MAX, VALUE_BYTES_MAX + 1),
        );
    }),
];

/// Five records that take 4 MiB and `over` bytes, names included.
fn four_mib(over: usize) -> Vec<CommitOp> {
    let mut ops: Vec<_> = ["1", "2", "3", "4"]
        .iter()
        .map(|name| put_op("partial", name, Any, &"v".repeat(VALUE_BYTES_MAX - 2)))
        .collect();
    // Four names and this one use all but 3 of the 8 bytes that the values left.
    ops.push(put_op("partial", "5", Any, &"v".repeat(3 + over)));
    ops
}

fn key_fits(store: &dyn StorageBackend) {
    let name = "k".repeat(KEY_BYTES_MAX);
    for collection in ["thread", "due"] {
        commit(store, &[put_op(collection, &name, Absent, "1")]);
        assert_eq!(
            get(store, collection, &name),
            Some(item(collection, &name, 1, "1"))
        );
        commit(store, &[delete(collection, &name)]);
    }
    commit(store, &[append("history", &name, 1, "1")]);
    assert_eq!(log(store, "history", &name), [(1, "1".to_owned())]);
    commit(store, &[trim("history", &name, 2)]);
}

fn key_over(store: &dyn StorageBackend) {
    let name = "k".repeat(KEY_BYTES_MAX + 1);
    for op in [
        put_op("head", &name, Any, ""),
        check("head", &name, Absent),
        delete("head", &name),
    ] {
        refuse(
            store,
            &[put_op("head", "ok", Any, ""), op],
            &too_large("key", KEY_BYTES_MAX, KEY_BYTES_MAX + 1),
        );
    }
}

fn partition_over(store: &dyn StorageBackend) {
    let name = "p".repeat(KEY_BYTES_MAX + 1);
    for op in [append("history", &name, 1, ""), trim("blob", &name, 1)] {
        refuse(
            store,
            &[put_op("head", "ok", Any, ""), op],
            &too_large("partition", KEY_BYTES_MAX, KEY_BYTES_MAX + 1),
        );
    }
}

fn value_fits(store: &dyn StorageBackend) {
    let value = "v".repeat(VALUE_BYTES_MAX);
    commit(
        store,
        &[
            put_op("partial", "a", Any, &value),
            put_op("due", "a", Any, &value),
            append("blob", "p", 1, &value),
        ],
    );
    assert_eq!(
        get(store, "partial", "a"),
        Some(item("partial", "a", 1, &value))
    );
    assert_eq!(get(store, "due", "a"), Some(item("due", "a", 1, &value)));
    assert_eq!(log(store, "blob", "p"), [(1, value)]);
}

fn value_over(store: &dyn StorageBackend) {
    let value = "v".repeat(VALUE_BYTES_MAX + 1);
    let expected = too_large("value", VALUE_BYTES_MAX, VALUE_BYTES_MAX + 1);
    refuse(
        store,
        &[
            put_op("head", "ok", Any, ""),
            put_op("head", "a", Any, &value),
        ],
        &expected,
    );
    refuse(store, &[append("history", "p", 1, &value)], &expected);
}
