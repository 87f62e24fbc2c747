//! Many threads on one store: nothing is lost, nothing is done twice, a reader never sees half a
//! commit.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::scope;

use threadkeep::storage::RecordExpectation::{Absent, Any, Version};
use threadkeep::storage::{CommitOutcome, StorageBackend, StorageError};

use super::fixture::{append, check, commit, delete, get, key, log, put_op, records};
use super::suite::StoreCase;

const THREADS: u64 = 8;
const ROUNDS: u64 = 40;

pub(super) const CASES: &[(&str, StoreCase)] = &[
    (
        "threads that guard one record lose nothing",
        guarded_increments,
    ),
    (
        "threads on records of their own never conflict",
        own_records,
    ),
    ("one of many creators wins", one_creator),
    ("a get of two records is one snapshot", get_is_a_snapshot),
    ("a scan is one snapshot", scan_is_a_snapshot),
    ("a page of a log is one snapshot", log_is_a_snapshot),
    ("each of many threads gets its own answer", own_answers),
    ("a thread reads what it committed", reads_own_commits),
];

/// Tries of one increment. A failed try was overtaken by another increment, and no case makes so
/// many.
const TRIES_MAX: usize = 10_000;

/// Adds one to a record and an entry at that number to a log; repeats until the commit succeeds.
pub(super) fn increment(store: &dyn StorageBackend, who: &str) -> u64 {
    for _ in 0..TRIES_MAX {
        let found = get(store, "chain", "counter");
        let count: u64 = found.as_ref().map_or(0, |item| item.value.parse().unwrap());
        let expect = found.map_or(Absent, |item| Version(item.version));
        let next = count + 1;
        let ops = [
            put_op("chain", "counter", expect, &next.to_string()),
            append("history", "counter", next, who),
        ];
        match store.commit(&ops, false).unwrap() {
            CommitOutcome::Committed => return next,
            CommitOutcome::Conflict => {
                let now = get(store, "chain", "counter").map_or(0, |item| item.version);
                assert!(
                    now > count,
                    "a conflict at version {count}, and then {now} is read"
                );
            }
        }
    }
    panic!("{who} never gets its turn");
}

/// Checks the records and entries that `total` increments leave.
#[track_caller]
pub(super) fn check_count(store: &dyn StorageBackend, total: u64) {
    assert_eq!(
        get(store, "chain", "counter").map(|item| (item.version, item.value)),
        Some((total, total.to_string()))
    );
    let mut names: Vec<_> = log(store, "history", "counter")
        .into_iter()
        .map(|(_, who)| who)
        .collect();
    assert_eq!(names.len() as u64, total);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len() as u64, total, "something was done twice");
}

fn guarded_increments(store: &dyn StorageBackend) {
    scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    increment(store, &format!("{thread} {round}"));
                }
            });
        }
    });
    check_count(store, THREADS * ROUNDS);
}

fn own_records(store: &dyn StorageBackend) {
    scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let name = thread.to_string();
                commit(store, &[put_op("head", &name, Absent, "0")]);
                for round in 1..=ROUNDS {
                    let value = round.to_string();
                    commit(
                        store,
                        &[
                            put_op("head", &name, Version(round), &value),
                            append("history", &name, round, &value),
                        ],
                    );
                }
            });
        }
    });
    for thread in 0..THREADS {
        let name = thread.to_string();
        assert_eq!(
            get(store, "head", &name).map(|item| item.version),
            Some(ROUNDS + 1)
        );
        assert_eq!(
            log(store, "history", &name),
            (1..=ROUNDS)
                .map(|at| (at, at.to_string()))
                .collect::<Vec<_>>()
        );
    }
}

fn one_creator(store: &dyn StorageBackend) {
    for round in 0..ROUNDS {
        let (name, won) = (round.to_string(), AtomicU64::new(0));
        scope(|scope| {
            for thread in 0..THREADS {
                let (name, won) = (&name, &won);
                scope.spawn(move || {
                    match store.commit(
                        &[put_op("thread", name, Absent, &thread.to_string())],
                        false,
                    ) {
                        Ok(CommitOutcome::Committed) => drop(won.fetch_add(1, Ordering::Relaxed)),
                        Ok(CommitOutcome::Conflict) => {
                            let found = get(store, "thread", name);
                            assert_eq!(found.map(|item| item.version), Some(1));
                        }
                        Err(error) => panic!("{error}"),
                    }
                });
            }
        });
        assert_eq!(won.into_inner(), 1);
    }
}

/// Runs `read` while other threads commit `write(round)`.
fn while_writing(write: &(dyn Fn(u64) + Sync), read: &(dyn Fn() + Sync)) {
    let done = AtomicBool::new(false);
    write(0);
    scope(|scope| {
        // Set even when a write panics: otherwise the readers would read for ever.
        let _done = SetOnDrop(&done);
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    read();
                }
            });
        }
        for round in 1..=ROUNDS * 3 {
            write(round);
        }
    });
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn get_is_a_snapshot(store: &dyn StorageBackend) {
    let write = |round: u64| {
        let value = round.to_string();
        commit(
            store,
            &[
                put_op("head", "a", Any, &value),
                put_op("due", "b", Any, &value),
            ],
        );
    };
    while_writing(&write, &|| {
        let found = store.get(&[key("head", "a"), key("due", "b")]).unwrap();
        assert_eq!(found[0].value, found[1].value);
    });
}

fn scan_is_a_snapshot(store: &dyn StorageBackend) {
    // Each round moves one record to another name; there is always exactly one.
    let write = |round: u64| {
        let name = |round: u64| ((round * 7) % 50).to_string();
        let mut ops = vec![put_op("due", &name(round), Absent, "")];
        if let Some(before) = round.checked_sub(1) {
            ops.push(delete("due", &name(before)));
        }
        commit(store, &ops);
    };
    while_writing(&write, &|| {
        assert_eq!(
            store.scan("due", "", "", 500, false).unwrap().items.len(),
            1
        );
        assert_eq!(store.scan("due", "", "", 500, true).unwrap().items.len(), 1);
    });
}

fn log_is_a_snapshot(store: &dyn StorageBackend) {
    // Each round adds two entries; an odd number of them would be half a commit.
    let write = |round: u64| {
        let at = round * 2 + 1;
        commit(
            store,
            &[
                append("history", "p", at, ""),
                append("history", "p", at + 1, ""),
            ],
        );
    };
    while_writing(&write, &|| {
        let lines = store.read_log("history", "p", 0, 500, true).unwrap();
        assert_eq!(lines[0].position % 2, 0);
        assert!(
            lines
                .windows(2)
                .all(|pair| pair[0].position == pair[1].position + 1)
        );
    });
}

fn own_answers(store: &dyn StorageBackend) {
    commit(store, &[put_op("head", "taken", Any, "")]);
    scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    let own = format!("{thread}");
                    let (good, misfit) = (
                        append("history", &own, round, "x"),
                        append("history", &own, round + 5, "x"),
                    );
                    let refused = put_op("due", &own, Any, "never");
                    let stale = [refused.clone(), check("head", "taken", Absent)];
                    assert!(matches!(
                        store.commit(&stale, false),
                        Ok(CommitOutcome::Conflict)
                    ));
                    let corrupt = store.commit(&[refused, misfit], false);
                    assert!(
                        matches!(corrupt, Err(StorageError::Corrupt { .. })),
                        "{corrupt:?}"
                    );
                    commit(store, &[good]);
                }
            });
        }
    });
    assert!(
        records(store, "due").is_empty(),
        "something refused was written"
    );
    for thread in 0..THREADS {
        assert_eq!(
            log(store, "history", &thread.to_string()).len() as u64,
            ROUNDS
        );
    }
}

fn reads_own_commits(store: &dyn StorageBackend) {
    scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let name = thread.to_string();
                for round in 1..=ROUNDS {
                    commit(store, &[put_op("head", &name, Any, &round.to_string())]);
                    assert_eq!(
                        get(store, "head", &name).map(|item| item.version),
                        Some(round)
                    );
                }
            });
        }
    });
}
