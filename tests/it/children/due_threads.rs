//! Which suspended threads a driver is told to start, and for which of them a parent waits.

use super::fixture::ThreadFamily;
use crate::runner::fixture::{RunnerFixture, calls, raise, says};
use serde_json::json;
use std::sync::Arc;
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_core::history::{Message, MessageRole};
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::runner::Signal;
use threadkeep_tests::fixture::MapLibrary;

/// Spawns a child of the boss that has used its one turn and is suspended.
fn capped_child(family: &mut ThreadFamily) -> String {
    let child = family.spawn(json!({"directive": "work", "limits": {"turns": 1}}));
    family.world.start(&child, None).unwrap();
    family
        .world
        .submit(&child, calls(&[("read", "{}")]))
        .unwrap();
    let outcomes = family.world.outcomes(&child);
    family.world.submit(&child, outcomes).unwrap();
    let cause = family.load(&child).head.value.cause.clone().unwrap();
    assert_eq!(cause.code, "turns_exceeded");
    child
}

fn send(family: &ThreadFamily, thread: &str, name: &str, signal: Signal) {
    let service = &family.world.service;
    service.signal(thread, name, &signal).unwrap();
}

fn more_turns() -> Signal {
    raise(ThreadCaps {
        turns: Some(5),
        ..ThreadCaps::NONE
    })
}

/// Symptom: a driver started a capped child that a message had made due, was refused five times,
/// and left it alone for good, also after a raise. Cause: `ready` named a thread that `start`
/// refuses. Fix: it names only threads that can be started.
#[test]
fn a_message_makes_a_capped_thread_due_once_its_cap_is_raised() {
    let mut family = ThreadFamily::new();
    let child = capped_child(&mut family);
    let message = Message::text(MessageRole::User, "Go on.");
    send(&family, &child, "m", Signal::Message(message));
    assert!(family.due().is_empty(), "{:?}", family.due());
    send(&family, &child, "r", more_turns());
    assert_eq!(family.due(), [(child.clone(), false)]);
    family.world.start(&child, None).unwrap();
    family.world.submit(&child, says("done")).unwrap();
    family.world.audit();
}

/// Names that `ready` gives in pages of so many threads, until there is no cursor.
fn ready_in_pages(family: &ThreadFamily, limit: u32, under: Option<&str>) -> Vec<String> {
    let (mut names, mut cursor) = (Vec::new(), None);
    for _ in 0..100 {
        let page = family.world.service.ready(limit, cursor, under).unwrap();
        let threads = page.threads.into_iter();
        names.extend(threads.map(|due| due.loaded.thread.value.id.clone()));
        cursor = page.cursor;
        if cursor.is_none() {
            return names;
        }
    }
    panic!("the pages do not end: {names:?}");
}

/// Symptom: a wait whose time was over, and a holder that had died, were found only once all new
/// threads of the tree were begun. Cause: due entries were read in the order of their times, and
/// that of a new thread is earlier than any real one. Fix: new threads are a list of their own,
/// which is read last. Kind: what a driver without room can do stands behind what it cannot.
#[test]
fn new_threads_come_behind_waits_and_leases_that_are_over() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    family.world.count("own");
    let parent = family.spawn(json!({"directive": "boss", "limits": {"spend": "0.02"}}));
    family.world.start(&parent, None).unwrap();
    let grandchild = family.spawn_under(&parent, json!({"directive": "work"}));
    family.world.count("held");
    let held = family.spawn_running("work");
    family.reply(&parent, &[("wait_threads", json!({"timeout": 60}))]);
    let told = family.spawn(json!({"directive": "work"}));
    send(&family, &told, "k", Signal::Kill);
    let children: Vec<String> = (0..5)
        .map(|_| family.spawn(json!({"directive": "work"})))
        .collect();
    family.world.advance(4_000_000);
    let others = [0; 3].map(|_| family.world.create(None));
    for under in [Some(&*boss), None] {
        let mut expected = vec![parent.clone(), held.clone(), boss.clone()];
        let mut new: Vec<&String> = children.iter().chain([&grandchild]).collect();
        if under.is_none() {
            new.extend(&others);
        }
        let page = family.world.service.ready(4, None, under).unwrap();
        assert_eq!(
            page.threads[0].loaded.thread.value.id, parent,
            "its time was over first"
        );
        for limit in [1, 2, 4, 10, 100] {
            let mut names = ready_in_pages(&family, limit, under);
            let mut last = names.split_off(expected.len());
            names.sort();
            expected.sort();
            assert_eq!(names, expected, "{limit} {under:?}");
            last.sort();
            new.sort();
            assert_eq!(last.iter().collect::<Vec<_>>(), new, "{limit} {under:?}");
        }
    }
    family.world.audit();
}

/// Cursors are those of a list of `ready`, or refused.
#[test]
fn cursors_of_no_list_of_due_threads_are_refused() {
    let family = ThreadFamily::new();
    for (cursor, under) in [
        ("", None),
        ("x", None),
        ("i", None),
        ("n", None),
        ("nz", None),
    ]
    .into_iter()
    .chain([
        ("", Some(&*family.boss)),
        ("iz", Some(&family.boss)),
        ("n", Some(&family.boss)),
    ]) {
        let told = family
            .world
            .service
            .ready(9, Some(cursor.to_owned()), under);
        let told = format!("{:?}", told.unwrap_err());
        assert!(told.contains("cursor"), "{cursor} {under:?}: {told}");
    }
}

/// Symptom: a parent that waited for a child that had just been raised was told that it is
/// suspended. Kind: a thread that goes on by itself has not stopped.
#[test]
fn a_wait_for_a_child_that_was_raised_waits_for_its_end() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = capped_child(&mut family);
    send(&family, &child, "r", more_turns());
    family.reply(&boss, &[("wait_threads", json!({}))]);
    assert_eq!(family.status(&boss), "waiting");
    family.world.start(&child, None).unwrap();
    family.world.submit(&child, says("done")).unwrap();
    family.claim(&boss).unwrap();
    let got = family.results(&boss);
    assert!(got[0].2.contains("completed"), "{got:?}");
    family.world.audit();
}

/// Symptom: a driver died while a parent waited for its child, the child was started again, and the
/// wait was over a moment later: the parent ended without the result. Cause: the wait's time ran on
/// while no driver ran the child. Fix: after an interruption the wait has its full time again.
/// Kind: time in which no driver works.
#[test]
fn a_wait_has_its_time_again_after_a_child_was_interrupted() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = family.spawn_running("work");
    family.reply(&boss, &[("wait_threads", json!({"timeout": 60}))]);
    family.world.advance(50_000);
    let holder = family.load(&child).head.value.holder.clone().unwrap();
    family.world.service.recover(&[holder], None).unwrap();
    family.world.start(&child, None).unwrap();
    family.world.advance(11_000);
    family.claim(&boss).unwrap();
    assert_eq!(family.status(&boss), "waiting");
    family.world.advance(59_000);
    family.claim(&boss).unwrap();
    assert_eq!(family.status(&boss), "waiting", "60 s from then on");
    family.world.submit(&child, says("done")).unwrap();
    family.claim(&boss).unwrap();
    let got = family.results(&boss);
    assert!(got[0].2.contains("completed"), "{got:?}");
    family.world.audit();
}

/// Symptom: a parent slept until its wait's deadline. Cause: `recover` checked its child without
/// the operator's caps, which the child had reached, so the child counted as one that its driver
/// revives.
#[test]
fn a_child_at_a_lowered_policy_that_dies_wakes_its_parent() {
    let store: Arc<dyn StorageBackend> = Arc::new(MemoryStore::new());
    let mut family =
        ThreadFamily::in_world(RunnerFixture::over(Arc::clone(&store), MapLibrary::small()));
    let boss = family.boss.clone();
    let child = family.spawn_running("work");
    family
        .world
        .submit(&child, calls(&[("read", "{}")]))
        .unwrap();
    family.reply(&boss, &[("wait_threads", json!({}))]);
    let holder = family.load(&child).head.value.holder.clone().unwrap();
    let policy = json!({"limits": {"turns": 1}}).to_string();
    let lowered = MapLibrary::small().with("settings", "policy", &policy);
    let operator = RunnerFixture::over(store, lowered);
    let recovery = operator.service.recover(&[holder], None).unwrap();
    assert_eq!(recovery.closed, [child]);
    let due = operator.service.ready(100, None, Some(&boss)).unwrap();
    let due: Vec<&str> = due
        .threads
        .iter()
        .map(|due| due.loaded.thread.value.id.as_str())
        .collect();
    assert_eq!(due, [boss.as_str()]);
}
