//! Storage calls of lists, of what is due, of turns and of trees: they do not grow with links,
//! children or other trees. Counted, because counts do not depend on the machine.

use super::fixture::ThreadFamily;
use super::planted_links::continue_thread;
use crate::runner::fixture::{RunnerFixture, calls, raise, says};
use serde_json::json;
use std::sync::Arc;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_component::ports::HostPorts;
use threadkeep_component::service::ThreadService;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::time::UnixTime;
use threadkeep_tests::counting_store::{CallCountingStore, StorageCalls};
use threadkeep_tests::fixture::MapLibrary;
use threadkeep_tests::native::NativePorts;
use threadkeep_tests::planted_links::plant_link;

/// Children that one reply spawns.
const SPAWNS: usize = 16;

fn counted_world() -> (RunnerFixture, Arc<CallCountingStore>) {
    let store = CallCountingStore::over(Arc::new(MemoryStore::new()));
    let world = RunnerFixture::over(Arc::<CallCountingStore>::clone(&store), MapLibrary::small());
    (world, store)
}

fn counted_family() -> (ThreadFamily, Arc<CallCountingStore>) {
    let (world, store) = counted_world();
    (ThreadFamily::in_world(world), store)
}

/// Spawns sixteen children with each of so many replies.
fn spawn_many(family: &mut ThreadFamily, replies: usize) -> Vec<String> {
    let boss = family.boss.clone();
    let caps = ThreadCaps {
        spawns: Some(1_000),
        ..ThreadCaps::NONE
    };
    let service = &family.world.service;
    service.signal(&boss, "spawns", &raise(caps)).unwrap();
    let spawn = ("spawn_thread", json!({"directive": "work"}));
    let mut children = Vec::new();
    for _ in 0..replies {
        for (_, failed, text) in family.reply(&boss, &vec![spawn.clone(); SPAWNS]) {
            assert!(!failed, "{text}");
            let told: serde_json::Value = serde_json::from_str(&text).unwrap();
            children.push(told["thread"].as_str().unwrap().to_owned());
        }
    }
    children
}

/// Gives the world an instance that remembers nothing.
fn forget(world: &mut RunnerFixture) {
    let context = world.service.ports().context().clone();
    world.service = ThreadService::new(NativePorts::new(context));
}

#[test]
fn a_list_of_links_reads_no_more_for_each() {
    let (mut world, store) = counted_world();
    for n in 0..100 {
        let root = world.create(None);
        plant_link(&world.service, &root, &format!("link-{n}"));
    }
    forget(&mut world);
    store.take_calls();
    let filter = Some(("status", "created"));
    let (page, _) = world.service.list(filter, 100, None).unwrap();
    assert_eq!((page.threads.len(), page.unreadable.len()), (100, 0));
    let links = page.threads.iter();
    assert!(
        links
            .clone()
            .all(|link| link.thread.value.previous.is_some())
    );
    let calls = store.take_calls();
    assert!(calls.total() <= 3, "{calls:?}");
}

#[test]
fn a_page_of_due_threads_makes_three_gets() {
    let (mut family, store) = counted_family();
    let boss = family.boss.clone();
    let children = spawn_many(&mut family, 4);
    let (interrupted, held) = children.split_at(30);
    for child in interrupted {
        family.world.count("another holder");
        family.world.start(child, None).unwrap();
    }
    let holders = interrupted.iter();
    let holders = holders.map(|child| family.load(child).head.value.holder.clone());
    let holders: Vec<String> = holders.map(Option::unwrap).collect();
    family.world.service.recover(&holders, None).unwrap();
    family.world.count("another holder");
    for child in held {
        family.world.start(child, None).unwrap();
    }
    // Leases that have expired.
    family.world.advance(4_000_000);
    for child in &interrupted[..10] {
        plant_link(&family.world.service, child, &format!("{child}-2"));
    }
    for _ in 0..60 {
        family.world.create(None);
    }
    for (under, expected) in [(None, 100), (Some(&*boss), 65)] {
        forget(&mut family.world);
        // The tree of a driver is known after its first look.
        family.world.service.load(&boss).unwrap();
        store.take_calls();
        let due = family
            .world
            .service
            .ready(100, None, under)
            .unwrap()
            .threads;
        let calls = store.take_calls();
        assert_eq!(due.len(), expected, "{under:?}");
        let gets = if under.is_some() { 4 } else { 3 };
        assert!(calls.gets <= gets, "{under:?}: {} gets", calls.gets);
        assert!(calls.scans <= 4, "{under:?}: {} scans", calls.scans);
    }
}

/// Due threads of a tree are found without the records of other trees.
#[test]
fn due_threads_of_other_trees_are_not_loaded() {
    let (mut family, store) = counted_family();
    let boss = family.boss.clone();
    let child = family.spawn(json!({"directive": "work"}));
    let others = [0; 700].map(|_| family.world.create(None));
    forget(&mut family.world);
    store.take_calls();
    let page = family.world.service.ready(100, None, Some(&boss)).unwrap();
    let due = page.threads.iter();
    let due: Vec<&str> = due.map(|due| due.loaded.thread.value.id.as_str()).collect();
    assert_eq!((due, page.cursor), (vec![&*child], None));
    let calls = store.take_calls();
    assert!(calls.total() <= 8, "{calls:?}");
    let read = calls.keys.iter().filter(|key| others.contains(&key.name));
    assert_eq!(read.count(), 0);
}

/// Counts a turn of a running thread in a warm instance: a reply with a call, and its result.
fn count_turn(world: &mut RunnerFixture, store: &CallCountingStore, thread: &str) -> [usize; 2] {
    let mut counts = [0; 2];
    for _ in 0..2 {
        store.take_calls();
        world.submit(thread, calls(&[("read", "{}")])).unwrap();
        counts[0] = store.take_calls().total();
        let outcomes = world.outcomes(thread);
        world.submit(thread, outcomes).unwrap();
        counts[1] = store.take_calls().total();
    }
    counts
}

#[test]
fn a_turn_in_a_child_or_a_link_makes_the_calls_of_one_in_a_root() {
    let (mut family, store) = counted_family();
    let root = family.world.create(Some("work"));
    family.world.start(&root, None).unwrap();
    family.world.count("own");
    let own = family.spawn(json!({"directive": "boss", "limits": {"spend": "0.02"}}));
    family.world.start(&own, None).unwrap();
    family.world.count("shared");
    let shared = family.spawn_running("work");
    family.world.count("below");
    let below = family.spawn_under(&own, json!({"directive": "work"}));
    family.world.start(&below, None).unwrap();
    family.world.count("linked");
    let linked = family.world.create(Some("work"));
    family.world.start(&linked, None).unwrap();
    let link = continue_thread(&mut family, &linked);
    family.world.start(&link, None).unwrap();
    family.world.count("continued child");
    let continued = family.spawn_running("work");
    let child_link = continue_thread(&mut family, &continued);
    family.world.start(&child_link, None).unwrap();
    let world = &mut family.world;
    let expected = count_turn(world, &store, &root);
    for thread in [&own, &shared, &below, &link, &child_link] {
        let counted = count_turn(world, &store, thread);
        assert_eq!(counted, expected, "{thread}");
    }
    world.audit();
}

/// A child of a parent that was continued while the instance was warm: the tip that it remembers
/// is not believed.
#[test]
fn a_remembered_tip_is_not_believed() {
    let (mut family, _) = counted_family();
    let boss = family.boss.clone();
    family.world.count("child");
    let child = family.spawn_running("work");
    assert_eq!(family.load(&child).parent.unwrap().id, boss);
    let tip = continue_thread(&mut family, &boss);
    assert_eq!(family.load(&child).parent.unwrap().id, tip);
}

/// Spawns so many children, sixteen with a reply, performs each as a driver does, and ends the top.
/// After each end it looks at the tree, and asks for about as many as it has room for.
fn perform_tree(children: usize) -> StorageCalls {
    let (mut family, store) = counted_family();
    let boss = family.boss.clone();
    let caps = ThreadCaps {
        spawns: Some(10_000),
        turns: Some(10_000),
        tokens: Some(1 << 50),
        spend: Some(NanoUsd::new(1 << 50)),
        ..ThreadCaps::NONE
    };
    family
        .world
        .service
        .signal(&boss, "r", &raise(caps))
        .unwrap();
    store.take_calls();
    let spawn = [("spawn_thread", r#"{"directive": "work"}"#); SPAWNS];
    for _ in 0..children / SPAWNS {
        family.world.submit(&boss, calls(&spawn)).unwrap();
    }
    let mut running: Vec<String> = Vec::new();
    let mut ended = 0;
    while ended < children {
        let room = 64 - running.len();
        let limit = u32::try_from(room.clamp(4, 100)).unwrap();
        let ready = family.world.service.ready(limit, None, Some(&boss));
        let due = ready.unwrap().threads;
        for due in due.into_iter().take(room) {
            let child = due.loaded.thread.value.id.clone();
            family.world.start(&child, None).unwrap();
            running.push(child);
        }
        let child = running.remove(0);
        family.world.submit(&child, says("done")).unwrap();
        ended += 1;
    }
    let mut cursor = None;
    loop {
        let page = family
            .world
            .service
            .tree_page(&boss, cursor.as_deref())
            .unwrap();
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    family.world.submit(&boss, says("all done")).unwrap();
    let calls = store.take_calls();
    family.world.audit();
    calls
}

/// Symptom: a tree of 1,024 children took 67 times what one of 64 takes. Cause: each look at what
/// is due read the whole tree, thread by thread. Fix: due entries and interrupted threads are found
/// by their tree. Kind: work that grows with the tree for each thread of it.
#[test]
fn the_work_of_a_tree_grows_as_its_children_do() {
    let (few, many) = (64, 512);
    let (small, large) = (perform_tree(few), perform_tree(many));
    let times = many / few;
    let shown = |calls: &StorageCalls| {
        let StorageCalls {
            gets,
            scans,
            reads,
            commits,
            bytes,
            ..
        } = calls;
        format!("{gets} gets, {scans} scans, {reads} reads, {commits} commits, {bytes} bytes")
    };
    println!("{few} children: {}", shown(&small));
    println!("{many} children: {}", shown(&large));
    assert!(
        large.total() <= times * small.total() * 5 / 4,
        "{}",
        shown(&large)
    );
    assert!(large.bytes <= 2 * times * small.bytes, "{}", shown(&large));
}

#[test]
fn a_page_of_a_tree_makes_few_calls() {
    let (mut family, store) = counted_family();
    let boss = family.boss.clone();
    spawn_many(&mut family, 4);
    store.take_calls();
    let page = family.world.service.tree_page(&boss, None).unwrap();
    assert_eq!(page.branches.len(), 50);
    let calls = store.take_calls();
    assert!(calls.total() <= 4, "{calls:?}");
    let page = family
        .world
        .service
        .tree_page(&boss, page.cursor.as_deref())
        .unwrap();
    assert_eq!((page.branches.len(), page.cursor), (15, None));
}

/// The next time at which something is due is told, so that no driver has to guess it: it is the
/// earliest of all pages.
#[test]
fn the_next_due_time_is_the_earliest_of_all_pages() {
    let (mut family, _) = counted_family();
    let boss = family.boss.clone();
    family.world.count("child");
    let child = family.spawn_running("work");
    family.reply(&boss, &[("wait_threads", json!({"timeout": 60}))]);
    let wait = family.load(&boss).head.value.due.unwrap();
    let lease = family.load(&child).head.value.due.unwrap();
    family.world.create(None);
    let expected = Some(UnixTime::from_millis(wait.min(lease)));
    let page = family.world.service.ready(100, None, Some(&boss)).unwrap();
    assert_eq!(
        (page.threads.len(), page.cursor, page.next),
        (0, None, expected)
    );
    let page = family.world.service.ready(100, None, None).unwrap();
    assert_eq!((page.threads.len(), page.next), (1, expected));
}

/// Symptom: a host that slept until the `next` of the last page slept past the lease of a thread
/// that an earlier page had told of; and one that looked in the moment in which a lease ends was
/// told of no time. Cause: the entry of a running thread stays at the first time of its lease, and
/// of two times that are equal neither counted. Fix: the earliest `next` of all pages is the one,
/// and a lease that ends now is one to come. Kind: times that the last page does not know.
#[test]
fn the_earliest_next_of_all_pages_is_never_late() {
    let (mut world, _) = counted_world();
    let thread = world.create(Some("work"));
    world.start(&thread, None).unwrap();
    let nexts = |world: &RunnerFixture| {
        let (mut cursor, mut times) = (None, Vec::new());
        loop {
            let page = world.service.ready(1, cursor, None).unwrap();
            times.push(page.next);
            cursor = page.cursor;
            if cursor.is_none() {
                return times;
            }
        }
    };
    world.submit(&thread, calls(&[("read", "{}")])).unwrap();
    let head = world.service.load(&thread).unwrap().head.value;
    let first = head.due.map(UnixTime::from_millis);
    assert_eq!(first, head.expiry);
    for _ in 0..3 {
        world.create(None);
    }
    world.advance(20_000);
    assert_eq!(Some(world.service.ports().now()), first);
    assert_eq!(nexts(&world).into_iter().flatten().min(), first);
    let outcomes = world.outcomes(&thread);
    world.submit(&thread, outcomes).unwrap();
    world.advance(20_000);
    let head = world.service.load(&thread).unwrap().head.value;
    assert!(head.due.map(UnixTime::from_millis) < head.expiry);
    let times = nexts(&world);
    assert_eq!(times.last(), Some(&None), "it does not know");
    assert_eq!(times.into_iter().flatten().min(), head.expiry);
}
