//! A boss and its children, driven by hand.

use crate::runner::fixture::{RunnerFixture, calls};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{CommitOp, CommitOutcome, StorageBackend, StorageError};
use threadkeep_component::service::Error;
use threadkeep_component::service::runner::StepHandle;
use threadkeep_core::history::Event;
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::runner::HolderProof;
use threadkeep_tests::fixture::MapLibrary;

/// The result of a call: its tool, whether it failed, its text.
pub type ToolCallResult = (String, bool, String);

pub struct ThreadFamily {
    pub world: RunnerFixture,
    pub boss: String,
}

impl ThreadFamily {
    /// Builds a boss with 0.1 USD whose first step is pending.
    pub fn new() -> Self {
        Self::over(Arc::new(MemoryStore::new()))
    }

    /// Builds the same over a given store.
    pub fn over(store: Arc<dyn StorageBackend>) -> Self {
        Self::in_world(RunnerFixture::over(store, MapLibrary::small()))
    }

    /// Builds the same in a world whose library has a directive `boss`.
    pub fn in_world(mut world: RunnerFixture) -> Self {
        let boss = world.create(Some("boss"));
        world.start(&boss, None).unwrap();
        Self { world, boss }
    }

    pub fn load(&self, thread: &str) -> LoadedThread {
        self.world.service.load(thread).unwrap()
    }

    /// Submits a reply of a thread with these calls; returns the results in its newest entry.
    pub fn reply(&mut self, thread: &str, wanted: &[(&str, Value)]) -> Vec<ToolCallResult> {
        let texts: Vec<(&str, String)> = wanted
            .iter()
            .map(|(name, arguments)| (*name, arguments.to_string()))
            .collect();
        let texts: Vec<(&str, &str)> = texts
            .iter()
            .map(|(name, text)| (*name, text.as_str()))
            .collect();
        self.world.submit(thread, calls(&texts)).unwrap();
        self.world.audit();
        self.results(thread)
    }

    /// Results in the newest entry.
    pub fn results(&self, thread: &str) -> Vec<ToolCallResult> {
        let loaded = self.load(thread);
        let entry = self.world.service.entry(&loaded, loaded.head.value.version);
        let events = entry.unwrap().unwrap().events;
        let results = events.into_iter().filter_map(|event| match event {
            Event::ToolResult(result) => Some((result.name, result.failed, result.text)),
            _ => None,
        });
        results.collect()
    }

    /// Spawns one child of `boss`; returns its id.
    pub fn spawn(&mut self, arguments: Value) -> String {
        let boss = self.boss.clone();
        self.spawn_under(&boss, arguments)
    }

    pub fn spawn_under(&mut self, thread: &str, arguments: Value) -> String {
        let got = self.reply(thread, &[("spawn_thread", arguments)]);
        assert_eq!((got.len(), got[0].1), (1, false), "{got:?}");
        let told: Value = serde_json::from_str(&got[0].2).unwrap();
        told["thread"].as_str().unwrap().to_owned()
    }

    /// Spawns a child of `boss` whose first step is pending.
    pub fn spawn_running(&mut self, directive: &str) -> String {
        let child = self.spawn(json!({ "directive": directive }));
        self.world.start(&child, None).unwrap();
        child
    }

    pub fn claim(&mut self, thread: &str) -> Result<StepHandle, Error> {
        let holder = format!("claimer/{}", self.world.threads.len());
        let handed = self.world.service.claim(thread, &holder, HolderProof::None);
        self.world.hold(thread, handed)
    }

    /// Due threads under the boss, and whether they have an intent to pass on.
    pub fn due(&self) -> Vec<(String, bool)> {
        let (mut due, mut cursor) = (Vec::new(), None);
        loop {
            let under = Some(&*self.boss);
            let page = self.world.service.ready(100, cursor, under).unwrap();
            due.extend(page.threads.into_iter().map(|due| {
                let head = due.loaded.head.value;
                (
                    due.loaded.thread.value.id.clone(),
                    head.sweep.is_some() || head.intent.is_some(),
                )
            }));
            cursor = page.cursor;
            if cursor.is_none() {
                return due;
            }
        }
    }

    /// Passes all intents on, to the end.
    pub fn sweep(&self) {
        for _ in 0..20 {
            let mut told = false;
            for (thread, sweep) in self.due() {
                if sweep {
                    told = true;
                    let mut cursor = None;
                    loop {
                        cursor = self
                            .world
                            .service
                            .sweep_page(&thread, cursor)
                            .unwrap()
                            .cursor;
                        if cursor.is_none() {
                            break;
                        }
                    }
                }
            }
            self.world.audit();
            if !told {
                return;
            }
        }
        panic!("there is always more to pass on");
    }

    pub fn status(&self, thread: &str) -> String {
        self.world.status(thread)
    }

    /// Returns (limit, spent, held, reserved) of the account of a thread's own chain.
    pub fn account(&self, thread: &str) -> (u64, u64, u64, u64) {
        let account = self.load(thread).chain.value.account.clone();
        (
            account.limit.unwrap().get(),
            account.spent.get(),
            account.held.get(),
            account.reserved.get(),
        )
    }
}

/// A store that refuses all but closing commits while the test marks it as full.
pub struct FillableStore {
    inner: MemoryStore,
    full: AtomicBool,
}

impl FillableStore {
    pub fn new() -> Self {
        Self {
            inner: MemoryStore::new(),
            full: AtomicBool::new(false),
        }
    }

    pub fn fill(&self) {
        self.full.store(true, Ordering::SeqCst);
    }

    pub fn free(&self) {
        self.full.store(false, Ordering::SeqCst);
    }
}

impl StorageBackend for FillableStore {
    threadkeep_tests::delegate_calls!(inner: get, scan, read_log);

    fn commit(&self, ops: &[CommitOp], closing: bool) -> Result<CommitOutcome, StorageError> {
        if !closing && self.full.load(Ordering::SeqCst) {
            return Err(StorageError::QuotaExceeded { limit: 1, used: 1 });
        }
        self.inner.commit(ops, closing)
    }
}
