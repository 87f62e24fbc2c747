//! A parent waits for its children without a lease, and misses no end of a child.

use super::fixture::{ThreadFamily, ToolCallResult};
use crate::runner::fixture::{calls, says};
use serde_json::{Value, json};
use threadkeep_core::runner::StepOutcome;
use threadkeep_core::thread::StepKind;

const WAIT: &str = "wait_threads";

fn wait_answer(got: &[ToolCallResult]) -> Value {
    let wait = got
        .iter()
        .find(|got| got.0 == WAIT)
        .expect("the wait has a result");
    assert!(!wait.1, "{got:?}");
    serde_json::from_str(&wait.2).unwrap()
}

fn statuses(told: &Value) -> Vec<&str> {
    let threads = told["threads"].as_array().unwrap();
    threads
        .iter()
        .map(|thread| thread["status"].as_str().unwrap())
        .collect()
}

#[test]
fn waiting_thread_has_no_holder_until_its_children_stop() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let (one, two) = (family.spawn_running("work"), family.spawn_running("work"));
    let got = family.reply(&boss, &[(WAIT, json!({"threads": [one, two]}))]);
    assert!(got.is_empty(), "{got:?}");
    let head = family.load(&boss).head.value;
    assert_eq!(
        (
            family.status(&boss).as_str(),
            head.holder.clone(),
            head.hold
        ),
        ("waiting", None, None)
    );
    assert_eq!(head.wait.clone().unwrap().numbers, [1, 2]);
    assert!(family.due().is_empty(), "{:?}", family.due());
    family.world.submit(&one, says("first")).unwrap();
    assert!(family.due().is_empty(), "one is not all");
    family.world.submit(&two, says("second")).unwrap();
    assert_eq!(family.due(), [(boss.clone(), false)]);
    let handed = family.claim(&boss).unwrap();
    assert_eq!(handed.step.kind, Some(StepKind::CallLlm));
    let told = wait_answer(&family.results(&boss));
    assert_eq!(statuses(&told), ["completed", "completed"]);
    assert_eq!(told["threads"][1]["result"], "second");
    assert_eq!(told["timed_out"], false);
    family.world.submit(&boss, says("all done")).unwrap();
    assert_eq!(family.status(&boss), "completed");
    family.world.audit();
}

#[test]
fn a_wait_that_has_nothing_to_wait_for_is_answered_at_once() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = family.spawn_running("work");
    family.world.submit(&child, says("done")).unwrap();
    let got = family.reply(&boss, &[(WAIT, json!({}))]);
    assert_eq!(statuses(&wait_answer(&got)), ["completed"]);
    assert_eq!(family.status(&boss), "running");
}

#[test]
fn a_wait_for_all_counts_those_of_the_same_reply() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let got = family.reply(
        &boss,
        &[
            (WAIT, json!({})),
            ("spawn_thread", json!({"directive": "work"})),
        ],
    );
    assert_eq!(got.len(), 1, "{got:?}");
    assert_eq!(family.status(&boss), "waiting");
    let (child, _) = family.due().remove(0);
    family.world.start(&child, None).unwrap();
    family.world.submit(&child, says("done")).unwrap();
    family.claim(&boss).unwrap();
    assert_eq!(
        statuses(&wait_answer(&family.results(&boss))),
        ["completed"]
    );
    family.world.audit();
}

#[test]
fn any_is_satisfied_by_the_first_and_a_suspension_is_a_result() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let one = family.spawn_running("work");
    let poor = family.spawn(json!({"directive": "work", "limits": {"spend": "0"}}));
    family.reply(
        &boss,
        &[(WAIT, json!({"threads": [one, poor], "any": true}))],
    );
    assert_eq!(family.status(&boss), "waiting");
    family.world.start(&poor, None).unwrap();
    assert_eq!(family.status(&poor), "suspended");
    family.claim(&boss).unwrap();
    let told = wait_answer(&family.results(&boss));
    assert_eq!(statuses(&told), ["running", "suspended"]);
    let cause = told["threads"][1]["cause"].as_str().unwrap();
    assert!(cause.starts_with("spend_exceeded"), "{cause}");
}

#[test]
fn a_wait_ends_at_its_deadline() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = family.spawn_running("work");
    family.reply(&boss, &[(WAIT, json!({"threads": [child], "timeout": 60}))]);
    family.world.advance(59_000);
    assert!(family.due().is_empty());
    let before = family.load(&boss);
    let early = family.claim(&boss).unwrap();
    assert_eq!(
        (early.step.kind, family.status(&boss).as_str()),
        (None, "waiting")
    );
    assert_eq!(
        family.load(&boss),
        before,
        "a look too early writes nothing"
    );
    family.world.advance(1_000);
    assert_eq!(family.due(), [(boss.clone(), false)]);
    family.claim(&boss).unwrap();
    let told = wait_answer(&family.results(&boss));
    assert_eq!(
        (statuses(&told), told["timed_out"].as_bool()),
        (vec!["running"], Some(true))
    );
    assert_eq!(
        family.load(&boss).head.value.counters.duration,
        0,
        "waiting is not work"
    );
}

#[test]
fn a_wait_comes_after_the_calls_outside() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = family.spawn_running("work");
    let reply = calls(&[(WAIT, "{}"), ("read", "{}")]);
    let handed = family.world.submit(&boss, reply).unwrap();
    assert_eq!(
        (handed.step.kind, handed.step.calls.len()),
        (Some(StepKind::CallTools), 1)
    );
    let outcomes = family.world.outcomes(&boss);
    family.world.submit(&boss, outcomes).unwrap();
    assert_eq!(family.status(&boss), "waiting");
    family.world.submit(&child, says("done")).unwrap();
    family.claim(&boss).unwrap();
    assert_eq!(
        statuses(&wait_answer(&family.results(&boss))),
        ["completed"]
    );
    family.world.audit();
}

#[test]
fn impossible_wait_gets_a_result() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let other = family.world.create(Some("work"));
    let child = family.spawn(json!({"directive": "boss", "limits": {"spend": "0.02"}}));
    family.world.start(&child, None).unwrap();
    let grandchild = family.spawn_under(&child, json!({"directive": "work"}));
    for (arguments, part) in [
        (json!({"threads": [other]}), "child thread"),
        (json!({"threads": [boss]}), "child thread"),
        (json!({"threads": [grandchild]}), "child thread"),
        (json!({"threads": ["no-such-thread"]}), "child thread"),
        (json!({"threads": ["../x"]}), "threads"),
        (json!({"threads": []}), "wait_threads.threads"),
        (
            json!({"threads": [child], "timeout": 0}),
            "wait_threads.timeout",
        ),
    ] {
        let got = family.reply(&boss, &[(WAIT, arguments.clone())]);
        assert_eq!((got.len(), got[0].1), (1, true), "{arguments}: {got:?}");
        assert!(got[0].2.contains(part), "{arguments}: {got:?}");
        assert!(!got[0].2.contains("did you mean"), "{arguments}: {got:?}");
    }
    let two = family.reply(&boss, &[(WAIT, json!({})), (WAIT, json!({}))]);
    assert_eq!((two.len(), two[0].1), (1, true), "{two:?}");
    assert_eq!(family.status(&boss), "waiting");
}

#[test]
fn a_thread_that_has_spawned_nothing_has_nothing_to_wait_for() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let got = family.reply(&boss, &[(WAIT, json!({}))]);
    assert_eq!(wait_answer(&got)["threads"], json!([]));
}

/// Guards against a parent that waits for ever: the child ends between the parent's read of it and
/// the commit of the wait.
#[test]
fn an_end_that_meets_the_wait_is_not_missed() {
    for first in ["wait", "end"] {
        let mut family = ThreadFamily::new();
        let boss = family.boss.clone();
        let child = family.spawn_running("work");
        let wait = calls(&[(WAIT, "{}")]);
        let racer: (&str, StepOutcome) = match first {
            "wait" => (&boss, wait),
            _ => (&child, says("done")),
        };
        let other: (&str, StepOutcome) = match first {
            "wait" => (&child, says("done")),
            _ => (&boss, calls(&[(WAIT, "{}")])),
        };
        // The second committer decides with the first one's records: both orders end well.
        family.world.submit(racer.0, racer.1).unwrap();
        family.world.submit(other.0, other.1).unwrap();
        if family.status(&boss) == "waiting" {
            assert_eq!(family.due(), [(boss.clone(), false)]);
            family.claim(&boss).unwrap();
        }
        assert_eq!(
            statuses(&wait_answer(&family.results(&boss))),
            ["completed"]
        );
    }
}

#[test]
fn a_message_waits_until_the_wait_is_over() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = family.spawn_running("work");
    family.reply(&boss, &[(WAIT, json!({}))]);
    let message =
        threadkeep_core::history::parse_user(&crate::runner::fixture::user("hello")).unwrap();
    let message = threadkeep_core::runner::Signal::Message(message);
    family.world.service.signal(&boss, "m", &message).unwrap();
    assert!(family.due().is_empty(), "it is no reason to look");
    family.world.submit(&child, says("done")).unwrap();
    family.claim(&boss).unwrap();
    assert_eq!(
        family.load(&boss).head.value.mail_count(),
        0,
        "taken with the results"
    );
    family.world.audit();
}

#[test]
fn a_wait_tells_of_every_child_whatever_their_results_are() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    for text in ["\"".repeat(4_000), "\u{1}".repeat(4_000)] {
        let spawn = ("spawn_thread", json!({"directive": "work"}));
        let mut children = family.reply(&boss, &vec![spawn.clone(); 16]);
        children.extend(family.reply(&boss, &vec![spawn; 16]));
        assert!(children.iter().all(|got| !got.1), "{children:?}");
        for (_, _, text_of) in &children {
            let told: Value = serde_json::from_str(text_of).unwrap();
            let child = told["thread"].as_str().unwrap().to_owned();
            family.world.start(&child, None).unwrap();
            family.world.submit(&child, says(&text)).unwrap();
        }
        let got = family.reply(&boss, &[(WAIT, json!({}))]);
        let told = wait_answer(&got);
        assert_eq!(statuses(&told), ["completed"; 32]);
        let raise = threadkeep_core::limits::ThreadCaps {
            spawns: Some(100),
            ..threadkeep_core::limits::ThreadCaps::NONE
        };
        let raise = crate::runner::fixture::raise(raise);
        family.world.service.signal(&boss, "more", &raise).unwrap();
    }
}
