//! A child that gets messages: they keep their order, and a wait sees their effect.

use super::fixture::ThreadFamily;
use crate::runner::fixture::{calls, fails, says, user};
use serde_json::{Value, json};
use threadkeep_core::history::parse_user;
use threadkeep_core::runner::{Signal, StepOutcome};

/// State of a child before it gets a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChildState {
    /// Suspended by an error.
    Failed,
    /// Suspended at a cap of its own.
    Capped,
    /// Suspended without money.
    Broke,
    /// A chat that takes the next input.
    Idle,
}

fn make_child(family: &mut ThreadFamily, stands: ChildState) -> String {
    let boss = family.boss.clone();
    match stands {
        ChildState::Failed => {
            let child = family.spawn_running("work");
            let failed = StepOutcome::Failure(fails("permanent", false));
            family.world.submit(&child, failed).unwrap();
            child
        }
        ChildState::Capped => {
            let child = family.spawn(json!({"directive": "work", "limits": {"turns": 1}}));
            family.world.start(&child, None).unwrap();
            family
                .world
                .submit(&child, calls(&[("none", "{}")]))
                .unwrap();
            child
        }
        ChildState::Broke => {
            let child = family.spawn(json!({"directive": "work", "limits": {"spend": "0"}}));
            family.world.start(&child, None).unwrap();
            child
        }
        ChildState::Idle => {
            let child = family.world.spawn(&boss, "chat-below", None);
            family.world.start(&child, Some("hi")).unwrap();
            family.world.submit(&child, says("hello")).unwrap();
            child
        }
    }
}

/// The part of the boss's wait result about its only child.
fn wait_result(family: &ThreadFamily) -> Value {
    let got = family.results(&family.boss);
    let wait = got.iter().find(|got| got.0 == "wait_threads");
    let told: Value = serde_json::from_str(&wait.expect("it is answered").2).unwrap();
    told["threads"][0].clone()
}

/// Symptom: a parent sent its idle or suspended child a message, waited, and was told at once the
/// child's earlier state. Cause: such a child counted as stopped, with mail or without. Fix: a
/// child with mail that no cap forbids has not stopped. Kind: in one reply or in two, with each
/// cause of suspension; the wait is answered where a cap forbids the mail, and where the child
/// stops again.
#[test]
fn a_wait_sees_the_answer_to_a_message() {
    for stands in [
        ChildState::Failed,
        ChildState::Capped,
        ChildState::Broke,
        ChildState::Idle,
    ] {
        for at_once in [false, true] {
            let mut family = ThreadFamily::new();
            let boss = family.boss.clone();
            let child = make_child(&mut family, stands);
            let tell = json!({"thread": child, "message": "look again"});
            let mut asked = vec![("send_message", tell), ("wait_threads", json!({}))];
            if !at_once {
                let sent = family.reply(&boss, &asked[..1]);
                assert!(!sent[0].1, "{sent:?}");
                asked.remove(0);
            }
            family.reply(&boss, &asked);
            if stands == ChildState::Capped {
                assert_eq!(wait_result(&family)["status"], "suspended");
                continue;
            }
            assert_eq!(family.status(&boss), "waiting", "{stands:?} {at_once}");
            assert_eq!(family.due(), [(child.clone(), false)]);
            family.world.start(&child, None).unwrap();
            family.world.audit();
            if stands != ChildState::Broke {
                assert!(family.due().is_empty(), "it is at work");
                family.world.submit(&child, says("now I see")).unwrap();
            }
            assert_eq!(family.due(), [(boss.clone(), false)], "{stands:?}");
            family.claim(&boss).unwrap();
            let expected = match stands {
                ChildState::Failed => "completed",
                ChildState::Idle => "idle",
                ChildState::Broke | ChildState::Capped => "suspended",
            };
            assert_eq!(wait_result(&family)["status"], expected);
            family.world.audit();
        }
    }
}

/// The same with a cancel: a suspended child that is to end has not stopped before it has ended.
#[test]
fn a_wait_sees_the_end_of_a_child_that_was_cancelled_while_suspended() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = make_child(&mut family, ChildState::Failed);
    let cancel = ("cancel_thread", json!({ "thread": child }));
    family.reply(&boss, &[cancel, ("wait_threads", json!({}))]);
    assert_eq!(family.status(&boss), "waiting");
    family.sweep();
    assert_eq!(family.due(), [(boss.clone(), false)]);
    family.claim(&boss).unwrap();
    assert_eq!(wait_result(&family)["status"], "cancelled");
    family.world.audit();
}

/// Sends a person's message to a child.
fn send(family: &ThreadFamily, child: &str, name: &str) {
    let message = Signal::Message(parse_user(&user(name)).unwrap());
    let service = &family.world.service;
    service.signal(child, name, &message).unwrap();
}

/// Symptom: a person's message stood before one that the parent had sent earlier. Cause: a message
/// to a thread without a holder was written at once, past its inbox. Fix: the inbox is read first.
/// Kind: a child that was not started, one that is suspended, and a thread that was stopped with
/// mail; by a signal and by a start.
#[test]
fn messages_keep_their_order() {
    for (stands, by_start) in [
        ("created", false),
        ("created", true),
        ("suspended", false),
        ("suspended", true),
    ] {
        let mut family = ThreadFamily::new();
        let boss = family.boss.clone();
        let child = family.spawn(json!({"directive": "work"}));
        if stands == "suspended" {
            family.world.start(&child, None).unwrap();
            let stopped = StepOutcome::Stopped(fails("cancelled", false));
            family.world.submit(&child, stopped).unwrap();
        }
        let tell = json!({"thread": child, "message": "first"});
        family.reply(&boss, &[("send_message", tell)]);
        if by_start {
            family.world.start(&child, Some("second")).unwrap();
        } else {
            send(&family, &child, "second");
            family.world.start(&child, None).unwrap();
        }
        let (messages, _) = family.world.service.messages(&child, 0, None).unwrap();
        let place = |text: &str| messages.iter().position(|said| said.contains(text));
        let (first, second) = (place("first").unwrap(), place("second").unwrap());
        assert!(first < second, "{stands} {by_start}: {messages:?}");
        assert_eq!(family.load(&child).head.value.mail_count(), 0);
        family.world.audit();
    }
}
