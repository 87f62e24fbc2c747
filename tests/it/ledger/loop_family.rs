//! Threads below one another that external loops drive, so that each amount is exact.

use crate::runner::fixture::{RunnerFixture, raise};
use std::collections::BTreeMap;
use threadkeep_component::ports::HostPorts;
use threadkeep_component::service::ledger::{HoldAdmission, UnresolvedEstimate};
use threadkeep_component::service::{Error, ErrorKind};
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::ledger::Account;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::CallBill;
use threadkeep_core::thread::{self, ChainPlace, ResolvedDraft, StatusCause, ThreadDraft};

/// A tenth of a dollar, in nano-USD.
pub const TENTH: u64 = 100_000_000;

/// A world with threads that are held.
pub struct LoopFamily {
    pub world: RunnerFixture,
    tokens: BTreeMap<String, u64>,
    names: u64,
}

impl LoopFamily {
    /// Builds it with the root `root`, which may spend `limit`, or has no limit.
    pub fn new(limit: Option<u64>) -> Self {
        let mut family = Self {
            world: RunnerFixture::new(),
            tokens: BTreeMap::new(),
            names: 0,
        };
        family.root("root", limit);
        family
    }

    /// Adds one more root.
    pub fn root(&mut self, id: &str, limit: Option<u64>) {
        let service = &self.world.service;
        let draft = ThreadDraft {
            id: Some(id.to_owned()),
            ..ThreadDraft::default()
        };
        let resolved = ResolvedDraft {
            reserve: None,
            model: "default".to_owned(),
            limits: ThreadCaps {
                spend: limit.map(NanoUsd::new),
                ..ThreadCaps::NONE
            },
            capabilities: Vec::new(),
            inputs: "{}".to_owned(),
        };
        let now = service.ports().now();
        let plan = thread::create(&draft, resolved, ChainPlace::Root, now, "000000").unwrap();
        assert!(service.ports().commit(plan.writes, false).unwrap());
        self.world.threads.push(id.to_owned());
    }

    /// Adds a child with its own money.
    pub fn child(&self, parent: &str, id: &str, money: u64) {
        self.world.spawn(parent, id, Some(money));
    }

    /// Adds a child that draws on its parent's account.
    pub fn child_without_account(&self, parent: &str, id: &str) {
        self.world.spawn(parent, id, None);
    }

    pub fn open(&mut self, thread: &str) -> u64 {
        if let Some(token) = self.tokens.get(thread) {
            return *token;
        }
        let service = &self.world.service;
        let until = service.ports().now().plus_millis(3_000_000);
        let holder = format!("h/{thread}");
        let opened = service.open(thread, &holder, until).unwrap();
        let token = opened.head.value.token;
        self.tokens.insert(thread.to_owned(), token);
        token
    }

    pub fn hold(&mut self, thread: &str, nanos: u64) -> Result<HoldAdmission, Error> {
        let token = self.open(thread);
        self.names += 1;
        let name = format!("call-{}", self.names);
        let service = &self.world.service;
        let until = service.ports().now().plus_millis(60_000);
        let asked = UnresolvedEstimate::Amount(NanoUsd::new(nanos));
        let held = service.hold(thread, token, &name, &asked, until);
        self.world.audit();
        held
    }

    pub fn settle(&self, thread: &str, version: u64, nanos: u64) -> Result<u64, Error> {
        let bill = CallBill::Amount(NanoUsd::new(nanos));
        let settled = self.world.service.settle(thread, version, bill);
        self.world.audit();
        settled
    }

    /// Holds and settles a call that costs exactly its hold.
    pub fn spend(&mut self, thread: &str, nanos: u64) {
        let held = self.hold(thread, nanos).unwrap();
        self.settle(thread, held.version, nanos).unwrap();
    }

    /// Ends the thread and its loop.
    pub fn end(&mut self, thread: &str) {
        let token = self.open(thread);
        self.tokens.remove(thread);
        let closed = self.world.service.close(thread, token, "completed", None);
        closed.unwrap();
        self.world.audit();
    }

    /// Ends the thread's loop; the thread is idle and can go on later.
    pub fn close_idle(&mut self, thread: &str) {
        let token = self.open(thread);
        self.tokens.remove(thread);
        self.world
            .service
            .close(thread, token, "idle", None)
            .unwrap();
        self.world.audit();
    }

    pub fn raise(&self, thread: &str, nanos: u64) -> Result<(), Error> {
        let caps = ThreadCaps {
            spend: Some(NanoUsd::new(nanos)),
            ..ThreadCaps::NONE
        };
        let name = format!("raise-{nanos}");
        let raised = self.world.service.signal(thread, &name, &raise(caps));
        self.world.audit();
        raised.map(drop)
    }

    pub fn account(&self, thread: &str) -> Account {
        let loaded = self.world.service.load(thread).unwrap();
        loaded.account().clone()
    }

    /// Returns limit, spent, held and reserved of the account that a thread draws on, in whole
    /// tenths of a dollar.
    pub fn tenths(&self, thread: &str) -> [u64; 4] {
        let account = self.account(thread);
        let limit = account.limit.unwrap_or_default();
        [limit, account.spent, account.held, account.reserved].map(|amount| {
            assert_eq!(amount.get() % TENTH, 0, "{thread}: {account:?}");
            amount.get() / TENTH
        })
    }

    /// Returns the thread's own spend in nano-USD.
    pub fn own_cost(&self, thread: &str) -> u64 {
        let loaded = self.world.service.load(thread).unwrap();
        loaded.head.value.counters.spend.get()
    }
}

/// Returns the cause of a denial.
#[track_caller]
pub fn denial_cause<T: std::fmt::Debug>(answer: Result<T, Error>) -> StatusCause {
    match answer.map_err(Error::into_kind) {
        Err(ErrorKind::Core(CoreErrorKind::Exceeded(cause))) => cause,
        other => panic!("it is not denied: {other:?}"),
    }
}
