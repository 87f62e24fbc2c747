//! Histories that stand at another thread than the one they were written for.
//!
//! Symptom: with histories, heads and all, of two finished threads swapped, the audit found
//! nothing. Cause: the hash chain of a history did not say whose it is. Fix: it begins with the
//! hash of its thread and chain. Kind: two roots, in every store.

use super::fixture::{create, open, run_to_end};
use crate::runner::fixture::{RunnerFixture, fails};
use std::sync::Arc;
use threadkeep::audit::{StoreInvariant, audit};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{
    COLLECTIONS, CommitOp, CommitOutcome, RecordExpectation, RecordKey, StorageBackend,
};
use threadkeep_component::service::{Error, ErrorKind};
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::runner::StepOutcome;
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
        copy_store(&*written, &*store, &[]);
        assert_eq!(audit(&*store).unwrap().findings, []);
    }
    let temp = tempfile::tempdir().unwrap();
    let stores: [Arc<dyn StorageBackend>; 2] = [Arc::new(MemoryStore::new()), open(temp.path())];
    for store in stores {
        copy_store(&*written, &*store, &["head", "history"]);
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

/// Symptom: a suspended thread with another thread's history was resumed: it sent the other's
/// conversation to its own model, and paid for it. Cause: only the audit compared histories with
/// their threads. Fix: a start does, too. Kind: the history alone, with its head, and an edited
/// prompt.
#[test]
fn a_history_or_prompt_of_another_thread_is_not_gone_on_with() {
    let written = Arc::new(MemoryStore::new());
    let store: Arc<dyn StorageBackend> = Arc::<MemoryStore>::clone(&written);
    let mut world = RunnerFixture::over(store, MapLibrary::small());
    for id in SWAPPED {
        create(&world, id, Some("work"));
        world.start(id, Some("go on")).unwrap();
        let stopped = StepOutcome::Stopped(fails("stopped", true));
        world.submit(id, stopped).unwrap();
    }
    let cases: [(&[&str], Option<&str>); 5] = [
        (&[], None),
        (&["history"], Some("is that of another thread")),
        (&["head", "history"], Some("is that of another thread")),
        (&["head"], Some("does not end with the entry")),
        (&["pin"], Some("is not the text that has this hash")),
    ];
    for (swapped, problem) in cases {
        let store: Arc<dyn StorageBackend> = Arc::new(MemoryStore::new());
        copy_store(&*written, &*store, swapped);
        let mut copy = RunnerFixture::over(Arc::clone(&store), MapLibrary::small());
        let before = store.scan("head", "", "\u{10ffff}", 10, false).unwrap();
        let started = copy.start("first", None);
        match (started.map_err(Error::into_kind), problem) {
            (Ok(_), None) => {}
            (Err(ErrorKind::Core(CoreErrorKind::Corrupt(message))), Some(problem)) => {
                assert!(message.contains(problem), "{swapped:?}: {message}");
                let after = store.scan("head", "", "\u{10ffff}", 10, false).unwrap();
                assert_eq!(before, after, "{swapped:?}");
            }
            (started, _) => panic!("{swapped:?}: {started:?}"),
        }
    }
}

/// Copies all records and histories. Of the named collections and logs, what belongs to one of
/// [`SWAPPED`] is put at the other; a pin is edited.
fn copy_store(from: &dyn StorageBackend, into: &dyn StorageBackend, swapped: &[&str]) {
    let target = |of: &str, name: &str| match (swapped.contains(&of), name) {
        (true, "first") => "second".to_owned(),
        (true, "second") => "first".to_owned(),
        (_, name) => name.to_owned(),
    };
    let mut ops = Vec::new();
    for (collection, _) in COLLECTIONS {
        let page = from.scan(collection, "", "\u{10ffff}", 500, false).unwrap();
        assert!(page.cursor.is_none());
        ops.extend(page.items.into_iter().map(|item| {
            let (name, value) = match collection {
                "head" => (target("head", &item.key.name), item.value),
                "pin" if swapped.contains(&"pin") => (
                    item.key.name,
                    item.value.replace("\"prompt\":\"", "\"prompt\":\"Obey. "),
                ),
                _ => (item.key.name, item.value),
            };
            CommitOp::Put {
                key: RecordKey::new(collection, name),
                expect: RecordExpectation::Any,
                value,
            }
        }));
    }
    for id in SWAPPED {
        let lines = from.read_log("history", id, 1, 500, false).unwrap();
        ops.extend(lines.into_iter().map(|line| CommitOp::Append {
            log: "history".to_owned(),
            partition: target("history", id),
            at: line.position,
            value: line.value,
        }));
    }
    let done = into.commit(&ops, false).unwrap();
    assert!(matches!(done, CommitOutcome::Committed));
}
