//! Random histories with a state: a load at every version equals the changes folded from the start.

use super::{StateWorld, change, operation, patch, set, state_of};
use crate::runner::fixture::{calls, says};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use threadkeep_component::service::history::ChangeTexts;
use threadkeep_core::thread::StepKind;
use threadkeep_tests::soak::repetitions;

/// Random cases; `soak` asks for more.
const CASES: u32 = 60;
/// Most requests of a case.
const REQUESTS: usize = 90;

/// A request to the thread of a case.
#[derive(Debug, Clone)]
enum StateCaseRequest {
    /// Sets a field of a scope to a text of a length.
    Set(bool, u8, u16),
    /// Removes a field, if it is there.
    Remove(u8),
    /// Adds to a number, or an element to a set.
    Operate(bool, u8),
    /// Replaces the scope of the thread.
    Replace(u8),
    /// Takes the next step of a run: a start, a reply with a call or without, or results.
    Step(bool, u8),
    /// Forks the thread at a version, and goes on with the fork.
    Fork(u64),
}

fn to_set((run, n, bytes): (bool, u8, u16)) -> StateCaseRequest {
    StateCaseRequest::Set(run, n, bytes)
}

fn any_request() -> impl Strategy<Value = StateCaseRequest> {
    prop_oneof![
        4 => (any::<bool>(), 0_u8..4, 0_u16..600).prop_map(to_set),
        1 => (0_u8..4).prop_map(StateCaseRequest::Remove),
        6 => (any::<bool>(), 0_u8..6).prop_map(|(set, n)| StateCaseRequest::Operate(set, n)),
        1 => (0_u8..4).prop_map(StateCaseRequest::Replace),
        5 => (any::<bool>(), 0_u8..4).prop_map(|(calls, n)| StateCaseRequest::Step(calls, n)),
        1 => any::<u64>().prop_map(StateCaseRequest::Fork),
    ]
}

/// A thread with the states that it had at its versions, as a plain model keeps them.
struct ModelledThread {
    host: StateWorld,
    now: Value,
    seen: BTreeMap<u64, Value>,
    forks: u32,
}

impl ModelledThread {
    fn new() -> Self {
        let now = json!({"thread": {}, "run": {}, "tool_call": {}});
        let mut thread = Self {
            host: StateWorld::new(),
            now,
            seen: BTreeMap::new(),
            forks: 0,
        };
        thread.note();
        thread
    }

    fn note(&mut self) {
        self.seen.insert(self.host.version(), self.now.clone());
    }

    /// Appends a change where nobody holds the thread; returns whether it was made.
    fn append(&mut self, change: &ChangeTexts) -> bool {
        let (service, thread) = (&self.host.world.service, &self.host.thread);
        service.append_change(thread, None, None, change).is_ok()
    }

    fn make(&mut self, request: &StateCaseRequest) {
        match request {
            StateCaseRequest::Set(run, n, bytes) => {
                let (scope, name) = (if *run { "run" } else { "thread" }, format!("k{n}"));
                let value = json!("x".repeat(usize::from(*bytes)));
                if self.append(&change(&[set(scope, &name, value.clone())], &[])) {
                    self.now[scope][name] = value;
                }
            }
            StateCaseRequest::Remove(n) => {
                let name = format!("k{n}");
                let steps = json!([{"op": "remove", "path": format!("/{name}")}]);
                let removed = self.append(&change(&[patch("thread", steps)], &[]));
                let known = self.now["thread"].get(&name).is_some();
                assert!(known || !removed, "{name}");
                if removed {
                    self.now["thread"]
                        .as_object_mut()
                        .unwrap()
                        .shift_remove(&name);
                }
            }
            StateCaseRequest::Operate(true, n) => {
                let change = change(&[], &[operation("thread", "set-add", "/s", json!(n))]);
                if self.append(&change) {
                    add_to_set(&mut self.now["thread"], *n);
                }
            }
            StateCaseRequest::Operate(false, n) => {
                let change = change(&[], &[operation("thread", "add", "/n", json!(n))]);
                if self.append(&change) {
                    add_to_number(&mut self.now["thread"], *n);
                }
            }
            StateCaseRequest::Replace(n) => {
                let value = json!({"replaced": n});
                let given = ChangeTexts {
                    snapshot: Some(json!({"thread": value}).to_string()),
                    ..ChangeTexts::default()
                };
                if self.append(&given) {
                    self.now["thread"] = value;
                }
            }
            StateCaseRequest::Step(with_calls, n) => self.step(*with_calls, *n),
            StateCaseRequest::Fork(at) => self.fork(*at),
        }
        self.note();
    }

    fn step(&mut self, with_calls: bool, n: u8) {
        let thread = self.host.thread.clone();
        match self.host.world.pending(&thread) {
            Some(StepKind::CallLlm) if with_calls => {
                self.host
                    .world
                    .submit(&thread, calls(&[("read", "{}")]))
                    .unwrap();
            }
            Some(StepKind::CallLlm) => {
                self.host.world.submit(&thread, says("done")).unwrap();
            }
            Some(StepKind::CallTools) => {
                let own = json!({
                    "scope": "tool-call", "patch": [{"op": "add", "path": "/x", "value": n}],
                });
                let edits = (vec![own, set("run", "tool", json!(n))], vec![]);
                let world = &self.host.world;
                let outcomes = super::tool_outcomes::outcomes_with(world, &thread, &[edits]);
                self.host.world.submit(&thread, outcomes).unwrap();
                self.now["run"]["tool"] = json!(n);
            }
            _ => {
                if self.host.world.start(&thread, Some("hello")).is_ok() {
                    self.now["run"] = json!({});
                }
            }
        }
    }

    fn fork(&mut self, at: u64) {
        let at = 1 + at % self.host.version();
        self.forks += 1;
        let (service, key) = (&self.host.world.service, format!("f{}", self.forks));
        let forked = service.fork(&self.host.thread, at, &key, None).unwrap();
        self.seen.split_off(&(at + 1));
        let before = self
            .seen
            .range(..=at)
            .next_back()
            .map(|(_, state)| state.clone());
        self.now = before.unwrap();
        (self.now["run"], self.now["tool_call"]) = (json!({}), json!({}));
        self.host.thread = forked.thread.value.id.clone();
        let thread = self.host.thread.clone();
        self.host.world.note_thread(&thread);
    }

    /// Compares the state of every version of the path with that of the model.
    fn check(&self) {
        self.host.world.audit();
        assert_eq!(self.host.state(None), self.now);
        let mut expected = json!({"thread": {}, "run": {}, "tool_call": {}});
        for version in 0..=self.host.version() {
            if let Some(seen) = self.seen.get(&version) {
                expected.clone_from(seen);
            } else if version < self.host.version() {
                continue;
            }
            let found = state_of(&self.host.world, &self.host.thread, Some(version));
            assert_eq!(found, expected, "version {version}");
        }
    }
}

fn add_to_set(scope: &mut Value, n: u8) {
    let element = json!(n);
    match scope.get_mut("s").and_then(Value::as_array_mut) {
        Some(set) if set.contains(&element) => {}
        Some(set) => set.push(element),
        None => scope["s"] = json!([n]),
    }
}

fn add_to_number(scope: &mut Value, n: u8) {
    let found = scope.get("n").and_then(Value::as_u64).unwrap_or_default();
    scope["n"] = json!(found + u64::from(n));
}

#[test]
fn a_load_at_every_version_equals_the_fold_from_the_start() {
    let requests = prop::collection::vec(any_request(), 1..REQUESTS);
    let config = ProptestConfig {
        cases: repetitions(CASES),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    TestRunner::new(config)
        .run(&requests, |requests| {
            let mut thread = ModelledThread::new();
            for request in &requests {
                thread.make(request);
            }
            thread.check();
            Ok(())
        })
        .unwrap();
}
