//! The question what a hand-off would carry now: `continuation.plan`.

use super::fixture::{DrivenChain, library, library_without_summary, words};
use serde_json::{Value, json};

fn plan(chain: &DrivenChain, thread: &str) -> Value {
    let text = chain.world.service.hand_off_plan(thread).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A thread that has not begun, and one with a single message, have nothing that could be left out.
#[test]
fn nothing_is_possible_before_there_is_something_to_leave_out() {
    let mut world = DrivenChain::start(library(json!({})), None, Some("hello"));
    let created = world.world.create(Some("work"));
    let plan_of_created = plan(&world, &created);
    assert_eq!(plan_of_created["due"], false);
    assert_eq!(plan_of_created["possible"], false);
    assert_eq!(plan_of_created["parts"], json!([]));
    let begun = plan(&world, &world.thread);
    assert_eq!(
        (&begun["due"], &begun["possible"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(begun["hand_offs"], 0);
    assert_eq!(begun["window"], 1_000);
    assert_eq!(begun["summary"]["model"], "fast");
    world.say("hello");
    world.check();
}

/// The plan just before a hand-off names the entries and turns that the hand-off then carries, and
/// asking for it writes nothing.
#[test]
fn the_plan_is_what_the_hand_off_carries() {
    let mut chain = DrivenChain::start(library_without_summary(), Some("work"), None);
    let mut last = Value::Null;
    while chain.links.len() == 1 {
        let thread = chain.thread.clone();
        let before = chain.load(&thread);
        last = plan(&chain, &thread);
        assert_eq!(chain.load(&thread), before, "a question writes nothing");
        assert_eq!(last["summary"], Value::Null);
        assert_eq!(last["due"], false, "else it would have been handed off");
        assert_eq!(last["tokens"], before.head.value.context);
        chain.call_tool(110);
    }
    assert_eq!(last["possible"], true, "{last}");
    let base = chain.load(&chain.thread).thread.value.base.clone().unwrap();
    // The own first entry, then what is carried: the newest entries of the first link, which end
    // with the one that closes it.
    let carried = &base.parts[1..];
    assert_eq!(carried.last().unwrap().to, base.length);
    assert!(carried.iter().all(|part| part.thread == chain.links[0]));
    let planned = last["parts"].as_array().unwrap();
    let from = |part: &Value| part["from"].as_u64().unwrap();
    // The last round was not there yet, so the hand-off may carry a later beginning, never an
    // earlier one.
    let newest = carried.last().unwrap().from;
    assert!(
        planned.iter().map(from).max() <= Some(newest),
        "{last} {base:?}"
    );
    let tip = plan(&chain, &chain.thread);
    assert_eq!(tip["hand_offs"], 1);
    assert_eq!(tip["due"], false);
    chain.check();
}

/// Where not even the least fits, the plan says how much that is and how much may be.
#[test]
fn a_plan_that_is_not_possible_says_what_is_needed() {
    let mut chain = DrivenChain::start(library(json!({})), None, Some("the first question"));
    chain.say(&words(300));
    chain.ask(&words(600));
    assert_eq!(chain.cause(), "handoff_impossible");
    let plan = plan(&chain, &chain.thread);
    assert_eq!(plan["possible"], false);
    assert_eq!(plan["due"], true);
    let tokens = |name: &str| plan[name].as_u64().unwrap();
    assert!(tokens("needed_tokens") > 600, "{plan}");
    assert!(
        tokens("needed_tokens") > tokens("available_tokens"),
        "{plan}"
    );
    let cause = chain.load(&chain.thread).head.value.cause.clone().unwrap();
    assert_eq!(cause.value, Some(tokens("needed_tokens")));
    assert_eq!(cause.maximum, Some(tokens("available_tokens")));
}

/// A thread that is not there, and a link that was continued: the first is refused, the second is
/// answered like any thread.
#[test]
fn any_link_can_be_asked() {
    let mut chain = DrivenChain::start(library_without_summary(), Some("work"), None);
    while chain.links.len() == 1 {
        chain.call_tool(110);
    }
    assert!(chain.world.service.hand_off_plan("nobody").is_err());
    let old = plan(&chain, &chain.links[0]);
    assert_eq!(old["due"], true, "it was full: {old}");
    chain.check();
}
