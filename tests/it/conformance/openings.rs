//! One store opened again and opened twice: acknowledged commits are there, and refused ones are
//! not.

use std::sync::Arc;
use std::thread::scope;

use threadkeep::storage::RecordExpectation::{Absent, Any, Version};
use threadkeep::storage::{CommitOutcome, RECORD_BYTES_OVERHEAD, StorageError, StorageQuota};

use super::concurrency::{check_count, increment};
use super::fixture::{
    append, collections, commit, conflict, contents, delete, get, item, log, put_op, records,
    refuse, refuse_corrupt, trim,
};
use super::suite::{HomeCase, StoreHome};

/// Increments of each of two openings.
const ROUNDS: u64 = 40;
const QUOTA: StorageQuota = StorageQuota {
    limit_bytes: 10_000,
    closing_margin_bytes: 500,
};
/// Bytes of a record with a name of one byte, beside its value.
const RECORD: u64 = RECORD_BYTES_OVERHEAD + 1;

pub(super) const CASES: &[(&str, Option<StorageQuota>, HomeCase)] = &[
    (
        "everything committed is there when it is opened again",
        None,
        all_is_there,
    ),
    (
        "the last commit before closing is there when it is opened again",
        None,
        last_is_there,
    ),
    (
        "what was deleted and trimmed stays gone when it is opened again",
        None,
        gone_stays_gone,
    ),
    (
        "what was refused is not there when it is opened again",
        None,
        refused_is_not_there,
    ),
    (
        "logs and versions go on when it is opened again",
        None,
        goes_on,
    ),
    (
        "two openings see each other's commits",
        None,
        two_see_each_other,
    ),
    (
        "a conflict finds what another opening committed",
        None,
        conflict_across,
    ),
    (
        "two openings that guard one record lose nothing",
        None,
        two_lose_nothing,
    ),
    (
        "what was in use counts when it is opened again",
        Some(QUOTA),
        quota_again,
    ),
    ("two openings fill one quota", Some(QUOTA), quota_of_two),
];

fn all_is_there(home: &dyn StoreHome) {
    let store = home.open();
    for collection in collections() {
        commit(
            &*store,
            &[
                put_op(collection, "a", Any, "1"),
                put_op(collection, "b\0é", Any, "\0"),
            ],
        );
    }
    commit(
        &*store,
        &[
            append("history", "p", 1, "\0x"),
            append("other", "q", 1, "z"),
            append("blob", "q", 1, ""),
            append("history", "p", 2, "y"),
        ],
    );
    let before = contents(&*store);
    drop(store);
    assert_eq!(contents(&*home.open()), before);
}

fn last_is_there(home: &dyn StoreHome) {
    for round in 1..=10 {
        let store = home.open();
        commit(
            &*store,
            &[
                put_op("head", "a", Any, &round.to_string()),
                append("history", "p", round, &round.to_string()),
            ],
        );
        drop(store);
        let store = home.open();
        assert_eq!(
            get(&*store, "head", "a"),
            Some(item("head", "a", round, &round.to_string()))
        );
        assert_eq!(
            log(&*store, "history", "p").last(),
            Some(&(round, round.to_string()))
        );
    }
}

fn gone_stays_gone(home: &dyn StoreHome) {
    let store = home.open();
    commit(
        &*store,
        &[
            put_op("due", "a", Any, "1"),
            put_op("head", "a", Any, "1"),
            append("history", "p", 1, "1"),
            append("history", "p", 2, "2"),
            append("history", "q", 1, "1"),
        ],
    );
    commit(
        &*store,
        &[
            delete("due", "a"),
            delete("head", "a"),
            trim("history", "p", 2),
            trim("history", "q", 2),
        ],
    );
    drop(store);
    let store = home.open();
    assert!(records(&*store, "due").is_empty() && records(&*store, "head").is_empty());
    assert_eq!(log(&*store, "history", "p"), [(2, "2".to_owned())]);
    assert!(log(&*store, "history", "q").is_empty());
}

fn refused_is_not_there(home: &dyn StoreHome) {
    let store = home.open();
    commit(&*store, &[put_op("head", "a", Any, "1")]);
    let written = put_op("due", "b", Any, "never");
    conflict(
        &*store,
        &[written.clone(), put_op("head", "a", Absent, "2")],
        &[item("head", "a", 1, "1")],
    );
    refuse_corrupt(&*store, &[written, append("history", "p", 7, "never")]);
    let before = contents(&*store);
    drop(store);
    assert_eq!(contents(&*home.open()), before);
}

fn goes_on(home: &dyn StoreHome) {
    for round in 1..=5 {
        let store = home.open();
        let expect = if round == 1 {
            Absent
        } else {
            Version(round - 1)
        };
        commit(
            &*store,
            &[
                put_op("chain", "a", expect, ""),
                append("history", "p", round, ""),
            ],
        );
        refuse_corrupt(&*store, &[append("history", "p", round, "")]);
        conflict(
            &*store,
            &[put_op("chain", "a", Version(round + 1), "")],
            &[item("chain", "a", round, "")],
        );
    }
}

fn two_see_each_other(home: &dyn StoreHome) {
    let (one, two) = (home.open(), home.open());
    for round in 1..=20 {
        commit(&*one, &[append("history", "p", 2 * round - 1, "one")]);
        commit(
            &*two,
            &[
                append("history", "p", 2 * round, "two"),
                put_op("head", "a", Any, "two"),
            ],
        );
        assert_eq!(get(&*one, "head", "a").unwrap().version, round);
        assert_eq!(log(&*one, "history", "p").len() as u64, 2 * round);
    }
    commit(&*one, &[delete("head", "a"), trim("history", "p", 41)]);
    assert_eq!(contents(&*two), (vec![], vec![]));
}

fn conflict_across(home: &dyn StoreHome) {
    let (one, two) = (home.open(), home.open());
    for version in 1..=20 {
        let value = version.to_string();
        commit(&*one, &[put_op("head", "a", Any, &value)]);
        conflict(
            &*two,
            &[put_op("head", "a", Absent, "")],
            &[item("head", "a", version, &value)],
        );
        refuse_corrupt(&*two, &[append("history", "p", version + 1, "")]);
        commit(&*one, &[append("history", "p", version, "")]);
    }
}

fn two_lose_nothing(home: &dyn StoreHome) {
    let openings = [home.open(), home.open()];
    scope(|scope| {
        for (opening, store) in openings.iter().enumerate() {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    increment(&**store, &format!("{opening} {round}"));
                }
            });
        }
    });
    for store in &openings {
        check_count(&**store, ROUNDS * openings.len() as u64);
    }
}

fn quota_exceeded(used: u64) -> StorageError {
    StorageError::QuotaExceeded {
        limit: QUOTA.limit_bytes,
        used,
    }
}

fn text(bytes: u64) -> String {
    "v".repeat(usize::try_from(bytes).unwrap())
}

fn quota_again(home: &dyn StoreHome) {
    let store = home.open();
    commit(
        &*store,
        &[put_op(
            "head",
            "a",
            Any,
            &text(QUOTA.limit_bytes - 2 * RECORD - 5),
        )],
    );
    commit(&*store, &[put_op("due", "b", Any, "12345")]);
    drop(store);
    let store = home.open();
    refuse(
        &*store,
        &[put_op("due", "c", Any, "")],
        &quota_exceeded(QUOTA.limit_bytes),
    );
    let closing = [put_op("due", "c", Any, "")];
    assert_eq!(store.commit(&closing, true), Ok(CommitOutcome::Committed));
    commit(&*store, &[delete("head", "a")]);
    drop(store);
    commit(
        &*home.open(),
        &[put_op("head", "a", Any, &text(QUOTA.limit_bytes / 2))],
    );
}

fn quota_of_two(home: &dyn StoreHome) {
    let openings: [Arc<_>; 2] = [home.open(), home.open()];
    let half = QUOTA.limit_bytes / 2 - RECORD;
    commit(&*openings[0], &[put_op("head", "a", Any, &text(half))]);
    commit(&*openings[1], &[put_op("head", "b", Any, &text(half))]);
    for store in &openings {
        refuse(
            &**store,
            &[put_op("due", "c", Any, "")],
            &quota_exceeded(QUOTA.limit_bytes),
        );
    }
    commit(&*openings[0], &[delete("head", "b")]);
    commit(&*openings[1], &[put_op("head", "c", Any, &text(half))]);
}
