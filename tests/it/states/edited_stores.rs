//! Stores in which a state was edited: found by a load and by the audit.

use super::{StateWorld, change, operation, set};
use serde_json::json;
use threadkeep::storage::{CommitOp, RecordExpectation, RecordKey};
use threadkeep_tests::auditor::audit;

fn world_with_history() -> StateWorld {
    let host = StateWorld::new();
    host.append(&change(&[set("thread", "x", json!("before"))], &[]))
        .unwrap();
    for _ in 0..70 {
        let add = change(&[], &[operation("thread", "add", "/n", json!(1))]);
        host.world
            .service
            .append_change(&host.thread, None, None, &add)
            .unwrap();
    }
    host.world.audit();
    host
}

#[test]
fn an_edited_record_is_found() {
    let host = world_with_history();
    let key = RecordKey::new("state", host.thread.to_lowercase());
    let stored = host
        .world
        .store
        .get(std::slice::from_ref(&key))
        .unwrap()
        .remove(0);
    let edited = stored.value.replace("before", "behind");
    assert_ne!(edited, stored.value);
    let put = CommitOp::Put {
        key,
        expect: RecordExpectation::Any,
        value: edited,
    };
    host.world.store.commit(&[put], false).unwrap();
    let loaded = host.world.service.load(&host.thread).unwrap();
    let newest = loaded.head.value.version;
    let error = host.world.service.state_at(&loaded, newest).unwrap_err();
    assert!(error.is_damage(), "{error:?}");
    // Earlier versions are made from the entries.
    host.world.service.state_at(&loaded, newest - 1).unwrap();
    let findings = audit(&*host.world.store);
    let told = format!("{findings:?}");
    assert!(told.contains("record of the state"), "{told}");
}

#[test]
fn a_missing_record_is_found_and_stops_nothing_else() {
    let mut host = world_with_history();
    let key = RecordKey::new("state", host.thread.to_lowercase());
    host.world
        .store
        .commit(&[CommitOp::Delete { key }], false)
        .unwrap();
    let loaded = host.world.service.load(&host.thread).unwrap();
    let newest = loaded.head.value.version;
    assert!(
        host.world
            .service
            .state_at(&loaded, newest)
            .unwrap_err()
            .is_damage()
    );
    let add = change(&[], &[operation("thread", "add", "/n", json!(1))]);
    let service = &host.world.service;
    let refused = service
        .append_change(&host.thread, None, None, &add)
        .unwrap_err();
    assert!(refused.is_damage(), "{refused:?}");
    assert!(!audit(&*host.world.store).is_empty());
    // A turn that changes no state goes on.
    let thread = host.thread.clone();
    host.world.start(&thread, None).unwrap();
    host.world
        .submit(&thread, crate::runner::fixture::says("done"))
        .unwrap();
}
