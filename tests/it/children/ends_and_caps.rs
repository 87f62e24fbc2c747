//! An end that passes through a top that has ended, reserves under a lowered policy, and caps that
//! are raised.

use super::fixture::{FillableStore, ThreadFamily};
use crate::runner::fixture::{RunnerFixture, calls, raise, says};
use serde_json::json;
use std::sync::Arc;
use threadkeep_component::ports::StorageError;
use threadkeep_component::service::{Error, ErrorKind};
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::Signal;
use threadkeep_core::thread::StepKind;
use threadkeep_tests::fixture::MapLibrary;

/// Symptom: on a full store no thread below an ended top could be ended. Cause: a kill of an ended
/// thread only passes the kill on, and was not counted as an end. Fix: it may use the margin, once
/// for each kind of end.
#[test]
fn an_end_passes_through_an_ended_top_on_a_full_store() {
    let store = Arc::new(FillableStore::new());
    let mut family = ThreadFamily::over(Arc::<FillableStore>::clone(&store));
    let boss = family.boss.clone();
    let child = family.spawn_running("work");
    family.world.submit(&boss, says("done")).unwrap();
    assert_eq!(family.status(&boss), "completed");
    store.fill();
    let service = &family.world.service;
    let end = |name: &str, signal| service.signal(&boss, name, &signal);
    end("c", Signal::Cancel).unwrap();
    end("k", Signal::Kill).unwrap();
    for (name, signal) in [("c2", Signal::Cancel), ("k2", Signal::Kill)] {
        let again = end(name, signal);
        let full = matches!(
            again.as_ref().map_err(Error::kind),
            Err(ErrorKind::Storage(StorageError::QuotaExceeded(..)))
        );
        assert!(full, "a repeated one does not fill the margin: {again:?}");
    }
    assert_eq!(service.sweep_page(&boss, None).unwrap().cursor, None);
    assert_eq!(family.status(&child), "killed");
    family.world.audit();
}

/// Symptom: a child got a reserve that the operator no longer allowed its parent to spend. Cause:
/// the policy bounded attempts and not reserves. Fix: it bounds both, and the money that a raise
/// adds. Kind: all of the money, the rest of it, and a raise.
#[test]
fn reserves_respect_a_policy_that_was_lowered() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let spawn = |spend: &str, clamp: bool| {
        json!({"directive": "work", "limits": {"spend": spend},
        "clamp": clamp})
    };
    let first = family.spawn(spawn("0.02", false));
    let policy = r#"{"limits": {"spend": "0.03"}}"#;
    let library = MapLibrary::small().with("settings", "policy", policy);
    let mut world = RunnerFixture::over(Arc::clone(&family.world.store), library);
    world.held = family.world.held.clone();
    family.world = world;
    let got = family.reply(&boss, &[("spawn_thread", spawn("0.02", false))]);
    assert!(got[0].1 && got[0].2.contains("are left"), "{got:?}");
    let more = raise(ThreadCaps {
        spend: Some(NanoUsd::new(30_000_000)),
        ..ThreadCaps::NONE
    });
    let raised = family.world.service.signal(&first, "more", &more);
    assert!(raised.is_err(), "{raised:?}");
    family.spawn(spawn("0.02", true));
    let (_, spent, held, reserved) = family.account(&boss);
    assert!(
        spent + held + reserved <= 30_000_000,
        "{spent} {held} {reserved}"
    );
    family.world.audit();
}

/// Symptom: only the command line resumed a thread whose cap was raised, because a person asked it
/// to. Fix: a raise of the cap that suspended a thread makes it due, from whichever caller the
/// raise comes.
#[test]
fn a_raise_of_the_cap_that_suspended_a_thread_makes_it_due() {
    let mut family = ThreadFamily::new();
    let turns = family.spawn(json!({"directive": "work", "limits": {"turns": 1}}));
    let poor = family.spawn(json!({"directive": "work", "limits": {"spend": "0.0005"}}));
    for child in [&turns, &poor] {
        family.world.start(child, None).unwrap();
        if family.status(child) == "running" {
            family
                .world
                .submit(child, calls(&[("none", "{}")]))
                .unwrap();
        }
        assert_eq!(family.status(child), "suspended", "{child}");
    }
    let caps = |caps| raise(caps);
    let (one, two) = (Some(1), Some(2));
    let tokens = ThreadCaps {
        tokens: Some(9_000_000),
        ..ThreadCaps::NONE
    };
    let same = ThreadCaps {
        turns: one,
        ..ThreadCaps::NONE
    };
    let more = ThreadCaps {
        turns: two,
        ..ThreadCaps::NONE
    };
    let money = ThreadCaps {
        spend: Some(NanoUsd::new(9_000_000)),
        ..ThreadCaps::NONE
    };
    for (child, name, limits, due) in [
        (&turns, "tokens", tokens, false),
        (&turns, "same", same, false),
        (&turns, "more", more, true),
        (&poor, "turns", more, false),
        (&poor, "money", money, true),
    ] {
        family
            .world
            .service
            .signal(child, name, &caps(limits))
            .unwrap();
        let is_due = family.due().iter().any(|(thread, _)| thread == child);
        assert_eq!(is_due, due, "{name}");
        family.world.audit();
    }
    for child in [&turns, &poor] {
        let handed = family.world.start(child, None).unwrap();
        assert_eq!(handed.step.kind, Some(StepKind::CallLlm), "{child}");
    }
}
