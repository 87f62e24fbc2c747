//! A resume of a thread in each status.

use super::fixture::{core_error, holder_of, newest_events, resume, resume_as, sent_messages};
use crate::runner::fixture::{RunnerFixture, calls, says};
use serde_json::{Value, json};
use threadkeep_component::ports::HostPorts;
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::history::{CommitReason, Event};
use threadkeep_core::ledger::Account;
use threadkeep_core::runner::{HolderProof, Signal};
use threadkeep_core::thread::StepKind;

/// Brings a new directive's thread into a status.
fn thread_in(world: &mut RunnerFixture, status: &str) -> String {
    let chat = matches!(status, "idle" | "error");
    let thread = world.create((!chat).then_some("work"));
    if status == "created" {
        return thread;
    }
    if status == "error" {
        let deadline = world.service.ports().now().plus_millis(60_000);
        let opened = world.service.open(&thread, "loop", deadline).unwrap();
        let said = json!({"type": "message", "role": "user", "content": "go"}).to_string();
        let token = Some(opened.head.value.token);
        world.service.append(&thread, token, None, &[said]).unwrap();
        let failed = json!({"code": "broken", "message": "it broke"}).to_string();
        let closed = world
            .service
            .close(&thread, opened.head.value.token, "error", Some(failed));
        closed.unwrap();
        return thread;
    }
    world.start(&thread, chat.then_some("hello")).unwrap();
    world.submit(&thread, calls(&[("read", "{}")])).unwrap();
    match status {
        "cancelled" => drop(world.service.signal(&thread, "c", &Signal::Cancel).unwrap()),
        "killed" => drop(world.service.signal(&thread, "k", &Signal::Kill).unwrap()),
        _ => {}
    }
    if status == "running" || status == "killed" {
        return thread;
    }
    if status == "suspended" {
        let holder = holder_of(world, &thread);
        world.service.recover(&[holder], None).unwrap();
        return thread;
    }
    if !chat {
        let outcomes = world.outcomes(&thread);
        world.submit(&thread, outcomes).unwrap();
    }
    if status != "cancelled" {
        world.submit(&thread, says("done")).unwrap();
    }
    thread
}

/// Every status: who goes on in place, who in a successor, and who is refused.
#[test]
fn each_status_is_resumed_in_its_way() {
    for (status, place) in [
        ("created", "in place"),
        ("idle", "in place"),
        ("suspended", "in place"),
        ("running", "busy"),
        ("completed", "successor"),
        ("error", "successor"),
        ("cancelled", "successor"),
        ("killed", "successor"),
    ] {
        let mut world = RunnerFixture::new();
        let thread = thread_in(&mut world, status);
        assert_eq!(world.status(&thread), status);
        let before = world.service.load(&thread).unwrap();
        let shown = sent_messages(&world, &thread);
        let done = resume(&mut world, &thread, Some("go on"));
        world.audit();
        if place == "busy" {
            assert!(
                matches!(core_error(done), CoreErrorKind::Busy { .. }),
                "{status}"
            );
            continue;
        }
        let next = done.unwrap();
        assert_eq!(next != thread, place == "successor", "{status}");
        assert_eq!(world.status(&next), "running", "{status}");
        let mut now = sent_messages(&world, &next);
        let last: Value = serde_json::from_str(&now.pop().unwrap()).unwrap();
        if status != "suspended" {
            assert_eq!(last["content"][0]["text"], "go on", "{status}");
            assert_eq!(now, shown, "{status}: byte for byte, and the message");
        }
        if place == "in place" {
            continue;
        }
        let old = world.service.load(&thread).unwrap();
        assert_eq!(old.thread.value.next.as_deref(), Some(&*next), "{status}");
        assert_eq!(old.thread.value.outcome, before.thread.value.outcome);
        assert_eq!(old.thread.value.result, before.thread.value.result);
        assert_eq!(old.head.value.status, before.head.value.status);
        let closing = newest_events(&world, &thread);
        let [Event::ThreadResumed(resumed)] = &closing[..] else {
            panic!("{status}: {closing:?}");
        };
        assert_eq!(resumed.new_thread_id, next);
        assert_eq!(resumed.message_preview, "go on");
        let entry = world.service.entry(&old, old.head.value.version).unwrap();
        assert_eq!(entry.unwrap().reason, CommitReason::Resumed);
        let new = world.service.load(&next).unwrap();
        assert_eq!(new.head.value.run, before.head.value.run + 1, "{status}");
        assert_eq!(new.head.value.counters.run_turns, 0, "{status}");
        assert!(!new.chain.value.account.frozen, "{status}");
        assert_eq!(
            resumed.reconstructed_turns,
            before.head.value.counters.turns
        );
        world.submit(&next, says("done again")).unwrap();
        world.audit();
    }
}

/// A waiting thread is refused as a start refuses it.
#[test]
fn a_waiting_thread_is_refused() {
    let mut family = crate::children::fixture::ThreadFamily::new();
    let boss = family.boss.clone();
    family.spawn_running("work");
    family.reply(&boss, &[("wait_threads", json!({}))]);
    assert_eq!(family.status(&boss), "waiting");
    let refused = resume(&mut family.world, &boss, None);
    assert!(matches!(core_error(refused), CoreErrorKind::Refused { .. }));
    family.world.audit();
}

/// Without a message, a thread that has answered says what to give; one whose last request had no
/// answer tries it again.
#[test]
fn a_resume_without_a_message_needs_something_to_answer() {
    let mut world = RunnerFixture::new();
    let done = thread_in(&mut world, "completed");
    match core_error(resume(&mut world, &done, None)) {
        CoreErrorKind::Invalid { field, problem, .. } => {
            assert_eq!(field, "input");
            assert!(
                problem.contains(&done) && problem.contains("message"),
                "{problem}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert!(
        world
            .service
            .load(&done)
            .unwrap()
            .thread
            .value
            .next
            .is_none()
    );
    for status in ["cancelled", "killed", "error"] {
        let thread = thread_in(&mut world, status);
        let shown = sent_messages(&world, &thread);
        let next = resume(&mut world, &thread, None).unwrap();
        assert_eq!(
            sent_messages(&world, &next),
            shown,
            "{status}: the same request"
        );
        assert_eq!(world.pending(&next), Some(StepKind::CallLlm));
        let loaded = world.service.load(&next).unwrap();
        let first = world
            .service
            .entry(&loaded, loaded.head.value.version)
            .unwrap();
        assert_eq!(first.unwrap().reason, CommitReason::Resumed);
    }
    world.audit();
}

/// A directive's thread that was ended before its first call begins with its opening.
#[test]
fn a_thread_that_never_began_begins_in_its_successor() {
    let mut world = RunnerFixture::new();
    let thread = world.create(Some("work"));
    world.service.signal(&thread, "c", &Signal::Cancel).unwrap();
    let next = resume(&mut world, &thread, None).unwrap();
    assert_eq!(sent_messages(&world, &next).len(), 1);
    let (old, new) = (thread, world.service.load(&next).unwrap());
    assert!(new.thread.value.pin.is_some());
    assert_eq!(new.chain.value.account.limit, new.thread.value.limits.spend);
    assert!(world.service.load(&old).unwrap().thread.value.pin.is_none());
    world.submit(&next, says("done")).unwrap();
    world.audit();
}

/// Any link names the chain: its tip is resumed, or goes on in place.
#[test]
fn any_link_resumes_the_tip() {
    let mut world = RunnerFixture::new();
    let first = thread_in(&mut world, "completed");
    let second = resume(&mut world, &first, Some("again")).unwrap();
    let busy = resume_as(&world, &first, Some("and again"), "other");
    match core_error(busy) {
        CoreErrorKind::Busy { thread, .. } => assert_eq!(thread, second, "the successor is named"),
        other => panic!("{other:?}"),
    }
    let holder = holder_of(&world, &second);
    world.service.recover(&[holder], None).unwrap();
    let in_place = resume(&mut world, &first, None).unwrap();
    assert_eq!(in_place, second, "it was suspended");
    world.submit(&second, says("done")).unwrap();
    let third = resume(&mut world, &first, Some("once more")).unwrap();
    let loaded = world.service.load(&third).unwrap();
    assert_eq!(loaded.thread.value.previous.as_deref(), Some(&*second));
    assert_eq!(loaded.thread.value.chain, first);
    assert_eq!(loaded.chain.value.tip, third);
    // What names an earlier link is told where the chain goes on.
    let late = world.service.signal(&first, "late", &Signal::Kill);
    assert!(matches!(core_error(late), CoreErrorKind::Continued { next, .. } if next == second));
    let claimed = world.service.claim(&first, "x", HolderProof::None);
    assert!(claimed.is_err());
    world.audit();
}

/// An account of a chain without its own money.
#[test]
fn the_account_of_the_chain_is_drawn_on_again() {
    let mut world = RunnerFixture::new();
    let thread = thread_in(&mut world, "completed");
    let account = |world: &RunnerFixture, id: &str| -> Account {
        world.service.load(id).unwrap().chain.value.account.clone()
    };
    assert_eq!(account(&world, &thread).users, 0);
    let spent = account(&world, &thread).spent;
    let next = resume(&mut world, &thread, Some("go on")).unwrap();
    let now = account(&world, &next);
    assert_eq!((now.users, now.spent), (1, spent));
    let head = world.service.load(&next).unwrap().head.value;
    assert_eq!(head.carried_spend, Some(spent), "the cap bounds the chain");
    world.submit(&next, says("done")).unwrap();
    assert_eq!(account(&world, &next).users, 0);
    world.audit();
}
