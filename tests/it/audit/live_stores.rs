//! The audit of large stores, and of stores that change while it reads them.

use super::fixture::{create, run_to_end};
use crate::runner::fixture::{RunnerFixture, calls, says, user};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use threadkeep::audit::{StoreInvariant, audit};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{
    CommitOp, CommitOutcome, LogEntry, RecordKey, RecordPage, StorageBackend, StorageError,
    StoredRecord,
};
use threadkeep_core::thread::StepKind;
use threadkeep_tests::fixture::MapLibrary;

#[test]
fn pages_of_threads_entries_and_children_are_all_read() {
    let mut world = RunnerFixture::new();
    for n in 0..620 {
        create(&world, &format!("t{n:03}"), None);
    }
    create(&world, "top", None);
    // More records than one page holds: 2 for each child.
    for n in 0..310 {
        world.spawn("top", &format!("c{n:03}"), None);
    }
    world.spawn("top", "apart", Some(1_000));
    for _ in 0..60 {
        run_to_end(&mut world, "t000");
    }
    let report = audit(&*world.store).unwrap();
    assert_eq!(report.findings, []);
    assert_eq!((report.threads, report.unsettled), (932, 0));
    assert!(
        report.entries >= 180,
        "more than a page: {}",
        report.entries
    );
    let chain = world
        .store
        .get(&[RecordKey::new("chain", "top")])
        .unwrap()
        .remove(0);
    let value = chain.value.replace(r#""users":312"#, r#""users":311"#);
    assert_ne!(value, chain.value);
    commit_record(&*world.store, chain.key, value);
    let report = audit(&*world.store).unwrap();
    let [finding] = &report.findings[..] else {
        panic!("{report:#?}");
    };
    assert_eq!(
        finding.to_string(),
        "top: ledger (5): expected users 312; found users 311"
    );
}

/// A store that counts what is read.
struct CountingStore {
    inner: MemoryStore,
    reads: AtomicU64,
}

impl StorageBackend for CountingStore {
    threadkeep_tests::delegate_calls!(inner: scan, read_log, commit);

    fn get(&self, keys: &[RecordKey]) -> Result<Vec<StoredRecord>, StorageError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.get(keys)
    }
}

/// Symptom: 100,000 entries of an index without a thread made `audit` and `list` take minutes.
/// Cause: each was looked at by itself, twice, and of each the nearest thread was looked for. Fix:
/// a page together. The kind: what belongs to a thread or a chain.
#[test]
fn entries_without_a_thread_are_looked_at_together() {
    const ENTRIES: u64 = 400;
    let store = Arc::new(CountingStore {
        inner: MemoryStore::new(),
        reads: AtomicU64::new(0),
    });
    let name = |collection: &str, n: u64| match collection {
        "index" => format!("recency\u{1}\u{1}{n:016x}\u{1}t{n}"),
        "due" => format!("{n:016x}\u{1}t{n}"),
        "partial" => format!("t{n}"),
        _ => format!("t{n}\u{1}{n:016x}"),
    };
    for collection in ["index", "due", "inbox", "seen", "pin", "partial"] {
        for n in 0..ENTRIES {
            commit_record(
                &*store,
                RecordKey::new(collection, name(collection, n)),
                String::new(),
            );
        }
    }
    let report = audit(&*store).unwrap();
    let wrong = report.findings.len() as u64 + report.left_out;
    assert_eq!(wrong, ENTRIES * 6, "{report:#?}");
    let reads = store.reads.swap(0, Ordering::Relaxed);
    assert!(reads <= ENTRIES * 6 / 20, "{reads} reads");
    let world = RunnerFixture::over(
        Arc::clone(&store) as Arc<dyn StorageBackend>,
        MapLibrary::small(),
    );
    let (many, _) = world.service.list(None, 100, None).unwrap();
    assert_eq!(many.unreadable.len(), 100);
    let reads = store.reads.load(Ordering::Relaxed);
    assert_eq!(reads, 1, "of a list");
}

fn commit_record(store: &dyn StorageBackend, key: RecordKey, value: String) {
    let expect = threadkeep::storage::RecordExpectation::Any;
    let put = CommitOp::Put { key, expect, value };
    assert_eq!(store.commit(&[put], false), Ok(CommitOutcome::Committed));
}

/// Audits a store while threads and children of one account run in other threads of the process.
#[test]
fn a_store_that_is_written_while_it_is_looked_at_is_clean() {
    const WORKERS: usize = 3;
    let store: Arc<dyn StorageBackend> = Arc::new(MemoryStore::new());
    let world = RunnerFixture::over(Arc::clone(&store), MapLibrary::small());
    create(&world, "top", None);
    for n in 0..WORKERS * 4 {
        world.spawn(
            "top",
            &format!("child{n}"),
            (n % 2 == 0).then_some(10_000_000),
        );
    }
    let mut audits = 0;
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for worker in 0..WORKERS {
            let store = Arc::clone(&store);
            workers.push(scope.spawn(move || {
                let mut world = RunnerFixture::over(store, MapLibrary::small());
                for n in 0..60 {
                    let own = create(&world, &format!("w{worker}-{n}"), Some("work"));
                    perform_run(&mut world, &own);
                    perform_run(&mut world, &format!("child{}", worker * 4 + n % 4));
                }
            }));
        }
        // A worker that panics has finished as well.
        while workers.iter().any(|worker| !worker.is_finished()) {
            let report = audit(&*store).unwrap();
            assert_eq!(report.findings, []);
            audits += 1;
        }
    });
    println!("audits of a store that moves: {audits}");
    let report = audit(&*store).unwrap();
    assert_eq!((report.findings, report.unsettled), (vec![], 0));
}

/// Performs a run whose commits may conflict with others; a refused call is repeated.
fn perform_run(world: &mut RunnerFixture, thread: &str) {
    let holder = format!("h/{thread}");
    let started = loop {
        let started = world
            .service
            .start(thread, Some(&user("hi")), &holder, &holder, None);
        if let Ok(started) = world.hold(thread, started) {
            break started;
        }
    };
    let mut pending = started.step.kind;
    let mut asked = false;
    while let Some(kind) = pending {
        let outcome = match kind {
            StepKind::CallTools => world.outcomes(thread),
            _ if asked => says("done"),
            _ => calls(&[("read", "{}")]),
        };
        if let Ok(handed) = world.submit(thread, outcome) {
            pending = handed.step.kind;
            asked = true;
        }
    }
}

/// A store that shows something wrong: the first time only, or with another version each time.
struct ChangingStore {
    inner: Arc<dyn StorageBackend>,
    always: bool,
    shown: AtomicBool,
    version: AtomicU64,
}

impl ChangingStore {
    fn alter_item(&self, item: &mut StoredRecord) {
        let first = !self.shown.load(Ordering::SeqCst);
        if item.key.collection == "head" && item.key.name == "idle" && (first || self.always) {
            item.value = item.value.replace(r#""turns":2"#, r#""turns":3"#);
            item.version += 1 + self.version.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl StorageBackend for ChangingStore {
    threadkeep_tests::delegate_calls!(inner: scan, read_log, commit);

    fn get(&self, keys: &[RecordKey]) -> Result<Vec<StoredRecord>, StorageError> {
        let mut items = self.inner.get(keys)?;
        items.iter_mut().for_each(|item| self.alter_item(item));
        // The judged snapshot has the index entries beside the head.
        let judged = keys
            .iter()
            .any(|key| key.collection == "index" && key.name.ends_with("idle"));
        self.shown.fetch_or(judged, Ordering::SeqCst);
        Ok(items)
    }
}

#[test]
fn a_finding_counts_only_if_the_same_versions_show_it_again() {
    let mut world = RunnerFixture::new();
    create(&world, "idle", None);
    run_to_end(&mut world, "idle");
    let moving = |always: bool| ChangingStore {
        inner: Arc::clone(&world.store),
        always,
        shown: AtomicBool::new(false),
        version: AtomicU64::new(0),
    };
    let once = audit(&moving(false)).unwrap();
    assert_eq!((once.findings, once.unsettled), (vec![], 0));
    let never_the_same = audit(&moving(true)).unwrap();
    assert_eq!(never_the_same.findings, []);
    assert_eq!(never_the_same.unsettled, 1);
    // The same difference in a store that does not change is a finding.
    let head = world
        .store
        .get(&[RecordKey::new("head", "idle")])
        .unwrap()
        .remove(0);
    let value = head.value.replace(r#""turns":2"#, r#""turns":3"#);
    commit_record(&*world.store, head.key, value);
    let found = audit(&*world.store).unwrap().findings;
    assert!(
        found
            .iter()
            .all(|finding| finding.invariant == StoreInvariant::Counters)
    );
    assert!(!found.is_empty());
}

/// A store whose reads fail gives an error, never a clean report.
#[test]
fn a_store_that_cannot_be_read_has_no_report() {
    struct UnreachableStore;
    impl StorageBackend for UnreachableStore {
        fn get(&self, _: &[RecordKey]) -> Result<Vec<StoredRecord>, StorageError> {
            Err(unavailable_error())
        }
        fn scan(
            &self,
            _: &str,
            _: &str,
            _: &str,
            _: u32,
            _: bool,
        ) -> Result<RecordPage, StorageError> {
            Err(unavailable_error())
        }
        fn read_log(
            &self,
            _: &str,
            _: &str,
            _: u64,
            _: u32,
            _: bool,
        ) -> Result<Vec<LogEntry>, StorageError> {
            Err(unavailable_error())
        }
        fn commit(&self, _: &[CommitOp], _: bool) -> Result<CommitOutcome, StorageError> {
            Err(unavailable_error())
        }
    }
    fn unavailable_error() -> StorageError {
        let message = "on purpose".to_owned();
        StorageError::Unavailable { message }
    }
    assert_eq!(audit(&UnreachableStore), Err(unavailable_error()));
    let empty = audit(&MemoryStore::new()).unwrap();
    assert!(empty.is_clean() && empty.threads == 0);
}
