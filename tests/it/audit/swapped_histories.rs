//! Histories that stand at another thread than the one they were written for.
//!
//! Symptom: with histories, heads and all, of two finished threads swapped, the audit found
//! nothing. Cause: the hash chain of a history did not say whose it is. Fix: it begins with the
//! hash of its thread and chain. Kind: two roots, in every store.

use super::fixture::{create, open, run_to_end};
use crate::runner::fixture::RunnerFixture;
use std::sync::Arc;
use threadkeep::audit::{StoreInvariant, audit};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{
    COLLECTIONS, CommitOp, CommitOutcome, RecordExpectation, RecordKey, StorageBackend,
};
use threadkeep_tests::fixture::MapLibrary;

const SWAPPED: [&str; 2] = ["first", "second"];

#[test]
fn swapped_histories_are_found() {
    let written = Arc::new(MemoryStore::new());
    let store: Arc<dyn StorageBackend> = Arc::<MemoryStore>::clone(&written);
    let mut world = RunnerFixture::over(store, MapLibrary::small());
    for id in SWAPPED {
        create(&world, id, Some("work"));
    }
    for id in SWAPPED {
        run_to_end(&mut world, id);
    }
    let temp = tempfile::tempdir().unwrap();
    let stores: [Arc<dyn StorageBackend>; 2] = [Arc::new(MemoryStore::new()), open(temp.path())];
    for store in stores {
        copy_store(&*written, &*store, false);
        assert_eq!(audit(&*store).unwrap().findings, []);
    }
    let temp = tempfile::tempdir().unwrap();
    let stores: [Arc<dyn StorageBackend>; 2] = [Arc::new(MemoryStore::new()), open(temp.path())];
    for store in stores {
        copy_store(&*written, &*store, true);
        let report = audit(&*store).unwrap();
        let mut named: Vec<&str> = report.findings.iter().map(|f| f.thread.as_str()).collect();
        named.sort_unstable();
        assert_eq!(named, SWAPPED, "{report:#?}");
        for finding in &report.findings {
            assert_eq!(finding.invariant, StoreInvariant::Histories);
            assert!(finding.found.contains("another thread"), "{finding:?}");
        }
    }
}

/// Copies all records and histories; swaps the heads and histories of [`SWAPPED`] if asked.
fn copy_store(from: &dyn StorageBackend, into: &dyn StorageBackend, swaps: bool) {
    let target = |name: &str| match (swaps, name) {
        (true, "first") => "second".to_owned(),
        (true, "second") => "first".to_owned(),
        (_, name) => name.to_owned(),
    };
    let mut ops = Vec::new();
    for (collection, _) in COLLECTIONS {
        let page = from.scan(collection, "", "\u{10ffff}", 500, false).unwrap();
        assert!(page.cursor.is_none());
        ops.extend(page.items.into_iter().map(|item| {
            let name = match collection {
                "head" => target(&item.key.name),
                _ => item.key.name,
            };
            CommitOp::Put {
                key: RecordKey::new(collection, name),
                expect: RecordExpectation::Any,
                value: item.value,
            }
        }));
    }
    for id in SWAPPED {
        let lines = from.read_log("history", id, 1, 500, false).unwrap();
        ops.extend(lines.into_iter().map(|line| CommitOp::Append {
            log: "history".to_owned(),
            partition: target(id),
            at: line.position,
            value: line.value,
        }));
    }
    let done = into.commit(&ops, false).unwrap();
    assert!(matches!(done, CommitOutcome::Committed));
}
