//! A tenant without an engine: the service over a memory store, a clock that is moved by hand, and
//! the leases of drivers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use threadkeep::clock::{ClockTime, ManualClock};
use threadkeep::component::TenantContext;
use threadkeep::library::TenantLibrary;
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_component::ports::HostPorts;
use threadkeep_component::service::runner::StepHandle;
use threadkeep_component::service::{Error, ThreadService};
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::ledger::{ReserveGrant, UnknownBill, Usage};
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::plan::{DecisionContext, ThreadChange};
use threadkeep_core::runner::{
    CapRaise, DecisionInputs, LlmCompletion, LlmFailure, ReplyBlock, Signal, StepOutcome,
    StepSubmission, ToolOutcome, ToolState, UnreadableReply,
};
use threadkeep_core::thread::{
    self, ChainPlace, ResolvedDraft, SpawnParent, StepKind, ThreadDraft,
};
use threadkeep_tests::auditor::audit;
use threadkeep_tests::fixture::MapLibrary;
use threadkeep_tests::native::{CountingRandom, NativePorts};

/// The lease and step that a driver of one thread has.
#[derive(Debug, Clone)]
pub struct HeldStep {
    pub token: u64,
    pub handed: StepHandle,
    /// The last submission that was answered, and the answer's version.
    pub last: Option<(StepSubmission, u64)>,
}

pub struct RunnerFixture {
    pub service: ThreadService<NativePorts>,
    pub store: Arc<dyn StorageBackend>,
    pub clock: Arc<ManualClock>,
    pub threads: Vec<String>,
    pub held: BTreeMap<String, HeldStep>,
    pub counts: BTreeMap<String, u64>,
    /// Tokens of external loops.
    pub own: BTreeMap<String, u64>,
    /// Calls that external loops held: thread and version.
    pub calls: Vec<(String, u64)>,
}

impl RunnerFixture {
    pub fn new() -> Self {
        Self::over(Arc::new(MemoryStore::new()), MapLibrary::small())
    }

    pub fn over(store: Arc<dyn StorageBackend>, library: impl TenantLibrary + 'static) -> Self {
        let clock = Arc::new(ManualClock::new(ClockTime {
            seconds: 1_800_000_000,
            nanos: 0,
        }));
        let native = NativePorts::new(TenantContext {
            storage: Arc::clone(&store),
            library: Arc::new(library),
            clock: Arc::<ManualClock>::clone(&clock),
            random: Arc::new(CountingRandom::default()),
        });
        Self {
            service: ThreadService::new(native),
            store,
            clock,
            threads: Vec::new(),
            held: BTreeMap::new(),
            counts: BTreeMap::new(),
            own: BTreeMap::new(),
            calls: Vec::new(),
        }
    }

    pub fn create(&mut self, directive: Option<&str>) -> String {
        let draft = ThreadDraft {
            directive: directive.map(str::to_owned),
            ..ThreadDraft::default()
        };
        let id = self
            .service
            .create(&draft)
            .expect("it is created")
            .thread
            .value
            .id
            .clone();
        self.threads.push(id.clone());
        id
    }

    /// Creates a child as a spawn does: its money and its records in one commit of its parent.
    pub fn spawn(&self, parent: &str, id: &str, named: Option<u64>) -> String {
        assert!(self.try_spawn(parent, id, named), "{id} under {parent}");
        id.to_owned()
    }

    /// Tries the same; returns false if existing records, or the parent's own, forbid it.
    pub fn try_spawn(&self, parent: &str, id: &str, named: Option<u64>) -> bool {
        let service = &self.service;
        let now = service.ports().now();
        let loaded = service.load(parent).unwrap();
        let moment = DecisionContext {
            now,
            commit: "0123456789abcdef",
            ceiling: ThreadCaps::NONE,
            unknown_bill: UnknownBill::Estimate,
            store_full_message: None,
        };
        let mut change = ThreadChange::new(&loaded, moment);
        let grant = named.map(|amount| ReserveGrant::Exactly(NanoUsd::new(amount)));
        let funds = change.fund_child(grant).unwrap();
        let number = change.chain_mut().add_child();
        let under = SpawnParent {
            thread: parent,
            chain: &loaded.thread.value.chain,
            number,
            depth: loaded.chain.value.depth + 1,
            funds,
        };
        let draft = ThreadDraft {
            id: Some(id.to_owned()),
            ..ThreadDraft::default()
        };
        let resolved = ResolvedDraft {
            reserve: None,
            model: "default".to_owned(),
            limits: ThreadCaps::NONE,
            capabilities: Vec::new(),
            inputs: "{}".to_owned(),
        };
        let place = ChainPlace::Child(under);
        let child = thread::create(&draft, resolved, place, now, "000000").unwrap();
        change.add_created(child).unwrap();
        // A child of its parent's own id contradicts the parent's plan.
        match change.into_head_plan() {
            Ok(plan) => service.commit(&plan).unwrap_or(false),
            Err(error) if matches!(error.kind(), CoreErrorKind::Corrupt(_)) => false,
            Err(error) => panic!("{error}"),
        }
    }

    pub fn start(&mut self, thread: &str, input: Option<&str>) -> Result<StepHandle, Error> {
        let message = input.map(user);
        let holder = format!("h/{}", self.counts.values().sum::<u64>());
        let handed = self
            .service
            .start(thread, message.as_deref(), &holder, &holder, None);
        self.hold(thread, handed)
    }

    pub fn hold(
        &mut self,
        thread: &str,
        handed: Result<StepHandle, Error>,
    ) -> Result<StepHandle, Error> {
        let handed = handed?;
        let held = HeldStep {
            token: handed.loaded.head.value.token,
            handed: handed.clone(),
            last: None,
        };
        self.keep_step(thread, held);
        Ok(handed)
    }

    /// Keeps the step that a driver has of a thread: it may be of the next link of its chain, in
    /// which the run goes on.
    fn keep_step(&mut self, thread: &str, held: HeldStep) {
        let of = held.handed.loaded.thread.value.id.clone();
        if of != thread {
            self.held.remove(thread);
        }
        self.note_thread(&of);
        self.held.insert(of, held);
    }

    /// Adds a thread to those of the world, unless it is one of them.
    pub fn note_thread(&mut self, thread: &str) {
        if !self.threads.iter().any(|known| known == thread) {
            self.threads.push(thread.to_owned());
        }
    }

    pub fn submit(&mut self, thread: &str, outcome: StepOutcome) -> Result<StepHandle, Error> {
        let held = self.held.get(thread).cloned().expect("somebody drives it");
        let submission = StepSubmission {
            token: held.token,
            version: held.handed.step.version,
            outcome,
            inputs: DecisionInputs::default(),
        };
        let have = submission.version;
        let handed = self.service.submit(thread, &submission, have)?;
        let last = Some((submission, handed.step.version));
        let token = held.token;
        let next = HeldStep {
            token,
            handed: handed.clone(),
            last,
        };
        self.keep_step(thread, next);
        Ok(handed)
    }

    /// The kind of the thread's pending step, if a driver has it.
    pub fn pending(&self, thread: &str) -> Option<StepKind> {
        self.held.get(thread).and_then(|held| held.handed.step.kind)
    }

    /// One outcome for each call of the pending step.
    pub fn outcomes(&self, thread: &str) -> StepOutcome {
        let calls = &self.held[thread].handed.step.calls;
        let outcome = |call: &threadkeep_core::runner::StepCall| ToolOutcome {
            blocks: Vec::new(),
            version: call.version,
            index: call.index,
            state: ToolState::Done,
            failed: false,
            content: format!("{} said {}", call.name, call.arguments),
            cost: NanoUsd::new(7),
            patches: None,
            operations: None,
        };
        StepOutcome::ToolOutcomes(calls.iter().map(outcome).collect())
    }

    /// The same, each with changes of the state: in its own scope, in that of the run, and in that
    /// of the thread.
    pub fn outcomes_with_state(&self, thread: &str) -> StepOutcome {
        let StepOutcome::ToolOutcomes(mut outcomes) = self.outcomes(thread) else {
            return self.outcomes(thread);
        };
        for (n, outcome) in outcomes.iter_mut().enumerate() {
            let add = |path: String| serde_json::json!([{"op": "add", "path": path, "value": n}]);
            let patches = serde_json::json!([
                {"scope": "tool-call", "patch": add("/own".to_owned())},
                {"scope": "thread", "patch": add(format!("/call-{n}"))},
            ]);
            let operations = serde_json::json!([
                {"scope": "run", "op": "add", "path": "/calls", "value": 1},
                {"scope": "thread", "op": "set-add", "path": "/versions", "value": outcome.version},
            ]);
            outcome.patches = Some(patches.to_string());
            outcome.operations = Some(operations.to_string());
        }
        StepOutcome::ToolOutcomes(outcomes)
    }

    pub fn advance(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }

    pub fn status(&self, thread: &str) -> String {
        self.service
            .load(thread)
            .expect("it is there")
            .head
            .value
            .status
            .to_string()
    }

    pub fn count(&mut self, what: &str) {
        *self.counts.entry(what.to_owned()).or_default() += 1;
    }

    #[track_caller]
    pub fn audit(&self) {
        let findings = audit(&*self.store);
        assert!(findings.is_empty(), "{findings:#?}");
    }
}

pub fn raise(caps: ThreadCaps) -> Signal {
    let through = false;
    Signal::Raise(CapRaise { caps, through })
}

pub fn user(text: &str) -> String {
    serde_json::json!({"role": "user", "content": text}).to_string()
}

pub fn usage(input: u64, output: u64) -> Option<Usage> {
    Some(Usage {
        input,
        output,
        ..Usage::default()
    })
}

pub fn says(text: &str) -> StepOutcome {
    reply(
        vec![ReplyBlock::Text {
            text: text.to_owned(),
        }],
        usage(100, 10),
    )
}

pub fn calls(calls: &[(&str, &str)]) -> StepOutcome {
    let blocks = calls.iter().map(|(name, arguments)| ReplyBlock::ToolUse {
        id: "x".to_owned(),
        name: (*name).to_owned(),
        arguments: (*arguments).to_owned(),
        raw: None,
    });
    reply(blocks.collect(), usage(100, 10))
}

pub fn reply(blocks: Vec<ReplyBlock>, usage: Option<Usage>) -> StepOutcome {
    let finish = "stop".to_owned();
    StepOutcome::Completion(LlmCompletion {
        blocks,
        finish,
        usage,
        ..LlmCompletion::default()
    })
}

/// A reply that cannot be read and of which nothing is kept.
pub fn unreadable_reply() -> StepOutcome {
    let problem = "it ends too early".to_owned();
    StepOutcome::Completion(LlmCompletion {
        unreadable: Some(UnreadableReply { problem, tokens: 9 }),
        finish: "stop".to_owned(),
        usage: usage(700, 90),
        ..LlmCompletion::default()
    })
}

pub fn fails(kind: &str, sent: bool) -> LlmFailure {
    LlmFailure {
        kind: kind.to_owned(),
        code: "test".to_owned(),
        message: "on purpose".to_owned(),
        sent,
        ..LlmFailure::default()
    }
}
