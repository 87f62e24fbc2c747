//! The cost of a change of the state, which does not grow with the thread.

use super::{StateWorld, change, operation, set};
use crate::component::fixture::tenant;
use crate::runner::fixture::RunnerFixture;
use cap_std::fs::Dir;
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;
use tempfile::TempDir;
use threadkeep::documents::ThreadDocuments;
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_tests::counting_store::{CallCountingStore, StorageCalls};
use threadkeep_tests::fixture::MapLibrary;
use tokio::runtime::Runtime;

fn counted_world() -> (StateWorld, Arc<CallCountingStore>) {
    let store = CallCountingStore::over(Arc::new(MemoryStore::new()));
    let world = RunnerFixture::over(Arc::<CallCountingStore>::clone(&store), MapLibrary::small());
    (StateWorld::of(world), store)
}

/// Reads of calls: gets, records, reads of logs, entries, scans, commits.
fn read_counts(calls: &StorageCalls) -> [usize; 6] {
    let StorageCalls {
        gets,
        scans,
        reads,
        entries,
        commits,
        keys,
        ..
    } = calls;
    [*gets, keys.len(), *reads, *entries, *scans, *commits]
}

/// The documents of a thread, which are kept beside it while it grows.
struct KeptDocuments {
    documents: ThreadDocuments,
    runtime: Runtime,
    _directory: TempDir,
}

impl KeptDocuments {
    fn of(store: Arc<dyn StorageBackend>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let threads = Dir::open_ambient_dir(directory.path(), cap_std::ambient_authority());
        Self {
            documents: ThreadDocuments::new(tenant(store), threads.unwrap()),
            runtime: Runtime::new().unwrap(),
            _directory: directory,
        }
    }

    fn refresh(&self, thread: &str) {
        let refreshed = self.runtime.block_on(self.documents.refresh(thread));
        refreshed.unwrap();
    }
}

/// An append reads as much of an old thread as of a young one, and its documents are extended by
/// what is new.
#[test]
fn an_append_reads_as_much_at_turn_10000_as_at_turn_10() {
    let (host, store) = counted_world();
    let service = &host.world.service;
    let documents = KeptDocuments::of(store.clone());
    let add = change(&[], &[operation("thread", "add", "/n", json!(1))]);
    let turn = [
        json!({"type": "message", "role": "user", "content": "q"}).to_string(),
        json!({"type": "message", "role": "assistant", "content": "a"}).to_string(),
    ];
    let mut measured = Vec::new();
    let mut added = 0;
    for n in 1..=10_000 {
        service.append(&host.thread, None, None, &turn).unwrap();
        // The tenth and the last are compared; some between them make the state as old as the
        // thread.
        if n > 10 && n % 50 != 0 {
            continue;
        }
        documents.refresh(&host.thread);
        store.take_calls();
        let begun = Instant::now();
        service
            .append_change(&host.thread, None, None, &add)
            .unwrap();
        let took = begun.elapsed();
        let appended = read_counts(&store.take_calls());
        documents.refresh(&host.thread);
        let with_documents = begun.elapsed();
        added += 1;
        if [10, 10_000].contains(&n) {
            let refreshed = read_counts(&store.take_calls());
            measured.push(((appended, refreshed), (took, with_documents)));
        }
    }
    let [(few, early), (many, late)] = measured[..] else {
        panic!("{measured:?}");
    };
    assert_eq!(few, many, "gets, records, reads, entries, scans, commits");
    println!(
        "an append of one operation, without and with documents: {early:?} at turn 10, {late:?} at \
         turn 10,000"
    );
    assert_eq!(host.state(None)["thread"], json!({"n": added}));
}

/// A load at any version goes back at most 64 entries and one document.
#[test]
fn a_load_reads_at_most_64_entries() {
    let (host, store) = counted_world();
    let service = &host.world.service;
    for n in 0..200 {
        let given = change(&[], &[operation("thread", "add", "/n", json!(1))]);
        service
            .append_change(&host.thread, None, None, &given)
            .unwrap();
        if n % 3 == 0 {
            let note = json!({"type": "note", "name": "n", "body": n}).to_string();
            service.append(&host.thread, None, None, &[note]).unwrap();
        }
    }
    let loaded = service.load(&host.thread).unwrap();
    let mut most = 0;
    for version in 1..=loaded.head.value.version {
        store.take_calls();
        service.state_at(&loaded, version).unwrap();
        let read = store.take_calls();
        most = most.max(read.entries);
        assert!(read.entries <= 65, "version {version}: {read:?}");
    }
    assert!(most > 60, "the log of states is written too often: {most}");
}

#[test]
fn a_thread_whose_state_stays_reads_none_of_it() {
    let (mut host, store) = counted_world();
    host.append(&change(
        &[set("thread", "x", json!("y".repeat(1_000)))],
        &[],
    ))
    .unwrap();
    let thread = host.thread.clone();
    host.world.start(&thread, Some("hello")).unwrap();
    store.take_calls();
    host.world
        .submit(&thread, crate::runner::fixture::says("done"))
        .unwrap();
    let read = store.take_calls();
    let states = read
        .keys
        .iter()
        .filter(|key| key.collection == "state")
        .count();
    assert_eq!(states, 0, "{:?}", read.keys);
}
