//! Answers by which a host decides without reading sentences, tool names or events.

use super::fixture::ThreadFamily;
use crate::runner::fixture::{calls, fails, raise, says};
use serde_json::{Value, json};
use threadkeep_component::service::{Error, ErrorKind};
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::plan::{DueCall, due_calls, is_revival};
use threadkeep_core::runner::{LlmFailure, StepOutcome};
use threadkeep_core::thread::{EndIntent, Head, StatusCause, ThreadStatus, raise_floor};

/// True if the step that the thread's newest answer hands out concerns others.
fn concerns_others(family: &ThreadFamily, thread: &str) -> bool {
    family.world.held[thread].handed.concerns_others
}

#[test]
fn a_step_says_whether_other_threads_are_concerned() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    assert!(!concerns_others(&family, &boss), "its own start");
    let child = family.spawn_running("work");
    assert!(concerns_others(&family, &boss), "a child was created");
    assert!(!concerns_others(&family, &child), "its own start");
    let thread = || json!({ "thread": child });
    let tell = json!({"thread": child, "message": "look again"});
    let nobody = json!({"thread": "nobody", "message": "look again"});
    let unknown = json!({"directive": "unknown"});
    let asked: [(&str, Value, bool); 7] = [
        ("thread_status", thread(), false),
        ("list_threads", json!({}), false),
        ("send_message", nobody, false),
        ("spawn_thread", unknown, false),
        ("send_message", tell, true),
        ("cancel_thread", thread(), true),
        ("kill_thread", thread(), true),
    ];
    for (tool, arguments, expected) in asked {
        let results = family.reply(&boss, &[(tool, arguments)]);
        assert_eq!(concerns_others(&family, &boss), expected, "{results:?}");
    }
    // The end of a run wakes the one that spawned it, which is no news beside the end.
    let other = family.spawn_running("work");
    family.world.submit(&other, says("done")).unwrap();
    assert_eq!(family.status(&other), "completed");
    assert!(!concerns_others(&family, &other));
    // What only speaks of a tool concerns nobody.
    let spoken = says("I will spawn_thread and send_message");
    let handed = family.world.submit(&boss, spoken).unwrap();
    assert!(!handed.concerns_others);
}

/// The effect of the repeated commit is not known any more: the answer errs towards a look at the
/// tree.
#[test]
fn a_repeated_submit_may_concern_others() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    family
        .world
        .submit(&boss, calls(&[("list_threads", "{}")]))
        .unwrap();
    let (submission, _) = family.world.held[&boss].last.clone().unwrap();
    let repeated = family.world.service.submit(&boss, &submission, 0).unwrap();
    assert!(repeated.concerns_others);
}

#[test]
fn a_due_thread_says_what_gets_it_going() {
    let mut family = ThreadFamily::new();
    let child = family.spawn(json!({"directive": "work"}));
    for (status, call, revive) in [
        (ThreadStatus::Created, DueCall::Start, false),
        (ThreadStatus::Running, DueCall::Claim, false),
        (ThreadStatus::Waiting, DueCall::Claim, false),
        (ThreadStatus::Suspended, DueCall::Start, true),
        (ThreadStatus::Idle, DueCall::Start, false),
    ] {
        let mut head = Head::clone(&family.load(&child).head.value);
        head.status = status;
        assert_eq!(due_calls(&head), [call], "{status}");
        assert_eq!(is_revival(&head), revive, "{status}");
    }
    // An ended one is resumed if it was sent a message to go on with, and only while that waits.
    let mut head = Head::clone(&family.load(&child).head.value);
    head.status = ThreadStatus::Completed;
    assert_eq!(due_calls(&head), []);
    head.mail_to += 1;
    assert_eq!(due_calls(&head), [DueCall::Resume]);
    head.sweep = Some(EndIntent::Kill);
    assert_eq!(due_calls(&head), [DueCall::Sweep, DueCall::Resume]);
    head.status = ThreadStatus::Continued;
    assert_eq!(due_calls(&head), [DueCall::Sweep]);
}

#[test]
fn a_cause_names_the_failure_and_the_wait() {
    for (kind, retry) in [("permanent", None), ("rate-limited", Some(3_600_000))] {
        let mut family = ThreadFamily::new();
        let boss = family.boss.clone();
        let failure = LlmFailure {
            code: "out_of_reach".to_owned(),
            retry,
            ..fails(kind, false)
        };
        let failed = StepOutcome::Failure(failure);
        family.world.submit(&boss, failed).unwrap();
        let cause = family.load(&boss).head.value.cause.clone().unwrap();
        assert_eq!(cause.retry_millis(), retry, "{cause:?}");
        let detail = cause.detail.unwrap();
        assert_eq!(detail.failure.as_deref(), Some("out_of_reach"));
    }
    let capped = StatusCause::with_bound("limit", "turns_exceeded", "", 3, 3);
    assert_eq!((capped.retry_millis(), capped.detail), (None, None));
}

#[test]
fn a_cause_says_what_the_cap_must_exceed() {
    let family = ThreadFamily::new();
    let suspended = |code: &str, value| {
        let mut head = Head::clone(&family.load(&family.boss).head.value);
        head.status = ThreadStatus::Suspended;
        head.counters.spend = NanoUsd::new(1_000);
        head.cause = Some(StatusCause {
            value,
            ..StatusCause::new("limit", code, "")
        });
        head
    };
    for (code, value, floor) in [
        ("turns_exceeded", Some(12), Some(12)),
        ("tokens_exceeded", Some(900), Some(900)),
        ("spawns_exceeded", Some(2), Some(2)),
        ("duration_exceeded", Some(5_000), Some(5_000)),
        ("depth_exceeded", Some(1), Some(0)),
        // 1,000 are spent, and a cap of 1,500 is just enough.
        ("spend_exceeded", Some(500), Some(1_499)),
        ("spend_exceeded", Some(u64::MAX), Some(u64::MAX - 1)),
        ("turns_exceeded", None, None),
        ("recovered", Some(3), None),
        ("provider_rate_limited", Some(3), None),
    ] {
        assert_eq!(raise_floor(&suspended(code, value)), floor, "{code}");
        let mut idle = suspended(code, value);
        idle.status = ThreadStatus::Idle;
        assert_eq!(raise_floor(&idle), None, "{code}: it is not suspended");
    }
}

#[test]
fn a_refused_raise_names_the_account_above() {
    let mut family = ThreadFamily::new();
    let limits = json!({"spend": "0.01"});
    let child = family.spawn(json!({"directive": "work", "limits": limits}));
    family.world.start(&child, None).unwrap();
    // All that the boss ever had, of which it has spent some.
    let caps = ThreadCaps {
        spend: Some(NanoUsd::new(100_000_000)),
        ..ThreadCaps::NONE
    };
    let refused = family.world.service.signal(&child, "raise", &raise(caps));
    let Err(ErrorKind::Core(CoreErrorKind::Exceeded(cause))) =
        refused.as_ref().map_err(Error::kind)
    else {
        panic!("{refused:?}")
    };
    assert_eq!(cause.code, "spend_exceeded");
    let account = cause.detail.as_ref().unwrap().account.clone();
    assert_eq!(account.as_deref(), Some(family.boss.as_str()));
}

#[test]
fn charges_of_unknown_cost_are_added_up() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let held = family.account(&boss);
    for _ in 0..2 {
        family.world.advance(1_000);
        let failed = StepOutcome::Failure(fails("transient", true));
        family.world.submit(&boss, failed).unwrap();
        if family.status(&boss) == "running" {
            family.world.advance(60_000);
            family.world.submit(&boss, StepOutcome::Waited).unwrap();
        }
    }
    let service = &family.world.service;
    let (all, cursor) = service.charges(&boss, 0).unwrap();
    let spent = family.load(&boss).head.value.counters.spend;
    assert_eq!((all.calls, all.spend, cursor), (2, spent, None));
    assert!(all.most > all.spend, "{all:?} {held:?}");
    let newest = family.load(&boss).head.value.version;
    let (none, _) = service.charges(&boss, newest).unwrap();
    assert_eq!((none.calls, none.spend.get()), (0, 0));
    assert!(service.charges(&boss, newest + 1).is_err());
}
