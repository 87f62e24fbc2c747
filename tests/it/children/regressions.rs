//! One test for each bug that was found in child threads: symptom, cause, fix.

use super::fixture::ThreadFamily;
use crate::runner::fixture::{RunnerFixture, calls, fails, raise, says};
use serde_json::json;
use std::sync::Arc;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::runner::{DecisionInputs, Signal, StepOutcome, StepSubmission};
use threadkeep_core::thread::StepKind;
use threadkeep_tests::fixture::MapLibrary;
use threadkeep_tests::interleaved_store::InterleavedStore;

/// Symptom: a tree was killed, and some of its threads went on. Cause: a sweep of more than a page
/// that had begun as a cancel went on as a kill, and the threads of earlier pages never got the
/// kill. Fix: the cursor records which intent was passed on.
#[test]
fn a_kill_that_comes_between_two_pages_of_a_cancel_reaches_all() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let spawn = ("spawn_thread", json!({"directive": "work"}));
    let caps = ThreadCaps {
        spawns: Some(100),
        ..ThreadCaps::NONE
    };
    let more = raise(caps);
    family.world.service.signal(&boss, "more", &more).unwrap();
    for _ in 0..4 {
        let got = family.reply(&boss, &vec![spawn.clone(); 13]);
        assert!(got.iter().all(|got| !got.1), "{got:?}");
    }
    let children: Vec<String> = family.due().into_iter().map(|due| due.0).collect();
    let more = family.world.service.ready(100, None, None).unwrap();
    let more = more.threads;
    assert_eq!(
        (children.len(), more.len()),
        (52, 52),
        "more than a page of a sweep"
    );
    for due in more {
        family
            .world
            .start(&due.loaded.thread.value.id, None)
            .unwrap();
    }
    let signal = |name: &str, signal| family.world.service.signal(&boss, name, &signal).unwrap();
    signal("cancel", Signal::Cancel);
    let page = family.world.service.sweep_page(&boss, None).unwrap().cursor;
    assert!(page.is_some(), "there is another page");
    signal("kill", Signal::Kill);
    let mut cursor = page;
    for _ in 0..3 {
        cursor = family
            .world
            .service
            .sweep_page(&boss, cursor)
            .unwrap()
            .cursor;
        if cursor.is_none() {
            break;
        }
    }
    let page = family.world.service.tree_page(&boss, None).unwrap();
    assert!(page.cursor.is_some());
    for (branch, _) in page.branches {
        let (id, status) = (&branch.thread.value.id, branch.head.value.status);
        assert_eq!(status.as_str(), "killed", "{id}");
    }
    let other = family
        .world
        .service
        .sweep_page(&boss, Some("kill x".to_owned()));
    assert!(
        other.is_ok_and(|page| page.cursor.is_none()),
        "nothing is left to tell"
    );
}

/// Symptom: a tree was cancelled, and a grandchild went on and spent. Cause: its own parent had
/// ended before it, and the sweep left out ended threads. Fix: the intent passes through an ended
/// thread.
#[test]
fn a_cancel_passes_through_a_thread_that_has_ended() {
    for (signal, status) in [(Signal::Cancel, "cancelled"), (Signal::Kill, "killed")] {
        let mut family = ThreadFamily::new();
        let boss = family.boss.clone();
        let child = family.spawn(json!({"directive": "boss", "limits": {"spend": "0.02"}}));
        family.world.start(&child, None).unwrap();
        let grandchild = family.spawn_under(
            &child,
            json!({"directive": "boss", "limits": {"spend": "0.01"}}),
        );
        family.world.start(&grandchild, None).unwrap();
        let last = family.spawn_under(&grandchild, json!({"directive": "work"}));
        for thread in [&grandchild, &child] {
            family.world.submit(thread, says("bye")).unwrap();
        }
        family.world.service.signal(&boss, "end", &signal).unwrap();
        family.sweep();
        for (thread, expected) in [
            (&child, "completed"),
            (&grandchild, "completed"),
            (&last, status),
        ] {
            assert_eq!(family.status(thread), expected, "{thread}");
        }
        if status == "cancelled" {
            family.world.submit(&boss, says("late")).unwrap();
            family.sweep();
        }
        assert!(family.due().is_empty(), "{:?}", family.due());
        let got = family.account(&boss);
        assert_eq!((got.2, got.3), (0, 0));
    }
}

/// Symptom: a parent waited until the deadline for a child that had ended. Cause: the end of a
/// child replaced the head of a parent that ran or waited, but not of one that was suspended in the
/// middle of a wait. A resume at that moment decided with the child's older state. Fix: that head
/// is replaced, too.
#[test]
fn an_end_that_meets_the_resume_of_a_wait_is_not_missed() {
    let memory = Arc::new(MemoryStore::new());
    let between = Arc::new(InterleavedStore::new(Arc::<MemoryStore>::clone(&memory)));
    let store = Arc::<InterleavedStore>::clone(&between);
    let mut family = ThreadFamily::over(store);
    let boss = family.boss.clone();
    let child = family.spawn_running("work");
    let handed = family
        .world
        .submit(&boss, calls(&[("wait_threads", "{}"), ("write", "{}")]));
    assert_eq!(handed.unwrap().step.kind, Some(StepKind::CallTools));
    let stopped = StepOutcome::Stopped(fails("stopped", true));
    family.world.submit(&boss, stopped).unwrap();
    assert_eq!(family.status(&boss), "suspended");
    let held = family.world.held[&child].clone();
    let (ends, version) = (child.clone(), held.handed.step.version);
    between.before_commit(move || {
        let submission = StepSubmission {
            token: held.token,
            version,
            outcome: says("done"),
            inputs: DecisionInputs::default(),
        };
        let other = RunnerFixture::over(memory, MapLibrary::small());
        other.service.submit(&ends, &submission, version).unwrap();
    });
    let handed = family.world.start(&boss, None).unwrap();
    assert_eq!(family.status(&child), "completed");
    assert_eq!(
        handed.step.kind,
        Some(StepKind::CallLlm),
        "the wait is over"
    );
    family.world.audit();
}
