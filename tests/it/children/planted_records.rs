//! Records that somebody edited in the store: they take no other thread along, and nothing traps.

use super::fixture::ThreadFamily;
use serde_json::{Value, json};
use threadkeep::storage::{CommitOp, CommitOutcome, RecordExpectation, RecordKey};
use threadkeep_component::service::ErrorKind;
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::runner::Signal;

fn commit(family: &ThreadFamily, ops: &[CommitOp]) {
    let done = family.world.store.commit(ops, false).unwrap();
    assert!(matches!(done, CommitOutcome::Committed));
}

fn put_record(collection: &str, name: &str, value: String) -> CommitOp {
    CommitOp::Put {
        key: RecordKey::new(collection, name),
        expect: RecordExpectation::Any,
        value,
    }
}

/// Changes one field of a record, named by a JSON pointer.
fn edit(family: &ThreadFamily, (collection, name): (&str, &str), pointer: &str, value: &Value) {
    let key = RecordKey::new(collection, name);
    let record = family.world.store.get(&[key]).unwrap().remove(0);
    let mut document: Value = serde_json::from_str(&record.value).unwrap();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    document.pointer_mut(parent).unwrap()[field] = value.clone();
    commit(
        family,
        &[put_record(collection, name, document.to_string())],
    );
}

/// Makes the entries of the index by which a chain finds its first child name another thread.
fn repoint_children(family: &ThreadFamily, of: &str, to: &str) {
    let store = &family.world.store;
    let page = store.scan("index", "", "\u{10ffff}", 500, false).unwrap();
    let mut ops = Vec::new();
    for item in page.items {
        let parts: Vec<&str> = item.key.name.split('\u{1}').collect();
        if ["child", "parent"].contains(&parts[0]) && parts[1] == of {
            let name = format!("{}\u{1}{of}\u{1}{}\u{1}{to}", parts[0], parts[2]);
            ops.push(CommitOp::Delete { key: item.key });
            ops.push(put_record("index", &name, String::new()));
        }
    }
    assert!(ops.len() >= 2, "{of} has children");
    commit(family, &ops);
}

/// Symptom: a kill of a thread killed a neighbour, and a cancel froze its account. Cause: a sweep
/// believed the index of children. Fix: a thread says itself whose child it is; one that an entry
/// names without right is named as no child, and nothing below it is told. Kind: kill and cancel,
/// the tree, an entry that leads in a circle.
#[test]
fn an_index_entry_gives_no_power_over_a_neighbour() {
    for intent in [Signal::Kill, Signal::Cancel] {
        let mut family = ThreadFamily::new();
        let boss = family.boss.clone();
        let child = family.spawn(json!({"directive": "work"}));
        let other = family.world.create(Some("boss"));
        family.world.start(&other, None).unwrap();
        let below = family.reply(&other, &[("spawn_thread", json!({"directive": "work"}))]);
        let below: Value = serde_json::from_str(&below[0].2).unwrap();
        let below = below["thread"].as_str().unwrap().to_owned();
        for to in [&other, &boss] {
            repoint_children(&family, &boss, to);
            let page = family.world.service.tree_page(&boss, None).unwrap();
            assert_eq!((page.branches.len(), page.cursor), (1, None), "{to}");
            assert_eq!(page.unreadable[0].1.code, "not-a-child", "{to}");
        }
        repoint_children(&family, &boss, &other);
        family.world.service.signal(&boss, "end", &intent).unwrap();
        let page = family.world.service.sweep_page(&boss, None).unwrap();
        assert_eq!(page.unreadable[0].0, other);
        assert_eq!(page.unreadable[0].1.code, "not-a-child");
        for thread in [&other, &below] {
            let loaded = family.load(thread);
            assert_eq!(loaded.head.value.intent, None, "{thread}");
            assert!(!loaded.chain.value.account.frozen, "{thread}");
            assert!(!loaded.head.value.status.is_terminal(), "{thread}");
        }
        assert!(!family.load(&child).head.value.status.is_terminal());
    }
}

/// Symptom: a number near 2^64 in a record trapped the component, and with it each recovery that
/// met the thread; a chain above itself ended recovery with an error of the store. Fix: such
/// records are unreadable like any that contradict each other, and the others are read. Kind: each
/// number that is counted on from, and each way in which a chain is above itself.
#[test]
fn records_that_contradict_themselves_are_unreadable_and_stop_no_other() {
    let most = json!(u64::MAX);
    let part = |to: u64| json!([{"thread": "gone", "from": 1, "to": to, "hash": ""}]);
    for (collection, pointer, value) in [
        ("head", "/version", most.clone()),
        ("head", "/token", most.clone()),
        ("head", "/run", most.clone()),
        ("head", "/mail_to", most.clone()),
        ("head", "/counters/turns", most.clone()),
        ("head", "/counters/run_tokens", most.clone()),
        ("head", "/counters/duration", most.clone()),
        ("chain", "/children", most.clone()),
        ("chain", "/spawned", most.clone()),
        ("chain", "/depth", most.clone()),
        ("chain", "/parent", json!("self")),
        ("chain", "/above", json!(["self"])),
        ("chain", "/above", json!(["x", "x"])),
        (
            "thread",
            "/base",
            json!({"length": u64::MAX, "parts": part(u64::MAX)}),
        ),
        ("thread", "/base", json!({"length": 7, "parts": part(7)})),
    ] {
        let mut family = ThreadFamily::new();
        let boss = family.boss.clone();
        let other = family.world.create(Some("boss"));
        family.world.start(&other, None).unwrap();
        let value = match value {
            Value::String(_) => json!(boss),
            Value::Array(names) if names == [json!("self")] => json!([boss]),
            value => value,
        };
        edit(&family, (collection, &boss), pointer, &value);
        let what = format!("{collection} {pointer} {value}");
        let refused = family.world.service.load(&boss).unwrap_err();
        assert!(
            matches!(refused.kind(), ErrorKind::Core(CoreErrorKind::Corrupt(_))),
            "{what}: {refused:?}"
        );
        let holders: Vec<String> = [&other]
            .map(|thread| family.load(thread).head.value.holder.clone().unwrap())
            .into();
        let recovery = family.world.service.recover(&holders, None).unwrap();
        assert_eq!(recovery.closed, std::slice::from_ref(&other), "{what}");
        assert_eq!(recovery.unreadable[0].0, boss, "{what}");
        let killed = family.world.service.signal(&other, "end", &Signal::Kill);
        assert!(killed.is_ok(), "{what}: {killed:?}");
    }
}
