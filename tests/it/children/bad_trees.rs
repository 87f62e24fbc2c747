//! Random trees with one unreadable thread: every other thread can still be ended, and the bad one
//! is named.

use super::fixture::ThreadFamily;
use super::random_forest::RandomForest;
use super::random_requests::request;
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{
    CommitOp, RecordExpectation, RecordKey, RecordPage, StorageBackend, StorageError, StoredRecord,
};
use threadkeep_core::runner::Signal;
use threadkeep_tests::soak::repetitions;

/// Number of random histories of a test run.
const CASES: u32 = 24;

/// Deletes a record, or overwrites it with text that is no record.
fn damage(store: &dyn StorageBackend, collection: &str, name: &str, delete: bool) {
    let key = RecordKey::new(collection, name);
    let op = match delete {
        true => CommitOp::Delete { key },
        false => CommitOp::Put {
            key,
            expect: RecordExpectation::Any,
            value: r#"{"format":"#.to_owned(),
        },
    };
    store.commit(&[op], false).unwrap();
}

/// The damaged collections: records of the thread itself, or the messages that wait for it.
const COLLECTIONS: [&str; 4] = ["thread", "head", "chain", "inbox"];

/// Damages one thread of a forest and returns its id, and that of its chain, if it can no longer be
/// read.
fn damage_one(
    forest: &RandomForest,
    which: u8,
    collection: u8,
    delete: bool,
) -> Option<(String, String)> {
    let all = forest.load_all();
    let victim = &all[usize::from(which) % all.len()];
    let (key, store) = (victim.key(), &*forest.world.store);
    match COLLECTIONS[usize::from(collection) % COLLECTIONS.len()] {
        "inbox" => {
            let (start, end) = (format!("{key}\u{1}"), format!("{key}\u{2}"));
            for item in store.scan("inbox", &start, &end, 500, false).unwrap().items {
                damage(store, "inbox", &item.key.name, delete);
            }
            None
        }
        // The record of a chain is that of all its links.
        "chain" if victim.chain_key() != key || !victim.is_tip() => None,
        collection => {
            damage(store, collection, &key, delete);
            let thread = &victim.thread.value;
            Some((thread.id.clone(), thread.chain.clone()))
        }
    }
}

/// Passes intents on until nothing changes; returns the threads that could not be told.
fn sweep(forest: &RandomForest, good: &[String]) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    // A tree has fewer levels than this.
    for _ in 0..12 {
        for thread in good {
            let mut cursor = None;
            loop {
                let page = forest.world.service.sweep_page(thread, cursor).unwrap();
                named.extend(page.unreadable.into_iter().map(|(name, _)| name));
                cursor = page.cursor;
                if cursor.is_none() {
                    break;
                }
            }
        }
    }
    named
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: repetitions(CASES),
        max_shrink_iters: 1_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn unreadable_thread_affects_no_other(
        requests in prop::collection::vec(request(), 1..80),
        (which, collection, delete) in (any::<u8>(), any::<u8>(), any::<bool>()),
    ) {
        let mut forest = RandomForest::new();
        for request in requests {
            forest.perform(request);
        }
        let damaged = damage_one(&forest, which, collection, delete);
        let (bad, chain) = damaged.unzip();
        let service = &forest.world.service;
        let is_good = |thread: &&String| Some(*thread) != bad.as_ref();
        let good: Vec<String> = forest.world.threads.iter().filter(is_good).cloned().collect();
        let (many, _) = service.list(None, 100, None).unwrap();
        let named: Vec<String> = many.unreadable.into_iter().map(|(name, _)| name).collect();
        prop_assert_eq!(named, bad.clone().into_iter().collect::<Vec<_>>());
        service.ready(100, None, None).unwrap();
        let held = service.recover(&[], None).unwrap().held;
        let holders = held.into_iter();
        let holders = holders.filter_map(|one| one.head.value.holder.clone());
        let dead: Vec<String> = holders.collect();
        service.recover(&dead, None).unwrap();
        forest.world.advance(3_600_000);
        let now = |thread: &String| service.load(thread).unwrap().head.value;
        for thread in &good {
            let ended = now(thread).status.is_terminal();
            let killed = service.signal(thread, "the end", &Signal::Kill);
            prop_assert!(ended || killed.is_ok(), "{}: {:?}", thread, killed);
        }
        let untold = sweep(&forest, &good);
        // A chain of which a later link is bad is named by its first.
        let is_bad = |name: &String| [&bad, &chain].contains(&&Some(name.clone()));
        prop_assert!(untold.iter().all(is_bad), "{:?}", untold);
        for thread in &good {
            let head = now(thread);
            prop_assert!(head.status.is_terminal(), "{} is {}", thread, head.status);
            let keeps = head.sweep.is_some();
            prop_assert!(!keeps || !untold.is_empty(), "{} has told all that it could", thread);
        }
    }
}

/// A store with a bug: once it is made to, scans that find something name a record that nobody
/// asked for as well.
struct IntrusiveStore {
    inner: MemoryStore,
    intrudes: AtomicBool,
}

impl StorageBackend for IntrusiveStore {
    threadkeep_tests::delegate_calls!(inner: get, commit, read_log);

    fn scan(
        &self,
        collection: &str,
        start: &str,
        end: &str,
        limit: u32,
        reverse: bool,
    ) -> Result<RecordPage, StorageError> {
        let mut page = self.inner.scan(collection, start, end, limit, reverse)?;
        if !page.items.is_empty() && self.intrudes.load(Ordering::SeqCst) {
            let key = RecordKey::new(collection, "x");
            let (version, value) = (1, String::new());
            let intruder = StoredRecord {
                key,
                version,
                value,
            };
            page.items.insert(0, intruder);
        }
        Ok(page)
    }
}

/// Symptom: a call of `tree` trapped where a foreign store named a record outside the range that it
/// was asked for. Cause: the name was cut at a place that it does not have. Kind: texts that a host
/// gives.
#[test]
fn a_tree_is_told_where_a_store_names_what_was_not_asked_for() {
    let store = Arc::new(IntrusiveStore {
        inner: MemoryStore::new(),
        intrudes: AtomicBool::new(false),
    });
    let mut family = ThreadFamily::over(Arc::<IntrusiveStore>::clone(&store));
    let child = family.spawn(json!({"directive": "work"}));
    store.intrudes.store(true, Ordering::SeqCst);
    let page = family.world.service.tree_page(&family.boss, None).unwrap();
    let mut names = page
        .branches
        .iter()
        .map(|(loaded, _)| loaded.thread.value.id.clone());
    assert!(names.any(|name| name == child));
    assert_eq!(page.unreadable.len(), 1);
}
