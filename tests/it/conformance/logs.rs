//! Logs: appending, reading up and down, trimming.

use threadkeep::storage::StorageBackend;

use super::fixture::{
    BAD_NAMES, MIB, OTHER_NAMES, append, assert_code, commit, log, logs, refuse_code,
    refuse_corrupt, too_large, trim,
};
use super::suite::StoreCase;

pub(super) const CASES: &[(&str, StoreCase)] = &[
    ("a log that is not there is empty", |store| {
        for reverse in [false, true] {
            assert_eq!(store.read_log("history", "p", 0, 10, reverse), Ok(vec![]));
            assert_eq!(
                store.read_log("history", "p", u64::MAX, 10, reverse),
                Ok(vec![])
            );
        }
    }),
    ("a log begins at 1 and goes on by 1", begins_at_one),
    ("every log keeps entries", |store| {
        for name in logs() {
            commit(store, &[append(name, "p", 1, name)]);
            commit(store, &[append(name, "p", 2, "2")]);
        }
        for name in logs() {
            assert_eq!(
                log(store, name, "p"),
                [(1, name.to_owned()), (2, "2".to_owned())]
            );
        }
    }),
    (
        "an append to nothing at another position is corrupt",
        |store| {
            for at in [0, 2, u64::from(u32::MAX), 1 << 32, (1 << 32) + 1, u64::MAX] {
                refuse_corrupt(store, &[append("history", "p", at, "x")]);
            }
        },
    ),
    ("an append at another position is corrupt", |store| {
        fill(store, "p", 3);
        for at in [
            0,
            1,
            2,
            3,
            5,
            u64::from(u32::MAX),
            1 << 32,
            (1 << 32) + 4,
            u64::MAX,
        ] {
            refuse_corrupt(store, &[append("history", "p", at, "x")]);
        }
        commit(store, &[append("history", "p", 4, "x")]);
    }),
    ("appends of one commit are in order", |store| {
        commit(
            store,
            &[
                append("history", "p", 1, "1"),
                append("history", "q", 1, "1"),
                append("history", "p", 2, "2"),
            ],
        );
        assert_eq!(positions(store, "p"), [1, 2]);
        assert_eq!(positions(store, "q"), [1]);
    }),
    ("appends of one commit out of order are corrupt", |store| {
        refuse_corrupt(
            store,
            &[
                append("history", "p", 2, "2"),
                append("history", "p", 1, "1"),
            ],
        );
        refuse_corrupt(
            store,
            &[
                append("history", "p", 1, "1"),
                append("history", "p", 1, "1"),
            ],
        );
        refuse_corrupt(
            store,
            &[
                append("history", "p", 1, "1"),
                append("history", "p", 3, "3"),
            ],
        );
    }),
    (
        "a second append that does not fit takes the first back",
        |store| {
            fill(store, "p", 2);
            refuse_corrupt(
                store,
                &[
                    append("history", "q", 1, "1"),
                    append("history", "p", 3, "3"),
                    append("history", "p", 3, "3"),
                ],
            );
            commit(
                store,
                &[
                    append("history", "q", 1, "1"),
                    append("history", "p", 3, "3"),
                ],
            );
        },
    ),
    ("logs whose names begin alike are apart", names_apart),
    ("reading up begins where it is told", read_up),
    ("reading down begins where it is told", read_down),
    ("reading takes at most its limit", read_limit),
    ("reading fills a page by bytes", read_bytes),
    ("trim of nothing is nothing", |store| {
        commit(
            store,
            &[
                trim("history", "p", 0),
                trim("history", "p", 1),
                trim("history", "p", u64::MAX),
            ],
        );
        commit(store, &[append("history", "p", 1, "1")]);
        commit(store, &[trim("history", "p", 0)]);
        commit(store, &[trim("history", "p", 1)]);
        assert_eq!(positions(store, "p"), [1]);
    }),
    ("trim keeps positions", trim_keeps_positions),
    ("a log that was trimmed whole is as new", |store| {
        for below in [4, 5, u64::from(u32::MAX), 1 << 32, (1 << 32) + 1, u64::MAX] {
            fill(store, "p", 3);
            commit(store, &[trim("history", "p", below)]);
            assert_eq!(positions(store, "p"), Vec::<u64>::new(), "below {below}");
            refuse_corrupt(store, &[append("history", "p", 4, "x")]);
            commit(store, &[append("history", "p", 1, "x")]);
            commit(store, &[trim("history", "p", 2)]);
        }
    }),
    ("trim leaves the neighbours alone", |store| {
        for partition in ["o", "p", "q"] {
            fill(store, partition, 3);
        }
        commit(
            store,
            &[append("blob", "p", 1, "1"), trim("history", "p", u64::MAX)],
        );
        assert_eq!(
            [
                positions(store, "o"),
                positions(store, "p"),
                positions(store, "q")
            ],
            [vec![1, 2, 3], vec![], vec![1, 2, 3]]
        );
        assert_eq!(log(store, "blob", "p").len(), 1);
    }),
    ("trim and append go together in order", trim_and_append),
    (
        "a trim in a commit that is refused is taken back",
        |store| {
            fill(store, "p", 3);
            refuse_corrupt(
                store,
                &[trim("history", "p", 3), append("history", "p", 3, "x")],
            );
            refuse_corrupt(
                store,
                &[trim("history", "p", 9), append("history", "p", 4, "x")],
            );
            refuse_corrupt(
                store,
                &[
                    append("history", "p", 4, "x"),
                    trim("history", "p", 9),
                    append("history", "p", 5, "x"),
                ],
            );
        },
    ),
    ("append and trim refuse a bad name of a log", |store| {
        for name in BAD_NAMES {
            for op in [append(name, "p", 1, ""), trim(name, "p", 1)] {
                let ops = [append("history", "p", 1, ""), op];
                refuse_code(store, &ops, "invalid-log");
            }
        }
    }),
    ("any log is trimmed and begins anew", |store| {
        for name in OTHER_NAMES {
            commit(
                store,
                &[append(name, "q", 1, "1"), append(name, "q", 2, "2")],
            );
            commit(store, &[trim(name, "q", 2)]);
            assert_eq!(log(store, name, "q"), [(2, "2".to_owned())]);
            commit(store, &[trim(name, "q", 3), append(name, "q", 1, "new")]);
            assert_eq!(log(store, name, "q"), [(1, "new".to_owned())]);
        }
    }),
    ("append and trim refuse an empty partition", |store| {
        refuse_code(store, &[append("history", "", 1, "")], "empty-key");
        refuse_code(store, &[trim("history", "", 1)], "empty-key");
    }),
    ("reading refuses a bad name of a log", |store| {
        for name in BAD_NAMES {
            for reverse in [false, true] {
                assert_code(store.read_log(name, "p", 0, 1, reverse), "invalid-log");
            }
        }
    }),
    ("reading refuses an empty partition", |store| {
        assert_code(store.read_log("blob", "", 0, 1, false), "empty-key")
    }),
    ("reading refuses a partition of 513 bytes", |store| {
        assert_eq!(
            store.read_log("blob", &"p".repeat(512), 0, 1, false),
            Ok(vec![])
        );
        assert_eq!(
            store.read_log("blob", &"p".repeat(513), 0, 1, false),
            Err(too_large("partition", 512, 513))
        );
    }),
    ("reading refuses a page of nothing", |store| {
        assert_code(store.read_log("blob", "p", 0, 0, true), "empty-page")
    }),
    ("reading refuses a page of 501", |store| {
        assert_eq!(store.read_log("blob", "p", 0, 500, false), Ok(vec![]));
        assert_eq!(
            store.read_log("blob", "p", 0, 501, false),
            Err(too_large("page", 500, 501))
        );
    }),
];

/// Appends to the log `history` of `partition` until it has `count` entries.
fn fill(store: &dyn StorageBackend, partition: &str, count: u64) {
    let next = positions(store, partition)
        .last()
        .map_or(1, |last| last + 1);
    let ops: Vec<_> = (next..=count)
        .map(|at| append("history", partition, at, &at.to_string()))
        .collect();
    commit(store, &ops);
}

fn positions(store: &dyn StorageBackend, partition: &str) -> Vec<u64> {
    log(store, "history", partition)
        .into_iter()
        .map(|(position, _)| position)
        .collect()
}

fn read(store: &dyn StorageBackend, start: u64, limit: u32, reverse: bool) -> Vec<u64> {
    let lines = store
        .read_log("history", "p", start, limit, reverse)
        .unwrap();
    lines.into_iter().map(|line| line.position).collect()
}

fn begins_at_one(store: &dyn StorageBackend) {
    for at in 1..=10 {
        commit(store, &[append("history", "p", at, &format!("entry {at}"))]);
    }
    let expected: Vec<_> = (1..=10).map(|at| (at, format!("entry {at}"))).collect();
    assert_eq!(log(store, "history", "p"), expected);
}

fn names_apart(store: &dyn StorageBackend) {
    let names = ["a", "a\0", "a/", "a/b", "A", "á"];
    for (place, name) in names.iter().enumerate() {
        commit(store, &[append("history", name, 1, &place.to_string())]);
    }
    for (place, name) in names.iter().enumerate() {
        assert_eq!(
            log(store, "history", name),
            [(1, place.to_string())],
            "{name:?}"
        );
    }
}

fn read_up(store: &dyn StorageBackend) {
    fill(store, "p", 5);
    fill(store, "q", 2);
    let cases: [(u64, &[u64]); 7] = [
        (0, &[1, 2, 3, 4, 5]),
        (1, &[1, 2, 3, 4, 5]),
        (3, &[3, 4, 5]),
        (5, &[5]),
        (6, &[]),
        (1 << 32, &[]),
        (u64::MAX, &[]),
    ];
    for (start, expected) in cases {
        assert_eq!(read(store, start, 500, false), expected, "from {start}");
    }
}

fn read_down(store: &dyn StorageBackend) {
    fill(store, "o", 2);
    fill(store, "p", 5);
    fill(store, "q", 2);
    let all: &[u64] = &[5, 4, 3, 2, 1];
    let cases: [(u64, &[u64]); 7] = [
        (0, all),
        (1, &[1]),
        (3, &[3, 2, 1]),
        (5, all),
        (6, all),
        (1 << 32, all),
        (u64::MAX, all),
    ];
    for (start, expected) in cases {
        assert_eq!(read(store, start, 500, true), expected, "from {start}");
    }
}

fn read_limit(store: &dyn StorageBackend) {
    fill(store, "p", 600);
    assert_eq!(read(store, 0, 1, false), [1]);
    assert_eq!(read(store, 0, 1, true), [600]);
    assert_eq!(read(store, 599, 3, false), [599, 600]);
    assert_eq!(read(store, 2, 3, true), [2, 1]);
    assert_eq!(read(store, 0, 500, false), (1..=500).collect::<Vec<_>>());
    assert_eq!(
        read(store, 0, 500, true),
        (101..=600).rev().collect::<Vec<_>>()
    );
}

fn read_bytes(store: &dyn StorageBackend) {
    let sizes = [MIB / 2, MIB / 2, MIB, 1, MIB, 0];
    for (at, size) in (1..).zip(sizes) {
        commit(store, &[append("history", "p", at, &"v".repeat(size))]);
    }
    let cases: [(u64, bool, &[u64]); 7] = [
        (1, false, &[1, 2]),
        (2, false, &[2]),
        (3, false, &[3]),
        (4, false, &[4]),
        (5, false, &[5, 6]),
        (0, true, &[6, 5]),
        (2, true, &[2, 1]),
    ];
    for (start, reverse, expected) in cases {
        assert_eq!(
            read(store, start, 500, reverse),
            expected,
            "from {start}, reverse {reverse}"
        );
    }
}

fn trim_keeps_positions(store: &dyn StorageBackend) {
    fill(store, "p", 5);
    commit(store, &[trim("history", "p", 3)]);
    assert_eq!(
        log(store, "history", "p"),
        [3, 4, 5].map(|at| (at, at.to_string()))
    );
    assert_eq!(read(store, 0, 1, false), [3]);
    assert_eq!(read(store, 2, 500, true), Vec::<u64>::new());
    refuse_corrupt(store, &[append("history", "p", 1, "x")]);
    refuse_corrupt(store, &[append("history", "p", 3, "x")]);
    commit(store, &[append("history", "p", 6, "6")]);
    commit(store, &[trim("history", "p", 2)]);
    commit(store, &[trim("history", "p", 6)]);
    assert_eq!(positions(store, "p"), [6]);
}

fn trim_and_append(store: &dyn StorageBackend) {
    fill(store, "p", 3);
    commit(
        store,
        &[trim("history", "p", 3), append("history", "p", 4, "4")],
    );
    assert_eq!(positions(store, "p"), [3, 4]);
    commit(
        store,
        &[append("history", "p", 5, "5"), trim("history", "p", 5)],
    );
    assert_eq!(positions(store, "p"), [5]);
    commit(
        store,
        &[
            trim("history", "p", 6),
            append("history", "p", 1, "new"),
            append("history", "p", 2, "new"),
        ],
    );
    assert_eq!(
        log(store, "history", "p"),
        [1, 2].map(|at| (at, "new".to_owned()))
    );
    commit(
        store,
        &[
            append("history", "p", 3, ""),
            trim("history", "p", 9),
            append("history", "p", 1, "again"),
        ],
    );
    assert_eq!(log(store, "history", "p"), [(1, "again".to_owned())]);
    commit(
        store,
        &[append("history", "q", 1, ""), trim("history", "q", 2)],
    );
    assert_eq!(positions(store, "q"), Vec::<u64>::new());
}
