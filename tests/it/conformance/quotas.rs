//! The quota: the bytes that count, the commits that are refused, and the ones that always work.
//! Each case names the quota of its store.

use threadkeep::storage::RecordExpectation::{Absent, Any, Version};
use threadkeep::storage::{
    CommitOp, CommitOutcome, ENTRY_BYTES_OVERHEAD, PARTITION_BYTES_OVERHEAD, RECORD_BYTES_OVERHEAD,
    StorageBackend, StorageError, StorageQuota,
};

use super::fixture::{
    append, commit, conflict, contents, delete, item, put_op, refuse, refuse_corrupt, trim,
};
use super::suite::StoreCase;

/// Bytes of a record with a name of one byte, beside its value.
const RECORD: u64 = RECORD_BYTES_OVERHEAD + 1;
/// Bytes of a log with a name of one byte, beside its entries.
const LOG: u64 = PARTITION_BYTES_OVERHEAD + 1;
const LIMIT: u64 = 10_000;
const MARGIN: u64 = 500;
const QUOTA: StorageQuota = StorageQuota {
    limit_bytes: LIMIT,
    closing_margin_bytes: MARGIN,
};
const NOTHING: StorageQuota = StorageQuota {
    limit_bytes: 0,
    closing_margin_bytes: 0,
};
const UNBOUNDED: StorageQuota = StorageQuota {
    limit_bytes: u64::MAX,
    closing_margin_bytes: u64::MAX,
};

pub(super) const CASES: &[(&str, StorageQuota, StoreCase)] = &[
    ("a store is filled to the byte", QUOTA, |store| {
        fill(store);
        refuse(
            store,
            &[put_op("due", "b", Any, "")],
            &quota_exceeded(LIMIT, LIMIT),
        );
    }),
    ("a byte more than the quota is refused", QUOTA, |store| {
        refuse(
            store,
            &[put_op("head", "a", Absent, &text(LIMIT - RECORD + 1))],
            &quota_exceeded(LIMIT, 0),
        );
        fill(store);
    }),
    (
        "a log is counted with its name and each entry",
        QUOTA,
        |store| {
            let left = LIMIT - LOG - 2 * ENTRY_BYTES_OVERHEAD - 5;
            commit(store, &[append("history", "p", 1, "12345")]);
            let used = LOG + ENTRY_BYTES_OVERHEAD + 5;
            refuse(
                store,
                &[append("history", "p", 2, &text(left + 1))],
                &quota_exceeded(LIMIT, used),
            );
            commit(store, &[append("history", "p", 2, &text(left))]);
            refuse(
                store,
                &[append("history", "p", 3, "")],
                &quota_exceeded(LIMIT, LIMIT),
            );
        },
    ),
    ("a name counts", QUOTA, |store| {
        fill_but(store, RECORD);
        refuse(
            store,
            &[put_op("due", "bb", Any, "")],
            &quota_exceeded(LIMIT, LIMIT - RECORD),
        );
        commit(store, &[put_op("due", "b", Any, "")]);
    }),
    ("a text counts in bytes and past a NUL", QUOTA, |store| {
        fill_but(store, RECORD + 4);
        refuse(
            store,
            &[put_op("due", "b", Any, "\0é\0\0")],
            &quota_exceeded(LIMIT, LIMIT - RECORD - 4),
        );
        commit(store, &[put_op("due", "b", Any, "\0é\0")]);
        commit(store, &[delete("due", "b")]);
        commit(store, &[put_op("due", "b", Any, "1234")]);
    }),
    ("replacing counts the difference", QUOTA, |store| {
        fill(store);
        let (same, more) = (text(LIMIT - RECORD), text(LIMIT - RECORD + 1));
        commit(store, &[put_op("head", "a", Version(1), &same)]);
        commit(store, &[put_op("head", "a", Any, &same)]);
        refuse(
            store,
            &[put_op("head", "a", Version(3), &more)],
            &quota_exceeded(LIMIT, LIMIT),
        );
        refuse(
            store,
            &[put_op("head", "a", Any, &more)],
            &quota_exceeded(LIMIT, LIMIT),
        );
    }),
    ("a commit counts as a whole", QUOTA, |store| {
        fill(store);
        commit(
            store,
            &[
                put_op("head", "b", Absent, &text(LIMIT - RECORD)),
                delete("head", "a"),
            ],
        );
        commit(
            store,
            &[
                delete("head", "b"),
                put_op("due", "c", Absent, &text(LIMIT - RECORD)),
            ],
        );
        refuse(
            store,
            &[
                delete("due", "c"),
                put_op("due", "dd", Absent, &text(LIMIT - RECORD)),
            ],
            &quota_exceeded(LIMIT, LIMIT),
        );
    }),
    ("deleting gives back and always works", QUOTA, |store| {
        for _ in 0..3 {
            fill(store);
            commit(store, &[delete("head", "a")]);
        }
    }),
    ("trimming gives back and always works", QUOTA, |store| {
        for _ in 0..3 {
            fill_log(store);
            commit(store, &[trim("history", "p", 2)]);
            refuse(
                store,
                &[append("history", "p", 3, &text(101))],
                &quota_exceeded(LIMIT, LIMIT - 100 - ENTRY_BYTES_OVERHEAD),
            );
            commit(store, &[append("history", "p", 3, &text(100))]);
            commit(store, &[trim("history", "p", 9)]);
        }
        fill(store);
    }),
    (
        "an entry that is trimmed in its commit does not count",
        QUOTA,
        |store| {
            fill(store);
            commit(
                store,
                &[
                    append("history", "p", 1, &text(5_000)),
                    trim("history", "p", 2),
                ],
            );
            commit(
                store,
                &[
                    append("history", "p", 1, ""),
                    append("history", "p", 2, ""),
                    trim("history", "p", u64::MAX),
                ],
            );
            refuse(
                store,
                &[put_op("due", "b", Any, "")],
                &quota_exceeded(LIMIT, LIMIT),
            );
        },
    ),
    (
        "deleting and trimming nothing gives nothing back",
        QUOTA,
        |store| {
            fill(store);
            commit(store, &[delete("head", "b"), trim("history", "p", 5)]);
            refuse(
                store,
                &[put_op("due", "b", Any, "")],
                &quota_exceeded(LIMIT, LIMIT),
            );
        },
    ),
    (
        "a closing commit fills the margin and no more",
        QUOTA,
        |store| {
            fill(store);
            let fits = put_op("due", "b", Absent, &text(MARGIN - RECORD));
            let over = put_op("due", "b", Absent, &text(MARGIN - RECORD + 1));
            assert_eq!(
                store.commit(&[over], true),
                Err(quota_exceeded(LIMIT + MARGIN, LIMIT))
            );
            refuse(
                store,
                std::slice::from_ref(&fits),
                &quota_exceeded(LIMIT, LIMIT),
            );
            assert_eq!(store.commit(&[fits], true), Ok(CommitOutcome::Committed));
            assert_eq!(
                store.commit(&[put_op("due", "c", Any, "")], true),
                Err(quota_exceeded(LIMIT + MARGIN, LIMIT + MARGIN))
            );
        },
    ),
    (
        "a store inside its margin takes what does not grow",
        QUOTA,
        |store| {
            fill(store);
            assert_eq!(
                store.commit(&[put_op("due", "b", Any, &text(MARGIN - RECORD))], true),
                Ok(CommitOutcome::Committed)
            );
            commit(store, &[put_op("due", "b", Any, &text(MARGIN - RECORD))]);
            commit(
                store,
                &[put_op("due", "b", Any, &text(MARGIN - RECORD - 1))],
            );
            refuse(
                store,
                &[put_op("due", "b", Any, &text(MARGIN - RECORD))],
                &quota_exceeded(LIMIT, LIMIT + MARGIN - 1),
            );
        },
    ),
    ("a conflict comes before the quota", QUOTA, |store| {
        fill(store);
        let found = item("head", "a", 1, &text(LIMIT - RECORD));
        conflict(
            store,
            &[put_op("head", "a", Absent, &text(LIMIT))],
            std::slice::from_ref(&found),
        );
        conflict(
            store,
            &[
                put_op("due", "b", Any, &text(LIMIT)),
                put_op("head", "a", Version(2), ""),
            ],
            &[found],
        );
    }),
    (
        "a position that does not fit comes before the quota",
        QUOTA,
        |store| {
            fill(store);
            refuse_corrupt(
                store,
                &[
                    put_op("due", "b", Any, &text(LIMIT)),
                    append("history", "p", 2, ""),
                ],
            );
        },
    ),
    ("what was refused does not count", QUOTA, |store| {
        commit(store, &[put_op("seen", "s", Any, "")]);
        for _ in 0..5 {
            conflict(
                store,
                &[
                    put_op("due", "b", Any, &text(3_000)),
                    put_op("seen", "s", Absent, ""),
                ],
                &[item("seen", "s", 1, "")],
            );
            refuse_corrupt(
                store,
                &[
                    put_op("due", "b", Any, &text(3_000)),
                    append("history", "p", 2, ""),
                ],
            );
            refuse(
                store,
                &[
                    put_op("due", "b", Any, &text(3_000)),
                    put_op("due", "c", Any, &text(8_000)),
                ],
                &quota_exceeded(LIMIT, RECORD),
            );
        }
        commit(store, &[delete("seen", "s")]);
        fill(store);
    }),
    ("a quota of nothing keeps nothing", NOTHING, |store| {
        commit(store, &[delete("due", "a"), trim("history", "p", 7)]);
        for op in [put_op("due", "a", Any, ""), append("history", "p", 1, "")] {
            assert_eq!(
                store.commit(std::slice::from_ref(&op), true),
                Err(quota_exceeded(0, 0))
            );
            refuse(store, &[op], &quota_exceeded(0, 0));
        }
        assert_eq!(contents(store), (vec![], vec![]));
    }),
    ("the largest quota does not overflow", UNBOUNDED, |store| {
        fill(store);
        assert_eq!(
            store.commit(&[put_op("head", "b", Any, &text(LIMIT))], true),
            Ok(CommitOutcome::Committed)
        );
    }),
];

fn text(bytes: u64) -> String {
    "v".repeat(usize::try_from(bytes).unwrap())
}

fn quota_exceeded(limit: u64, used: u64) -> StorageError {
    StorageError::QuotaExceeded { limit, used }
}

/// Fills an empty store to the byte, with one record.
fn fill(store: &dyn StorageBackend) {
    fill_but(store, 0);
}

fn fill_but(store: &dyn StorageBackend, left: u64) {
    commit(
        store,
        &[put_op("head", "a", Absent, &text(LIMIT - RECORD - left))],
    );
}

/// Fills an empty store to the byte, with a log of two entries, the first of which has 100 bytes.
fn fill_log(store: &dyn StorageBackend) {
    let first: CommitOp = append("history", "p", 1, &text(100));
    let rest = LIMIT - LOG - 2 * ENTRY_BYTES_OVERHEAD - 100;
    commit(store, &[first, append("history", "p", 2, &text(rest))]);
}
