//! Forks: a thread begins as another was at a version, and nothing leaks either way.

use super::branch_fixture::{LINK, ROOT, chain_of_two};
use super::fork_fixture::{
    ScriptedThread, assert_conversation, fork_at, message, messages_until, prefix_of,
    scripted_thread,
};
use super::{code, message_event};
use crate::audit::fixture::{create, run_to_end};
use crate::runner::fixture::{RunnerFixture, calls, raise, says};
use std::sync::Arc;
use threadkeep::audit::audit;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{CommitOp, RecordExpectation, RecordKey, StorageBackend};
use threadkeep_component::service::{Error, ErrorKind};
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::thread::{BasePart, Head, StepKind, genesis_hash};
use threadkeep_tests::counting_store::CallCountingStore;
use threadkeep_tests::fixture::MapLibrary;

/// Most entries that a fork reads beside those that it carries.
const ENTRIES_BESIDE: usize = 64;

/// Checks a fork before it has gone on: its conversation, and what its head says of it.
#[track_caller]
fn check_fresh_fork(
    world: &RunnerFixture,
    original: &ScriptedThread,
    version: u64,
    fork: &LoadedThread,
) {
    let (id, head) = (&fork.thread.value.id, &fork.head.value);
    let carried = messages_until(world, &original.id, Some(version));
    let sent = messages_until(world, id, None);
    assert_eq!(sent[..carried.len()], carried, "version {version}");
    assert_conversation(&sent);
    assert_eq!(head.prefix, prefix_of(&sent), "version {version}");
    let answered = sent.len() - carried.len();
    assert!(answered <= 1, "{sent:?}");
    let before = &original.heads[&version];
    if answered == 0 {
        let of = |head: &Head| {
            (
                head.prefix.clone(),
                head.context,
                head.asked,
                head.asked_version,
            )
        };
        let (now, then) = (of(head), of(before));
        assert_eq!(now, then, "version {version}");
    } else {
        assert!(
            head.asked && head.context > before.context,
            "version {version}"
        );
        assert!(sent.last().unwrap().contains("interrupted"));
    }
    let figures = &head.counters;
    assert_eq!((figures.turns, figures.spend), (0, NanoUsd::ZERO));
    assert_eq!((head.session.as_deref(), head.mail_count()), (None, 0));
    assert_eq!(fork.thread.value.base_length(), version);
}

#[test]
fn a_fork_at_every_version_is_sent_the_same_bytes() {
    for directive in [Some("work"), None] {
        let mut world = RunnerFixture::new();
        let original = scripted_thread(&mut world, directive);
        let pin = world
            .service
            .load(&original.id)
            .unwrap()
            .thread
            .value
            .pin
            .clone();
        for version in 1..=original.newest() {
            let before = world.service.load(&original.id).unwrap();
            let fork = fork_at(&world, &original.id, version).unwrap();
            check_fresh_fork(&world, &original, version, &fork);
            let id = fork.thread.value.id.clone();
            assert_eq!(fork.thread.value.pin, pin);
            let expected = if directive.is_some() {
                "suspended"
            } else {
                "idle"
            };
            assert_eq!(world.status(&id), expected);
            let after = world.service.load(&original.id).unwrap();
            assert_eq!((&after.head, &after.thread), (&before.head, &before.thread));
            assert_eq!(after.chain.value.forks, version);
            let sent = messages_until(&world, &id, None);
            let handed = world.start(&id, Some("what now?")).unwrap();
            assert_eq!(
                handed.step.kind,
                Some(StepKind::CallLlm),
                "version {version}"
            );
            let asked = messages_until(&world, &id, None);
            assert_eq!(asked[..sent.len()], sent);
            assert!(asked.last().unwrap().contains("what now?"));
            assert_conversation(&asked);
            // The pin was not made anew: the fork is offered what the original was.
            assert_eq!(handed.loaded.thread.value.pin, pin);
            world.submit(&id, calls(&[("read", "{}")])).unwrap();
            let outcomes = world.outcomes(&id);
            world.submit(&id, outcomes).unwrap();
            world.submit(&id, says("done")).unwrap();
            assert_conversation(&messages_until(&world, &id, None));
            assert_eq!(messages_until(&world, &original.id, Some(version)).len(), {
                let interrupted = sent.iter().filter(|text| text.contains("interrupted"));
                sent.len() - interrupted.count()
            });
            world.audit();
        }
    }
}

#[test]
fn a_fork_goes_on_without_input_only_where_something_is_to_be_answered() {
    let mut world = RunnerFixture::new();
    let original = scripted_thread(&mut world, Some("work"));
    for version in 1..=original.newest() {
        let fork = fork_at(&world, &original.id, version).unwrap();
        let id = fork.thread.value.id.clone();
        let asked = fork.head.value.asked;
        match world.start(&id, None) {
            Ok(handed) => {
                assert!(asked, "version {version}");
                assert_eq!(handed.step.kind, Some(StepKind::CallLlm));
                assert_eq!(handed.loaded.head.value.run, 1);
            }
            Err(error) => {
                assert_eq!(
                    (asked, code(&error)),
                    (false, "invalid"),
                    "version {version}"
                );
                // A message that is sent to it is something to answer.
                let sent = message("and now?");
                world.service.signal(&id, "m", &sent).unwrap();
                world.start(&id, None).unwrap();
            }
        }
    }
    world.audit();
}

#[test]
fn a_fork_reads_what_it_carries_and_little_more() {
    let store = CallCountingStore::over(Arc::new(MemoryStore::new()));
    let shared: Arc<dyn StorageBackend> = Arc::<CallCountingStore>::clone(&store);
    let mut world = RunnerFixture::over(shared, MapLibrary::small());
    let original = scripted_thread(&mut world, Some("work"));
    let newest = original.newest();
    let mut thread = original.id.clone();
    for version in [1, newest / 2, newest] {
        store.take_calls();
        let fork = fork_at(&world, &thread, version).unwrap();
        let read = store.take_calls().entries;
        assert!(
            read <= version as usize + ENTRIES_BESIDE,
            "{read} of {version}"
        );
        if version == newest {
            thread = fork.thread.value.id.clone();
        }
    }
    // A fork of a fork carries the entries of both.
    world.start(&thread, Some("go on")).unwrap();
    world.submit(&thread, says("done")).unwrap();
    let length = world.service.load(&thread).unwrap().head.value.version;
    store.take_calls();
    fork_at(&world, &thread, length).unwrap();
    let read = store.take_calls().entries;
    assert!(
        read <= length as usize + ENTRIES_BESIDE,
        "{read} of {length}"
    );
}

#[test]
fn a_fork_has_money_and_caps_of_its_own() {
    let mut world = RunnerFixture::new();
    let original = scripted_thread(&mut world, Some("work"));
    let loaded = world.service.load(&original.id).unwrap();
    assert_eq!(loaded.head.value.limits.turns, Some(9), "it was raised");
    let fork = fork_at(&world, &original.id, 3).unwrap();
    // As the original began: a raise was about it alone.
    assert_eq!(fork.head.value.limits.turns, Some(3));
    let account = &fork.chain.value.account;
    assert_eq!(account.limit, Some(NanoUsd::new(1_000_000_000)));
    assert_eq!((account.spent, account.users), (NanoUsd::ZERO, 1));
    assert!(loaded.chain.value.account.spent > NanoUsd::ZERO);
    let change = r#"{"title": "two", "agent": "bo", "limits": {"spend": "0.5", "turns": 4}}"#;
    let named = world
        .service
        .fork(&original.id, 3, "k", Some(change))
        .unwrap();
    let record = &named.thread.value;
    assert_eq!(record.title.as_deref(), Some("two"));
    assert_eq!(record.agent.as_deref(), Some("bo"));
    assert_eq!(record.limits.turns, Some(4));
    assert_eq!(
        named.chain.value.account.limit,
        Some(NanoUsd::new(500_000_000))
    );
    world.start(&record.id.clone(), Some("go")).unwrap();
    world.audit();
}

#[test]
fn an_operators_caps_bound_a_fork() {
    let lowered = r#"{"limits": {"turns": 2, "spend": "0.01"}}"#;
    let store: Arc<dyn StorageBackend> = Arc::new(MemoryStore::new());
    let mut world = RunnerFixture::over(Arc::clone(&store), MapLibrary::small());
    let original = scripted_thread(&mut world, Some("work"));
    let library = MapLibrary::small().with("settings", "policy", lowered);
    let world = RunnerFixture::over(store, library);
    let change = r#"{"limits": {"spend": "5", "turns": 50}}"#;
    let fork = world
        .service
        .fork(&original.id, 2, "k", Some(change))
        .unwrap();
    let limits = fork.head.value.limits;
    assert_eq!(
        (limits.turns, limits.spend),
        (Some(2), Some(NanoUsd::new(10_000_000)))
    );
    assert_eq!(fork.chain.value.account.limit, limits.spend);
    world.audit();
}

#[test]
fn a_fork_of_a_child_is_a_root() {
    let mut world = RunnerFixture::new();
    let boss = world.create(Some("boss"));
    world.spawn(&boss, "kid", Some(5_000_000));
    world.start("kid", Some("go")).unwrap();
    world.submit("kid", calls(&[("read", "{}")])).unwrap();
    let fork = fork_at(&world, "kid", 2).unwrap();
    let (record, chain) = (&fork.thread.value, &fork.chain.value);
    assert_eq!((&record.parent, &chain.parent), (&None, &None));
    assert_eq!((chain.depth, chain.number, chain.above.len()), (0, 0, 0));
    assert_eq!(world.service.load(&boss).unwrap().chain.value.children, 1);
    let id = record.id.clone();
    world.start(&id, Some("what now?")).unwrap();
    world.submit(&id, says("well")).unwrap();
    world.audit();
}

#[test]
fn forks_of_forks_and_of_links_are_read_along_their_paths() {
    for from in [1, 4] {
        let store: Arc<dyn StorageBackend> = Arc::new(MemoryStore::new());
        let mut world = chain_of_two(store, Some("work"), from);
        world.start(LINK, Some("and now?")).unwrap();
        world.submit(LINK, says("done again")).unwrap();
        let newest = world.service.load(LINK).unwrap().head.value.version;
        let length = world.service.load(ROOT).unwrap().head.value.version;
        // Within what the link carries, at its end, and in the link's own entries.
        for version in [from, from + 1, length, length + 1, newest] {
            let mut thread = LINK.to_owned();
            let mut carried = messages_until(&world, LINK, Some(version));
            for depth in 0..3 {
                let at = match depth {
                    0 => version,
                    _ => world.service.load(&thread).unwrap().head.value.version,
                };
                let fork = fork_at(&world, &thread, at).unwrap();
                let id = fork.thread.value.id.clone();
                let sent = messages_until(&world, &id, None);
                assert_eq!(sent[..carried.len()], carried, "{version} {depth}");
                assert_eq!(fork.head.value.prefix, prefix_of(&sent));
                world.start(&id, Some("go on")).unwrap();
                world.submit(&id, says("I went on")).unwrap();
                carried = messages_until(&world, &id, None);
                assert_conversation(&carried);
                thread = id;
            }
            world.audit();
        }
        let outside = if from > 1 { from - 1 } else { newest + 1 };
        let refused = fork_at(&world, LINK, outside).map(drop);
        assert_eq!(refused.map_err(|error| code(&error)), Err("invalid"));
    }
}

/// Plants a link that is read along its own first entry before what it carries of the root, as a
/// hand-off leaves it; returns the version of that entry.
fn plant_handed_off_link(world: &RunnerFixture) -> u64 {
    let loaded = world.service.load(LINK).unwrap();
    let mut base = loaded.thread.value.base.clone().unwrap();
    let own = base.length + 1;
    let part = BasePart {
        thread: LINK.to_owned(),
        from: own,
        to: own,
        hash: String::new(),
    };
    let text = threadkeep_core::json::to_text(&part);
    let parts = "\"parts\":[";
    replace_text(
        &*world.store,
        ("thread", "link"),
        parts,
        &format!("{parts}{text},"),
    );
    base.parts.insert(0, part);
    let genesis = genesis_hash(LINK, ROOT, Some(&base));
    let before = &loaded.head.value.hash;
    replace_text(&*world.store, ("head", "link"), before, &genesis);
    let event = message_event("user", "what came before").to_string();
    world.service.append(LINK, None, None, &[event]).unwrap();
    own
}

/// Symptom: the second page of a link that was handed off was `invalid` (`cursor`). Cause: a cursor
/// had to be a higher version than `after`, and such a link is read along its first entry before
/// the lower versions that it carries. Fix: a cursor has to follow on the path. Kind: versions that
/// are compared as if every path ascended.
#[test]
fn a_handed_off_link_is_paged_and_forked_along_its_path() {
    let store: Arc<dyn StorageBackend> = Arc::new(MemoryStore::new());
    let mut world = chain_of_two(store, Some("work"), 4);
    let own = plant_handed_off_link(&world);
    world.start(LINK, Some("and now?")).unwrap();
    world.submit(LINK, says("done again")).unwrap();
    let newest = world.service.load(LINK).unwrap().head.value.version;
    let page = |after, cursor: Option<&str>| {
        world
            .service
            .page_start(LINK, after, cursor.map(str::to_owned))
    };
    for (after, cursor, expected) in [
        (own, Some("4"), Ok(4)),
        (own, Some("3"), Err("invalid")),
        (own, Some("x"), Err("invalid")),
        (4, Some("3"), Err("invalid")),
        (4, Some("9"), Ok(9)),
        (4, None, Ok(4)),
    ] {
        let found = page(after, cursor).map_err(|error| code(&error));
        assert_eq!(found, expected, "{after} {cursor:?}");
    }
    for version in [own, own - 1, own + 1, newest] {
        let carried = messages_until(&world, LINK, Some(version));
        assert!(carried[0].contains("what came before"));
        let fork = fork_at(&world, LINK, version).unwrap();
        let id = fork.thread.value.id.clone();
        let sent = messages_until(&world, &id, None);
        assert_eq!(sent[..carried.len()], carried, "{version}");
        assert_eq!(fork.head.value.prefix, prefix_of(&sent));
        assert!(fork.thread.value.base_length() >= own, "{version}");
        world.start(&id, Some("go on")).unwrap();
        world.submit(&id, calls(&[("read", "{}")])).unwrap();
        let outcomes = world.outcomes(&id);
        world.submit(&id, outcomes).unwrap();
        world.submit(&id, says("I went on")).unwrap();
        assert_conversation(&messages_until(&world, &id, None));
        let length = world.service.load(&id).unwrap().head.value.version;
        fork_at(&world, &id, length).unwrap();
        world.audit();
    }
}

#[test]
fn wrong_requests_are_refused_by_what_is_wrong() {
    let mut world = RunnerFixture::new();
    let original = scripted_thread(&mut world, Some("work"));
    let (id, newest) = (original.id.as_str(), original.newest());
    let empty = world.create(None);
    let field = |thread: &str, version, key: &str, change: Option<&str>| match world
        .service
        .fork(thread, version, key, change)
        .map_err(Error::into_kind)
    {
        Err(ErrorKind::Core(CoreErrorKind::Invalid { field, .. })) => field.to_string(),
        other => format!("{:?}", other.map(drop)),
    };
    for (thread, version, key, change, expected) in [
        ("../up", 1, "k", None, "thread"),
        (id, 0, "k", None, "version"),
        (id, newest + 1, "k", None, "version"),
        (id, u64::MAX, "k", None, "version"),
        (id, 1, "", None, "key"),
        (id, 1, "k", Some(""), "change"),
        (id, 1, "k", Some("[]"), "change"),
        (id, 1, "k", Some(r#"{"titel": "x"}"#), "change.titel"),
        (id, 1, "k", Some(r#"{"title": 7}"#), "change.title"),
        (id, 1, "k", Some(r#"{"title": ""}"#), "title"),
        (id, 1, "k", Some(r#"{"agent": ""}"#), "agent"),
        (id, 1, "k", Some(r#"{"limits": 7}"#), "change.limits"),
        (
            id,
            1,
            "k",
            Some(r#"{"limits": {"turn": 7}}"#),
            "change.limits.turn",
        ),
        (
            id,
            1,
            "k",
            Some(r#"{"limits": {"turns": -1}}"#),
            "change.limits.turns",
        ),
    ] {
        assert_eq!(
            field(thread, version, key, change),
            expected,
            "{version} {change:?}"
        );
    }
    assert_eq!(world.service.load(id).unwrap().chain.value.forks, 0);
    let missing = world.service.fork("nobody", 1, "k", None).map(drop);
    assert_eq!(missing.map_err(|error| code(&error)), Err("not-found"));
    // A thread that has reached nothing has no place to begin at.
    assert_eq!(field(&empty, 0, "k", None), "version");
}

#[test]
fn a_repeated_request_makes_one_fork() {
    let mut world = RunnerFixture::new();
    let original = scripted_thread(&mut world, Some("work"));
    let id = original.id.as_str();
    let fork = |version, change: Option<&str>| world.service.fork(id, version, "once", change);
    let made = fork(3, None).unwrap().thread.value.id.clone();
    assert_eq!(fork(3, None).unwrap().thread.value.id, made);
    assert_eq!(fork(3, Some("{}")).unwrap().thread.value.id, made);
    for (version, change) in [(4, None), (3, Some(r#"{"title": "other"}"#))] {
        let refused = fork(version, change).map(drop);
        assert_eq!(refused.map_err(|error| code(&error)), Err("conflict"));
    }
    assert_eq!(world.service.load(id).unwrap().chain.value.forks, 1);
    let (page, _) = world.service.list(Some(("fork", id)), 9, None).unwrap();
    let ids = page
        .threads
        .iter()
        .map(|thread| thread.thread.value.id.clone());
    assert_eq!(ids.collect::<Vec<_>>(), [made]);
    world.audit();
}

/// Replaces a text in a record.
fn replace_text(
    store: &dyn StorageBackend,
    (collection, name): (&str, &str),
    from: &str,
    to: &str,
) {
    let key = RecordKey::new(collection, name);
    let before = store.get(std::slice::from_ref(&key)).unwrap()[0]
        .value
        .clone();
    let value = before.replacen(from, to, 1);
    assert_ne!(before, value, "nothing is planted: {from} in {before}");
    let expect = RecordExpectation::Any;
    store
        .commit(&[CommitOp::Put { key, expect, value }], false)
        .unwrap();
}

#[test]
fn what_cannot_be_read_or_written_is_not_forked() {
    let forked = |collection, name: &str, from: &str, to: &str| {
        let store: Arc<dyn StorageBackend> = Arc::new(MemoryStore::new());
        let world = chain_of_two(Arc::clone(&store), Some("work"), 1);
        replace_text(&*store, (collection, name), from, to);
        let refused = fork_at(&world, LINK, 2).map(drop).unwrap_err();
        let forks = "\"forks\":0";
        let chain = store.get(&[RecordKey::new("chain", "root")]).unwrap()[0]
            .value
            .clone();
        assert!(chain.contains(forks), "{chain}");
        refused
    };
    let newer = "\"format\":9";
    for (collection, name) in [("thread", "link"), ("head", "link"), ("chain", "root")] {
        let refused = forked(collection, name, "\"format\":1", newer);
        let newer = matches!(
            refused.kind(),
            ErrorKind::Core(CoreErrorKind::NewerFormat { .. })
        );
        assert!(newer, "{collection}: {refused:?}");
    }
    for (from, to) in [
        ("\"thread\":\"Root\"", "\"thread\":\"gone\""),
        ("\"from\":1", "\"from\":0"),
    ] {
        let refused = forked("thread", "link", from, to);
        assert!(
            matches!(refused.kind(), ErrorKind::Core(CoreErrorKind::Corrupt(_))),
            "{refused:?}"
        );
    }
}

#[test]
fn the_audit_finds_forks_that_are_not_counted() {
    for (collection, from, to, expected) in [
        ("chain", "\"forks\":1", "\"forks\":0", "forks"),
        ("chain", "\"forks\":1", "\"forks\":2", "forks"),
    ] {
        let mut world = RunnerFixture::new();
        create(&world, ROOT, Some("work"));
        run_to_end(&mut world, ROOT);
        let fork = fork_at(&world, ROOT, 2).unwrap();
        world.audit();
        replace_text(&*world.store, (collection, "root"), from, to);
        let findings = audit(&*world.store).unwrap().findings;
        assert!(
            findings.iter().any(|one| one.expected.contains(expected)),
            "{findings:#?}"
        );
        replace_text(&*world.store, (collection, "root"), to, from);
        world.audit();
        // The fork names another place, and its entry in the index is wrong then.
        let id = threadkeep_core::id::key(&fork.thread.value.id);
        replace_text(
            &*world.store,
            ("thread", &id),
            "\"chain\":\"Root\"",
            "\"chain\":\"Other\"",
        );
        let findings = audit(&*world.store).unwrap().findings;
        let named = |word: &str| findings.iter().any(|one| one.expected.contains(word));
        assert!(named("the index entry fork"), "{findings:#?}");
    }
}

#[test]
fn a_raise_and_a_kill_of_one_leave_the_other() {
    let mut world = RunnerFixture::new();
    let original = scripted_thread(&mut world, Some("work"));
    let fork = fork_at(&world, &original.id, 5)
        .unwrap()
        .thread
        .value
        .id
        .clone();
    let before = world.service.load(&original.id).unwrap();
    let caps = ThreadCaps {
        turns: Some(11),
        ..ThreadCaps::NONE
    };
    world.service.signal(&fork, "r", &raise(caps)).unwrap();
    world
        .service
        .signal(&fork, "k", &threadkeep_core::runner::Signal::Kill)
        .unwrap();
    assert_eq!(world.status(&fork), "killed");
    let after = world.service.load(&original.id).unwrap();
    assert_eq!(before, after);
    // An ended fork can be forked, too.
    fork_at(
        &world,
        &fork,
        world.service.load(&fork).unwrap().head.value.version,
    )
    .unwrap();
    world.audit();
}
