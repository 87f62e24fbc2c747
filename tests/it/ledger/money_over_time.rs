//! Money over time: prices that change while a call is under way, chats that rest for a year, and
//! stores that are full when a child is to be made.

use crate::children::fixture::ThreadFamily as Children;
use crate::runner::fixture::{RunnerFixture, says};
use serde_json::json;
use std::sync::{Arc, Mutex};
use threadkeep::library::{LibraryError, TenantLibrary};
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_core::money::NanoUsd;
use threadkeep_tests::fixture::MapLibrary;

/// A library whose documents the test edits.
struct EditableLibrary(Arc<Mutex<MapLibrary>>);

impl TenantLibrary for EditableLibrary {
    fn document(&self, kind: &str, name: &str) -> Result<Option<String>, LibraryError> {
        self.0.lock().unwrap().document(kind, name)
    }

    fn names(&self, kind: &str) -> Result<Vec<String>, LibraryError> {
        self.0.lock().unwrap().names(kind)
    }
}

fn library_with_price(library: &MapLibrary, price: &str) -> MapLibrary {
    let model = json!({"name": "default", "provider": "p", "window": 8_000, "output": 400,
        "prices": {"input": price, "output": price}});
    library.clone().with("model", "default", &model.to_string())
}

#[test]
fn a_call_is_settled_at_the_prices_that_it_was_held_at() {
    let small = MapLibrary::small();
    let files = Arc::new(Mutex::new(library_with_price(&small, "1")));
    let store: Arc<dyn StorageBackend> = Arc::new(MemoryStore::new());
    let mut world = RunnerFixture::over(store, EditableLibrary(Arc::clone(&files)));
    let (work, chat) = (world.create(Some("work")), world.create(None));
    world.start(&work, None).unwrap();
    world.start(&chat, Some("hello")).unwrap();
    *files.lock().unwrap() = library_with_price(&small, "10");
    let spent = |world: &RunnerFixture, thread: &str| {
        world
            .service
            .load(thread)
            .unwrap()
            .chain
            .value
            .account
            .spent
    };
    // 100 tokens in and 10 out, at a dollar a million.
    for thread in [&work, &chat] {
        world.submit(thread, says("done")).unwrap();
        assert_eq!(spent(&world, thread), NanoUsd::new(110_000));
    }
    // A chat reads the current files at its next start.
    world.start(&chat, Some("again")).unwrap();
    world.submit(&chat, says("done")).unwrap();
    assert_eq!(spent(&world, &chat), NanoUsd::new(110_000 + 1_100_000));
    world.audit();
}

#[test]
fn a_chat_that_rests_for_a_year_locks_nothing_and_goes_on() {
    let mut world = RunnerFixture::new();
    let chat = world.create(None);
    world.start(&chat, Some("hello")).unwrap();
    world.submit(&chat, says("hello")).unwrap();
    let account = |world: &RunnerFixture| {
        world
            .service
            .load(&chat)
            .unwrap()
            .chain
            .value
            .account
            .clone()
    };
    let before = account(&world);
    assert_eq!((before.users, before.held), (0, NanoUsd::ZERO));
    world.advance(365 * 24 * 3_600_000);
    let due = world.service.ready(100, None, None).unwrap().threads;
    assert!(due.is_empty(), "nobody has anything to do for it: {due:?}");
    assert_eq!(account(&world), before);
    world.start(&chat, Some("still there?")).unwrap();
    assert_eq!(account(&world).users, 1);
    world.submit(&chat, says("yes")).unwrap();
    assert_eq!(account(&world).spent.get(), 2 * before.spent.get());
    world.audit();
}

#[test]
fn a_child_that_the_store_has_no_room_for_is_not_made_and_the_reply_is_kept() {
    let full = Arc::new(crate::children::fixture::FillableStore::new());
    let mut family = Children::over(Arc::<crate::children::fixture::FillableStore>::clone(&full));
    let boss = family.boss.clone();
    full.fill();
    let got = family.reply(&boss, &[("spawn_thread", json!({"directive": "work"}))]);
    assert!(got[0].1 && got[0].2.contains("free space"), "{got:?}");
    let loaded = family.load(&boss);
    assert_eq!(loaded.head.value.cause.clone().unwrap().code, "store_full");
    assert_eq!(
        (loaded.chain.value.children, loaded.head.value.hold),
        (0, None)
    );
    assert!(
        loaded.chain.value.account.spent > NanoUsd::ZERO,
        "the bill is paid"
    );
    full.free();
    family.world.start(&boss, None).unwrap();
    family.spawn(json!({"directive": "work"}));
    family.world.audit();
}
