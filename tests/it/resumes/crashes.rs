//! The death of the store at the commit of a resume, and resumes that meet at one.

use super::fixture::resume_as;
use crate::runner::fixture::{RunnerFixture, says};
use std::sync::Arc;
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_core::plan::LoadedThread;
use threadkeep_tests::faulty::{DeathPoint, FaultyStore};
use threadkeep_tests::fixture::MapLibrary;

/// A store with a thread that has ended.
fn store_with_ended_thread() -> (Arc<MemoryStore>, String) {
    let store = Arc::new(MemoryStore::new());
    let shared: Arc<dyn StorageBackend> = Arc::<MemoryStore>::clone(&store);
    let mut world = RunnerFixture::over(shared, MapLibrary::small());
    let thread = world.create(Some("work"));
    world.start(&thread, None).unwrap();
    world.submit(&thread, says("done")).unwrap();
    (store, thread)
}

/// Before, after, or with an unknown outcome: there is one tip, and the repeated request finds it.
#[test]
fn a_death_at_the_commit_leaves_one_tip() {
    for (death, answered) in [
        (DeathPoint::Before(1), false),
        (DeathPoint::After(1), false),
        (DeathPoint::Unknown(1), true),
        (DeathPoint::UnknownLost(1), true),
    ] {
        let (store, thread) = store_with_ended_thread();
        let shared: Arc<dyn StorageBackend> = Arc::<MemoryStore>::clone(&store);
        let dying = Arc::new(FaultyStore::new(Arc::clone(&shared), death));
        let dying = RunnerFixture::over(dying, MapLibrary::small());
        let done = resume_as(&dying, &thread, Some("go on"), "a");
        assert_eq!(done.is_ok(), answered, "{death:?}: {done:?}");
        let mut world = RunnerFixture::over(shared, MapLibrary::small());
        world.audit();
        let begun = resume_as(&world, &thread, Some("go on"), "a").unwrap();
        let next = begun.loaded.thread.value.id.clone();
        assert_eq!(
            links(&world, &thread),
            [thread.clone(), next.clone()],
            "{death:?}"
        );
        if let Ok(done) = done {
            assert_eq!(done.loaded.thread.value.id, next, "{death:?}");
        }
        world.hold(&next, Ok(begun)).unwrap();
        world.submit(&next, says("done")).unwrap();
        world.audit();
    }
}

/// Ids of the links of a chain, by their pointers.
fn links(world: &RunnerFixture, first: &str) -> Vec<String> {
    let mut ids = vec![first.to_owned()];
    loop {
        let loaded: LoadedThread = world.service.load(ids.last().unwrap()).unwrap();
        match &loaded.thread.value.next {
            Some(next) => ids.push(next.clone()),
            None => {
                assert_eq!(loaded.chain.value.tip, loaded.thread.value.id);
                return ids;
            }
        }
    }
}

/// Two callers that resume one thread at once: one makes the successor, the other is told of it.
#[test]
fn of_two_resumes_at_once_one_wins() {
    for _ in 0..20 {
        let (store, thread) = store_with_ended_thread();
        let callers = ["a", "b"].map(|holder| {
            let shared: Arc<dyn StorageBackend> = Arc::<MemoryStore>::clone(&store);
            let thread = thread.clone();
            std::thread::spawn(move || {
                let world = RunnerFixture::over(shared, MapLibrary::small());
                let begun = resume_as(&world, &thread, Some("go on"), holder);
                begun.map(|begun| begun.loaded.thread.value.id.clone())
            })
        });
        let done = callers.map(|caller| caller.join().unwrap());
        let won: Vec<&String> = done.iter().flatten().collect();
        assert_eq!(won.len(), 1, "{done:?}");
        let lost = done.iter().find(|done| done.is_err()).unwrap();
        let named = format!("{lost:?}");
        assert!(
            named.contains("Busy") && named.contains(won[0].as_str()),
            "{named}"
        );
        let world = RunnerFixture::over(store, MapLibrary::small());
        assert_eq!(links(&world, &thread).len(), 2);
        world.audit();
    }
}
