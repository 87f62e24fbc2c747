//! Decisions that are wrong, late, early or sent again.

use super::fixture::{answer, approve, assert_asks, begin, due, finish_calls, send, waiting};
use crate::resumes::fixture::core_error;
use crate::runner::fixture::{RunnerFixture, says};
use serde_json::{Value, json};
use threadkeep_core::error::ErrorKind as CoreErrorKind;

/// Asserts that the call of a decision is refused, and the problem that is named.
#[track_caller]
fn refuse(world: &RunnerFixture, thread: &str, decision: &Value, problem: &str) {
    let before = world.service.load(thread).unwrap().head.value;
    match core_error(send(world, thread, "wrong", decision)) {
        CoreErrorKind::Invalid {
            field,
            problem: found,
            ..
        } => {
            assert_eq!(field, "signal.decision.call");
            assert!(found.contains(problem), "{found}");
        }
        other => panic!("{other:?}"),
    }
    let after = world.service.load(thread).unwrap().head.value;
    assert_eq!(before, after, "nothing is written");
}

#[test]
fn only_a_call_that_waits_is_decided_about() {
    let mut world = RunnerFixture::new();
    let decision = |call: &str| json!({"call": call, "approve": true});
    let thread = world.create(Some("work"));
    refuse(&world, &thread, &decision("call_2_0"), "not made yet");
    world.start(&thread, None).unwrap();
    refuse(&world, &thread, &decision("call_2_0"), "not made yet");
    let thread = begin(&mut world, "work", &[("read", "{}"), ("ask", "{}")]);
    refuse(&world, &thread, &decision("call_2_0"), "needs no decision");
    refuse(&world, &thread, &decision("call_2_7"), "is no open call");
    refuse(&world, &thread, &decision("call_1_0"), "is no open call");
    finish_calls(&mut world, &thread);
    refuse(&world, &thread, &decision("call_2_0"), "is no open call");
    refuse(&world, &thread, &decision("call_9_0"), "not made yet");
    assert_asks(&world, &thread, &["call_2_1"]);
    match core_error(send(&world, &thread, "x", &decision("call_2_0"))) {
        CoreErrorKind::Invalid { nearest, .. } => assert_eq!(nearest.as_deref(), Some("call_2_1")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn same_decision_is_taken_once_and_another_is_a_conflict() {
    for running in [false, true] {
        let mut world = RunnerFixture::new();
        let wanted: &[(&str, &str)] = match running {
            true => &[("ask", "{}"), ("read", "{}")],
            false => &[("ask", "{}")],
        };
        let thread = begin(&mut world, "work", wanted);
        approve(&world, &thread, "call_2_0");
        let taken = world.service.load(&thread).unwrap().head.value;
        let check = |world: &RunnerFixture| {
            let same = json!({"call": "call_2_0", "approve": true});
            send(world, &thread, "approve call_2_0", &same).unwrap();
            send(world, &thread, "another key", &same).unwrap();
            for other in [
                json!({"call": "call_2_0", "approve": false}),
                json!({"call": "call_2_0", "approve": true, "note": "hm"}),
                json!({"call": "call_2_0", "answer": "hm"}),
            ] {
                match core_error(send(world, &thread, "later", &other)) {
                    CoreErrorKind::Conflict { field, .. } => assert_eq!(field, "decision"),
                    other => panic!("{other:?}"),
                }
            }
        };
        check(&world);
        assert_eq!(world.service.load(&thread).unwrap().head.value, taken);
        if running {
            finish_calls(&mut world, &thread);
        } else {
            world.start(&thread, None).unwrap();
        }
        check(&world);
        finish_calls(&mut world, &thread);
        check(&world);
        world.submit(&thread, says("done")).unwrap();
        check(&world);
        world.audit();
    }
}

#[test]
fn key_of_a_signal_with_other_content_is_a_conflict() {
    let mut world = RunnerFixture::new();
    let thread = begin(&mut world, "work", &[("ask", "{}"), ("ask", "{}")]);
    let one = json!({"call": "call_2_0", "approve": true});
    send(&world, &thread, "k", &one).unwrap();
    let two = json!({"call": "call_2_1", "approve": true});
    match core_error(send(&world, &thread, "k", &two)) {
        CoreErrorKind::Conflict { field, .. } => assert_eq!(field, "content"),
        other => panic!("{other:?}"),
    }
    assert_eq!(waiting(&world, &thread), ["call_2_1"]);
}

#[test]
fn thread_that_has_ended_takes_no_decision() {
    let mut world = RunnerFixture::new();
    let thread = begin(&mut world, "work", &[("ask", "{}")]);
    let kill = threadkeep_core::runner::Signal::Kill;
    world.service.signal(&thread, "k", &kill).unwrap();
    let late = json!({"call": "call_2_0", "approve": true});
    let refused = core_error(send(&world, &thread, "late", &late));
    assert!(
        matches!(refused, CoreErrorKind::Refused { .. }),
        "{refused:?}"
    );
}

#[test]
fn long_answers_fit_the_entry_that_takes_them() {
    let mut world = RunnerFixture::new();
    let mut wanted = vec![("ask", "{}"); 31];
    wanted.push(("read", "{}"));
    let thread = begin(&mut world, "work", &wanted);
    let text = "é".repeat(32_000);
    for n in 0..31 {
        answer(&world, &thread, &format!("call_2_{n}"), &text);
    }
    finish_calls(&mut world, &thread);
    assert_eq!(due(&world), [] as [String; 0]);
    assert_eq!(world.status(&thread), "running");
    world.submit(&thread, says("done")).unwrap();
    world.audit();
}
