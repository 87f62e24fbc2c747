//! The time that what is in a scope lasts: runs, calls, forks, threads that continue others.

use super::tool_outcomes::outcomes_with;
use super::{StateWorld, change, set, state_of};
use crate::continuation::fixture::{DrivenChain, library_without_summary};
use crate::history::{call_event, message_event, result_event};
use crate::runner::fixture::{RunnerFixture, calls, says, user};
use serde_json::{Value, json};
use threadkeep_component::service::history::ChangeTexts;
use threadkeep_core::runner::{HolderProof, Signal};
use threadkeep_core::time::UnixTime;

fn both() -> ChangeTexts {
    change(
        &[
            set("thread", "kept", json!(1)),
            set("run", "gone", json!(1)),
        ],
        &[],
    )
}

/// Returns the change of the state in the entry of a version.
fn recorded_change(world: &RunnerFixture, thread: &str, version: u64) -> Value {
    let loaded = world.service.load(thread).unwrap();
    let entry = world.service.entry(&loaded, version).unwrap().unwrap();
    let entry: Value = serde_json::from_str(&entry.to_text()).unwrap();
    entry["state"].clone()
}

#[test]
fn the_scope_of_a_run_is_emptied_by_a_recorded_patch_where_the_next_begins() {
    let mut host = StateWorld::new();
    host.append(&both()).unwrap();
    let before = host.version();
    let thread = host.thread.clone();
    host.world.start(&thread, None).unwrap();
    host.world.audit();
    let emptied = json!([{
        "scope": "run",
        "patch": [{"op": "replace", "path": "", "value": {}}],
    }]);
    assert_eq!(
        recorded_change(&host.world, &thread, before + 1)["patches"],
        emptied
    );
    assert_eq!(host.state(None)["run"], json!({}));
    assert_eq!(host.state(None)["thread"], json!({"kept": 1}));
    assert_eq!(host.state(Some(before))["run"], json!({"gone": 1}));
    host.world.submit(&thread, says("hello")).unwrap();
    // Nothing is recorded where it is empty.
    host.world.start(&thread, Some("again")).unwrap();
    host.world.audit();
    assert_eq!(
        recorded_change(&host.world, &thread, host.version()),
        Value::Null
    );
}

#[test]
fn a_run_after_a_crashed_one_begins_with_an_empty_scope() {
    let mut host = StateWorld::new();
    let thread = host.thread.clone();
    host.world.start(&thread, None).unwrap();
    host.world
        .submit(&thread, calls(&[("read", "{}")]))
        .unwrap();
    // Its tool has changed the scope, and then its process dies.
    let edits = (vec![set("run", "gone", json!(1))], vec![]);
    let outcomes = outcomes_with(&host.world, &thread, &[edits]);
    host.world.submit(&thread, outcomes).unwrap();
    assert_eq!(host.state(None)["run"], json!({"gone": 1}));
    host.world
        .service
        .claim(&thread, "other/1", HolderProof::Dead)
        .unwrap();
    assert_eq!(
        host.state(None)["run"],
        json!({"gone": 1}),
        "the run goes on"
    );
    host.world
        .service
        .signal(&thread, "k", &Signal::Cancel)
        .unwrap();
    host.world
        .service
        .signal(&thread, "k2", &Signal::Kill)
        .unwrap();
    host.world.audit();
    assert_eq!(host.state(None)["run"], json!({"gone": 1}));
    let input = user("go on");
    let resumed = host
        .world
        .service
        .resume(&thread, Some(&input), "h/9", "r", None)
        .unwrap();
    host.world.audit();
    let next = resumed.loaded.thread.value.id.clone();
    assert_ne!(next, thread);
    assert_eq!(state_of(&host.world, &next, None)["run"], json!({}));
}

#[test]
fn the_scope_of_a_call_is_dropped_with_its_result() {
    let mut world = RunnerFixture::new();
    let thread = world.create(None);
    let (seconds, nanos) = (1_800_000_600, 0);
    let deadline = UnixTime { seconds, nanos };
    let opened = world.service.open(&thread, "h/1", deadline).unwrap();
    let held = opened.head.value.token;
    let token = Some(held);
    let events = [
        message_event("user", "hi"),
        call_event("A"),
        call_event("B"),
    ];
    let events: Vec<String> = events.iter().map(Value::to_string).collect();
    world.service.append(&thread, token, None, &events).unwrap();
    let scoped = |call: &str| {
        json!({
            "scope": "tool-call", "call": call,
            "patch": [{"op": "add", "path": "/step", "value": 1}],
        })
    };
    let given = change(&[scoped("call_2_1"), scoped("call_2_2")], &[]);
    world
        .service
        .append_change(&thread, token, None, &given)
        .unwrap();
    world.audit();
    let all = json!({"call_2_1": {"step": 1}, "call_2_2": {"step": 1}});
    assert_eq!(state_of(&world, &thread, None)["tool_call"], all);
    // Of a call that is not open there is none.
    let wrong = change(&[scoped("call_2_0")], &[]);
    assert!(
        world
            .service
            .append_change(&thread, token, None, &wrong)
            .is_err()
    );
    let results = ChangeTexts {
        events: vec![result_event("A").to_string()],
        ..change(&[scoped("call_2_1")], &[])
    };
    let written = world
        .service
        .append_change(&thread, token, None, &results)
        .unwrap();
    world.audit();
    let left = json!({"call_2_2": {"step": 1}});
    assert_eq!(state_of(&world, &thread, None)["tool_call"], left);
    assert_eq!(
        state_of(&world, &thread, Some(written.version))["tool_call"],
        left
    );
    assert_eq!(
        state_of(&world, &thread, Some(written.version - 1))["tool_call"],
        all
    );
    // The end of the lease interrupts the other one.
    world.service.close(&thread, held, "idle", None).unwrap();
    world.audit();
    assert_eq!(state_of(&world, &thread, None)["tool_call"], json!({}));
}

#[test]
fn a_fork_has_the_scope_of_the_thread_alone() {
    let host = StateWorld::new();
    host.append(&both()).unwrap();
    let version = host.version();
    host.append(&change(&[set("thread", "later", json!(1))], &[]))
        .unwrap();
    let service = &host.world.service;
    let fork = service
        .fork(&host.thread, version, "f", None)
        .unwrap()
        .thread
        .value
        .id
        .clone();
    host.world.audit();
    let expected = json!({"thread": {"kept": 1}, "run": {}, "tool_call": {}});
    assert_eq!(state_of(&host.world, &fork, None), expected);
    assert_eq!(
        state_of(&host.world, &fork, Some(version))["run"],
        json!({"gone": 1})
    );
    // Nothing leaks either way.
    let own = change(&[set("thread", "own", json!(1))], &[]);
    service.append_change(&fork, None, None, &own).unwrap();
    host.world.audit();
    assert_eq!(host.state(None)["thread"], json!({"kept": 1, "later": 1}));
    assert_eq!(
        state_of(&host.world, &fork, None)["thread"],
        json!({"kept": 1, "own": 1})
    );
    // A fork of a version before the state has none.
    let early = service
        .fork(&host.thread, 1, "g", None)
        .unwrap()
        .thread
        .value
        .id
        .clone();
    assert_eq!(state_of(&host.world, &early, None)["thread"], json!({}));
    let again = service
        .fork(&fork, version, "h", None)
        .unwrap()
        .thread
        .value
        .id
        .clone();
    assert_eq!(
        state_of(&host.world, &again, None)["thread"],
        json!({"kept": 1})
    );
    host.world.audit();
}

#[test]
fn a_successor_has_the_scope_of_the_thread_and_an_empty_run() {
    let mut host = StateWorld::new();
    host.append(&both()).unwrap();
    let thread = host.thread.clone();
    host.world
        .service
        .signal(&thread, "k", &Signal::Kill)
        .unwrap();
    let input = user("go on");
    let resumed = host
        .world
        .service
        .resume(&thread, Some(&input), "h/1", "r", None)
        .unwrap();
    host.world.audit();
    let next = resumed.loaded.thread.value.id.clone();
    let expected = json!({"thread": {"kept": 1}, "run": {}, "tool_call": {}});
    assert_eq!(state_of(&host.world, &next, None), expected);
    host.world.hold(&next, Ok(resumed)).unwrap();
    host.world.submit(&next, says("there")).unwrap();
    let service = &host.world.service;
    let further = change(&[set("thread", "more", json!(2))], &[]);
    service.append_change(&next, None, None, &further).unwrap();
    host.world.audit();
    assert_eq!(
        state_of(&host.world, &next, None)["thread"],
        json!({"kept": 1, "more": 2})
    );
}

#[test]
fn a_hand_off_carries_thread_and_run() {
    let mut chain = DrivenChain::start(
        library_without_summary(),
        Some("work"),
        Some("first question"),
    );
    let first = chain.thread.clone();
    chain.call_tool_with(1, &json!([set("thread", "kept", json!(1))]));
    let mut last = 0;
    while chain.links.len() == 1 {
        last += 1;
        assert!(last < 30, "no hand-off was due");
        chain.call_tool_with(90, &json!([set("run", "step", json!(last))]));
    }
    chain.world.audit();
    let next = chain.links.last().unwrap().clone();
    let expected = json!({"thread": {"kept": 1}, "run": {"step": last}, "tool_call": {}});
    assert_eq!(state_of(&chain.world, &next, None), expected);
    assert_eq!(state_of(&chain.world, &first, None), expected);
    // What is carried of the first link shows what it was there.
    let (loaded, closed) = (chain.load(&next), chain.load(&first).head.value.version);
    let parts = loaded.thread.value.base.clone().unwrap().parts;
    for version in parts.iter().map(|part| part.to).filter(|to| *to <= closed) {
        let was = state_of(&chain.world, &first, Some(version));
        let carried = state_of(&chain.world, &next, Some(version));
        assert_eq!(carried, was, "version {version}");
    }
    chain.call_tool_with(1, &json!([set("run", "step", json!(99))]));
    chain.world.audit();
    let now = state_of(&chain.world, chain.links.last().unwrap(), None);
    assert_eq!(now["run"], json!({"step": 99}));
    assert_eq!(state_of(&chain.world, &first, None), expected);
}
