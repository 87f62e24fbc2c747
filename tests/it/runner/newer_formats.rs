//! Records that a newer program has written: they are read and never written.
//!
//! Symptom: a head of format 2 was rewritten without the fields that this program does not know,
//! and still said format 2. Cause: no reader looked at the format. Fix: each operation that writes
//! answers `newer-format`. Kind: every record of a thread, every export that writes.

use super::fixture::{RunnerFixture, fails, says, user};
use std::collections::BTreeMap;
use threadkeep::storage::{COLLECTIONS, CommitOp, RecordExpectation, RecordKey, StorageBackend};
use threadkeep_component::service::Error;
use threadkeep_component::service::ledger::UnresolvedEstimate;
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::{
    CallBill, DecisionInputs, HolderProof, Signal, StepOutcome, StepSubmission,
};
use threadkeep_core::time::UnixTime;

/// A call that writes, by the name of its export.
type WritingCall = (&'static str, fn(&RunnerFixture, &str) -> Result<(), Error>);

const CALLS: [WritingCall; 11] = [
    ("set-title", |world, id| {
        world.service.set_title(id, Some("t".to_owned())).map(drop)
    }),
    ("open", |world, id| {
        let deadline = UnixTime::from_millis(1_800_000_100_000);
        world.service.open(id, "h/9", deadline).map(drop)
    }),
    ("append", |world, id| {
        let events = [format!(r#"{{"type":"message",{}"#, &user("x")[1..])];
        world.service.append(id, None, Some(1), &events).map(drop)
    }),
    ("close", |world, id| {
        let token = world.held.get(id).map_or(0, |held| held.token);
        world.service.close(id, token, "idle", None).map(drop)
    }),
    ("hold", |world, id| {
        let token = world.held.get(id).map_or(0, |held| held.token);
        let asked = UnresolvedEstimate::Amount(NanoUsd::new(1));
        let deadline = UnixTime::from_millis(1_800_000_100_000);
        world
            .service
            .hold(id, token, "k", &asked, deadline)
            .map(drop)
    }),
    ("settle", |world, id| {
        world.service.settle(id, 1, CallBill::Nothing).map(drop)
    }),
    ("start", |world, id| {
        world.service.start(id, None, "h/9", "k", None).map(drop)
    }),
    ("claim", |world, id| {
        world.service.claim(id, "h/9", HolderProof::Dead).map(drop)
    }),
    ("submit", |world, id| {
        let held = &world.held[id];
        let outcomes = [
            says("Done."),
            StepOutcome::Failure(fails("transient", true)),
        ];
        outcomes.into_iter().try_for_each(|outcome| {
            let submission = StepSubmission {
                token: held.token,
                version: held.handed.step.version,
                outcome,
                inputs: DecisionInputs::default(),
            };
            let done = world.service.submit(id, &submission, submission.version);
            done.map(drop)
        })
    }),
    ("progress", |world, id| {
        world
            .service
            .progress(id, world.held[id].token, "half")
            .map(drop)
    }),
    ("signal", |world, id| {
        world.service.signal(id, "s", &Signal::Kill).map(drop)
    }),
];

#[test]
fn records_of_a_newer_format_are_read_and_never_written() {
    for collection in ["thread", "head", "chain"] {
        let mut world = RunnerFixture::new();
        let id = world.create(Some("work"));
        world.start(&id, None).unwrap();
        raise_format(&*world.store, collection, &id);
        let before = all_records(&*world.store);
        for (name, call) in CALLS {
            let answer = call(&world, &id);
            assert!(
                matches!(
                    answer,
                    Err(Error::Core(CoreError::NewerFormat { format: 2, .. }))
                ),
                "{name} with a {collection} of format 2: {answer:?}"
            );
        }
        let recovered = world.service.recover(&["h/0".to_owned()], None).unwrap();
        assert_eq!(recovered.unreadable.len(), 1, "it is named: {recovered:?}");
        assert_eq!(recovered.unreadable[0].1.code, "newer-format");
        assert_eq!(all_records(&*world.store), before, "{collection}");
        let report = threadkeep::audit::audit(&*world.store).unwrap();
        let named = report
            .findings
            .iter()
            .any(|one| one.found.contains("newer program"));
        assert!(named, "{collection}: {report:#?}");
        let read = world.service.load(&id).unwrap();
        assert_eq!(read.thread.value.id, id);
        assert_eq!(world.service.entries(&id, 0, None, 9).unwrap().1.len(), 1);
        world.service.render(&id, "markdown", None, 0).unwrap();
    }
}

fn raise_format(store: &dyn StorageBackend, collection: &str, id: &str) {
    let key = RecordKey::new(collection, id);
    let found = store.get(std::slice::from_ref(&key)).unwrap();
    let value = found[0]
        .value
        .replacen(r#""format":1"#, r#""format":2,"phase":"new""#, 1);
    assert_ne!(value, found[0].value);
    let put = CommitOp::Put {
        key,
        expect: RecordExpectation::Any,
        value,
    };
    store.commit(&[put], false).unwrap();
}

fn all_records(store: &dyn StorageBackend) -> BTreeMap<(String, String), String> {
    let mut records = BTreeMap::new();
    for (collection, _) in COLLECTIONS {
        let page = store
            .scan(collection, "", "\u{10ffff}", 500, false)
            .unwrap();
        for item in page.items {
            records.insert((collection.to_owned(), item.key.name), item.value);
        }
    }
    records
}
