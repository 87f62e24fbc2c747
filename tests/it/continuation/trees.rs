//! Trees whose threads are handed off while one waits for another.

use super::fixture::{DrivenChain, library_without_summary, message, words};
use crate::runner::fixture::calls;
use serde_json::{Value, json};
use threadkeep_core::runner::HolderProof;
use threadkeep_core::thread::{StepKind, ThreadStatus};
use threadkeep_tests::fixture::MapLibrary;

/// Parents with a larger window than their children, because they have more tools.
pub fn library() -> MapLibrary {
    let boss = json!({
        "name": "boss", "body": "Have it done.",
        "front": {"capabilities": ["execute.tool.*"], "model": "large", "limits": {"turns": 100}},
    });
    let large = json!({
        "name": "large", "provider": "p", "window": 20_000, "output": 100,
        "prices": {"input": "1", "output": "2"},
    });
    library_without_summary()
        .with("directive", "boss", &boss.to_string())
        .with("model", "large", &large.to_string())
}

/// Lets a parent spawn a child; returns the child's id.
pub fn spawn_child(parent: &mut DrivenChain) -> String {
    parent.submit(calls(&[("spawn_thread", r#"{"directive":"work"}"#)]));
    let spawned = parent.event(&parent.thread.clone(), "tool_result");
    let answer: Value = serde_json::from_str(spawned["text"].as_str().unwrap()).unwrap();
    answer["thread"].as_str().unwrap().to_owned()
}

/// Starts a child in the world of its parent, and works until it has gone on in another link.
fn hand_child_off(parent: DrivenChain, child: &str) -> DrivenChain {
    let mut world = parent.world;
    world.count("starts");
    let handed = world.start(child, None).unwrap();
    let mut child = DrivenChain::of_step(world, handed);
    while child.links.len() == 1 {
        child.call_tool(110);
    }
    child
}

fn claim(world: crate::runner::fixture::RunnerFixture, thread: &str) -> DrivenChain {
    let claimed = world.service.claim(thread, "again/1", HolderProof::None);
    DrivenChain::of_step(world, claimed.unwrap())
}

#[test]
fn a_parent_waits_on_for_a_child_that_is_handed_off() {
    let mut parent = DrivenChain::start(library(), Some("boss"), None);
    let root = parent.thread.clone();
    let child = spawn_child(&mut parent);
    parent.submit(calls(&[("wait_threads", "{}")]));
    assert_eq!(parent.status(), ThreadStatus::Waiting);
    let mut child = hand_child_off(parent, &child);
    assert_eq!(child.load(&root).head.value.status, ThreadStatus::Waiting);
    assert_ne!(child.load(&root).head.value.due, Some(0));
    child.say("the child is done");
    assert_eq!(child.status(), ThreadStatus::Completed);
    assert_eq!(child.load(&root).head.value.due, Some(0));
    child.check();
    let tip = child.thread.clone();
    let parent = claim(child.world, &root);
    let results = parent.events(&root);
    let result = results.iter().rfind(|event| event["type"] == "tool_result");
    let text = result.unwrap()["text"].as_str().unwrap();
    assert!(
        text.contains("the child is done") && text.contains(&tip),
        "{text}"
    );
    parent.world.audit();
}

#[test]
fn a_parent_that_is_handed_off_waits_for_the_children_of_earlier_links() {
    let mut parent = DrivenChain::start(library(), Some("boss"), None);
    let root = parent.thread.clone();
    let child = spawn_child(&mut parent);
    while parent.links.len() == 1 {
        parent.call_tool(2_500);
    }
    let tip = parent.thread.clone();
    parent.submit(calls(&[("wait_threads", "{}")]));
    assert_eq!(parent.status(), ThreadStatus::Waiting);
    parent.check();
    let mut child = hand_child_off(parent, &child);
    child.say("the child is done");
    child.check();
    assert_eq!(child.load(&root).head.value.due, None);
    assert_eq!(child.load(&tip).head.value.due, Some(0));
    let mut parent = claim(child.world, &tip);
    assert_eq!(parent.handed.step.kind, Some(StepKind::CallLlm));
    parent.say("all is done");
    assert_eq!(parent.status(), ThreadStatus::Completed);
    let spent = parent.load(&root).chain.value.account.clone();
    let of = |thread: &str| parent.load(thread).head.value.counters.spend.get();
    let child_links = parent.world.service.load(&child.links[0]);
    assert!(child_links.is_ok());
    let own: u64 = [&root, &tip].map(|link| of(link)).iter().sum();
    let below: u64 = child.links.iter().map(|link| of(link)).sum();
    assert_eq!(spent.spent.get(), own + below);
    parent.world.audit();
}

/// A message to an earlier link is refused with the tip, which takes it.
#[test]
fn a_message_to_a_link_that_was_handed_off_names_the_next() {
    let mut chain = DrivenChain::start(library_without_summary(), Some("work"), None);
    while chain.links.len() == 1 {
        chain.call_tool(110);
    }
    let old = chain.links[0].clone();
    let refused = chain.world.service.signal(&old, "m", &message("hello"));
    assert!(format!("{refused:?}").contains("Continued"), "{refused:?}");
    let tip = chain.thread.clone();
    let sent = message(&words(5));
    chain.world.service.signal(&tip, "m", &sent).unwrap();
    chain.call_tool(10);
    assert_eq!(chain.request().last().unwrap().1, words(5).trim());
    chain.check();
}
