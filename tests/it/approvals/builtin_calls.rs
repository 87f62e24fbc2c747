//! Calls of the built-in tools that need consent, and what children inherit.

use super::fixture::{
    answer, approve, assert_asks, begin, code, deny, due, newest_results, waiting,
    world_with_policy,
};
use crate::runner::fixture::{RunnerFixture, calls, says};
use serde_json::json;
use std::sync::Arc;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_core::runner::{HolderProof, StepOutcome};
use threadkeep_core::thread::StepKind;
use threadkeep_tests::fixture::MapLibrary;

const SPAWN: (&str, &str) = ("spawn_thread", r#"{"directive":"work"}"#);
const WAIT: (&str, &str) = ("wait_threads", "{}");

#[test]
fn approved_spawn_makes_its_child_with_the_start() {
    let mut world = world_with_policy(&["execute.tool.spawn_thread"]);
    let thread = begin(&mut world, "boss", &[SPAWN, WAIT]);
    assert_asks(&world, &thread, &["call_2_0"]);
    let children =
        |world: &RunnerFixture| world.service.load(&thread).unwrap().chain.value.children;
    assert_eq!(children(&world), 0);
    approve(&world, &thread, "call_2_0");
    assert_eq!(children(&world), 0, "the commit of the run makes it");
    let step = world.start(&thread, None).unwrap();
    world.audit();
    assert_eq!(children(&world), 1);
    assert_eq!(step.step.kind, None);
    assert_eq!(world.status(&thread), "waiting", "for the child");
    let [(call, text, "done")] = &newest_results(&world, &thread)[..] else {
        panic!("the result of the spawn")
    };
    assert_eq!(call, "call_2_0");
    assert!(text.contains("\"status\":\"created\""), "{text}");
}

#[test]
fn denied_spawn_makes_no_child_and_the_wait_ends() {
    let mut world = world_with_policy(&["execute.tool.spawn_thread"]);
    let thread = begin(&mut world, "boss", &[SPAWN, WAIT]);
    deny(&world, &thread, "call_2_0", "too many already");
    let step = world.start(&thread, None).unwrap();
    world.audit();
    assert_eq!(
        step.step.kind,
        Some(StepKind::CallLlm),
        "nothing to wait for"
    );
    assert_eq!(world.service.load(&thread).unwrap().chain.value.children, 0);
}

#[test]
fn approved_wait_becomes_the_wait_of_the_round() {
    let mut world = world_with_policy(&["execute.tool.wait_threads"]);
    let thread = begin(&mut world, "boss", &[SPAWN, WAIT]);
    assert_asks(&world, &thread, &["call_2_1"]);
    approve(&world, &thread, "call_2_1");
    world.start(&thread, None).unwrap();
    world.audit();
    assert_eq!(world.status(&thread), "waiting");
    let head = world.service.load(&thread).unwrap().head.value;
    assert_eq!(head.wait.clone().unwrap().numbers, [1]);
}

#[test]
fn answered_builtin_call_is_not_performed() {
    let mut world = world_with_policy(&["execute.tool.*"]);
    let thread = begin(&mut world, "boss", &[("list_threads", "{}")]);
    assert_asks(&world, &thread, &["call_2_0"]);
    answer(&world, &thread, "call_2_0", "none that concern you");
    let step = world.start(&thread, None).unwrap();
    assert_eq!(step.step.kind, Some(StepKind::CallLlm));
}

/// A directive's patterns hold in all that its threads spawn, whatever those directives say.
#[test]
fn children_inherit_what_needs_consent() {
    let boss = json!({
        "name": "boss", "body": "Have it done.",
        "front": {"capabilities": ["execute.tool.*"], "approvals": ["execute.tool.write"]},
    });
    let library = MapLibrary::small().with("directive", "boss", &boss.to_string());
    let mut world = RunnerFixture::over(Arc::new(MemoryStore::new()), library);
    let thread = begin(&mut world, "boss", &[SPAWN, WAIT]);
    let page = world.service.list(Some(("parent", &thread)), 9, None);
    let child = page.unwrap().0.threads[0].thread.value.id.clone();
    world.start(&child, None).unwrap();
    world.submit(&child, calls(&[("write", "{}")])).unwrap();
    world.audit();
    assert_eq!(code(&world, &child), "approval_needed");
    assert_eq!(waiting(&world, &child), ["call_2_0"]);
    assert_eq!(due(&world), [thread.as_str()], "its parent is told");
    let claimed = world.service.claim(&thread, "d/1", HolderProof::None);
    let step = world.hold(&thread, claimed).unwrap();
    assert_eq!(step.step.kind, Some(StepKind::CallLlm));
    let told = newest_results(&world, &thread);
    assert!(told[0].1.contains("approval_needed"), "{told:?}");
    // The child goes on once it is decided, whatever its parent does.
    approve(&world, &child, "call_2_0");
    assert_eq!(due(&world), [child.as_str()]);
    world.start(&child, None).unwrap();
    let outcomes: StepOutcome = world.outcomes(&child);
    world.submit(&child, outcomes).unwrap();
    world.submit(&child, says("done")).unwrap();
    assert_eq!(world.status(&child), "completed");
    world.audit();
}

/// A cap that does not allow an approved call stops the run, as it does for any other.
#[test]
fn approved_spawn_beyond_the_cap_stops_the_run() {
    let boss = json!({
        "name": "boss", "body": "Have it done.",
        "front": {"capabilities": ["execute.tool.*"], "approvals": ["execute.tool.spawn_thread"],
            "limits": {"spawns": 0}},
    });
    let library = MapLibrary::small().with("directive", "boss", &boss.to_string());
    let mut world = RunnerFixture::over(Arc::new(MemoryStore::new()), library);
    let thread = begin(&mut world, "boss", &[SPAWN]);
    assert_asks(&world, &thread, &["call_2_0"]);
    approve(&world, &thread, "call_2_0");
    world.start(&thread, None).unwrap();
    assert_eq!(code(&world, &thread), "spawns_exceeded");
    world.audit();
}
