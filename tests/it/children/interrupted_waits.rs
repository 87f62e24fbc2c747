//! Which suspensions of a child answer a wait for it, and how a parent and its children go on
//! together.
//!
//! The kind of fault: a parent ends without the results of children that the tree's driver would
//! have resumed.

use super::fixture::ThreadFamily;
use crate::runner::fixture::{fails, raise, reply, says, usage};
use serde_json::{Value, json};
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::{ReplyBlock, StepOutcome};
use threadkeep_core::thread::StepKind;

const WAIT: &str = "wait_threads";
/// Most calls in which a thread spends what it has.
const CALLS_MAX: usize = 200;

/// Spawns a child of the boss whose first step is pending, under a holder of its own.
fn start_child(family: &mut ThreadFamily) -> String {
    family.world.count("children");
    family.spawn_running("work")
}

/// Ends a thread's run as the death of its holder does, or as a stopped driver does.
fn interrupt(family: &mut ThreadFamily, thread: &str, code: &str) {
    match code {
        "recovered" => {
            let holder = family.load(thread).head.value.holder.clone().unwrap();
            let recovery = family.world.service.recover(&[holder], None).unwrap();
            assert_eq!(recovery.closed, [thread]);
        }
        _ => {
            let stopped = StepOutcome::Stopped(fails("stopped", true));
            family.world.submit(thread, stopped).unwrap();
        }
    }
    let cause = family.load(thread).head.value.cause.clone().unwrap();
    assert_eq!(cause.code, code);
}

/// A tool call for which the provider reports this many tokens.
fn costly_call(tokens: u64) -> StepOutcome {
    let block = ReplyBlock::ToolUse {
        id: "x".to_owned(),
        name: "read".to_owned(),
        arguments: "{}".to_owned(),
        raw: None,
    };
    reply(vec![block], usage(tokens, 0))
}

/// Lets a thread spend all that the account of `payer` has left, and suspend for want of more. A
/// report is believed up to a bound, so that it takes several calls.
fn spend_all(family: &mut ThreadFamily, thread: &str, payer: &str) {
    for _ in 0..CALLS_MAX {
        let left = remaining_money(family, payer);
        family
            .world
            .submit(thread, costly_call(left / 1_000))
            .unwrap();
        let outcomes = family.world.outcomes(thread);
        family.world.submit(thread, outcomes).unwrap();
        if let Some(cause) = &family.load(thread).head.value.cause {
            assert_eq!(cause.code, "spend_exceeded", "{cause:?}");
            return;
        }
    }
    panic!("{thread} has money left after {CALLS_MAX} calls");
}

fn remaining_money(family: &ThreadFamily, thread: &str) -> u64 {
    let (limit, spent, held, reserved) = family.account(thread);
    limit - spent - held - reserved
}

fn more_money(family: &ThreadFamily, thread: &str, name: &str, nanos: u64) {
    let caps = ThreadCaps {
        spend: Some(NanoUsd::new(nanos)),
        ..ThreadCaps::NONE
    };
    family
        .world
        .service
        .signal(thread, name, &raise(caps))
        .unwrap();
}

/// Status of each child in the answer of a thread's wait, from its newest entry.
fn answered_statuses(family: &ThreadFamily, thread: &str) -> Vec<String> {
    let results = family.results(thread);
    let wait = results.iter().find(|result| result.0 == WAIT);
    let told: Value = serde_json::from_str(&wait.expect("the wait has a result").2).unwrap();
    let threads = told["threads"].as_array().unwrap();
    let status = |child: &Value| child["status"].as_str().unwrap().to_owned();
    threads.iter().map(status).collect()
}

/// Symptom: a parent that waited for two children was told that one is suspended, and ended without
/// its result. Cause: a `recover` of a child in a live tree answered the wait, and so did a driver
/// that was stopped in order. Fix: they do not, and `ready` names the child.
#[test]
fn a_child_that_was_interrupted_is_revived_and_answers_no_wait() {
    for code in ["recovered", "stopped"] {
        let mut family = ThreadFamily::new();
        let boss = family.boss.clone();
        let (one, two) = (start_child(&mut family), start_child(&mut family));
        family.reply(&boss, &[(WAIT, json!({}))]);
        interrupt(&mut family, &one, code);
        assert_eq!(family.due(), [(one.clone(), false)], "{code}");
        family.world.submit(&two, says("second")).unwrap();
        assert_eq!(family.status(&boss), "waiting", "{code}");
        assert_eq!(family.due(), [(one.clone(), false)], "{code}");
        family.world.start(&one, None).unwrap();
        assert!(family.due().is_empty(), "{code}: {:?}", family.due());
        family.world.submit(&one, says("first")).unwrap();
        family.claim(&boss).unwrap();
        assert_eq!(
            answered_statuses(&family, &boss),
            ["completed", "completed"]
        );
        family.world.audit();
    }
}

/// Symptom: the same where the wait came after the suspension.
#[test]
fn a_wait_for_a_child_that_was_interrupted_before_it_waits() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = start_child(&mut family);
    interrupt(&mut family, &child, "recovered");
    let got = family.reply(&boss, &[(WAIT, json!({}))]);
    assert!(got.is_empty(), "{got:?}");
    assert_eq!(family.status(&boss), "waiting");
    assert_eq!(family.due(), [(child.clone(), false)]);
    family.world.start(&child, None).unwrap();
    family.world.submit(&child, says("done")).unwrap();
    family.claim(&boss).unwrap();
    assert_eq!(answered_statuses(&family, &boss), ["completed"]);
}

/// A top thread without a request is not started because it was interrupted.
#[test]
fn the_top_of_a_tree_is_not_revived() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    interrupt(&mut family, &boss, "recovered");
    assert!(family.due().is_empty(), "{:?}", family.due());
}

/// Symptom: shared money ran out, the parent was told that its children are suspended, and ended
/// without their results after the raise. Fix: it is suspended with them, its wait open, and all of
/// them go on.
#[test]
fn a_parent_is_suspended_with_children_that_share_its_money_and_goes_on_with_them() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let (one, two) = (start_child(&mut family), start_child(&mut family));
    family.reply(&boss, &[(WAIT, json!({}))]);
    family.world.submit(&two, says("second")).unwrap();
    spend_all(&mut family, &one, &boss);
    // Nothing moves any more and nothing can be revived, so the tree is checked.
    assert_eq!(family.due(), [(boss.clone(), false)]);
    family.claim(&boss).unwrap();
    let head = family.load(&boss).head.value;
    let cause = head.cause.clone().unwrap();
    assert_eq!(
        (head.status.as_str(), cause.code.as_str()),
        ("suspended", "spend_exceeded")
    );
    assert!(cause.message.contains(&one), "{}", cause.message);
    assert!(family.due().is_empty(), "{:?}", family.due());
    family.world.audit();
    // Without money they suspend again, and nothing is lost.
    family.world.start(&boss, None).unwrap();
    assert_eq!(family.status(&boss), "waiting");
    assert_eq!(family.due(), [(boss.clone(), false)]);
    family.claim(&boss).unwrap();
    assert_eq!(family.status(&boss), "suspended");
    more_money(&family, &boss, "more", 1_000_000_000);
    let due = [(one.clone(), false), (boss.clone(), false)];
    assert_eq!(
        family.due(),
        due,
        "the raise lets both go on, the child first"
    );
    family.world.start(&boss, None).unwrap();
    family.world.start(&one, None).unwrap();
    family.world.submit(&one, says("first")).unwrap();
    family.claim(&boss).unwrap();
    assert_eq!(
        answered_statuses(&family, &boss),
        ["completed", "completed"]
    );
    family.world.submit(&boss, says("all done")).unwrap();
    assert_eq!(family.status(&boss), "completed");
    family.world.audit();
}

/// Same kind: a child that is resumed by itself answers the wait of a parent that was suspended
/// with it, and the parent is due.
#[test]
fn the_end_of_its_child_wakes_a_parent_that_was_suspended_with_it() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = start_child(&mut family);
    family.reply(&boss, &[(WAIT, json!({}))]);
    spend_all(&mut family, &child, &boss);
    family.claim(&boss).unwrap();
    assert_eq!(family.status(&boss), "suspended");
    more_money(&family, &boss, "more", 1_000_000_000);
    family.world.start(&child, None).unwrap();
    family.world.submit(&child, says("done")).unwrap();
    assert_eq!(family.due(), [(boss.clone(), false)]);
    family.world.start(&boss, None).unwrap();
    assert_eq!(answered_statuses(&family, &boss), ["completed"]);
    family.world.audit();
}

/// A child whose own money is spent needs a person, so its suspension answers the wait, as before.
#[test]
fn money_of_its_own_that_is_spent_answers_the_wait() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let arguments = json!({"directive": "work", "limits": {"spend": "0.01"}});
    let child = family.spawn(arguments);
    family.world.start(&child, None).unwrap();
    family.reply(&boss, &[(WAIT, json!({}))]);
    spend_all(&mut family, &child, &child);
    family.claim(&boss).unwrap();
    assert_eq!(answered_statuses(&family, &boss), ["suspended"]);
}

/// A child at its own cap of turns needs a person, even if its driver was stopped as well.
#[test]
fn a_cap_of_the_childs_own_answers_the_wait_whatever_else_stopped_it() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = family.spawn(json!({"directive": "work", "limits": {"turns": 1}}));
    family.world.start(&child, None).unwrap();
    family.reply(&boss, &[(WAIT, json!({}))]);
    family.world.submit(&child, costly_call(100)).unwrap();
    interrupt(&mut family, &child, "stopped");
    family.claim(&boss).unwrap();
    assert_eq!(answered_statuses(&family, &boss), ["suspended"]);
    assert!(!family.due().iter().any(|(due, _)| *due == child));
}

/// Symptom: all processes died over night, and in the morning each wait was answered with "timed
/// out" before its children went on. Cause: the time in which no process ran counted. Fix: a wait
/// whose deadline passed without a driver has its time again.
#[test]
fn wait_that_expired_without_a_driver_restarts() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = start_child(&mut family);
    family.reply(&boss, &[(WAIT, json!({"timeout": 60}))]);
    family.world.advance(36_000_000);
    interrupt(&mut family, &child, "recovered");
    family.world.start(&child, None).unwrap();
    family.claim(&boss).unwrap();
    assert_eq!(family.status(&boss), "waiting");
    family.world.audit();
    family.world.advance(59_000);
    assert!(family.due().is_empty(), "{:?}", family.due());
    family.world.submit(&child, says("done")).unwrap();
    let handed = family.claim(&boss).unwrap();
    assert_eq!(handed.step.kind, Some(StepKind::CallLlm));
    assert_eq!(answered_statuses(&family, &boss), ["completed"]);
}

/// Symptom: a tree waited until the deadline of its wait, though nothing moved. Cause: the end of
/// one child that left only children without money did not wake the parent.
#[test]
fn last_end_beside_a_child_without_money_wakes_the_parent() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let (one, two) = (start_child(&mut family), start_child(&mut family));
    family.reply(&boss, &[(WAIT, json!({}))]);
    spend_all(&mut family, &one, &boss);
    family.claim(&boss).unwrap();
    assert_eq!(family.status(&boss), "waiting", "the other one moves");
    assert!(family.due().is_empty(), "{:?}", family.due());
    family.world.submit(&two, says("second")).unwrap();
    assert_eq!(family.due(), [(boss.clone(), false)]);
    family.claim(&boss).unwrap();
    assert_eq!(family.status(&boss), "suspended");
    family.world.audit();
}
