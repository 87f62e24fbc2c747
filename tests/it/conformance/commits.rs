//! `commit` of records: conditions, conflicts, versions, all or nothing.

use threadkeep::storage::RecordExpectation::{Absent, Any, Version};
use threadkeep::storage::{CommitOp, CommitOutcome, StorageBackend};

use super::fixture::{
    BAD_NAMES, append, check, collections, commit, conflict, contents, delete, get, item, key, log,
    put_op, records, refuse_code, refuse_corrupt, trim,
};
use super::suite::StoreCase;

pub(super) const CASES: &[(&str, StoreCase)] = &[
    ("a commit of nothing is committed", |store| {
        commit(store, &[]);
        assert_eq!(store.commit(&[], true), Ok(CommitOutcome::Committed));
    }),
    ("put of anything creates and replaces", put_any),
    ("put creates what must be absent", |store| {
        commit(store, &[put_op("pin", "a", Absent, "1")]);
        assert_eq!(get(store, "pin", "a"), Some(item("pin", "a", 1, "1")));
    }),
    ("put replaces what is at its version", put_version),
    ("every collection keeps records", every_collection),
    ("put where something is conflicts", |store| {
        commit(store, &[put_op("head", "a", Any, "1")]);
        conflict(
            store,
            &[put_op("head", "a", Absent, "2")],
            &[item("head", "a", 1, "1")],
        );
    }),
    ("put at an old version conflicts", |store| {
        commit(store, &[put_op("head", "a", Any, "1")]);
        commit(store, &[put_op("head", "a", Any, "2")]);
        conflict(
            store,
            &[put_op("head", "a", Version(1), "3")],
            &[item("head", "a", 2, "2")],
        );
    }),
    ("put at a version to come conflicts", |store| {
        commit(store, &[put_op("head", "a", Any, "1")]);
        for version in [0, 2, 1 << 32, i64::MAX as u64, 1 << 63, u64::MAX] {
            conflict(
                store,
                &[put_op("head", "a", Version(version), "3")],
                &[item("head", "a", 1, "1")],
            );
        }
    }),
    ("put at a version of nothing conflicts", |store| {
        for version in [0, 1, u64::MAX] {
            conflict(store, &[put_op("due", "a", Version(version), "3")], &[]);
        }
    }),
    ("put at a version of what was deleted conflicts", |store| {
        commit(store, &[put_op("due", "a", Any, "1")]);
        commit(store, &[delete("due", "a")]);
        conflict(store, &[put_op("due", "a", Version(1), "2")], &[]);
    }),
    ("put of the same text is a new version", |store| {
        commit(store, &[put_op("head", "a", Any, "1")]);
        commit(store, &[put_op("head", "a", Version(1), "1")]);
        conflict(
            store,
            &[put_op("head", "a", Version(1), "1")],
            &[item("head", "a", 2, "1")],
        );
    }),
    ("check that holds changes nothing", check_holds),
    ("check of a version that is not conflicts", |store| {
        commit(store, &[put_op("chain", "a", Any, "1")]);
        for version in [0, 2, u64::MAX] {
            conflict(
                store,
                &[check("chain", "a", Version(version))],
                &[item("chain", "a", 1, "1")],
            );
        }
    }),
    ("check of a version of nothing conflicts", |store| {
        conflict(store, &[check("chain", "a", Version(1))], &[]);
    }),
    ("check of absence where something is conflicts", |store| {
        commit(store, &[put_op("seen", "a", Any, "1")]);
        conflict(
            store,
            &[check("seen", "a", Absent)],
            &[item("seen", "a", 1, "1")],
        );
    }),
    ("check of anything is refused", |store| {
        refuse_code(
            store,
            &[put_op("seen", "b", Any, "1"), check("seen", "a", Any)],
            "not-a-condition",
        );
    }),
    (
        "a failed check stops every other operation",
        check_stops_all,
    ),
    (
        "a failed last condition stops what came before",
        last_condition_stops_all,
    ),
    (
        "one of several conditions is enough to conflict",
        one_of_several_conflicts,
    ),
    (
        "a conflict comes before a position that does not fit",
        conflict_before_corrupt,
    ),
    ("a conflict is the same again", |store| {
        commit(store, &[put_op("head", "a", Any, "1")]);
        for _ in 0..3 {
            conflict(
                store,
                &[put_op("head", "a", Absent, "2")],
                &[item("head", "a", 1, "1")],
            );
        }
        commit(store, &[put_op("head", "a", Version(1), "2")]);
    }),
    ("delete of nothing is nothing", |store| {
        commit(store, &[delete("due", "a"), put_op("due", "b", Any, "1")]);
        assert_eq!(records(store, "due"), [item("due", "b", 1, "1")]);
    }),
    ("delete removes one record", delete_one),
    ("what was deleted begins at version 1", |store| {
        for collection in ["due", "inbox"] {
            commit(store, &[put_op(collection, "a", Any, "1")]);
            commit(store, &[put_op(collection, "a", Any, "2")]);
            commit(store, &[delete(collection, "a")]);
            commit(store, &[put_op(collection, "a", Absent, "3")]);
            assert_eq!(
                get(store, collection, "a"),
                Some(item(collection, "a", 1, "3"))
            );
        }
    }),
    ("a key named twice is refused", named_twice),
    ("one name in two collections is two keys", |store| {
        commit(
            store,
            &[
                put_op("due", "a", Any, "1"),
                put_op("seen", "a", Any, "2"),
                delete("index", "a"),
            ],
        );
    }),
    ("a bad name of a collection is refused", |store| {
        for name in BAD_NAMES {
            for op in [
                put_op(name, "a", Any, ""),
                check(name, "a", Absent),
                delete(name, "a"),
            ] {
                let ops = [put_op("head", "ok", Any, ""), op];
                refuse_code(store, &ops, "invalid-collection");
            }
        }
    }),
    ("an empty key is refused in each operation", |store| {
        for op in [
            put_op("head", "", Any, ""),
            check("head", "", Absent),
            delete("head", ""),
        ] {
            refuse_code(store, &[put_op("head", "ok", Any, ""), op], "empty-key");
        }
    }),
    ("records and logs are written together", together),
    ("any text comes back as it was", any_text),
    ("any name comes back as it was", any_name),
];

fn put_any(store: &dyn StorageBackend) {
    for (version, value) in [(1, "one"), (2, ""), (3, "three")] {
        commit(store, &[put_op("head", "a", Any, value)]);
        assert_eq!(
            get(store, "head", "a"),
            Some(item("head", "a", version, value))
        );
    }
}

fn put_version(store: &dyn StorageBackend) {
    for collection in ["chain", "seen"] {
        commit(store, &[put_op(collection, "a", Absent, "0")]);
        for version in 1..20 {
            commit(
                store,
                &[put_op(
                    collection,
                    "a",
                    Version(version),
                    &version.to_string(),
                )],
            );
        }
        assert_eq!(
            get(store, collection, "a"),
            Some(item(collection, "a", 20, "19"))
        );
    }
}

fn every_collection(store: &dyn StorageBackend) {
    let ops: Vec<_> = collections()
        .map(|collection| put_op(collection, "a", Absent, collection))
        .collect();
    commit(store, &ops);
    for collection in collections() {
        assert_eq!(
            records(store, collection),
            [item(collection, "a", 1, collection)]
        );
        commit(store, &[put_op(collection, "a", Version(1), "2")]);
        conflict(
            store,
            &[put_op(collection, "a", Version(1), "3")],
            &[item(collection, "a", 2, "2")],
        );
        commit(
            store,
            &[
                check(collection, "a", Version(2)),
                check(collection, "b", Absent),
            ],
        );
        commit(store, &[delete(collection, "a")]);
        assert_eq!(get(store, collection, "a"), None);
    }
}

fn check_holds(store: &dyn StorageBackend) {
    commit(store, &[put_op("chain", "a", Any, "1")]);
    let before = contents(store);
    commit(
        store,
        &[check("chain", "a", Version(1)), check("chain", "b", Absent)],
    );
    assert_eq!(contents(store), before);
}

fn check_stops_all(store: &dyn StorageBackend) {
    commit(
        store,
        &[
            put_op("due", "gone", Any, "1"),
            append("history", "p", 1, "1"),
        ],
    );
    let ops = [
        check("chain", "a", Version(7)),
        put_op("head", "a", Any, "1"),
        delete("due", "gone"),
        append("history", "p", 2, "2"),
        append("history", "q", 1, "2"),
        trim("history", "p", 2),
    ];
    conflict(store, &ops, &[]);
}

fn last_condition_stops_all(store: &dyn StorageBackend) {
    commit(
        store,
        &[
            put_op("head", "a", Any, "1"),
            put_op("due", "gone", Any, "1"),
            append("history", "p", 1, "1"),
        ],
    );
    let ops = [
        put_op("head", "a", Version(1), "2"),
        put_op("head", "b", Absent, "2"),
        put_op("partial", "c", Any, "2"),
        delete("due", "gone"),
        append("history", "p", 2, "2"),
        append("history", "q", 1, "2"),
        trim("history", "p", 2),
        put_op("chain", "z", Version(1), "2"),
    ];
    conflict(store, &ops, &[item("head", "a", 1, "1")]);
}

fn one_of_several_conflicts(store: &dyn StorageBackend) {
    commit(
        store,
        &[
            put_op("seen", "c", Any, "3"),
            put_op("head", "b", Any, "2"),
            put_op("chain", "a", Any, "1"),
        ],
    );
    let holds = [
        put_op("seen", "c", Version(1), "new"),
        check("head", "none", Absent),
        put_op("head", "other", Absent, "new"),
        check("chain", "a", Version(1)),
    ];
    let fails = check("head", "b", Version(9));
    for place in 0..=holds.len() {
        let mut ops = holds.to_vec();
        ops.insert(place, fails.clone());
        conflict(store, &ops, &[item("head", "b", 1, "2")]);
    }
    commit(store, &holds);
}

fn conflict_before_corrupt(store: &dyn StorageBackend) {
    commit(
        store,
        &[
            put_op("head", "a", Any, "1"),
            append("history", "p", 1, "1"),
        ],
    );
    let stale = put_op("head", "a", Version(3), "2");
    let found = [item("head", "a", 1, "1")];
    for wrong in [
        append("history", "p", 1, "2"),
        append("history", "p", 5, "2"),
        append("history", "q", 2, "2"),
    ] {
        conflict(store, &[wrong.clone(), stale.clone()], &found);
        conflict(store, &[stale.clone(), wrong.clone()], &found);
        refuse_corrupt(store, &[put_op("head", "a", Version(1), "2"), wrong]);
    }
}

fn delete_one(store: &dyn StorageBackend) {
    for collection in ["due", "head"] {
        commit(
            store,
            &[
                put_op(collection, "a", Any, "1"),
                put_op(collection, "a\0", Any, "2"),
                put_op(collection, "b", Any, "3"),
            ],
        );
        commit(store, &[delete(collection, "a")]);
        assert_eq!(
            records(store, collection),
            [
                item(collection, "a\0", 1, "2"),
                item(collection, "b", 1, "3")
            ]
        );
    }
}

fn named_twice(store: &dyn StorageBackend) {
    commit(store, &[put_op("head", "a", Any, "1")]);
    let ops: [fn() -> CommitOp; 4] = [
        || put_op("head", "a", Any, "2"),
        || put_op("head", "a", Version(1), "3"),
        || check("head", "a", Version(1)),
        || delete("head", "a"),
    ];
    for first in ops {
        for second in ops {
            refuse_code(
                store,
                &[first(), put_op("head", "b", Any, ""), second()],
                "key-named-twice",
            );
        }
    }
}

fn together(store: &dyn StorageBackend) {
    let ops = [
        put_op("head", "p", Absent, "head"),
        put_op("chain", "p", Absent, "chain"),
        append("history", "p", 1, "first"),
        put_op("due", "1", Any, ""),
    ];
    commit(store, &ops);
    let ops = [
        put_op("head", "p", Version(1), "head 2"),
        check("chain", "p", Version(1)),
        append("history", "p", 2, "second"),
        delete("due", "1"),
    ];
    commit(store, &ops);
    let found = store
        .get(&[key("head", "p"), key("due", "1"), key("chain", "p")])
        .unwrap();
    assert_eq!(
        found,
        [
            item("head", "p", 2, "head 2"),
            item("chain", "p", 1, "chain")
        ]
    );
    assert_eq!(
        log(store, "history", "p"),
        [(1, "first".to_owned()), (2, "second".to_owned())]
    );
}

/// Texts that a database might cut, normalise or take for something else.
const TEXTS: [&str; 14] = [
    "",
    "\0",
    "a\0b",
    "{\"a\":\"\0\"}\0",
    "\u{feff}bom",
    "123",
    "1e999",
    "NULL",
    "x'00'",
    " spaces \r\n",
    "e\u{301} is not é",
    "\u{10ffff}\u{fffe}\u{ffff}",
    "%s ?1 :a 'quoted' \"quoted\"",
    "\\u0000",
];

fn any_text(store: &dyn StorageBackend) {
    for (place, text) in TEXTS.iter().enumerate() {
        let name = format!("text {place}");
        commit(
            store,
            &[
                put_op("head", &name, Any, text),
                put_op("seen", &name, Any, text),
                append("blob", &name, 1, text),
            ],
        );
        assert_eq!(
            get(store, "head", &name),
            Some(item("head", &name, 1, text))
        );
        assert_eq!(
            get(store, "seen", &name),
            Some(item("seen", &name, 1, text))
        );
        assert_eq!(log(store, "blob", &name), [(1, (*text).to_owned())]);
        conflict(
            store,
            &[put_op("head", &name, Absent, "")],
            &[item("head", &name, 1, text)],
        );
    }
}

fn any_name(store: &dyn StorageBackend) {
    for (place, name) in TEXTS
        .iter()
        .enumerate()
        .filter(|(_, name)| !name.is_empty())
    {
        let value = place.to_string();
        commit(
            store,
            &[
                put_op("head", name, Absent, &value),
                put_op("due", name, Absent, &value),
                append("history", name, 1, &value),
            ],
        );
    }
    for (place, name) in TEXTS
        .iter()
        .enumerate()
        .filter(|(_, name)| !name.is_empty())
    {
        let value = place.to_string();
        assert_eq!(
            get(store, "head", name),
            Some(item("head", name, 1, &value))
        );
        assert_eq!(get(store, "due", name), Some(item("due", name, 1, &value)));
        assert_eq!(log(store, "history", name), [(1, value)]);
    }
    assert_eq!(records(store, "due").len(), TEXTS.len() - 1);
}
