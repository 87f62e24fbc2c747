//! The tip of a chain as the native host finds it, and what the host sends it.

use crate::children::fixture::ThreadFamily;
use crate::component::fixture::{scripted_driver, tenant};
use crate::component::project::engine;
use crate::runner::fixture::{RunnerFixture, says};
use std::sync::Arc;
use threadkeep::component::TenantContext;
use threadkeep::driver::{DriveError, EventSink, StopReceiver};
use threadkeep::error::CallError;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{CommitOp, RecordExpectation, RecordKey, StorageBackend};
use threadkeep::tenant::Tenant;
use threadkeep::wit;
use threadkeep::wit::runner::SignalKind;
use threadkeep_core::{id, key};
use threadkeep_tests::fixture::MapLibrary;
use threadkeep_tests::planted_links::plant_link;

/// Plants a chain of three threads that nobody holds; returns the first.
fn chain_of_three(store: &Arc<MemoryStore>) -> String {
    let mut world = RunnerFixture::over(store.clone(), MapLibrary::small());
    let first = world.create(None);
    plant_link(&world.service, &first, "second");
    plant_link(&world.service, "second", "third");
    first
}

/// Symptom: a Ctrl-C, a `cancel` or a `kill` that met a hand-off was lost: the next link was merely
/// stopped, or the command failed. Cause: the thread had been continued since its tip was looked
/// up, and the answer `continued` was taken for the end of the run. Fix: one call, which follows
/// the chain, for all signals and titles. Kind: calls of a tip that was found before.
#[tokio::test]
async fn a_signal_follows_a_chain_that_went_on_meanwhile() {
    let store = Arc::new(MemoryStore::new());
    let first = chain_of_three(&store);
    let tenant = tenant(store);
    for link in [first.as_str(), "second"] {
        let late = tenant.signal(link, "late", SignalKind::Cancel).await;
        let continued = matches!(&late, Err(CallError::Refused(wit::Error::Continued(_))));
        assert!(continued, "{late:?}");
    }
    let mut tip = first.clone();
    let titled = tenant.set_tip_title(&mut tip, Some("A title".to_owned()));
    assert_eq!(titled.await.unwrap().id, "third");
    assert_eq!(tip, "third");
    let message = SignalKind::Message(threadkeep::models::user_message("And?"));
    for (link, what) in [(first.as_str(), message), ("second", SignalKind::Cancel)] {
        let mut tip = link.to_owned();
        let sent = tenant.signal_tip(&mut tip, link, what).await;
        assert_eq!((sent.is_ok(), tip.as_str()), (true, "third"), "{sent:?}");
    }
    assert_eq!(tenant.get("third").await.unwrap().status, "cancelled");
    // Other errors are those of the thread that was asked.
    let mut unknown = "nobody".to_owned();
    let lost = tenant.signal_tip(&mut unknown, "n", SignalKind::Kill).await;
    let not_found = matches!(&lost, Err(CallError::Refused(wit::Error::NotFound(_))));
    assert!(not_found && unknown == "nobody", "{lost:?}");
}

/// Symptom: `resume` of a thread whose chain has an unreadable link between it and the tip failed
/// in the host. Cause: the host walked from link to link. Fix: one helper reads the tip that each
/// link names. Kind: work for each link of a chain, and rules that stand twice.
#[tokio::test]
async fn the_tip_is_found_past_an_unreadable_link() {
    let store = Arc::new(MemoryStore::new());
    let first = chain_of_three(&store);
    let broken = CommitOp::Put {
        key: RecordKey::new(key::THREAD, id::key("second")),
        expect: RecordExpectation::Any,
        value: "{".to_owned(),
    };
    store.commit(&[broken], false).unwrap();
    let tenant = tenant(store);
    assert!(tenant.get("second").await.is_err(), "it is unreadable");
    for link in [first.as_str(), "third"] {
        assert_eq!(tenant.get_tip(link).await.unwrap().id, "third", "{link}");
    }
}

/// Symptom: with a broken file of settings `resume` of a thread that had ended, and whose child had
/// not, said nothing of the file. Cause: the driver took each `invalid` for the input that is
/// lacking. Fix: it looks at the field. Kind: errors that are told by their case alone.
#[tokio::test]
async fn a_resume_tells_of_broken_settings_although_a_child_is_open() {
    let store = Arc::new(MemoryStore::new());
    let mut family = ThreadFamily::over(store.clone());
    family.spawn(serde_json::json!({"directive": "work"}));
    let boss = family.boss.clone();
    family.world.submit(&boss, says("Done.")).unwrap();
    assert_eq!(family.status(&boss), "completed");
    let library = MapLibrary::small().with("settings", "policy", r#"{"limits": 5}"#);
    let context = TenantContext::new(store, Arc::new(library));
    let tenant = Tenant::new(engine(), context);
    let driver = scripted_driver(&tenant, r#"[{"text": "x"}]"#, &Arc::default(), "p-tips");
    let (none, never) = (EventSink::none(), StopReceiver::never());
    match driver.resume(&boss, None, &none, &never).await {
        Err(DriveError::Call(CallError::Refused(wit::Error::Invalid(what)))) => {
            assert_ne!(what.field, "input", "{what:?}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(family.due().len(), 1, "the child was not begun");
}
