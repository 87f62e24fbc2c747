//! A tenant without an engine: the service over a memory store, a clock that is moved by hand, and
//! the leases of drivers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use threadkeep::clock::{ManualClock, Time};
use threadkeep::component::Context;
use threadkeep::library::Library;
use threadkeep::storage::Storage;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_component::ports::Ports;
use threadkeep_component::service::runner::Handed;
use threadkeep_component::service::{Error, Service};
use threadkeep_core::ledger::{Grant, UnknownBill, Usage};
use threadkeep_core::limits::Limits;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::plan::{Change, Moment};
use threadkeep_core::runner::{
    Completion, Kit, LlmFailure, Outcome, Raise, ReplyBlock, Signal, Submission, ToolOutcome,
    ToolState,
};
use threadkeep_core::thread::{self, Draft, Parent, Resolved, StepKind};
use threadkeep_tests::auditor::audit;
use threadkeep_tests::fixture::MapLibrary;
use threadkeep_tests::native::{Counter, Native};

/// The lease and step that a driver of one thread has.
#[derive(Debug, Clone)]
pub struct Held {
    pub token: u64,
    pub handed: Handed,
    /// The last submission that was answered, and the answer's version.
    pub last: Option<(Submission, u64)>,
}

pub struct World {
    pub service: Service<Native>,
    pub store: Arc<dyn Storage>,
    pub clock: Arc<ManualClock>,
    pub threads: Vec<String>,
    pub held: BTreeMap<String, Held>,
    pub counts: BTreeMap<String, u64>,
    /// Tokens of external loops.
    pub own: BTreeMap<String, u64>,
    /// Calls that external loops held: thread and version.
    pub calls: Vec<(String, u64)>,
}

impl World {
    pub fn new() -> Self {
        Self::over(Arc::new(MemoryStore::new()), MapLibrary::small())
    }

    pub fn over(store: Arc<dyn Storage>, library: impl Library + 'static) -> Self {
        let clock = Arc::new(ManualClock::new(Time {
            seconds: 1_800_000_000,
            nanos: 0,
        }));
        let native = Native::new(Context {
            storage: Arc::clone(&store),
            library: Arc::new(library),
            clock: Arc::<ManualClock>::clone(&clock),
            random: Arc::new(Counter::default()),
        });
        Self {
            service: Service::new(native),
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
        let draft = Draft {
            directive: directive.map(str::to_owned),
            ..Draft::default()
        };
        let id = self
            .service
            .create(&draft)
            .expect("it is created")
            .thread
            .value
            .id;
        self.threads.push(id.clone());
        id
    }

    /// Creates a child as a spawn does: its money and its records in one commit of its parent.
    pub fn spawn(&self, parent: &str, id: &str, named: Option<u64>) -> String {
        assert!(self.try_spawn(parent, id, named), "{id} under {parent}");
        id.to_owned()
    }

    /// Tries the same; returns false if the store refuses it because of existing records.
    pub fn try_spawn(&self, parent: &str, id: &str, named: Option<u64>) -> bool {
        let service = &self.service;
        let now = service.ports().now();
        let loaded = service.load(parent).unwrap();
        let moment = Moment {
            now,
            commit: "0123456789abcdef",
            ceiling: Limits::NONE,
            unknown_bill: UnknownBill::Estimate,
            full: None,
        };
        let mut change = Change::new(&loaded, moment);
        let grant = named.map(|amount| Grant::Exactly(NanoUsd::new(amount)));
        let funds = change.fund(grant).unwrap();
        change.chain.children += 1;
        let under = Parent {
            thread: parent,
            chain: &loaded.thread.value.chain,
            number: change.chain.children,
            depth: loaded.chain.value.depth + 1,
            funds,
        };
        let draft = Draft {
            id: Some(id.to_owned()),
            ..Draft::default()
        };
        let resolved = Resolved {
            reserve: None,
            model: "default".to_owned(),
            limits: Limits::NONE,
            capabilities: Vec::new(),
            inputs: "{}".to_owned(),
        };
        let child = thread::create(&draft, resolved, Some(under), now, "000000").unwrap();
        change.extra.extend(child.writes);
        let plan = change.into_head_plan().unwrap();
        let committed = service.ports().commit(plan.writes, false);
        committed.unwrap_or(false)
    }

    pub fn start(&mut self, thread: &str, input: Option<&str>) -> Result<Handed, Error> {
        let message = input.map(user);
        let holder = format!("h/{}", self.counts.values().sum::<u64>());
        let handed = self
            .service
            .start(thread, message.as_deref(), &holder, &holder);
        self.hold(thread, handed)
    }

    pub fn hold(&mut self, thread: &str, handed: Result<Handed, Error>) -> Result<Handed, Error> {
        let handed = handed?;
        let held = Held {
            token: handed.loaded.head.value.token,
            handed: handed.clone(),
            last: None,
        };
        self.held.insert(thread.to_owned(), held);
        Ok(handed)
    }

    pub fn submit(&mut self, thread: &str, outcome: Outcome) -> Result<Handed, Error> {
        let held = self.held.get(thread).cloned().expect("somebody drives it");
        let submission = Submission {
            token: held.token,
            version: held.handed.step.version,
            outcome,
            kit: Kit::default(),
        };
        let have = submission.version;
        let handed = self.service.submit(thread, &submission, have)?;
        let last = Some((submission, handed.step.version));
        let token = held.token;
        let next = Held {
            token,
            handed: handed.clone(),
            last,
        };
        self.held.insert(thread.to_owned(), next);
        Ok(handed)
    }

    /// The kind of the thread's pending step, if a driver has it.
    pub fn pending(&self, thread: &str) -> Option<StepKind> {
        self.held.get(thread).and_then(|held| held.handed.step.kind)
    }

    /// One outcome for each call of the pending step.
    pub fn outcomes(&self, thread: &str) -> Outcome {
        let calls = &self.held[thread].handed.step.calls;
        let outcome = |call: &threadkeep_core::runner::Call| ToolOutcome {
            version: call.version,
            index: call.index,
            state: ToolState::Done,
            failed: false,
            content: format!("{} said {}", call.name, call.arguments),
            cost: NanoUsd::new(7),
        };
        Outcome::Outcomes(calls.iter().map(outcome).collect())
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

pub fn raise(caps: Limits) -> Signal {
    let through = false;
    Signal::Raise(Raise { caps, through })
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

pub fn says(text: &str) -> Outcome {
    reply(
        vec![ReplyBlock::Text {
            text: text.to_owned(),
        }],
        usage(100, 10),
    )
}

pub fn calls(calls: &[(&str, &str)]) -> Outcome {
    let blocks = calls.iter().map(|(name, arguments)| ReplyBlock::ToolUse {
        id: "x".to_owned(),
        name: (*name).to_owned(),
        arguments: (*arguments).to_owned(),
        raw: None,
    });
    reply(blocks.collect(), usage(100, 10))
}

pub fn reply(blocks: Vec<ReplyBlock>, usage: Option<Usage>) -> Outcome {
    let finish = "stop".to_owned();
    Outcome::Completion(Completion {
        blocks,
        finish,
        usage,
        session: None,
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
