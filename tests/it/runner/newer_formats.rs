//! Records that a newer program has written: they are read and never written.
//!
//! Symptom: a head of format 2 was rewritten without the fields that this program does not know,
//! and still said format 2. Cause: no reader looked at the format. Fix: each operation that writes
//! answers `newer-format`. Kind: every record of a thread, every export that writes.
//!
//! Symptom: a kill that was refused so ended the children of its thread. Cause: a thread that
//! cannot be written was taken for one that is lost, and what it had spawned was told in its place.
//! Fix: below a record of a newer format nothing is changed.

use super::fixture::{RunnerFixture, fails, says, user};
use crate::children::fixture::ThreadFamily;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{COLLECTIONS, CommitOp, RecordExpectation, RecordKey, StorageBackend};
use threadkeep_component::service::ledger::UnresolvedEstimate;
use threadkeep_component::service::{Error, ErrorKind};
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::{
    CallBill, DecisionInputs, HolderProof, Signal, StepOutcome, StepSubmission,
};
use threadkeep_core::thread::ThreadDraft;
use threadkeep_core::time::UnixTime;
use threadkeep_tests::edited_log::EditedLog;
use threadkeep_tests::fixture::MapLibrary;

/// A call that writes, by the name of its export.
type WritingCall = (&'static str, fn(&RunnerFixture, &str) -> Result<(), Error>);

const CALLS: [WritingCall; 13] = [
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
    ("signal: cancel", |world, id| {
        world.service.signal(id, "s", &Signal::Cancel).map(drop)
    }),
    ("sweep", |world, id| {
        world.service.sweep_page(id, None).map(drop)
    }),
];

/// A running thread with a child.
fn thread_with_child(store: Arc<dyn StorageBackend>) -> (RunnerFixture, String) {
    let mut world = RunnerFixture::over(store, MapLibrary::small());
    let id = world.create(Some("boss"));
    world.spawn(&id, "child", None);
    world.start(&id, None).unwrap();
    (world, id)
}

/// Calls everything that writes, which is refused and changes no record.
fn check_calls(world: &RunnerFixture, id: &str, kind: &str) {
    let before = all_records(&*world.store);
    for (name, call) in CALLS {
        let answer = call(world, id);
        assert!(
            matches!(
                answer.as_ref().map_err(Error::kind),
                Err(ErrorKind::Core(CoreErrorKind::NewerFormat {
                    format: 2,
                    ..
                }))
            ),
            "{name} with a {kind} of format 2: {answer:?}"
        );
        assert_eq!(all_records(&*world.store), before, "{name}, {kind}");
    }
}

#[test]
fn records_of_a_newer_format_are_read_and_never_written() {
    for collection in ["thread", "head", "chain"] {
        let (world, id) = thread_with_child(Arc::new(MemoryStore::new()));
        raise_format(&*world.store, collection, &id);
        let before = all_records(&*world.store);
        check_calls(&world, &id, collection);
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
        world
            .service
            .render(&id, "markdown", None, 0, None)
            .unwrap();
    }
}

/// A sweep that a newer program has left is its own.
#[test]
fn a_sweep_of_a_newer_format_tells_nobody() {
    let (world, id) = thread_with_child(Arc::new(MemoryStore::new()));
    world.service.signal(&id, "s", &Signal::Kill).unwrap();
    assert!(world.service.load(&id).unwrap().head.value.sweep.is_some());
    raise_format(&*world.store, "head", &id);
    check_calls(&world, &id, "head with a sweep");
    assert_eq!(world.status("child"), "created");
}

/// An entry of a newer format has a head of that format. It is read as it stands.
#[test]
fn entries_of_a_newer_format_are_read_and_nothing_is_added() {
    let store = Arc::new(EditedLog::default());
    let (world, id) = thread_with_child(Arc::<EditedLog>::clone(&store));
    let text = |world: &RunnerFixture| world.service.entries(&id, 0, None, 9).unwrap().1;
    let plain = text(&world).remove(0).text;
    raise_format(&*world.store, "head", &id);
    let newer = r#""format":2,"later":"new""#;
    store.edit(r#""format":1"#, newer);
    check_calls(&world, &id, "head and an entry");
    let read = text(&world).remove(0);
    assert_eq!(read.text, plain.replacen(r#""format":1"#, newer, 1));
    let events = world.service.messages(&id, 0, None).unwrap().0;
    assert_eq!(events.len(), 1, "{events:?}");
}

/// Symptom: the records of holds and of creation keys, which are kept for ever, had no format, so
/// that one of a newer program was taken for one of this. Fix: they say it, and one without is of
/// format 1. Kind: both records, each call that rests on one.
#[test]
fn records_that_are_kept_for_ever_have_a_format() {
    let mut world = RunnerFixture::new();
    let id = world.create(None);
    let deadline = UnixTime::from_millis(1_800_000_100_000);
    let opened = world.service.open(&id, "h/9", deadline).unwrap();
    let token = opened.head.value.token;
    let draft = |key: &str| ThreadDraft {
        key: Some(key.to_owned()),
        id: Some("made".to_owned()),
        ..ThreadDraft::default()
    };
    let hold = |world: &RunnerFixture| {
        let asked = UnresolvedEstimate::Amount(NanoUsd::new(1));
        world.service.hold(&id, token, "k", &asked, deadline)
    };
    let admitted = hold(&world).unwrap();
    world.service.create(&draft("once")).unwrap();
    let seen = |world: &RunnerFixture| {
        let page = world.store.scan("seen", "", "", 9, false).unwrap();
        page.items
    };
    let rewrite = |world: &RunnerFixture, from: &str, to: &str| {
        for item in seen(world) {
            assert!(item.value.contains(from), "{}", item.value);
            let put = CommitOp::Put {
                value: item.value.replacen(from, to, 1),
                key: item.key,
                expect: RecordExpectation::Any,
            };
            world.store.commit(&[put], false).unwrap();
        }
    };
    assert_eq!(seen(&world).len(), 2);
    // As an earlier build wrote them.
    rewrite(&world, r#""format":1,"#, "");
    assert_eq!(hold(&world).unwrap(), admitted);
    world.service.create(&draft("once")).unwrap();
    rewrite(&world, "{", r#"{"format":2,"#);
    let before = all_records(&*world.store);
    let answers = [
        hold(&world).map(drop),
        world
            .service
            .settle(&id, admitted.version, CallBill::Nothing)
            .map(drop),
        world.service.create(&draft("once")).map(drop),
    ];
    for answer in answers {
        let newer = matches!(
            answer.as_ref().map_err(Error::kind),
            Err(ErrorKind::Core(CoreErrorKind::NewerFormat {
                format: 2,
                ..
            }))
        );
        assert!(newer, "{answer:?}");
    }
    assert_eq!(all_records(&*world.store), before);
}

/// Text of a record of a newer program, where one of this program has `"format":1`.
const NEWER: &str = r#""format":2,"later":"new""#;

fn raise_format(store: &dyn StorageBackend, collection: &str, id: &str) {
    replace_in_record(store, (collection, id), r#""format":1"#, NEWER);
}

fn replace_in_record(
    store: &dyn StorageBackend,
    (collection, id): (&str, &str),
    from: &str,
    to: &str,
) {
    let key = RecordKey::new(collection, id);
    let found = store.get(std::slice::from_ref(&key)).unwrap();
    let value = found[0].value.replacen(from, to, 1);
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

/// Symptom: a child below a chain of a newer format ran on and ended; its spending and its end were
/// not counted there, and nothing but the audit told. Cause: an account of a newer format was taken
/// for one that is lost. Fix: nothing is written below it, so the run and its end stay owed until a
/// program goes on that knows the format. Kind: children with an account of their own and without,
/// and those below them.
#[test]
fn a_child_below_a_newer_account_keeps_its_run() {
    for has_account in [true, false] {
        let mut family = ThreadFamily::new();
        family.world.count("child");
        let threads = match has_account {
            true => {
                let own = json!({"directive": "boss", "limits": {"spend": "0.02"}});
                let child = family.spawn(own);
                family.world.start(&child, None).unwrap();
                family.world.count("grandchild");
                let below = family.spawn_under(&child, json!({"directive": "work"}));
                family.world.start(&below, None).unwrap();
                vec![below, child]
            }
            false => vec![family.spawn_running("work")],
        };
        let (store, boss) = (Arc::clone(&family.world.store), family.boss.clone());
        raise_format(&*store, "chain", &boss);
        let before = all_records(&*store);
        for thread in &threads {
            let told = family.world.submit(thread, says("done")).map(drop);
            let Err(ErrorKind::Core(CoreErrorKind::NewerFormat { thread: of, .. })) =
                told.as_ref().map_err(Error::kind)
            else {
                panic!("{told:?}");
            };
            assert_eq!(*of, boss);
            let kill = family.world.service.signal(thread, "k", &Signal::Kill);
            assert!(kill.is_err_and(|error| error.is_damage()));
        }
        let holder = |thread: &String| family.load(thread).head.value.holder.clone().unwrap();
        let dead: Vec<String> = threads.iter().map(holder).collect();
        let recovered = family.world.service.recover(&dead, None).unwrap();
        assert_eq!(recovered.closed, Vec::<String>::new());
        let named = recovered.unreadable.iter().map(|(key, _)| &**key);
        let expected: BTreeSet<&str> = threads.iter().map(String::as_str).collect();
        assert_eq!(named.collect::<BTreeSet<_>>(), expected);
        assert_eq!(all_records(&*store), before);
        // A program that knows the format goes on with the same steps.
        replace_in_record(&*store, ("chain", &boss), NEWER, r#""format":1"#);
        for thread in &threads {
            family.world.submit(thread, says("done")).unwrap();
            assert_eq!(family.status(thread), "completed");
        }
        let spent = family.account(&boss).1;
        assert!(spent > 0, "what they spent is in the account");
        family.world.audit();
    }
}
