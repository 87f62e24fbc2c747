//! Trees that an earlier build began: chain records without a last spawn number, no entries in the
//! indexes of children and of interrupted threads, and due entries that name the chain of their
//! thread and not its tree.

use super::fixture::ThreadFamily;
use crate::runner::fixture::says;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use threadkeep::storage::{CommitOp, RecordExpectation, RecordKey, StorageBackend};
use threadkeep_component::service::ThreadService;
use threadkeep_core::runner::Signal;
use threadkeep_tests::native::NativePorts;

/// Returns the records of a collection.
fn records(store: &dyn StorageBackend, collection: &str) -> Vec<(String, String)> {
    let page = store.scan(collection, "", "", 500, false).unwrap();
    assert_eq!(page.cursor, None, "one page is enough");
    let items = page.items.into_iter();
    items.map(|item| (item.key.name, item.value)).collect()
}

/// Turns the due entries into those of an earlier build.
fn age_due_entries(store: &dyn StorageBackend) {
    let mut ops = Vec::new();
    for (name, _) in records(store, "due") {
        let thread = name.rsplit('\u{1}').next().unwrap().to_owned();
        let found = store.get(&[RecordKey::new("thread", thread)]).unwrap();
        let record: Value = serde_json::from_str(&found[0].value).unwrap();
        let chain = record["chain"].as_str().unwrap().to_ascii_lowercase();
        ops.push(put_op("due", &name, json!({ "root": chain }).to_string()));
    }
    store.commit(&ops, false).unwrap();
}

/// Turns the store into one of an earlier build.
fn age_store(store: &dyn StorageBackend) {
    age_due_entries(store);
    let mut ops = Vec::new();
    for (name, value) in records(store, "chain") {
        let mut record: Value = serde_json::from_str(&value).unwrap();
        record.as_object_mut().unwrap().remove("spawned");
        ops.push(put_op("chain", &name, record.to_string()));
    }
    for (name, _) in records(store, "index") {
        if name.starts_with("child\u{1}") || name.starts_with("interrupted\u{1}") {
            let key = RecordKey::new("index", name);
            ops.push(CommitOp::Delete { key });
        }
    }
    store.commit(&ops, false).unwrap();
}

fn put_op(collection: &str, name: &str, value: String) -> CommitOp {
    CommitOp::Put {
        key: RecordKey::new(collection, name),
        expect: RecordExpectation::Any,
        value,
    }
}

/// A family with a child that was begun, one that was interrupted, one that is created, and one
/// below the first.
fn aged_family() -> (ThreadFamily, [String; 4]) {
    let mut family = ThreadFamily::new();
    family.world.count("begun");
    let begun = family.spawn(json!({"directive": "boss", "limits": {"spend": "0.02"}}));
    family.world.start(&begun, None).unwrap();
    family.world.count("interrupted");
    let interrupted = family.spawn_running("work");
    let created = family.spawn(json!({"directive": "work"}));
    let below = family.spawn_under(&begun, json!({"directive": "work"}));
    let holder = family.load(&interrupted).head.value.holder.clone().unwrap();
    family.world.service.recover(&[holder], None).unwrap();
    age_store(&*family.world.store);
    family.world.audit();
    // An instance that did not see the store before.
    let context = family.world.service.ports().context().clone();
    family.world.service = ThreadService::new(NativePorts::new(context));
    (family, [begun, interrupted, created, below])
}

fn sort_threads(mut threads: Vec<String>) -> Vec<String> {
    threads.sort();
    threads
}

#[test]
fn trees_of_an_earlier_build_go_on() {
    let (mut family, [begun, interrupted, created, below]) = aged_family();
    let boss = family.boss.clone();
    let due = family.due().into_iter();
    let due: Vec<String> = due.map(|(thread, _)| thread).collect();
    assert_eq!(
        due[0], interrupted,
        "it is to be revived, and new ones come last"
    );
    let expected = vec![created.clone(), below.clone()];
    assert_eq!(sort_threads(due[1..].to_vec()), sort_threads(expected));
    let tree = family
        .world
        .service
        .tree_page(&boss, None)
        .unwrap()
        .branches;
    assert_eq!(tree.len(), 5);
    // A child of this build, beside those of the earlier one.
    let young = family.spawn(json!({"directive": "work"}));
    assert_eq!(family.load(&young).chain.value.number, 4);
    assert_eq!(family.load(&boss).chain.value.spawned, None);
    let got = family.reply(&boss, &[("wait_threads", json!({}))]);
    assert!(got.is_empty(), "{got:?}");
    for child in [&interrupted, &created, &young] {
        family.world.start(child, None).unwrap();
        family.world.submit(child, says("done")).unwrap();
    }
    family.world.submit(&begun, says("done")).unwrap();
    family.world.audit();
    family.claim(&boss).unwrap();
    let told: Value = serde_json::from_str(&family.results(&boss)[0].2).unwrap();
    assert_eq!(told["threads"].as_array().unwrap().len(), 4, "{told}");
    family.world.start(&below, None).unwrap();
    family.world.submit(&below, says("done")).unwrap();
    family.world.submit(&boss, says("all done")).unwrap();
    family.world.audit();
}

#[test]
fn an_end_reaches_the_children_of_an_earlier_build() {
    let (mut family, children) = aged_family();
    let boss = family.boss.clone();
    let young = family.spawn(json!({"directive": "work"}));
    family
        .world
        .service
        .signal(&boss, "k", &Signal::Kill)
        .unwrap();
    assert_eq!(family.load(&boss).head.value.sweep_to, Some(4));
    family.sweep();
    for child in children.iter().chain([&young]) {
        assert_eq!(family.status(child), "killed", "{child}");
    }
}

/// Symptom that is prevented: a driver of this build that works on a tree of this build never sees
/// a due entry that an earlier build wrote into it.
#[test]
fn due_entries_of_an_earlier_build_are_found_and_rewritten() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = family.spawn(json!({"directive": "work"}));
    family.world.create(None);
    age_due_entries(&*family.world.store);
    family.world.audit();
    assert_eq!(
        family.due(),
        [(child.clone(), false)],
        "and none of another tree"
    );
    family.world.start(&child, None).unwrap();
    let store = &*family.world.store;
    let named = records(store, "due").into_iter();
    let mut named = named.filter(|(name, _)| name.ends_with(&child));
    let tree = json!({"tree": boss.to_ascii_lowercase()}).to_string();
    assert_eq!(
        named.next().unwrap().1,
        tree,
        "its next commit names the tree"
    );
    family.world.audit();
}

/// Symptom: the children of an earlier build were in no tree, no recovery and no list of due
/// threads once the records of their parent were lost, if this build had spawned one more. Cause:
/// only the index of children was read, which has none of them. Fix: both are read, and a child of
/// both is named once. Kind: trees of two pages and one, most in either index.
#[test]
fn a_lost_parent_of_an_earlier_build_keeps_all_children() {
    for (aged, young) in [(4, 1), (55, 3), (3, 55), (0, 4)] {
        let family = ThreadFamily::new();
        let (world, boss) = (&family.world, &family.boss);
        let mut expected = BTreeSet::new();
        for n in 0..aged {
            expected.insert(world.spawn(boss, &format!("aged-{n}"), None));
        }
        age_store(&*world.store);
        for n in 0..young {
            expected.insert(world.spawn(boss, &format!("young-{n}"), None));
        }
        expected.insert(world.spawn("young-0", "below", None));
        let head = RecordKey::new("head", boss);
        let gone = CommitOp::Delete { key: head };
        world.store.commit(&[gone], false).unwrap();
        let (mut found, mut cursor) = (BTreeSet::new(), None::<String>);
        loop {
            let page = world.service.tree_page(boss, cursor.as_deref()).unwrap();
            for (loaded, _) in page.branches {
                let id = loaded.thread.value.id.clone();
                assert!(found.insert(id.clone()), "{id} is there twice");
            }
            cursor = page.cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(found, expected, "{aged} {young}");
    }
}
