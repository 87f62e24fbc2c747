//! Messages, cancels and kills that one thread sends to another, and the threads that it may see.

use super::fixture::ThreadFamily;
use crate::runner::fixture::{calls, says};
use serde_json::{Value, json};
use threadkeep_core::runner::{Signal, StepOutcome};

#[test]
fn a_message_reaches_a_child_wherever_it_stands() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let (created, running) = (
        family.spawn(json!({"directive": "work"})),
        family.spawn_running("work"),
    );
    let broke = family.spawn(json!({"directive": "work", "limits": {"spend": "0"}}));
    family.world.start(&broke, None).unwrap();
    let said = |thread: &str| {
        (
            "send_message",
            json!({"thread": thread, "message": "look again"}),
        )
    };
    let got = family.reply(
        &boss,
        &[said(&created), said(&running), said(&broke), said(&running)],
    );
    assert!(got.iter().all(|got| !got.1), "{got:?}");
    let mail = |thread: &str| family.load(thread).head.value.mail_count();
    assert_eq!((mail(&created), mail(&running), mail(&broke)), (1, 2, 1));
    let due: Vec<String> = family.due().into_iter().map(|due| due.0).collect();
    assert!(due.contains(&broke) && due.contains(&created), "{due:?}");
    assert!(!due.contains(&running), "somebody drives it");
    let handed = family.world.submit(&running, says("done")).unwrap();
    assert!(
        handed.step.kind.is_some(),
        "a run with mail does not finish"
    );
    assert_eq!(family.load(&running).head.value.mail_count(), 0);
    family.world.start(&created, None).unwrap();
    assert_eq!(family.load(&created).head.value.mail_count(), 0);
    family.world.audit();
}

#[test]
fn an_inbox_is_bounded_for_threads_as_for_people() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = family.spawn_running("work");
    let said = (
        "send_message",
        json!({"thread": child, "message": "x".repeat(100)}),
    );
    let sixteen: Vec<(&str, Value)> = (0..32).map(|_| said.clone()).collect();
    let got = family.reply(&boss, &sixteen);
    assert!(got.iter().all(|got| !got.1), "{got:?}");
    let got = family.reply(&boss, &[said]);
    assert!(got[0].1 && got[0].2.contains("full"), "{got:?}");
    let long = (
        "send_message",
        json!({"thread": child, "message": "x".repeat(9_000)}),
    );
    let got = family.reply(&boss, &[long]);
    assert!(got[0].1 && got[0].2.contains("longer than"), "{got:?}");
    family.world.audit();
}

#[test]
fn thread_reaches_its_descendants_and_no_others() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = family.spawn(json!({"directive": "boss", "limits": {"spend": "0.02"}}));
    family.world.start(&child, None).unwrap();
    let grandchild = family.spawn_under(&child, json!({"directive": "work"}));
    let stranger = family.world.create(Some("work"));
    for tool in [
        "thread_status",
        "read_transcript",
        "cancel_thread",
        "kill_thread",
    ] {
        for (from, to, reached) in [
            (&child, &boss, false),
            (&child, &stranger, false),
            (&boss, &stranger, false),
            (&boss, &format!("{grandchild}x"), false),
        ] {
            let got = family.reply(from, &[(tool, json!({ "thread": to }))]);
            assert_eq!(!got[0].1, reached, "{tool} {from} {to}: {got:?}");
            assert!(!got[0].2.contains("did you mean"), "{got:?}");
        }
    }
    let got = family.reply(&boss, &[("thread_status", json!({ "thread": grandchild }))]);
    let status: Value = serde_json::from_str(&got[0].2).unwrap();
    assert_eq!(
        (status["status"].as_str(), status["budget_of"].as_str()),
        (Some("created"), Some(child.as_str()))
    );
    let got = family.reply(
        &boss,
        &[
            ("list_threads", json!({})),
            ("list_threads", json!({"status": "created"})),
        ],
    );
    let count = |at: usize| {
        let list: Value = serde_json::from_str(&got[at].2).unwrap();
        list["threads"].as_array().unwrap().len()
    };
    assert_eq!((count(0), count(1)), (2, 1));
    let got = family.reply(&boss, &[("list_threads", json!({"status": "made"}))]);
    assert!(got[0].1, "{got:?}");
    for tool in ["cancel_thread", "kill_thread"] {
        let got = family.reply(&boss, &[(tool, json!({ "thread": boss }))]);
        assert!(got[0].1 && got[0].2.contains("your own"), "{got:?}");
    }
    let got = family.reply(
        &child,
        &[("read_transcript", json!({"thread": child, "last": 2}))],
    );
    assert!(!got[0].1 && got[0].2.contains("tool"), "{got:?}");
}

#[test]
fn results_are_gathered_without_waiting() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let (one, _two) = (family.spawn_running("work"), family.spawn_running("work"));
    family.world.submit(&one, says("first")).unwrap();
    let got = family.reply(&boss, &[("aggregate_results", json!({}))]);
    let all: Value = serde_json::from_str(&got[0].2).unwrap();
    assert_eq!(all[0]["result"], "first");
    assert_eq!(all[1]["status"], "running");
}

/// boss > child (held) > grandchild (held), and a second child that was never started.
fn spawn_three_levels(family: &mut ThreadFamily) -> (String, String, String) {
    let child = family.spawn(json!({"directive": "boss", "limits": {"spend": "0.02"}}));
    let second = family.spawn(json!({"directive": "work"}));
    family.world.start(&child, None).unwrap();
    let grandchild = family.spawn_under(&child, json!({"directive": "work"}));
    family.world.start(&grandchild, None).unwrap();
    (child, grandchild, second)
}

#[test]
fn a_cancel_reaches_all_that_lies_below() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let (child, grandchild, second) = spawn_three_levels(&mut family);
    family
        .world
        .service
        .signal(&boss, "c", &Signal::Cancel)
        .unwrap();
    family.sweep();
    assert_eq!(family.status(&second), "cancelled", "nobody held it");
    assert_eq!(family.status(&grandchild), "running", "its step may finish");
    let got = family.world.submit(
        &child,
        calls(&[("spawn_thread", r#"{"directive":"work"}"#)]),
    );
    got.unwrap();
    assert_eq!(family.status(&child), "cancelled");
    assert_eq!(
        family.load(&child).chain.value.children,
        1,
        "nothing more is spawned"
    );
    family.world.submit(&grandchild, says("late")).unwrap();
    assert_eq!(family.status(&grandchild), "cancelled");
    family.world.submit(&boss, says("late")).unwrap();
    assert_eq!(family.status(&boss), "cancelled");
    family.sweep();
    assert!(family.due().is_empty(), "{:?}", family.due());
    let (_, spent, held, reserved) = family.account(&boss);
    assert_eq!((held, reserved), (0, 0));
    assert!(spent > 0);
}

#[test]
fn a_kill_fences_all_that_lies_below() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let (child, grandchild, second) = spawn_three_levels(&mut family);
    family
        .world
        .service
        .signal(&boss, "k", &Signal::Kill)
        .unwrap();
    assert_eq!(family.status(&boss), "killed");
    assert_eq!(
        family.due().first(),
        Some(&(boss.clone(), true)),
        "its children are to be told"
    );
    family.sweep();
    for thread in [&child, &grandchild, &second] {
        assert_eq!(family.status(thread), "killed", "{thread}");
    }
    assert!(
        family.world.submit(&grandchild, says("late")).is_err(),
        "it is fenced"
    );
    let (_, spent, held, reserved) = family.account(&boss);
    assert_eq!((held, reserved), (0, 0), "charged or released");
    assert!(spent > 0);
    assert!(family.due().is_empty(), "{:?}", family.due());
}

#[test]
fn a_thread_ends_its_child_and_waits_for_it() {
    for (tool, status) in [("cancel_thread", "cancelled"), ("kill_thread", "killed")] {
        let mut family = ThreadFamily::new();
        let boss = family.boss.clone();
        let (child, grandchild, second) = spawn_three_levels(&mut family);
        let got = family.reply(
            &boss,
            &[
                (tool, json!({"thread": child})),
                (tool, json!({"thread": second})),
                ("wait_threads", json!({})),
            ],
        );
        assert_eq!((got.len(), got[0].1), (2, false), "{got:?}");
        assert_eq!(family.status(&boss), "waiting");
        family.sweep();
        assert_eq!(family.status(&second), status);
        if tool == "cancel_thread" {
            for thread in [&grandchild, &child] {
                assert_eq!(family.status(thread), "running");
                family.world.submit(thread, says("late")).unwrap();
            }
            family.sweep();
        }
        assert_eq!(
            (
                family.status(&child).as_str(),
                family.status(&grandchild).as_str()
            ),
            (status, status)
        );
        family.claim(&boss).unwrap();
        family.world.submit(&boss, says("good")).unwrap();
        assert_eq!(family.status(&boss), "completed");
        let got = family.account(&boss);
        assert_eq!((got.2, got.3), (0, 0));
    }
}

#[test]
fn ended_threads_get_no_messages() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = family.spawn_running("work");
    family.world.submit(&child, says("done")).unwrap();
    let before = family.load(&child);
    let got = family.reply(
        &boss,
        &[
            ("kill_thread", json!({"thread": child})),
            ("send_message", json!({"thread": child, "message": "x"})),
        ],
    );
    assert!(!got[0].1 && got[0].2.contains("completed"), "{got:?}");
    assert!(got[1].1 && got[1].2.contains("has ended"), "{got:?}");
    assert_eq!(family.load(&child).head, before.head);
}

#[test]
fn children_outlive_a_parent_that_ends_by_itself() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = family.spawn(json!({"directive": "work", "limits": {"spend": "0.02"}}));
    family.world.start(&child, None).unwrap();
    family.world.submit(&boss, says("bye")).unwrap();
    assert_eq!(family.status(&boss), "completed");
    assert_eq!(
        family.account(&boss).3,
        20_000_000,
        "its money stays reserved"
    );
    family.world.audit();
    let reply: StepOutcome = says("done");
    family.world.submit(&child, reply).unwrap();
    assert_eq!(family.account(&boss).3, 0);
    assert_eq!(
        family.account(&boss).1,
        family.load(&boss).head.value.counters.spend.get() + family.account(&child).1
    );
    family.world.audit();
}

#[test]
fn thread_with_a_pending_end_is_not_started() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = family.spawn(json!({"directive": "work"}));
    family.reply(&boss, &[("cancel_thread", json!({"thread": child}))]);
    let refused = family.world.start(&child, None).unwrap_err();
    assert!(
        format!("{refused:?}").contains("has ended it"),
        "{refused:?}"
    );
    family.sweep();
    assert_eq!(family.status(&child), "cancelled");
}

#[test]
fn a_cancel_of_what_has_ended_reaches_those_under_it() {
    for (signal, status) in [(Signal::Cancel, "running"), (Signal::Kill, "killed")] {
        let mut family = ThreadFamily::new();
        let boss = family.boss.clone();
        let child = family.spawn_running("work");
        family.world.submit(&boss, says("bye")).unwrap();
        assert_eq!(family.status(&boss), "completed");
        family.world.service.signal(&boss, "e", &signal).unwrap();
        family.sweep();
        assert_eq!(family.status(&child), status);
        if signal == Signal::Cancel {
            family.world.submit(&child, says("late")).unwrap();
            assert_eq!(family.status(&child), "cancelled");
        }
        assert_eq!(family.status(&boss), "completed");
        assert!(family.due().is_empty(), "{:?}", family.due());
        // Without children there is no thread to pass the end on to.
        let alone = family.world.create(Some("work"));
        family.world.start(&alone, None).unwrap();
        family.world.submit(&alone, says("done")).unwrap();
        assert!(family.world.service.signal(&alone, "e", &signal).is_err());
    }
}

#[test]
fn the_account_of_a_parent_that_has_ended_is_raised_for_those_who_draw_on_it() {
    let spend = |nanos| {
        crate::runner::fixture::raise(threadkeep_core::limits::ThreadCaps {
            spend: Some(threadkeep_core::money::NanoUsd::new(nanos)),
            ..threadkeep_core::limits::ThreadCaps::NONE
        })
    };
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = family.spawn(json!({"directive": "work"}));
    family.world.submit(&boss, says("bye")).unwrap();
    let spent = family.account(&boss).1;
    family
        .world
        .service
        .signal(&boss, "lower", &spend(spent))
        .unwrap();
    family.world.start(&child, None).unwrap();
    let cause = family.load(&child).head.value.cause.clone().unwrap();
    assert_eq!(cause.reason, "budget");
    family
        .world
        .service
        .signal(&boss, "raise", &spend(100_000_000))
        .unwrap();
    family.world.start(&child, None).unwrap();
    family.world.submit(&child, says("done")).unwrap();
    assert_eq!(family.status(&child), "completed");
    family.world.audit();
    // No thread draws on it any more.
    assert!(
        family
            .world
            .service
            .signal(&boss, "late", &spend(200_000_000))
            .is_err()
    );
}
