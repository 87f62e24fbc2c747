//! Forks that meet other writers, and stores that die at their commit.

use super::fork_fixture::{fork_at, messages_until, scripted_thread};
use crate::runner::fixture::{RunnerFixture, calls, says};
use std::collections::BTreeSet;
use std::sync::Arc;
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_component::ports::StorageError;
use threadkeep_component::service::{Error, ErrorKind};
use threadkeep_core::thread::StepKind;
use threadkeep_tests::faulty::{DeathPoint, FaultyStore};
use threadkeep_tests::fixture::MapLibrary;

/// Forks that are made at once.
const FORKS: usize = 32;

/// Repeats a call while other writers are faster.
fn repeat<T>(mut call: impl FnMut() -> Result<T, Error>) -> T {
    loop {
        match call().map_err(Error::into_kind) {
            Err(ErrorKind::Storage(StorageError::Unavailable(..))) => std::thread::yield_now(),
            done => return done.unwrap(),
        }
    }
}

#[test]
fn many_forks_at_once_are_all_made_and_counted() {
    let store: Arc<dyn StorageBackend> = Arc::new(MemoryStore::new());
    let mut world = RunnerFixture::over(Arc::clone(&store), MapLibrary::small());
    let original = scripted_thread(&mut world, Some("work"));
    let newest = original.newest();
    let made: Vec<String> = std::thread::scope(|scope| {
        let forks: Vec<_> = (0..FORKS)
            .map(|n| {
                let (store, id) = (Arc::clone(&store), original.id.as_str());
                scope.spawn(move || {
                    let own = RunnerFixture::over(store, MapLibrary::small());
                    let (key, version) = (format!("k{n}"), n as u64 % newest + 1);
                    let fork = || own.service.fork(id, version, &key, None);
                    repeat(fork).thread.value.id.clone()
                })
            })
            .collect();
        forks.into_iter().map(|fork| fork.join().unwrap()).collect()
    });
    let different: BTreeSet<&String> = made.iter().collect();
    assert_eq!(different.len(), FORKS);
    let chain = world.service.load(&original.id).unwrap().chain.value;
    assert_eq!(chain.forks, FORKS as u64);
    let (page, _) = world
        .service
        .list(Some(("fork", &original.id)), 100, None)
        .unwrap();
    assert_eq!(page.threads.len(), FORKS);
    world.audit();
}

#[test]
fn a_running_thread_is_forked_while_its_turns_are_committed() {
    let store: Arc<dyn StorageBackend> = Arc::new(MemoryStore::new());
    let mut world = RunnerFixture::over(Arc::clone(&store), MapLibrary::small());
    let id = world.create(Some("work"));
    world.start(&id, Some("go")).unwrap();
    let (fork, before) = std::thread::scope(|scope| {
        let forker = scope.spawn(|| {
            let own = RunnerFixture::over(Arc::clone(&store), MapLibrary::small());
            let fork = |key: String| {
                let made = repeat(|| own.service.fork(&id, 1, &key, None));
                made.thread.value.id.clone()
            };
            (0..7).map(|n| fork(format!("k{n}"))).for_each(drop);
            fork("last".to_owned())
        });
        for _ in 0..4 {
            submit_until_done(&mut world, &id, || calls(&[("read", "{}")]));
            let outcomes = world.outcomes(&id);
            submit_until_done(&mut world, &id, || outcomes.clone());
        }
        (forker.join().unwrap(), messages_until(&world, &id, None))
    });
    assert_eq!(world.pending(&id), Some(StepKind::CallLlm), "it still runs");
    world.start(&fork, Some("and you?")).unwrap();
    world.submit(&fork, says("fine")).unwrap();
    assert_eq!(messages_until(&world, &id, None), before);
    submit_until_done(&mut world, &id, || says("done"));
    assert_eq!(world.status(&id), "completed");
    world.audit();
}

/// Submits an outcome again while other writers are faster.
fn submit_until_done(
    world: &mut RunnerFixture,
    thread: &str,
    outcome: impl Fn() -> threadkeep_core::runner::StepOutcome,
) {
    loop {
        match world.submit(thread, outcome()).map_err(Error::into_kind) {
            Err(ErrorKind::Storage(StorageError::Unavailable(..))) => {}
            done => return drop(done.unwrap()),
        }
    }
}

#[test]
fn a_store_that_dies_at_the_commit_leaves_no_fork_or_one() {
    // With open calls the fork has an entry of its own; a chat without any has none.
    for (directive, version) in [(Some("work"), 2), (None, 1), (None, 2)] {
        for (death, made) in [
            (DeathPoint::Before(1), false),
            (DeathPoint::After(1), true),
            (DeathPoint::Unknown(1), true),
            (DeathPoint::UnknownLost(1), false),
        ] {
            let what = format!("{directive:?} {version} {death:?}");
            let inner: Arc<dyn StorageBackend> = Arc::new(MemoryStore::new());
            let mut world = RunnerFixture::over(Arc::clone(&inner), MapLibrary::small());
            let original = scripted_thread(&mut world, directive);
            let faulty = Arc::new(FaultyStore::new(Arc::clone(&inner), death));
            let over = RunnerFixture::over(faulty, MapLibrary::small());
            let told = over.service.fork(&original.id, version, "once", None);
            let count = || world.service.load(&original.id).unwrap().chain.value.forks;
            let known = told.as_ref().is_ok();
            // An answer says what is there; without one nothing more than the commit was made.
            assert!(count() <= 1, "{what}");
            assert!(known || count() == u64::from(made), "{what}: {told:?}");
            world.audit();
            let again = world
                .service
                .fork(&original.id, version, "once", None)
                .unwrap();
            if let Ok(told) = told {
                assert_eq!(told.thread.value.id, again.thread.value.id, "{what}");
            }
            assert_eq!(count(), 1, "{what}");
            world.audit();
        }
    }
    let mut world = RunnerFixture::new();
    let original = scripted_thread(&mut world, None);
    fork_at(&world, &original.id, 1).unwrap();
    world.audit();
}
