//! Chains: their links in pages, their tips, what a thread that was continued refuses, and stores
//! in which the links do not lead to the tip.

use super::branch_fixture::{LINK, PlantedLink, ROOT, chain_of_two, plant_link};
use super::{code, message_event};
use crate::audit::fixture::{create, run_to_end};
use crate::runner::fixture::{RunnerFixture, raise, says, user};
use serde_json::{Value, json};
use std::sync::Arc;
use threadkeep::audit::{StoreInvariant, audit};
use threadkeep::storage::memory::MemoryStore;
use threadkeep_component::ports::HostPorts;
use threadkeep_component::service::ledger::UnresolvedEstimate;
use threadkeep_component::service::{Error, ErrorKind, ThreadService};
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::history::parse_user;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::plan::{StoreWrite, WriteCondition};
use threadkeep_core::runner::{HolderProof, Signal};
use threadkeep_core::thread::ThreadRecord;
use threadkeep_core::{id, json as core_json, key};
use threadkeep_tests::planted_links;

fn page<P: HostPorts>(
    service: &ThreadService<P>,
    thread: &str,
    cursor: Option<&str>,
) -> Result<Value, Error> {
    let text = service.chain_page(&service.load(thread)?, cursor)?;
    Ok(serde_json::from_str(&text).unwrap())
}

fn whole_chain(world: &RunnerFixture, thread: &str) -> (Vec<Value>, Value) {
    let (mut links, mut cursor) = (Vec::new(), None);
    loop {
        let mut read = page(&world.service, thread, cursor.as_deref()).unwrap();
        links.extend(read["chain"].as_array().unwrap().clone());
        assert_eq!(read["chain_length"], links.len());
        match read["cursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return (links, read.take()),
        }
    }
}

/// A chat that answers once in each link: `Root`, then `L1` to `L<n>`.
fn talking_chain(links: usize) -> (RunnerFixture, Vec<String>) {
    let mut world = chain_of_two(Arc::new(MemoryStore::new()), None, 1);
    let mut ids = vec![ROOT.to_owned(), LINK.to_owned()];
    while ids.len() < links {
        let tip = ids.last().unwrap().clone();
        world.start(&tip, Some("and?")).unwrap();
        world.submit(&tip, says("so")).unwrap();
        let next = format!("L{}", ids.len());
        plant_link(
            &world,
            PlantedLink {
                tip: &tip,
                id: &next,
                from: 1,
            },
        );
        ids.push(next);
    }
    (world, ids)
}

#[test]
fn every_link_shows_the_same_chain() {
    let (world, ids) = talking_chain(4);
    let spent = |thread: &str| {
        let loaded = world.service.load(thread).unwrap();
        (loaded.head.value.counters, loaded)
    };
    for named in &ids {
        let (links, last) = whole_chain(&world, named);
        let shown: Vec<&str> = links
            .iter()
            .map(|link| link["thread_id"].as_str().unwrap())
            .collect();
        assert_eq!(shown, ids);
        assert_eq!(
            (&last["success"], &last["tip"]),
            (&json!(true), &json!(ids[3]))
        );
        let (mut turns, mut spend) = (0, NanoUsd::ZERO);
        for (n, (link, id)) in links.iter().zip(&ids).enumerate() {
            let (used, loaded) = spent(id);
            turns += used.turns;
            spend = spend.saturating_add(used.spend);
            assert_eq!(link["cost"]["turns"], used.turns, "{id}");
            assert_eq!(link["cost"]["spend"], used.spend.to_string());
            assert_eq!(link["status"], loaded.head.value.status.as_str());
            let before = n.checked_sub(1).map(|before| &ids[before]);
            assert_eq!(link["previous"], json!(before));
            assert_eq!(link["next"], json!(ids.get(n + 1)));
            let version = loaded.head.value.version;
            let continued = match n {
                3 => Value::Null,
                _ => json!({"how": "handed-off", "version": version}),
            };
            assert_eq!(
                (&link["continued"], &link["version"]),
                (&continued, &json!(version))
            );
        }
        assert!(turns > 2 && spend > NanoUsd::ZERO);
        assert_eq!(last["totals"]["turns"], turns);
        assert_eq!(last["totals"]["spend"], spend.to_string());
        let account = world.service.account(named).unwrap();
        assert_eq!(last["account"]["chain"], ROOT);
        assert_eq!(
            last["account"]["spent"],
            account.account().spent.to_string()
        );
        assert_eq!(
            world.service.load_tip(account).unwrap().thread.value.id,
            ids[3]
        );
    }
    world.audit();
}

#[test]
fn resumed_link_keeps_its_outcome_in_the_chain() {
    let world = chain_of_two(Arc::new(MemoryStore::new()), Some("work"), 1);
    let (links, _) = whole_chain(&world, LINK);
    assert_eq!(
        (&links[0]["status"], &links[0]["outcome"]),
        (&json!("completed"), &json!("completed"))
    );
    assert_eq!(links[0]["continued"]["how"], "resumed");
    assert_eq!(links[0]["directive"], "work");
    assert_eq!(
        (&links[1]["outcome"], &links[1]["continued"]),
        (&Value::Null, &Value::Null)
    );
    world.audit();
}

#[test]
fn long_chain_is_read_in_pages_of_25() {
    let mut world = RunnerFixture::new();
    let root = world.create(None);
    let mut tip = root.clone();
    for n in 0..60 {
        let link = format!("link-{n}");
        planted_links::plant_link(&world.service, &tip, &link);
        tip = link;
    }
    let first = page(&world.service, "LINK-7", None).unwrap();
    assert_eq!(first["chain"].as_array().unwrap().len(), 25);
    assert_eq!(
        (&first["chain_length"], &first["tip"]),
        (&json!(25), &json!(tip))
    );
    let (links, last) = whole_chain(&world, "link-59");
    assert_eq!((links.len(), &last["chain_length"]), (61, &json!(61)));
    assert_eq!(links[0]["thread_id"], root);
    let other = world.create(None);
    let cursor = first["cursor"].as_str().unwrap();
    for (thread, cursor) in [
        (other.as_str(), cursor),
        (&tip, ""),
        (&tip, "1 2 3"),
        (&tip, "1 1 1 1 1 1 ../x"),
        (&tip, "-1 1 1 1 1 1 link-1"),
    ] {
        let refused = page(&world.service, thread, Some(cursor)).unwrap_err();
        assert_eq!(code(&refused), "invalid", "{cursor:?}");
    }
    let unknown = page(&world.service, "nobody", None).unwrap_err();
    assert_eq!(code(&unknown), "not-found");
    world.audit();
}

/// Each call that writes to a thread, and the name of its error.
fn refused_writes(
    world: &RunnerFixture,
    thread: &str,
    token: u64,
) -> Vec<(&'static str, &'static str)> {
    let service = &world.service;
    let event = message_event("user", "late").to_string();
    let deadline = service.ports().now().plus_millis(60_000);
    let signal = |name: &str, what: Signal| service.signal(thread, name, &what).map(drop);
    let caps = ThreadCaps {
        turns: Some(90),
        ..ThreadCaps::NONE
    };
    let estimate = UnresolvedEstimate::Amount(NanoUsd::new(5));
    let message = parse_user(&user("late")).unwrap();
    let close = service.close(thread, token, "idle", None);
    let tried: [(&'static str, Result<(), Error>); 13] = [
        (
            "start",
            service
                .start(thread, Some(&user("late")), "other/1", "late", None)
                .map(drop),
        ),
        (
            "start without input",
            service
                .start(thread, None, "other/1", "late", None)
                .map(drop),
        ),
        (
            "claim",
            service
                .claim(thread, "other/1", HolderProof::Dead)
                .map(drop),
        ),
        ("open", service.open(thread, "other/1", deadline).map(drop)),
        (
            "append",
            service
                .append(thread, None, None, std::slice::from_ref(&event))
                .map(drop),
        ),
        (
            "append with a token",
            service
                .append(thread, Some(token), None, &[event])
                .map(drop),
        ),
        ("close", close.map(drop)),
        (
            "hold",
            service
                .hold(thread, token, "late", &estimate, deadline)
                .map(drop),
        ),
        ("message", signal("m", Signal::Message(message))),
        ("raise", signal("r", raise(caps))),
        ("cancel", signal("c", Signal::Cancel)),
        ("kill", signal("k", Signal::Kill)),
        (
            "set-title",
            service.set_title(thread, Some("late".to_owned())).map(drop),
        ),
    ];
    tried
        .into_iter()
        .map(|(name, done)| (name, refusal_code(thread, name, done)))
        .collect()
}

/// Returns the code of a refused write, and checks the link that it names.
fn refusal_code(thread: &str, name: &str, done: Result<(), Error>) -> &'static str {
    let error = done.expect_err(name);
    if let ErrorKind::Core(CoreErrorKind::Continued { thread: of, next }) = error.kind() {
        assert_eq!((of.as_str(), next.as_str()), (thread, LINK), "{name}");
    }
    code(&error)
}

/// A thread that was handed off, and one that had ended and was resumed: both have a successor, and
/// what is meant for them belongs there.
#[test]
fn late_writes_to_a_continued_thread_name_its_successor() {
    for directive in [None, Some("work")] {
        let world = chain_of_two(Arc::new(MemoryStore::new()), directive, 1);
        let before = world.service.load(ROOT).unwrap();
        let token = before.head.value.token;
        let refused = refused_writes(&world, ROOT, token);
        for (name, told) in refused {
            assert_eq!(told, "continued", "{name} of {directive:?}");
        }
        assert_eq!(
            world.service.load(ROOT).unwrap(),
            before,
            "nothing was written"
        );
        world.audit();
    }
}

/// Sets fields of a thread's record by hand.
fn edit_record(world: &RunnerFixture, thread: &str, edit: impl FnOnce(&mut ThreadRecord)) {
    let mut loaded = world.service.load(thread).unwrap();
    let record = loaded.thread.value_mut();
    edit(record);
    put_record(world, key::THREAD, thread, core_json::to_text(record));
}

fn put_record(world: &RunnerFixture, collection: &'static str, thread: &str, value: String) {
    let written = StoreWrite::Put {
        collection,
        key: id::key(thread),
        expect: WriteCondition::Any,
        value,
    };
    assert!(world.service.ports().commit(vec![written], false).unwrap());
}

fn delete(world: &RunnerFixture, collection: &'static str, thread: &str) {
    let key = id::key(thread);
    let delete = StoreWrite::Delete { collection, key };
    assert!(world.service.ports().commit(vec![delete], false).unwrap());
}

/// A change of a store by hand.
type StoreEdit = fn(&RunnerFixture);

/// Edits of a chain of four links, the code of what then answers, and the link at fault.
const BROKEN_CHAINS: [(&str, StoreEdit, &str, &str); 11] = [
    (
        "a cycle",
        |world| edit_record(world, "L3", |tip| tip.next = Some("link".to_owned())),
        "chain_broken",
        "L3",
    ),
    (
        "a cycle before the tip",
        |world| edit_record(world, "L2", |link| link.next = Some("Root".to_owned())),
        "chain_cycle",
        "Root",
    ),
    (
        "a link after itself",
        |world| edit_record(world, "L2", |link| link.next = Some("L2".to_owned())),
        "chain_cycle",
        "L2",
    ),
    (
        "a row that is missing",
        |world| {
            delete(world, key::THREAD, "L2");
            delete(world, key::HEAD, "L2");
        },
        "chain_broken",
        "L2",
    ),
    (
        "a first link that is missing",
        |world| {
            delete(world, key::THREAD, ROOT);
            delete(world, key::HEAD, ROOT);
        },
        "chain_broken",
        "Root",
    ),
    (
        "a first link that cannot be read",
        |world| put_record(world, key::THREAD, ROOT, "{".to_owned()),
        "chain_broken",
        "Root",
    ),
    (
        "a pointer that is missing",
        |world| edit_record(world, LINK, |link| link.next = None),
        "chain_broken",
        "Link",
    ),
    (
        "a pointer back that is missing",
        |world| edit_record(world, "L2", |link| link.previous = None),
        "chain_broken",
        "L2",
    ),
    (
        "a pointer back to another",
        |world| edit_record(world, "L3", |link| link.previous = Some("Root".to_owned())),
        "chain_broken",
        "L3",
    ),
    (
        "a link of another chain",
        |world| edit_record(world, LINK, |link| link.next = Some("other".to_owned())),
        "chain_broken",
        "other",
    ),
    (
        "a tip that is not the last",
        |world| {
            let mut loaded = world.service.load(ROOT).unwrap();
            let chain = loaded.chain.value_mut();
            chain.tip = LINK.to_owned();
            put_record(world, key::CHAIN, ROOT, core_json::to_text(chain));
        },
        "chain_broken",
        "Link",
    ),
];

#[test]
fn broken_chains_name_the_link_and_leave_others_alone() {
    for (what, edit, expected, link) in BROKEN_CHAINS {
        let (mut world, _) = talking_chain(4);
        create(&world, "other", None);
        edit(&world);
        for named in ["L3", LINK] {
            let told = page(&world.service, named, None);
            let Err(ErrorKind::Core(CoreErrorKind::BrokenChain { code, thread, .. })) =
                told.as_ref().map_err(Error::kind)
            else {
                panic!("{what}: {told:?}")
            };
            assert_eq!((*code, thread.as_str()), (expected, link), "{what}");
        }
        // Listing, auditing and other threads go on.
        let (listed, _) = world.service.list(None, 100, None).unwrap();
        assert!(
            listed.threads.len() + listed.unreadable.len() >= 5,
            "{what}"
        );
        run_to_end(&mut world, "other");
        let store = &world.service.ports().context().storage;
        let found = audit(&**store).unwrap().findings;
        let named = |invariant| found.iter().any(|finding| finding.invariant == invariant);
        assert!(
            named(StoreInvariant::Chains) || named(StoreInvariant::Histories),
            "{what}: {found:?}"
        );
        assert!(
            found.iter().all(|finding| finding.thread != "other"),
            "{what}: {found:?}"
        );
    }
}

/// A link that no other leads to is no part of the chain that it says it is of.
#[test]
fn loose_link_is_told() {
    let (world, _) = talking_chain(3);
    create(&world, "loose", None);
    edit_record(&world, "loose", |loose| {
        loose.chain = ROOT.to_owned();
        loose.previous = Some(LINK.to_owned());
    });
    let told = page(&world.service, "loose", None).unwrap_err();
    let ErrorKind::Core(CoreErrorKind::BrokenChain { thread, .. }) = told.kind() else {
        panic!("{told:?}")
    };
    assert_eq!(thread, "loose");
    assert!(page(&world.service, LINK, None).is_ok());
}

#[test]
fn tip_that_is_missing_or_not_the_last_is_told() {
    for (edit, link) in [
        (
            (|world| {
                delete(world, key::THREAD, "L2");
                delete(world, key::HEAD, "L2");
            }) as StoreEdit,
            "L2",
        ),
        (
            |world| {
                let mut loaded = world.service.load(ROOT).unwrap();
                let chain = loaded.chain.value_mut();
                chain.tip = "other".to_owned();
                put_record(world, key::CHAIN, ROOT, core_json::to_text(chain));
            },
            "other",
        ),
        (
            |world| {
                let mut loaded = world.service.load(ROOT).unwrap();
                let chain = loaded.chain.value_mut();
                chain.tip = LINK.to_owned();
                put_record(world, key::CHAIN, ROOT, core_json::to_text(chain));
            },
            "Link",
        ),
    ] {
        let (world, _) = talking_chain(3);
        create(&world, "other", None);
        edit(&world);
        let root = world.service.load(ROOT).unwrap();
        let told = world.service.load_tip(root).unwrap_err();
        let ErrorKind::Core(CoreErrorKind::BrokenChain { code, thread, .. }) = told.kind() else {
            panic!("{told:?}")
        };
        assert_eq!((*code, thread.as_str()), ("chain_broken", link));
    }
}

/// Both documents say where the thread goes on, and at which place of its history.
#[test]
fn documents_of_both_links_tell_the_hand_off() {
    for (directive, event, note) in [
        (
            None,
            "thread_handoff",
            "*handed off to Link, with the last 2 turns and no summary*",
        ),
        (
            Some("work"),
            "thread_resumed",
            "*resumed in Link, with 2 turns: Once more.*",
        ),
    ] {
        let mut world = chain_of_two(Arc::new(MemoryStore::new()), directive, 1);
        world.start(LINK, Some("and now?")).unwrap();
        world.submit(LINK, says("more")).unwrap();
        let render = |thread: &str, what: &str| {
            world
                .service
                .render(thread, what, None, 0, None)
                .unwrap()
                .text
        };
        for thread in [ROOT, LINK] {
            let (text, lines) = (render(thread, "markdown"), render(thread, "jsonl"));
            assert!(text.contains(note), "{thread}: {text}");
            let told = lines
                .lines()
                .map(|line| serde_json::from_str::<Value>(line).unwrap());
            let told: Vec<Value> = told.filter(|line| line["type"] == event).collect();
            assert_eq!(told.len(), 1, "{thread}: {lines}");
            assert_eq!(told[0]["new_thread_id"], LINK);
        }
        let about = |thread| serde_json::from_str::<Value>(&render(thread, "thread")).unwrap();
        assert_eq!(about(ROOT)["continuation_thread_id"], LINK);
        assert_eq!(about(LINK)["continuation_of"], ROOT);
        let manifest = |thread| serde_json::from_str::<Value>(&render(thread, "manifest")).unwrap();
        assert_eq!(manifest(ROOT)["continuationThreadId"], LINK);
        assert_eq!(manifest(ROOT)["continuationOf"], Value::Null);
        assert_eq!(manifest(LINK)["continuationOf"], ROOT);
    }
}

/// An application's event cannot pretend that a thread was continued.
#[test]
fn events_of_chains_are_not_appended() {
    let mut world = RunnerFixture::new();
    let chat = world.create(None);
    for event in [
        json!({"type": "thread_handoff", "new_thread_id": "x", "trailing_turns": 0,
            "summary_generated": false, "summary_tokens": 0}),
        json!({"type": "context_injected", "role": "user", "text": "x"}),
        json!({"type": "thread_resumed", "new_thread_id": "x", "directive": null,
            "message_preview": "", "reconstructed_turns": 0}),
        json!({"type": "context_limit_reached", "usage_ratio": 0, "tokens_used": 0,
            "tokens_limit": 0}),
    ] {
        let refused = world
            .service
            .append(&chat, None, None, &[event.to_string()]);
        assert_eq!(
            refused.map_err(|error| code(&error)).unwrap_err(),
            "invalid",
            "{event}"
        );
    }
    let fine = message_event("user", "go").to_string();
    assert!(world.service.append(&chat, None, None, &[fine]).is_ok());
}

/// An agent sees its own chain and those under it, in the form that `chain --json` has.
#[test]
fn get_chain_reaches_own_chain_and_those_below() {
    use crate::children::fixture::ThreadFamily;
    use crate::children::planted_links::continue_thread;
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    family.world.count("child");
    let child = family.spawn_running("work");
    let tip = continue_thread(&mut family, &child);
    family.world.create(None);
    let stranger = family.world.create(None);
    for (thread, link) in [(&child, &child), (&tip, &child), (&boss, &boss)] {
        let got = family.reply(&boss, &[("get_chain", json!({"thread": thread}))]);
        let service = &family.world.service;
        let whole = service.chain_page(&service.load(link).unwrap(), None);
        // The boss has committed its call since.
        let (mut told, mut whole): (Value, Value) = (
            serde_json::from_str(&got[0].2).unwrap(),
            serde_json::from_str(&whole.unwrap()).unwrap(),
        );
        for answer in [&mut told, &mut whole] {
            if link == &boss {
                answer["chain"][0] = json!(answer["chain"][0]["thread_id"]);
            }
            answer["account"] = Value::Null;
            answer["totals"] = Value::Null;
        }
        assert_eq!(told, whole, "{thread}");
    }
    let got = family.reply(&boss, &[("get_chain", json!({"thread": stranger}))]);
    assert!(got[0].2.contains("there is no thread"), "{got:?}");
    // Its status names the link that the boss knows.
    let got = family.reply(&boss, &[("thread_status", json!({"thread": child}))]);
    let status: Value = serde_json::from_str(&got[0].2).unwrap();
    assert_eq!(
        (&status["thread"], &status["chain"]),
        (&json!(tip), &json!(child))
    );
}
