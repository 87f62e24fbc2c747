//! Calls of `runner.run` that never came back, and several hosts on one thread.

use super::run_host::{RunHost, RunWorld};
use crate::component::fixture::{assert_sound, message};
use crate::component::project::engine;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use threadkeep::models::scripted::ScriptedProvider;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tenant::Tenant;
use threadkeep_tests::fixture::{MapLibrary, draft};

fn begin(script: &Value) -> (RunWorld, RunHost, String) {
    let world = RunWorld::new(Arc::new(MemoryStore::new()), MapLibrary::small());
    let model = ScriptedProvider::parse(&script.to_string()).unwrap();
    let host = RunHost::new(&world, Arc::new(model));
    let tenant = Tenant::new(engine(), world.context.clone());
    let created = super::run_host::block_on(tenant.create(draft(Some("boss"))));
    (world, host, created.unwrap().id)
}

fn get(world: &RunWorld, thread: &str) -> threadkeep::wit::Thread {
    let tenant = Tenant::new(engine(), world.context.clone());
    super::run_host::block_on(tenant.get(thread)).unwrap()
}

/// The script of a run with two rounds of a tool that must not run twice.
fn two_rounds() -> Value {
    let write = json!([{"name": "write", "arguments": {}}]);
    json!([{"calls": write}, {"calls": write}, {"text": "Done."}])
}

#[test]
fn the_same_call_goes_on_after_a_trap_and_charges_the_lost_one() {
    let (world, mut host, thread) = begin(&two_rounds());
    let input = r#"{"role": "user", "content": "go", "id": "m1"}"#;
    host.traps_at = Some(2);
    assert!(matches!(
        host.run(&thread, Some(input), "h/1", 50),
        Err(None)
    ));
    let lost = get(&world, &thread);
    assert_eq!(lost.run.step.as_deref(), Some("call-llm"));
    let answer = host.run(&thread, Some(input), "h/1", 50).unwrap();
    assert_eq!(answer["state"], "finished", "{answer}");
    assert_eq!(answer["result"], "Done.", "{answer}");
    assert_eq!(host.tools.writes.load(Ordering::SeqCst), 2);
    let done = get(&world, &thread);
    // Three replies, and the one that was lost is paid by estimate.
    assert_eq!(done.cost.turns, 3);
    let replies = host.asked.lock().unwrap().len();
    assert_eq!(replies, 4);
    assert_sound(&*world.store);
    // Once more: nothing is left to do, and the message is not taken again.
    let again = host.run(&thread, Some(input), "h/1", 50).unwrap();
    assert_eq!(
        (&again["state"], &again["steps"]),
        (&json!("finished"), &json!(0))
    );
    assert_eq!(get(&world, &thread).version, done.version);
}

#[test]
fn steps_that_keep_being_lost_wait_for_a_person() {
    let (world, mut host, thread) = begin(&two_rounds());
    let mut codes = Vec::new();
    for n in 1..=4 {
        host.traps_at = Some(n);
        match host.run(&thread, None, "h/1", 50) {
            Err(None) => codes.push("trap".to_owned()),
            other => codes.push(other.unwrap()["code"].to_string()),
        }
    }
    assert!(
        codes.contains(&"\"crash_loop\"".to_owned()) || {
            let code = get(&world, &thread).cause.map(|cause| cause.code);
            code.as_deref() == Some("crash_loop")
        },
        "{codes:?}"
    );
    assert_sound(&*world.store);
}

#[test]
fn a_step_that_was_not_begun_costs_nothing() {
    let (world, host, thread) = begin(&two_rounds());
    let answer = host.run(&thread, None, "h/1", 1).unwrap();
    assert_eq!(
        (&answer["state"], &answer["for"]),
        (&json!("more"), &json!("steps"))
    );
    let parked = get(&world, &thread);
    assert_eq!(parked.run.step.as_deref(), Some("call-tools"));
    // The host stays away for an hour: the step's time begins with the call that begins it.
    world.clock.advance(Duration::from_secs(3_600));
    let answer = host.run(&thread, None, "h/1", 1).unwrap();
    assert_eq!(answer["for"], "steps", "{answer}");
    assert_eq!(host.tools.writes.load(Ordering::SeqCst), 1);
    assert_eq!(get(&world, &thread).cost.duration, 0);
    // Its holder dies with a model call that was handed out and not begun.
    let before = get(&world, &thread);
    assert_eq!(before.run.step.as_deref(), Some("call-llm"));
    let claimed = host.claim_from_dead(&thread, "h/2");
    assert_eq!(claimed.thread.cost.spend, before.cost.spend);
    assert_sound(&*world.store);
}

#[test]
fn calls_that_were_not_begun_are_handed_out_again() {
    let (world, host, thread) = begin(&two_rounds());
    host.run(&thread, None, "h/1", 1).unwrap();
    let claimed = host.claim_from_dead(&thread, "h/2");
    assert_eq!(claimed.step.kind, "call-tools");
    assert_eq!(claimed.step.calls.len(), 1);
    assert_sound(&*world.store);
}

#[test]
fn another_host_is_told_who_has_the_thread() {
    let (world, host, thread) = begin(&two_rounds());
    host.run(&thread, None, "h/1", 1).unwrap();
    let busy = host.run(&thread, None, "h/2", 5).unwrap_err().unwrap();
    assert_eq!(busy.kind, "busy");
    assert!(busy.details.contains("h/1"), "{}", busy.details);
    // The second takes over once the first is known to be gone; the first is fenced.
    host.claim_from_dead(&thread, "h/2");
    let busy = host.run(&thread, None, "h/1", 5).unwrap_err().unwrap();
    assert_eq!(busy.kind, "busy");
    assert_sound(&*world.store);
}

#[test]
fn arguments_are_checked_before_anything_is_done() {
    let (world, host, thread) = begin(&two_rounds());
    let long = "x".repeat(129);
    for (holder, steps, field) in [
        ("h/1", 0, "steps"),
        ("h/1", 1_001, "steps"),
        (&long, 1, "holder"),
    ] {
        let error = host.run(&thread, None, holder, steps).unwrap_err().unwrap();
        let details: Value = serde_json::from_str(&error.details).unwrap();
        assert_eq!(
            (error.kind.as_str(), &details["field"]),
            ("invalid", &json!(field))
        );
    }
    let missing = host.run("nobody-1-a", None, "h/1", 1).unwrap_err().unwrap();
    assert_eq!(missing.kind, "not-found");
    assert_eq!(get(&world, &thread).version, 0);
}

#[test]
fn a_message_for_a_thread_that_has_ended_goes_to_a_successor() {
    let (world, host, thread) = begin(&json!([{"text": "One."}, {"text": "Two."}]));
    assert_eq!(host.run(&thread, None, "h/1", 9).unwrap()["result"], "One.");
    let again = host.run(&thread, Some(&message("more")), "h/2", 9).unwrap();
    assert_eq!(
        (&again["state"], &again["result"]),
        (&json!("finished"), &json!("Two."))
    );
    assert_ne!(again["thread"], thread);
    // The first link names the chain as well.
    let idle = host.run(&thread, None, "h/3", 9).unwrap();
    assert_eq!(
        (&idle["thread"], &idle["steps"]),
        (&again["thread"], &json!(0))
    );
    assert_sound(&*world.store);
}
