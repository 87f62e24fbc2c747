//! Resumes of threads that have still to pass their end on.

use super::fixture::resume;
use crate::children::fixture::ThreadFamily;
use serde_json::json;
use threadkeep::storage::{CommitOp, RecordExpectation, RecordKey, StorageBackend};
use threadkeep_core::runner::Signal;
use threadkeep_core::thread::EndIntent;

fn kill(family: &ThreadFamily, thread: &str) {
    let service = &family.world.service;
    service.signal(thread, "k", &Signal::Kill).unwrap();
}

/// Symptom: the children of a killed thread that was resumed at once made further paid calls.
/// Cause: the resume thawed the account that they draw on before they were told of the kill. Fix:
/// it passes the end on first, all the way down. Kind: money that is given free before what it was
/// frozen for has happened.
#[test]
fn a_resume_passes_an_owed_end_on_first() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = family.spawn(json!({"directive": "boss", "limits": {"spend": "0.02"}}));
    family.world.start(&child, None).unwrap();
    let below = family.spawn_under(&child, json!({"directive": "work"}));
    family.world.start(&below, None).unwrap();
    kill(&family, &boss);
    assert_eq!(family.status(&child), "running", "nobody has swept");
    let next = resume(&mut family.world, &boss, Some("go on")).unwrap();
    assert_eq!(family.status(&next), "running");
    for ended in [&child, &below] {
        assert_eq!(family.status(ended), "killed", "{ended}");
        assert_eq!(family.load(ended).head.value.sweep, None);
    }
    assert_eq!(family.load(&boss).head.value.sweep, None);
    family.world.audit();
}

/// Replaces the text of a head; returns what it was.
fn replace_head(store: &dyn StorageBackend, thread: &str, value: String) -> String {
    let key = RecordKey::new("head", thread);
    let read = store.get(std::slice::from_ref(&key)).unwrap();
    let before = read[0].value.clone();
    let expect = RecordExpectation::Any;
    let put = CommitOp::Put { key, expect, value };
    store.commit(&[put], false).unwrap();
    before
}

/// A kill that the old link could not pass on reaches the children that it had once they can be
/// read, and none that the successor spawns.
#[test]
fn a_sweep_that_is_owed_spares_the_children_of_the_successor() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let old_child = family.spawn_running("work");
    let lost = threadkeep_core::id::key(&old_child);
    kill(&family, &boss);
    let head = replace_head(&*family.world.store, &lost, "{".to_owned());
    let next = resume(&mut family.world, &boss, Some("go on")).unwrap();
    let old = family.load(&boss).head.value;
    assert_eq!((old.sweep, old.sweep_to), (Some(EndIntent::Kill), Some(1)));
    replace_head(&*family.world.store, &lost, head);
    let new_child = family.spawn_under(&next, json!({"directive": "work"}));
    family.world.start(&new_child, None).unwrap();
    family.world.audit();
    family.sweep();
    assert_eq!(family.status(&old_child), "killed");
    assert_eq!(family.status(&new_child), "running");
    assert_eq!(family.status(&next), "running");
    assert_eq!(family.load(&boss).head.value.sweep, None, "it is done");
    family.world.audit();
}
