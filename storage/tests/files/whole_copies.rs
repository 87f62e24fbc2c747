//! Copies of whole stores: into files and back, with what a copy refuses and a comparison finds.

use super::random_numbers::RandomNumbers;
use std::path::Path;
use threadkeep_storage::directory::PreopenedDirectory;
use threadkeep_storage::files::{FilesOptions, FilesStore};
use threadkeep_storage::memory::MemoryStore;
use threadkeep_storage::whole_store::{
    CopyError, ListedStore, LogName, compare_contents, copy_contents,
};
use threadkeep_storage::{CommitOp, RecordExpectation, RecordKey, StorageBackend};

fn open(place: &Path) -> FilesStore {
    let options = FilesOptions {
        writer: "w".to_owned(),
        durable: false,
        quota: None,
    };
    FilesStore::open(Box::new(PreopenedDirectory::new(place)), options).unwrap()
}

fn put_op(collection: &str, name: &str, value: String) -> CommitOp {
    CommitOp::Put {
        key: RecordKey::new(collection, name),
        expect: RecordExpectation::Any,
        value,
    }
}

fn append(log: &str, partition: &str, at: u64, value: String) -> CommitOp {
    CommitOp::Append {
        log: log.to_owned(),
        partition: partition.to_owned(),
        at,
        value,
    }
}

/// More records, logs and entries than one page holds, a collection of a later version, a value of
/// the largest size, and logs whose beginning is gone.
fn fill(store: &dyn StorageBackend) {
    let mut random = RandomNumbers::new(7);
    for n in 0..700 {
        let text = "é\n".repeat(random.below(30) as usize);
        let ops = [
            put_op("head", &format!("thread\n{n}"), text.clone()),
            put_op(["index", "later"][n % 2], &format!("{n}"), String::new()),
            append("history", &format!("thread {n}"), 1, text),
        ];
        store.commit(&ops, false).unwrap();
    }
    store
        .commit(&[put_op("pin", "large", "x".repeat(1 << 20))], false)
        .unwrap();
    for at in 1..=1_200 {
        let ops = [
            append("history", "long", at, format!("entry {at}")),
            append("state", "trimmed", at, format!("state {at}")),
        ];
        store.commit(&ops, false).unwrap();
    }
    let trim = CommitOp::Trim {
        log: "state".to_owned(),
        partition: "trimmed".to_owned(),
        below: 1_100,
    };
    store.commit(&[trim], false).unwrap();
    // Its records and its log are gone again: neither is copied.
    let gone = [
        put_op("due", "gone", String::new()),
        append("blob", "gone", 1, "x".to_owned()),
    ];
    store.commit(&gone, false).unwrap();
    let end = [
        CommitOp::Delete {
            key: RecordKey::new("due", "gone"),
        },
        CommitOp::Trim {
            log: "blob".to_owned(),
            partition: "gone".to_owned(),
            below: 2,
        },
    ];
    store.commit(&end, false).unwrap();
}

#[test]
fn a_store_is_the_same_after_two_copies() {
    let memory = MemoryStore::new();
    fill(&memory);
    let place = tempfile::tempdir().unwrap();
    let files = open(place.path());
    let mut steps = Vec::new();
    let copied = copy_contents(&memory, &files, &mut |step| steps.push(step)).unwrap();
    assert_eq!((copied.records, copied.entries), (1_401, 700 + 1_200 + 101));
    assert!(
        steps.len() > 2 && steps.last() == Some(&copied),
        "{steps:?}"
    );
    compare_contents(&memory, &files).unwrap();
    drop(files);
    let files = open(place.path());
    let back = MemoryStore::new();
    assert_eq!(
        copy_contents(&files, &back, &mut |_| ()).unwrap().records,
        1_401
    );
    compare_contents(&memory, &back).unwrap();
    let collections = ["head", "index", "later", "pin"].map(str::to_owned);
    assert_eq!(back.list_collections().unwrap(), collections);
    let last = LogName {
        log: "history".to_owned(),
        partition: "thread 99".to_owned(),
    };
    let logs = back.list_logs(Some(&last)).unwrap();
    assert_eq!(logs.len(), 1, "{logs:?}");
    let first = back.read_log("state", "trimmed", 1, 1, false).unwrap();
    assert_eq!(first[0].position, 1_100);
    // The next entry follows in the copy as it does in the store.
    let next = [append("state", "trimmed", 1_201, "next".to_owned())];
    back.commit(&next, false).unwrap();
}

#[test]
fn a_copy_goes_into_an_empty_store_alone() {
    let memory = MemoryStore::new();
    fill(&memory);
    for op in [
        put_op("head", "other", String::new()),
        append("history", "other", 1, String::new()),
    ] {
        let other = MemoryStore::new();
        other.commit(&[op], false).unwrap();
        let refused = copy_contents(&memory, &other, &mut |_| ());
        assert!(matches!(refused, Err(CopyError::NotEmpty)), "{refused:?}");
    }
}

#[test]
fn a_comparison_names_what_differs() {
    let changes = [
        (
            put_op("head", "thread\n5", "other".to_owned()),
            "head/thread\n5",
        ),
        (put_op("head", "zz", String::new()), "head/zz"),
        (put_op("new", "zz", String::new()), "collections"),
        (
            CommitOp::Delete {
                key: RecordKey::new("head", "thread\n5"),
            },
            "head/thread\n5",
        ),
        (
            append("history", "long", 1_201, String::new()),
            "entry 1201 of the log history/long",
        ),
        (append("history", "zz", 1, String::new()), "logs"),
    ];
    for (op, words) in changes {
        let (memory, copy) = (MemoryStore::new(), MemoryStore::new());
        fill(&memory);
        copy_contents(&memory, &copy, &mut |_| ()).unwrap();
        memory.commit(&[op], false).unwrap();
        for (one, other) in [(&memory, &copy), (&copy, &memory)] {
            match compare_contents(one, other) {
                Err(CopyError::Differs { what }) => assert!(what.contains(words), "{what}"),
                other => panic!("{words}: {other:?}"),
            }
        }
    }
}
