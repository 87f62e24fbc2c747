//! Chains of two links, planted as a hand-off will write them, and what waits for them, wakes them
//! and ends them.

use super::fixture::ThreadFamily;
use crate::runner::fixture::{calls, raise, says, user};
use serde_json::{Value, json};
use std::sync::Arc;
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_component::ports::HostPorts;
use threadkeep_component::service::ThreadService;
use threadkeep_core::history::parse_user;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::plan::{StoreWrite, WriteCondition};
use threadkeep_core::runner::Signal;
use threadkeep_core::thread::Head;
use threadkeep_core::{id, json as core_json, key};
use threadkeep_tests::interleaved_store::InterleavedStore;
use threadkeep_tests::native::NativePorts;
use threadkeep_tests::planted_links::plant_link;

/// Suspends a running thread as the death of its holder does, and continues it in a second link.
pub fn continue_thread(family: &mut ThreadFamily, thread: &str) -> String {
    let holder = family.load(thread).head.value.holder.clone().unwrap();
    let recovery = family.world.service.recover(&[holder], None).unwrap();
    assert_eq!(recovery.closed, [thread]);
    let link = format!("{thread}-2");
    plant_link(&family.world.service, thread, &link);
    family.world.audit();
    link
}

fn put_head(family: &ThreadFamily, thread: &str, head: &Head) {
    let put = StoreWrite::Put {
        collection: key::HEAD,
        key: id::key(thread),
        expect: WriteCondition::Any,
        value: core_json::to_text(head),
    };
    let service = &family.world.service;
    assert!(service.ports().commit(vec![put], false).unwrap());
}

/// A child of a running boss, each with a holder of its own.
fn family_with_child() -> (ThreadFamily, String) {
    let mut family = ThreadFamily::new();
    family.world.count("child");
    let child = family.spawn_running("work");
    (family, child)
}

fn wait_answer(family: &ThreadFamily, thread: &str) -> Value {
    let got = family.results(thread);
    let wait = got.iter().find(|got| got.0 == "wait_threads");
    serde_json::from_str(&wait.expect("it is answered").2).unwrap()
}

#[test]
fn a_child_wakes_the_tip_of_a_continued_parent() {
    let (mut family, child) = family_with_child();
    let boss = family.boss.clone();
    let tip = continue_thread(&mut family, &boss);
    family.world.start(&tip, None).unwrap();
    let got = family.reply(&tip, &[("wait_threads", json!({}))]);
    assert!(
        got.is_empty(),
        "it waits for a child of the link before: {got:?}"
    );
    assert_eq!(family.status(&tip), "waiting");
    assert_eq!(
        family.load(&tip).head.value.wait.clone().unwrap().numbers,
        [1]
    );
    assert!(family.due().is_empty(), "{:?}", family.due());
    let told = family.load(&child).parent.unwrap();
    assert_eq!((told.id, told.chain), (tip.clone(), boss.clone()));
    family
        .world
        .submit(&child, says("done by the child"))
        .unwrap();
    family.world.audit();
    assert_eq!(family.due(), [(tip.clone(), false)]);
    family.claim(&tip).unwrap();
    let told = wait_answer(&family, &tip);
    assert_eq!(told["threads"][0]["thread"], child);
    assert_eq!(told["threads"][0]["result"], "done by the child");
    assert_eq!(told["threads"].as_array().unwrap().len(), 1);
    family.world.audit();
}

/// A wait for either link, or for all children, is one for the chain.
#[test]
fn a_wait_for_a_continued_child_gives_the_result_of_its_tip() {
    for wanted in [
        json!({"threads": ["first"]}),
        json!({}),
        json!({"threads": ["both"]}),
    ] {
        let (mut family, child) = family_with_child();
        let boss = family.boss.clone();
        let tip = continue_thread(&mut family, &child);
        let wait = match wanted["threads"][0].as_str() {
            Some("first") => json!({"threads": [child]}),
            Some(_) => json!({"threads": [child, tip]}),
            None => json!({}),
        };
        let got = family.reply(&boss, &[("wait_threads", wait)]);
        assert!(got.is_empty(), "a hand-off is no end: {got:?}");
        family.world.start(&tip, None).unwrap();
        family
            .world
            .submit(&tip, says("the result of the tip"))
            .unwrap();
        assert_eq!(family.due(), [(boss.clone(), false)], "{wanted}");
        family.claim(&boss).unwrap();
        let told = wait_answer(&family, &boss);
        let threads = told["threads"].as_array().unwrap();
        assert_eq!(threads.len(), 1, "one child: {told}");
        assert_eq!(threads[0]["thread"], tip);
        assert_eq!(threads[0]["status"], "completed");
        assert_eq!(threads[0]["result"], "the result of the tip");
        family.world.audit();
    }
}

#[test]
fn trees_and_due_threads_show_the_tips_of_chains() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    family.world.count("child");
    let child = family.spawn(json!({"directive": "boss", "limits": {"spend": "0.02"}}));
    family.world.start(&child, None).unwrap();
    let grandchild = family.spawn_under(&child, json!({"directive": "work"}));
    let tip = continue_thread(&mut family, &child);
    let tree = family.world.service.tree_page(&boss, None).unwrap();
    let ids = tree.branches.iter();
    let ids: Vec<(&str, u32)> = ids
        .map(|(loaded, depth)| (loaded.thread.value.id.as_str(), *depth))
        .collect();
    assert_eq!(ids, [(&*boss, 0), (&*tip, 1), (&*grandchild, 2)]);
    assert_eq!(tree.cursor, None);
    let mut due: Vec<String> = family.due().into_iter().map(|(thread, _)| thread).collect();
    due.sort();
    let mut expected = [tip.clone(), grandchild];
    expected.sort();
    assert_eq!(due, expected);
    let got = family.reply(&boss, &[("list_threads", json!({}))]);
    assert!(got[0].2.contains(&tip), "{got:?}");
    let asked = json!({"thread": child});
    let got = family.reply(&boss, &[("thread_status", asked)]);
    assert!(got[0].2.contains(&tip), "{got:?}");
    family.world.start(&tip, None).unwrap();
    family.world.submit(&tip, says("at its end")).unwrap();
    let asked = json!({"threads": [child]});
    let got = family.reply(&boss, &[("aggregate_results", asked)]);
    assert!(got[0].2.contains("at its end"), "{got:?}");
}

#[test]
fn messages_and_ends_reach_the_tip_of_a_continued_child() {
    for end in ["kill_thread", "cancel_thread"] {
        let (mut family, child) = family_with_child();
        let boss = family.boss.clone();
        let tip = continue_thread(&mut family, &child);
        let sent = json!({"thread": child, "message": "look again"});
        let got = family.reply(
            &boss,
            &[("send_message", sent), (end, json!({"thread": child}))],
        );
        assert!(got.iter().all(|got| !got.1), "{got:?}");
        family.sweep();
        let ended = family.load(&tip).head.value;
        assert!(ended.status.is_terminal(), "{end}: {}", ended.status);
        assert_eq!(ended.mail_count(), 0, "the message is in its history");
        assert_eq!(family.status(&child), "continued");
    }
}

/// A person's end of a continued parent reaches the children of all its links.
#[test]
fn an_end_of_the_tip_reaches_the_children_of_earlier_links() {
    let (mut family, child) = family_with_child();
    let boss = family.boss.clone();
    let tip = continue_thread(&mut family, &boss);
    family.world.start(&tip, None).unwrap();
    let second = family.spawn_under(&tip, json!({"directive": "work"}));
    assert_eq!(family.load(&second).chain.value.number, 2, "numbers go on");
    family
        .world
        .service
        .signal(&tip, "k", &Signal::Kill)
        .unwrap();
    assert_eq!(family.load(&tip).head.value.sweep_to, Some(2));
    family.sweep();
    for child in [&child, &second] {
        assert_eq!(family.status(child), "killed", "{child}");
    }
}

/// A cap on spawns bounds the chain, and a hand-off does not begin it anew.
#[test]
fn the_cap_on_spawns_counts_the_children_of_earlier_links() {
    let (mut family, _) = family_with_child();
    let boss = family.boss.clone();
    let tip = continue_thread(&mut family, &boss);
    let caps = ThreadCaps {
        spawns: Some(1),
        ..ThreadCaps::NONE
    };
    family
        .world
        .service
        .signal(&tip, "r", &raise(caps))
        .unwrap();
    family.world.start(&tip, None).unwrap();
    let got = family.reply(&tip, &[("spawn_thread", json!({"directive": "work"}))]);
    assert!(got[0].1 && got[0].2.contains("1 of 1"), "{got:?}");
    let cause = family.load(&tip).head.value.cause.clone().unwrap();
    assert_eq!(cause.code, "spawns_exceeded");
}

/// A cap on spend bounds the chain: a hand-off does not begin it anew.
#[test]
fn the_cap_on_spend_counts_what_earlier_links_have_spent() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let outcome = calls(&[("thread_status", "{}")]);
    family.world.submit(&boss, outcome).unwrap();
    let tip = continue_thread(&mut family, &boss);
    let spent = family.load(&boss).head.value.counters.spend;
    assert_eq!(family.load(&tip).head.value.carried_spend, Some(spent));
    // The account has room, the cap of the chain has none.
    let loaded = family.load(&tip);
    let limits = ThreadCaps {
        spend: Some(spent),
        ..loaded.head.value.limits
    };
    let head = Head {
        limits,
        ..Head::clone(&loaded.head.value)
    };
    put_head(&family, &tip, &head);
    let handed = family.world.start(&tip, None).unwrap();
    assert_eq!(handed.step.kind, None, "nothing is admitted");
    let cause = family.load(&tip).head.value.cause.clone().unwrap();
    assert_eq!(cause.code, "spend_exceeded");
}

/// A sweep that is still owed from before a resume must not end what was spawned since.
#[test]
fn a_sweep_leaves_children_alone_that_were_spawned_after_its_end() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let spawn = json!({"directive": "work"});
    let children = [0; 3].map(|_| family.spawn(spawn.clone()));
    family
        .world
        .service
        .signal(&boss, "k", &Signal::Kill)
        .unwrap();
    let loaded = family.load(&boss);
    assert_eq!(loaded.head.value.sweep_to, Some(3), "all that there are");
    // As if the third had been spawned after the kill.
    let head = Head {
        sweep_to: Some(2),
        ..Head::clone(&loaded.head.value)
    };
    put_head(&family, &boss, &head);
    let page = family.world.service.sweep_page(&boss, None).unwrap();
    assert_eq!((page.cursor, page.unreadable), (None, Vec::new()));
    let statuses = children.map(|child| family.status(&child));
    assert_eq!(statuses, ["killed", "killed", "created"]);
    let head = family.load(&boss).head.value;
    assert_eq!(
        (head.sweep, head.sweep_to),
        (None, None),
        "it owes nothing more"
    );
}

/// A child whose first link cannot be read is found by its chain; one whose tip cannot is an
/// outcome for those beside it.
#[test]
fn a_lost_link_is_an_outcome_for_those_beside_it() {
    for (lost, readable) in [("first", true), ("tip", false)] {
        let (mut family, child) = family_with_child();
        let boss = family.boss.clone();
        family.world.count("other");
        let other = family.spawn_running("work");
        let tip = continue_thread(&mut family, &child);
        let lost = if lost == "tip" { &tip } else { &child };
        let delete = StoreWrite::Delete {
            collection: key::HEAD,
            key: id::key(lost),
        };
        let deleted = family.world.service.ports().commit(vec![delete], false);
        assert!(deleted.unwrap());
        family.world.submit(&other, says("done")).unwrap();
        let wait = calls(&[("wait_threads", "{}")]);
        family.world.submit(&boss, wait).unwrap();
        match readable {
            true => assert_eq!(family.status(&boss), "waiting", "the tip goes on"),
            false => {
                let told = wait_answer(&family, &boss).to_string();
                assert!(
                    told.contains("unreadable") && told.contains("done"),
                    "{told}"
                );
            }
        }
        let message = Signal::Message(parse_user(&user("x")).unwrap());
        let sent = family.world.service.signal(&boss, "m", &message);
        sent.expect("those beside it go on");
    }
}

/// Symptom that is prevented: a child that was continued between two reads is told of as
/// unreadable, or as ended. Cause: the tip that the first read named was none any more by the
/// second. Fix: the chain is followed to its tip.
#[test]
fn a_child_that_is_continued_between_the_reads_is_found() {
    for reads in [1, 2] {
        let inner: Arc<dyn StorageBackend> = Arc::new(MemoryStore::new());
        let store = Arc::new(InterleavedStore::new(Arc::clone(&inner)));
        let mut family = ThreadFamily::over(Arc::<InterleavedStore>::clone(&store));
        family.world.count("child");
        let child = family.spawn_running("work");
        let tip = continue_thread(&mut family, &child);
        let first = family.load(&child);
        let (newest, mut context) = ("newest", family.world.service.ports().context().clone());
        context.storage = inner;
        let before = tip.clone();
        store.after_reads(reads - 1, move || {
            plant_link(
                &ThreadService::new(NativePorts::new(context)),
                &before,
                newest,
            );
        });
        let found = match reads {
            1 => family.world.service.load_tip(first),
            _ => {
                let key = id::key(&child);
                let tips = family.world.service.load_tips(&[key]).unwrap();
                Ok(tips.into_iter().next().unwrap().expect("it can be read"))
            }
        };
        assert_eq!(found.unwrap().thread.value.id, newest);
    }
}
