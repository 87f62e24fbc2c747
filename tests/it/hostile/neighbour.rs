//! One tenant cannot take all threads, nor all places in the queue.

use super::fixture::{TwoTenants, exercise_neighbour, limits, tenant};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use threadkeep::error::CallError;
use threadkeep::limits::EngineLimits;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_tests::auditor::audit;
use threadkeep_tests::fixture::draft;

/// A hundred calls of one tenant whose imports do not come back: four run, four wait, the rest is
/// refused at once. The four are answered when their time has passed and hold their places until
/// the imports come back; the neighbour does not notice.
#[tokio::test]
async fn a_flood_takes_its_own_places_and_no_more() {
    let few = EngineLimits {
        calls_running_max: 4,
        calls_queued_max: 4,
        call_threads_max: 5,
        wall_time_max: Duration::from_secs(2),
        ..limits()
    };
    let world = TwoTenants::new("sleeps", few);
    let done = AtomicBool::new(false);
    let flood = async {
        let calls = (0..100).map(|_| world.hostile.get("x"));
        let ends = futures_util::future::join_all(calls).await;
        done.store(true, Ordering::Relaxed);
        ends
    };
    let (ends, meanwhile) = tokio::join!(flood, exercise_neighbour(&world.neighbour, &done));
    let named = |limit| {
        let is = |end: &&Result<_, CallError>| {
            let Err(CallError::Limit(name)) = end else {
                return false;
            };
            *name == limit
        };
        ends.iter().filter(is).count()
    };
    assert_eq!((named("wall_time_max"), named("calls_queued_max")), (8, 92));
    assert!(meanwhile > 0, "the neighbour had to wait");
    assert_eq!(
        world.gate.calls_inside(),
        (4, 4),
        "the places are still taken"
    );
    let refused = tokio::time::timeout(Duration::from_secs(60), world.hostile.get("x")).await;
    assert!(
        matches!(refused, Ok(Err(CallError::Limit("wall_time_max")))),
        "{refused:?}"
    );
    assert_eq!(world.gate.calls_inside(), (4, 4));
    world.gate.open();
    while world.hostile.memory_bytes() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    exercise_neighbour(&world.neighbour, &AtomicBool::new(true)).await;
}

/// A component that traps in the middle of a commit leaves the earlier commits intact, and nothing
/// locked.
#[tokio::test]
async fn a_trap_in_the_middle_of_a_commit_leaves_what_was_committed() {
    let world = TwoTenants::new("commits", limits());
    let store = Arc::new(MemoryStore::new());
    let evil = world
        .engine
        .prepare_sibling(&threadkeep_tests::programs::build_program("commits"), None)
        .unwrap();
    let trapped = tenant(&evil, store.clone()).get("x").await;
    assert!(matches!(trapped, Err(CallError::Trapped(_))), "{trapped:?}");
    let honest = tenant(&world.engine, store.clone());
    let made = honest.create(draft(Some("work"))).await.unwrap();
    assert_eq!(honest.get(&made.id).await.unwrap().id, made.id);
    let key = threadkeep::storage::RecordKey::new("head", "one");
    let items = threadkeep::storage::StorageBackend::get(&*store, &[key]).unwrap();
    assert_eq!((items[0].version, items[0].value.as_str()), (1, "{}"));
    exercise_neighbour(&world.neighbour, &AtomicBool::new(true)).await;
}

/// The host performs no model or tool call for a component that asks for one through its imports,
/// past the driver.
#[tokio::test]
async fn imports_give_no_models_or_tools() {
    for (program, import) in [("models", "llm.complete"), ("tools", "tools.call")] {
        let world = TwoTenants::new(program, limits());
        let answer = world.hostile.get("x").await;
        assert!(
            matches!(&answer, Err(CallError::Trapped(why)) if why.contains(import)),
            "{program}: {answer:?}"
        );
    }
}

/// A failing store affects one tenant.
#[tokio::test]
async fn a_fault_of_one_tenants_store_is_told_to_that_tenant_alone() {
    use threadkeep_tests::faulty::{DeathPoint, FaultyStore};
    let world = TwoTenants::new("loop", limits());
    let dying = Arc::new(FaultyStore::new(
        Arc::new(MemoryStore::new()),
        DeathPoint::Before(2),
    ));
    let unlucky = tenant(&world.engine, dying);
    unlucky.create(draft(Some("work"))).await.unwrap();
    for _ in 0..3 {
        let error = unlucky.create(draft(Some("work"))).await.unwrap_err();
        assert!(matches!(error, CallError::Refused(_)), "{error}");
        exercise_neighbour(&world.neighbour, &AtomicBool::new(true)).await;
    }
    assert!(audit(&*world.neighbour.context().storage).is_empty());
}
