//! An engine with two tenants: one with a hostile component, one with the real component.

use crate::component::project::engine_with;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use threadkeep::clock::SystemClock;
use threadkeep::component::{SystemRandom, TenantContext};
use threadkeep::engine::Engine;
use threadkeep::limits::EngineLimits;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{
    CommitOp, CommitOutcome, LogEntry, RecordKey, RecordPage, StorageBackend, StorageError,
    StoredRecord,
};
use threadkeep::tenant::Tenant;
use threadkeep_tests::fixture::{MapLibrary, draft};
use threadkeep_tests::programs;

/// Limits that are short enough for a test and long enough for honest calls on a busy machine.
pub(super) fn limits() -> EngineLimits {
    EngineLimits {
        compute_time_max: Duration::from_secs(1),
        wall_time_max: Duration::from_secs(5),
        ..EngineLimits::strict()
    }
}

/// A tenant of an engine over a store.
pub(super) fn tenant(engine: &Engine, storage: Arc<dyn StorageBackend>) -> Tenant {
    let large = serde_json::Value::String("x".repeat(1 << 20)).to_string();
    let context = TenantContext {
        storage,
        library: Arc::new(MapLibrary::small().with("large", "large", &large)),
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
    };
    Tenant::new(engine.clone(), context)
}

/// Both tenants, on the threads of one engine.
pub(super) struct TwoTenants {
    pub(super) engine: Engine,
    pub(super) gate: Arc<GatedStore>,
    pub(super) hostile: Tenant,
    pub(super) neighbour: Tenant,
}

impl TwoTenants {
    pub(super) fn new(program: &str, limits: EngineLimits) -> Self {
        let engine = engine_with(limits);
        let gate = Arc::new(GatedStore::new());
        let evil = engine
            .prepare_sibling(&programs::build_program(program), None)
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        Self {
            gate: Arc::clone(&gate),
            hostile: tenant(&evil, gate),
            neighbour: tenant(&engine, Arc::new(MemoryStore::new())),
            engine,
        }
    }
}

/// Creates threads and reads them back until `done`; returns the number of correct answers before.
pub(super) async fn exercise_neighbour(neighbour: &Tenant, done: &AtomicBool) -> usize {
    let mut meanwhile = 0;
    loop {
        let made = neighbour.create(draft(Some("work"))).await.unwrap();
        let got = neighbour.get(&made.id).await.unwrap();
        assert_eq!((got.id, got.status.as_str()), (made.id, "created"));
        if done.load(Ordering::Relaxed) {
            return meanwhile;
        }
        meanwhile += 1;
    }
}

/// A store whose `get` does not come back before the gate is open.
pub(super) struct GatedStore {
    store: MemoryStore,
    open: Mutex<bool>,
    opened: Condvar,
    inside: AtomicUsize,
    most: AtomicUsize,
}

impl GatedStore {
    fn new() -> Self {
        Self {
            store: MemoryStore::new(),
            open: Mutex::default(),
            opened: Condvar::new(),
            inside: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        }
    }

    pub(super) fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    /// Returns the calls that are inside now, and the most that were at once.
    pub(super) fn calls_inside(&self) -> (usize, usize) {
        let load = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        (load(&self.inside), load(&self.most))
    }
}

impl StorageBackend for GatedStore {
    fn get(&self, keys: &[RecordKey]) -> Result<Vec<StoredRecord>, StorageError> {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        let open = self.open.lock().unwrap();
        drop(self.opened.wait_while(open, |open| !*open).unwrap());
        self.inside.fetch_sub(1, Ordering::SeqCst);
        self.store.get(keys)
    }

    fn scan(
        &self,
        collection: &str,
        start: &str,
        end: &str,
        limit: u32,
        reverse: bool,
    ) -> Result<RecordPage, StorageError> {
        self.store.scan(collection, start, end, limit, reverse)
    }

    fn read_log(
        &self,
        log: &str,
        partition: &str,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<LogEntry>, StorageError> {
        self.store.read_log(log, partition, start, limit, reverse)
    }

    fn commit(&self, ops: &[CommitOp], closing: bool) -> Result<CommitOutcome, StorageError> {
        self.store.commit(ops, closing)
    }
}
