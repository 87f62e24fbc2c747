//! Children that are resumed, by a person and by the thread that spawned them.

use super::fixture::resume;
use crate::children::fixture::ThreadFamily;
use crate::runner::fixture::says;
use serde_json::{Value, json};
use threadkeep_core::plan::{DueCall, due_calls};
use threadkeep_core::runner::Signal;

/// The calls that get the due threads under the boss going.
fn due_with_calls(family: &ThreadFamily) -> Vec<(String, Vec<DueCall>)> {
    let page = family.world.service.ready(100, None, Some(&family.boss));
    let threads = page.unwrap().threads.into_iter();
    let due = threads.map(|due| {
        let head = &due.loaded.head.value;
        (due.loaded.thread.value.id.clone(), due_calls(head))
    });
    due.collect()
}

fn wait_answer(family: &ThreadFamily, thread: &str) -> Value {
    let got = family.results(thread);
    let wait = got.iter().find(|got| got.0 == "wait_threads");
    serde_json::from_str(&wait.expect("it is answered").2).unwrap()
}

/// A child that a person has resumed gives the parent that waits for it later its new result.
#[test]
fn a_later_wait_sees_the_new_result() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = family.spawn_running("work");
    family.world.submit(&child, says("first")).unwrap();
    let next = resume(&mut family.world, &child, Some("again")).unwrap();
    let got = family.reply(&boss, &[("wait_threads", json!({"threads": [child]}))]);
    assert!(got.is_empty(), "it runs again: {got:?}");
    family.world.submit(&next, says("second")).unwrap();
    family.claim(&boss).unwrap();
    let told = wait_answer(&family, &boss);
    assert_eq!(told["threads"][0]["result"], "second");
    assert_eq!(told["threads"][0]["thread"], next);
    assert_eq!(
        family.load(&boss).chain.value.children,
        1,
        "it counts no spawn"
    );
    family.world.audit();
}

/// The tool: the child is due, a driver resumes it, and a wait in the same reply gets the new
/// result.
#[test]
fn an_agent_resumes_its_child() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = family.spawn_running("work");
    family.world.submit(&child, says("first")).unwrap();
    let asked = json!({"thread": child, "message": "do it better"});
    let wait = json!({"threads": [child]});
    let got = family.reply(&boss, &[("resume_thread", asked), ("wait_threads", wait)]);
    assert_eq!(got.len(), 1, "the wait is open: {got:?}");
    let told: Value = serde_json::from_str(&got[0].2).unwrap();
    assert_eq!(
        (&told["done"], got[0].1),
        (&json!("resumed"), false),
        "{told}"
    );
    assert_eq!(family.status(&boss), "waiting");
    assert_eq!(
        due_with_calls(&family),
        [(child.clone(), vec![DueCall::Resume])]
    );
    let next = resume(&mut family.world, &child, None).unwrap();
    assert_ne!(next, child);
    family.world.audit();
    assert_eq!(due_with_calls(&family), []);
    let messages = super::fixture::sent_messages(&family.world, &next);
    assert!(
        messages.last().unwrap().contains("do it better"),
        "{messages:?}"
    );
    family.world.submit(&next, says("second")).unwrap();
    family.claim(&boss).unwrap();
    assert_eq!(
        wait_answer(&family, &boss)["threads"][0]["result"],
        "second"
    );
    assert_eq!(family.load(&boss).head.value.counters.spawns, 1);
    family.world.audit();
}

/// A thread that is not below the caller is not there for it, and one that has not ended has
/// another tool.
#[test]
fn a_resume_that_cannot_be_is_a_result() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let stranger = family.world.create(Some("work"));
    family.world.start(&stranger, None).unwrap();
    family.world.submit(&stranger, says("done")).unwrap();
    let child = family.spawn_running("work");
    for (thread, message, why) in [
        (stranger.as_str(), "x", "there is no"),
        ("nobody", "x", "there is no"),
        (&boss, "x", "your own"),
        (&child, "x", "send_message"),
        (&child, "", "missing"),
    ] {
        let asked = json!({"thread": thread, "message": message});
        let got = family.reply(&boss, &[("resume_thread", asked)]);
        assert!(got[0].1 && got[0].2.contains(why), "{thread}: {got:?}");
    }
    // The money is asked for before the model is told that it is done.
    let poor = family.spawn(json!({"directive": "work", "limits": {"spend": "0.06"}}));
    family.world.start(&poor, None).unwrap();
    family.world.submit(&poor, says("done")).unwrap();
    let rich = family.spawn(json!({"directive": "work", "limits": {"spend": "0.06"}}));
    let asked = json!({"thread": poor, "message": "x"});
    let got = family.reply(&boss, &[("resume_thread", asked)]);
    assert!(got[0].1 && got[0].2.contains("are left"), "{got:?}");
    assert_eq!(family.status(&rich), "created");
    family.world.audit();
}

/// A killed child is resumed by its parent; a kill of the parent before a driver came takes the
/// resume back.
#[test]
fn an_end_of_the_parent_takes_the_resume_back() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = family.spawn_running("work");
    family
        .world
        .service
        .signal(&child, "k", &Signal::Kill)
        .unwrap();
    let asked = json!({"thread": child, "message": "go on"});
    let got = family.reply(&boss, &[("resume_thread", asked)]);
    assert!(!got[0].1, "{got:?}");
    family
        .world
        .service
        .signal(&boss, "k", &Signal::Kill)
        .unwrap();
    family.sweep();
    assert_eq!(due_with_calls(&family), []);
    let head = family.load(&child).head.value;
    assert_eq!((head.mail_count(), head.due), (0, None));
    assert!(
        super::fixture::sent_messages(&family.world, &child)
            .join("")
            .contains("go on")
    );
    family.world.audit();
}

/// Symptom: a killed child that was resumed before its own children were told of the kill was never
/// begun, and its message waited for ever. Cause: the end of the sweep made the thread not due.
/// Fix: one with mail stays due. Kind: what a sweep's end leaves due, by status.
#[test]
fn a_sweep_that_ends_leaves_a_resume_due() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = family.spawn(json!({"directive": "boss", "limits": {"spend": "0.02"}}));
    family.world.start(&child, None).unwrap();
    let below = family.spawn_under(&child, json!({"directive": "work"}));
    let service = &family.world.service;
    service.signal(&child, "k", &Signal::Kill).unwrap();
    let asked = json!({"thread": child, "message": "go on"});
    let got = family.reply(&boss, &[("resume_thread", asked)]);
    assert!(!got[0].1, "{got:?}");
    let both = vec![DueCall::Sweep, DueCall::Resume];
    assert!(due_with_calls(&family).contains(&(child.clone(), both)));
    family.sweep();
    assert_eq!(family.status(&below), "killed");
    let resume_alone = (child.clone(), vec![DueCall::Resume]);
    assert_eq!(due_with_calls(&family), [resume_alone]);
    family.world.audit();
    let next = resume(&mut family.world, &child, None).unwrap();
    family.world.submit(&next, says("done")).unwrap();
    family.world.audit();
}
