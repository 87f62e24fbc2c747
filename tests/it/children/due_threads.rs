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
    let cause = family.load(&child).head.value.cause.unwrap();
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
    let holder = family.load(&child).head.value.holder.unwrap();
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
    let holder = family.load(&child).head.value.holder.unwrap();
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
