//! A thread that was suspended in the middle of a wait keeps its wait through later changes.

use super::fixture::ThreadFamily;
use crate::runner::fixture::{calls, says};
use serde_json::json;
use threadkeep_core::thread::StepKind;

/// Builds a boss that waits for a running child and was recovered while another call of the same
/// reply was under way.
fn suspend_in_wait(family: &mut ThreadFamily) -> String {
    let boss = family.boss.clone();
    // The child gets another holder than the boss.
    family.world.count("child");
    let child = family.spawn_running("work");
    let called = calls(&[("write", "{}"), ("wait_threads", "{}")]);
    let handed = family.world.submit(&boss, called).unwrap();
    assert_eq!(handed.step.kind, Some(StepKind::CallTools));
    let holder = family.load(&boss).head.value.holder.clone().unwrap();
    let service = &family.world.service;
    assert_eq!(service.recover(&[holder], None).unwrap().closed, [&*boss]);
    child
}

/// Symptom: an append to such a thread turned its wait into a call of a host tool, and the host has
/// none of that name. Cause: the open calls were written again without their kind. Fix: a wait
/// stays a wait. Kind: an append without a token, and an external loop beside it.
#[test]
fn an_append_keeps_an_open_wait() {
    let event = json!({
        "type": "message", "role": "assistant", "content": "(a note)", "synthetic": true,
    });
    for own_loop in [false, true] {
        let mut family = ThreadFamily::new();
        let child = suspend_in_wait(&mut family);
        let boss = family.boss.clone();
        let service = &family.world.service;
        let deadline =
            threadkeep_component::ports::HostPorts::now(service.ports()).plus_millis(60_000);
        let token = own_loop.then(|| {
            let opened = service.open(&boss, "own/1", deadline).unwrap();
            opened.head.value.token
        });
        let version = family.load(&boss).head.value.version;
        let appended = service.append(&boss, token, Some(version), &[event.to_string()]);
        appended.unwrap();
        let open = family.load(&boss).head.value.round.clone().unwrap();
        assert!(open.calls.iter().all(|call| call.waits), "{open:?}");
        if own_loop {
            continue;
        }
        let handed = family.world.start(&boss, None).unwrap();
        assert_eq!(handed.step.kind, None);
        assert_eq!(family.status(&boss), "waiting");
        family.world.submit(&child, says("done")).unwrap();
        family.claim(&boss).unwrap();
        assert!(family.results(&boss)[0].2.contains("completed"));
        family.world.audit();
    }
}
