//! `get` and `scan`: order, bounds, pages, refusals.

use threadkeep::storage::{RecordExpectation::Any, RecordKey, StorageBackend};

use super::fixture::{
    BAD_NAMES, MIB, OTHER_NAMES, assert_code, commit, delete, get, item, key, put_op, records,
    too_large,
};
use super::suite::StoreCase;

pub(super) const CASES: &[(&str, StoreCase)] = &[
    ("get of no keys finds nothing", |store| {
        assert_eq!(store.get(&[]), Ok(vec![]))
    }),
    ("get in an empty store finds nothing", |store| {
        assert_eq!(store.get(&[key("thread", "a")]), Ok(vec![]))
    }),
    (
        "get leaves out what is missing and keeps the order asked",
        get_keeps_order,
    ),
    ("get finds a key as often as it is asked", get_repeats),
    ("get tells collections apart", get_tells_collections_apart),
    ("get refuses a bad name of a collection", |store| {
        for name in BAD_NAMES {
            assert_code(store.get(&[key(name, "a")]), "invalid-collection");
        }
    }),
    ("nothing is in a collection that nobody wrote to", |store| {
        for name in OTHER_NAMES {
            assert_eq!(store.get(&[key(name, "a")]), Ok(vec![]));
            for reverse in [false, true] {
                let page = store.scan(name, "", "", 10, reverse).unwrap();
                assert!(page.items.is_empty() && page.cursor.is_none(), "{name}");
            }
        }
    }),
    ("other collections are scanned one by one", scan_others),
    ("get refuses an empty key", |store| {
        assert_code(store.get(&[key("thread", "")]), "empty-key")
    }),
    ("get refuses a bad key behind a good one", |store| {
        assert_code(
            store.get(&[key("thread", "a"), key("thread", "")]),
            "empty-key",
        );
    }),
    ("get refuses a key of 513 bytes", |store| {
        assert_eq!(store.get(&[key("thread", &"k".repeat(512))]), Ok(vec![]));
        assert_eq!(
            store.get(&[key("thread", &"k".repeat(513))]),
            Err(too_large("key", 512, 513))
        );
        // 512 characters, 1,024 bytes.
        assert_eq!(
            store.get(&[key("thread", &"é".repeat(512))]),
            Err(too_large("key", 512, 1024))
        );
    }),
    ("get refuses 501 keys", |store| {
        assert_eq!(store.get(&vec![key("thread", "a"); 500]), Ok(vec![]));
        assert_eq!(
            store.get(&vec![key("thread", "a"); 501]),
            Err(too_large("keys", 500, 501))
        );
    }),
    ("get answers 4 MiB and no byte more", get_bounded),
    ("scan of an empty collection is empty", |store| {
        let page = store.scan("thread", "", "", 10, false).unwrap();
        assert_eq!((page.items.len(), page.cursor), (0, None));
    }),
    ("scan is ordered by bytes", scan_order),
    ("scan takes its start and leaves out its end", scan_bounds),
    ("scan of an empty or inverted range is empty", scan_inverted),
    ("scan gives no cursor with the last record", scan_last_page),
    ("scan walks on by its cursor", |store| walk(store, false)),
    ("scan walks back by its cursor", |store| walk(store, true)),
    ("scan keeps its start when it walks back", scan_back_bounds),
    ("scan goes on where a record was deleted", scan_over_deleted),
    ("scan sees one collection", scan_one_collection),
    ("scan fills a page by bytes", scan_bytes),
    ("scan gives one record however large", scan_large),
    ("scan of large records walks on", scan_large_walk),
    ("scan refuses a bad name of a collection", |store| {
        for name in BAD_NAMES {
            assert_code(store.scan(name, "", "", 1, false), "invalid-collection");
        }
    }),
    ("scan refuses a page of nothing", |store| {
        assert_code(store.scan("thread", "", "", 0, false), "empty-page")
    }),
    ("scan refuses a page of 501", |store| {
        assert!(store.scan("thread", "", "", 500, true).is_ok());
        assert_eq!(
            store.scan("thread", "", "", 501, false),
            Err(too_large("page", 500, 501))
        );
        assert_eq!(
            store.scan("thread", "", "", u32::MAX, true),
            Err(too_large("page", 500, u32::MAX as usize))
        );
    }),
    ("scan refuses bounds of 513 bytes", |store| {
        let (fits, long) = ("k".repeat(512), "k".repeat(513));
        assert!(store.scan("thread", &fits, &fits, 1, false).is_ok());
        assert_eq!(
            store.scan("thread", &long, "", 1, false),
            Err(too_large("key", 512, 513))
        );
        assert_eq!(
            store.scan("thread", "", &long, 1, false),
            Err(too_large("key", 512, 513))
        );
    }),
];

/// Names in the order of their bytes; UTF-16 and case-blind orders differ, and some have no
/// character to show.
const NAMES: [&str; 12] = [
    "\0",
    "\0\0",
    "A",
    "a",
    "a\0",
    "a\0b",
    "a-",
    "a/b",
    "ab",
    "é",
    "\u{ffff}",
    "\u{10000}",
];

fn fill(store: &dyn StorageBackend, collection: &str) {
    // Not in order: the order in which records were written must not matter.
    let ops: Vec<_> = NAMES
        .iter()
        .rev()
        .map(|name| put_op(collection, name, Any, name))
        .collect();
    commit(store, &ops);
}

fn names(store: &dyn StorageBackend, start: &str, end: &str, reverse: bool) -> Vec<String> {
    let page = store.scan("due", start, end, 500, reverse).unwrap();
    assert_eq!(page.cursor, None);
    page.items.into_iter().map(|item| item.key.name).collect()
}

fn get_keeps_order(store: &dyn StorageBackend) {
    commit(
        store,
        &[
            put_op("thread", "a", Any, "1"),
            put_op("head", "b", Any, "2"),
            put_op("due", "c", Any, "3"),
        ],
    );
    let asked = [
        key("due", "c"),
        key("thread", "none"),
        key("thread", "a"),
        key("due", "b"),
        key("head", "b"),
    ];
    let found = [
        item("due", "c", 1, "3"),
        item("thread", "a", 1, "1"),
        item("head", "b", 1, "2"),
    ];
    assert_eq!(store.get(&asked), Ok(found.to_vec()));
}

fn get_repeats(store: &dyn StorageBackend) {
    commit(store, &[put_op("thread", "a", Any, "1")]);
    let found = item("thread", "a", 1, "1");
    assert_eq!(
        store.get(&[key("thread", "a"), key("thread", "a")]),
        Ok(vec![found.clone(), found])
    );
}

fn get_bounded(store: &dyn StorageBackend) {
    let names = ["a", "b", "c", "d"];
    for name in names {
        commit(store, &[put_op("pin", name, Any, &"v".repeat(MIB))]);
    }
    commit(
        store,
        &[put_op("due", "e", Any, "v"), put_op("due", "f", Any, "")],
    );
    let four = names.map(|name| key("pin", name));
    let with = |more: &[RecordKey]| store.get(&[&four[..], more].concat());
    let found = with(&[key("due", "f"), key("due", "none")]).unwrap();
    assert_eq!(found.len(), 5);
    let over = |bytes| Err(too_large("answer", 4 * MIB, 4 * MIB + bytes));
    assert_eq!(with(&[key("due", "e")]), over(1));
    // A key that is asked for twice is answered twice.
    assert_eq!(with(&[key("pin", "a"), key("due", "e")]), over(MIB));
    assert_eq!(
        store
            .get(&[&four[1..], &[key("due", "e")]].concat())
            .unwrap()
            .len(),
        4
    );
}

fn get_tells_collections_apart(store: &dyn StorageBackend) {
    commit(
        store,
        &[
            put_op("thread", "a", Any, "thread"),
            put_op("seen", "a", Any, "seen"),
        ],
    );
    assert_eq!(get(store, "head", "a"), None);
    assert_eq!(get(store, "seen", "a"), Some(item("seen", "a", 1, "seen")));
    assert_eq!(
        get(store, "thread", "a"),
        Some(item("thread", "a", 1, "thread"))
    );
}

fn scan_order(store: &dyn StorageBackend) {
    for collection in ["thread", "due"] {
        fill(store, collection);
        let found: Vec<_> = records(store, collection)
            .into_iter()
            .map(|item| (item.key.name, item.value))
            .collect();
        let expected: Vec<_> = NAMES
            .iter()
            .map(|name| ((*name).to_owned(), (*name).to_owned()))
            .collect();
        assert_eq!(found, expected, "{collection}");
    }
    let mut back = names(store, "", "", true);
    back.reverse();
    assert_eq!(back, NAMES);
}

fn scan_bounds(store: &dyn StorageBackend) {
    fill(store, "due");
    let cases: [(&str, &str, &[&str]); 6] = [
        ("A", "a", &["A"]),
        ("a", "a\0b", &["a", "a\0"]),
        ("a\0", "ab", &["a\0", "a\0b", "a-", "a/b"]),
        ("", "A", &["\0", "\0\0"]),
        ("é", "", &["é", "\u{ffff}", "\u{10000}"]),
        ("b", "c", &[]),
    ];
    for (start, end, expected) in cases {
        assert_eq!(
            names(store, start, end, false),
            expected,
            "{start:?}..{end:?}"
        );
        let back: Vec<_> = expected.iter().rev().copied().collect();
        assert_eq!(
            names(store, start, end, true),
            back,
            "{start:?}..{end:?} backwards"
        );
    }
}

fn scan_inverted(store: &dyn StorageBackend) {
    fill(store, "due");
    for (start, end) in [("a", "a"), ("b", "a"), ("\u{10000}", "\0")] {
        for reverse in [false, true] {
            assert_eq!(
                names(store, start, end, reverse),
                Vec::<String>::new(),
                "{start:?}..{end:?}"
            );
        }
    }
}

fn scan_last_page(store: &dyn StorageBackend) {
    fill(store, "due");
    for reverse in [false, true] {
        let exact = store
            .scan("due", "", "", NAMES.len() as u32, reverse)
            .unwrap();
        assert_eq!((exact.items.len(), exact.cursor), (NAMES.len(), None));
        let short = store
            .scan("due", "", "", NAMES.len() as u32 - 1, reverse)
            .unwrap();
        assert_eq!(
            (short.items.len(), short.cursor.is_some()),
            (NAMES.len() - 1, true)
        );
    }
}

fn walk(store: &dyn StorageBackend, reverse: bool) {
    fill(store, "due");
    for limit in 1..=5 {
        let (mut start, mut end) = (String::new(), String::new());
        let mut found = Vec::new();
        loop {
            let page = store.scan("due", &start, &end, limit, reverse).unwrap();
            assert!(page.items.len() <= limit as usize);
            found.extend(page.items.into_iter().map(|item| item.key.name));
            let Some(cursor) = page.cursor else { break };
            assert!(found.len() <= NAMES.len(), "{limit} at a time do not end");
            *(if reverse { &mut end } else { &mut start }) = cursor;
        }
        if reverse {
            found.reverse();
        }
        assert_eq!(found, NAMES, "{limit} at a time");
    }
}

fn scan_back_bounds(store: &dyn StorageBackend) {
    fill(store, "due");
    let first = store.scan("due", "a", "ab", 2, true).unwrap();
    assert_eq!(
        first
            .items
            .iter()
            .map(|item| item.key.name.as_str())
            .collect::<Vec<_>>(),
        ["a/b", "a-"]
    );
    let cursor = first.cursor.unwrap();
    assert_eq!(names(store, "a", &cursor, true), ["a\0b", "a\0", "a"]);
}

fn scan_over_deleted(store: &dyn StorageBackend) {
    fill(store, "due");
    let cursor = store.scan("due", "", "", 3, false).unwrap().cursor.unwrap();
    commit(
        store,
        &[
            super::fixture::delete("due", &cursor),
            put_op("due", "zz", Any, "new"),
        ],
    );
    let rest = names(store, &cursor, "", false);
    assert_eq!(
        rest,
        [
            "a\0",
            "a\0b",
            "a-",
            "a/b",
            "ab",
            "zz",
            "é",
            "\u{ffff}",
            "\u{10000}"
        ]
    );
}

fn scan_one_collection(store: &dyn StorageBackend) {
    fill(store, "index");
    commit(store, &[put_op("seen", "a", Any, "1")]);
    assert_eq!(names(store, "", "", false), Vec::<String>::new());
    assert_eq!(records(store, "seen"), [item("seen", "a", 1, "1")]);
}

fn scan_bytes(store: &dyn StorageBackend) {
    let value = "v".repeat(MIB / 2);
    for name in ["a", "b", "c"] {
        commit(store, &[put_op("partial", name, Any, &value)]);
    }
    let up = store.scan("partial", "", "", 500, false).unwrap();
    assert_eq!(
        (up.items.len(), up.cursor.as_deref()),
        (2, Some("c")),
        "two halves fill a page exactly"
    );
    let down = store.scan("partial", "", "", 500, true).unwrap();
    assert_eq!((down.items.len(), down.cursor.as_deref()), (2, Some("b")));
    commit(store, &[put_op("partial", "b", Any, &format!("{value}+"))]);
    let up = store.scan("partial", "", "", 500, false).unwrap();
    assert_eq!(
        (up.items.len(), up.cursor.as_deref()),
        (1, Some("b")),
        "a byte more does not fit"
    );
}

fn scan_large(store: &dyn StorageBackend) {
    commit(
        store,
        &[
            put_op("partial", "a", Any, &"v".repeat(MIB)),
            put_op("partial", "b", Any, ""),
        ],
    );
    let page = store.scan("partial", "", "", 500, false).unwrap();
    assert_eq!(
        (page.items.len(), page.cursor),
        (2, None),
        "an empty value still fits"
    );
    commit(store, &[put_op("partial", "b", Any, "1")]);
    let page = store.scan("partial", "", "", 500, false).unwrap();
    assert_eq!((page.items.len(), page.cursor.as_deref()), (1, Some("b")));
}

fn scan_large_walk(store: &dyn StorageBackend) {
    let value = "v".repeat(MIB);
    for name in ["a", "b", "c"] {
        commit(store, &[put_op("partial", name, Any, &value)]);
    }
    let found: Vec<_> = records(store, "partial")
        .into_iter()
        .map(|item| item.key.name)
        .collect();
    assert_eq!(found, ["a", "b", "c"]);
}

/// Walks each of several collections that may share a table, both ways, between two names, a page
/// of two at a time.
fn scan_others(store: &dyn StorageBackend) {
    let names = ["", "a", "b", "b\0", "c", "é", "\u{10ffff}"];
    for collection in OTHER_NAMES {
        let ops: Vec<_> = names[1..]
            .iter()
            .map(|name| put_op(collection, name, Any, collection))
            .collect();
        commit(store, &ops);
    }
    for collection in OTHER_NAMES {
        for (start, end) in [("", ""), ("b", ""), ("", "c"), ("b", "c"), ("c", "b")] {
            let within = |name: &&&str| **name >= start && (end.is_empty() || **name < end);
            let expected: Vec<&str> = names[1..].iter().filter(within).copied().collect();
            let (mut up, mut from) = (Vec::new(), start.to_owned());
            loop {
                let page = store.scan(collection, &from, end, 2, false).unwrap();
                assert!(page.items.iter().all(|item| item.value == collection));
                up.extend(page.items.into_iter().map(|item| item.key.name));
                let Some(cursor) = page.cursor else { break };
                from = cursor;
            }
            assert_eq!(up, expected, "{collection} {start:?} {end:?}");
            let (mut down, mut to) = (Vec::new(), end.to_owned());
            loop {
                let page = store.scan(collection, start, &to, 2, true).unwrap();
                down.extend(page.items.into_iter().map(|item| item.key.name));
                let Some(cursor) = page.cursor else { break };
                to = cursor;
            }
            down.reverse();
            assert_eq!(down, expected, "{collection} {start:?} {end:?} down");
        }
    }
    commit(store, &[delete(OTHER_NAMES[0], "a")]);
    assert_eq!(get(store, OTHER_NAMES[0], "a"), None);
    assert!(get(store, OTHER_NAMES[1], "a").is_some());
}
