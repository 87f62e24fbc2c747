//! Random threads and forks of them: nothing that is written to one is seen by another.

use super::fork_fixture::{assert_conversation, fork_at, message, messages_until};
use crate::runner::fixture::{RunnerFixture, calls, says};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::collections::BTreeMap;
use threadkeep_core::runner::Signal;
use threadkeep_core::thread::StepKind;
use threadkeep_tests::soak::repetitions;

/// Random cases; `soak` asks for more.
const CASES: u32 = 500;
/// Most requests of a case.
const REQUESTS: usize = 10;

/// A request to one of the threads of a case.
#[derive(Debug, Clone)]
enum ForkCaseRequest {
    /// Begins a thread of a directive, or a chat.
    Create(bool),
    /// Forks a thread at a version, counted from its first and taken from the beginning again.
    Fork(usize, u64),
    /// Takes the next step of a thread: a start, a reply with calls or without, or results.
    Step(usize, bool),
    /// Sends a message to a thread.
    Send(usize),
    /// Kills a thread.
    Kill(usize),
}

fn any_request() -> impl Strategy<Value = ForkCaseRequest> {
    prop_oneof![
        1 => any::<bool>().prop_map(ForkCaseRequest::Create),
        3 => (any::<usize>(), any::<u64>()).prop_map(|(n, at)| ForkCaseRequest::Fork(n, at)),
        6 => (any::<usize>(), any::<bool>()).prop_map(|(n, calls)| ForkCaseRequest::Step(n, calls)),
        1 => any::<usize>().prop_map(ForkCaseRequest::Send),
        1 => any::<usize>().prop_map(ForkCaseRequest::Kill),
    ]
}

/// A world with the messages of each thread as they were last read.
struct ForkedWorld {
    world: RunnerFixture,
    sent: BTreeMap<String, Vec<String>>,
}

impl ForkedWorld {
    fn new() -> Self {
        let mut forked = Self {
            world: RunnerFixture::new(),
            sent: BTreeMap::new(),
        };
        forked.create(true);
        forked
    }

    fn create(&mut self, directive: bool) {
        let id = self.world.create(directive.then_some("work"));
        self.sent.insert(id, Vec::new());
    }

    fn pick(&self, n: usize) -> String {
        let threads = &self.world.threads;
        threads[n % threads.len()].clone()
    }

    /// Performs a request; returns the thread that it may have changed.
    fn perform(&mut self, request: &ForkCaseRequest) -> Option<String> {
        match *request {
            ForkCaseRequest::Create(directive) => {
                self.create(directive);
                None
            }
            ForkCaseRequest::Fork(n, at) => {
                self.fork(&self.pick(n), at);
                None
            }
            ForkCaseRequest::Step(n, calls) => {
                let id = self.pick(n);
                self.step(&id, calls);
                Some(id)
            }
            ForkCaseRequest::Send(n) => {
                let id = self.pick(n);
                let key = format!("m{}", self.world.counts.len());
                self.world.count(&key);
                // One that has ended takes none.
                let _ = self.world.service.signal(&id, &key, &message("a word"));
                Some(id)
            }
            ForkCaseRequest::Kill(n) => {
                let id = self.pick(n);
                let _ = self.world.service.signal(&id, "kill", &Signal::Kill);
                self.world.held.remove(&id);
                Some(id)
            }
        }
    }

    fn fork(&mut self, id: &str, at: u64) {
        let original = self.world.service.load(id).unwrap();
        let first = original
            .thread
            .value
            .base
            .as_ref()
            .map_or(1, |base| base.parts[0].from);
        let newest = original.head.value.version;
        if newest < first {
            return;
        }
        let version = first + at % (newest - first + 1);
        let fork = fork_at(&self.world, id, version).unwrap();
        let made = fork.thread.value.id.clone();
        let carried = messages_until(&self.world, id, Some(version));
        let sent = messages_until(&self.world, &made, None);
        assert_eq!(sent[..carried.len()], carried);
        assert_conversation(&sent);
        self.world.threads.push(made.clone());
        self.sent.insert(made, sent);
    }

    fn step(&mut self, id: &str, with_calls: bool) {
        let world = &mut self.world;
        match world.pending(id) {
            Some(StepKind::CallLlm) if with_calls => {
                let reply = calls(&[("read", "{}"), ("write", "{}")]);
                world.submit(id, reply).unwrap();
            }
            Some(StepKind::CallLlm) => drop(world.submit(id, says("well")).unwrap()),
            Some(StepKind::CallTools) => {
                let outcomes = world.outcomes_with_state(id);
                world.submit(id, outcomes).unwrap();
            }
            Some(_) => {}
            // An ended thread takes no start, and one at its cap none either.
            None => drop(world.start(id, Some("go on"))),
        }
    }

    /// Checks that no thread but the one that was changed is sent anything else than before.
    fn check(&mut self, changed: Option<&str>) {
        for (id, before) in &mut self.sent {
            let now = messages_until(&self.world, id, None);
            match changed == Some(id.as_str()) {
                true => assert_eq!(now[..before.len()], *before, "{id}"),
                false => assert_eq!(now, *before, "{id}"),
            }
            *before = now;
        }
    }
}

#[test]
fn nothing_leaks_between_a_thread_and_its_forks() {
    let mut runner = TestRunner::new(ProptestConfig {
        cases: repetitions(CASES),
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let requests = proptest::collection::vec(any_request(), 1..=REQUESTS);
    let ran = runner.run(&requests, |requests| {
        let mut forked = ForkedWorld::new();
        for request in &requests {
            let changed = forked.perform(request);
            forked.check(changed.as_deref());
        }
        forked.world.audit();
        Ok(())
    });
    ran.unwrap();
}
