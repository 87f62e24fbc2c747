//! The counts with which a fork begins: those that the original had at the version.

use super::fork_fixture::{fork_at, messages_until};
use crate::continuation::summaries::fill;
use crate::runner::fixture::{RunnerFixture, reply, unreadable_reply, usage};
use serde_json::json;
use threadkeep_core::ledger::Usage;
use threadkeep_core::runner::{ReplyBlock, StepOutcome};
use threadkeep_core::thread::Head;

fn reply_with_reasoning(shown: bool, text: &str) -> StepOutcome {
    let thought = ReplyBlock::Thinking {
        text: "well, well".to_owned(),
        raw: None,
    };
    let said = ReplyBlock::Text {
        text: text.to_owned(),
    };
    let blocks = shown.then_some(thought).into_iter().chain([said]);
    let used = Usage {
        input: 300,
        output: 90,
        reasoning: 60,
        ..Usage::default()
    };
    reply(blocks.collect(), Some(used))
}

/// Checks a fork of a thread at its newest version against the head there.
#[track_caller]
fn check_fork(world: &RunnerFixture, thread: &str) {
    let head = world.service.load(thread).unwrap().head.value;
    let fork = fork_at(world, thread, head.version).unwrap();
    let (id, now) = (&fork.thread.value.id, &fork.head.value);
    let counts = |head: &Head| (head.context, head.estimated, head.window_bytes);
    assert_eq!(counts(now), counts(&head), "version {}", head.version);
    let sent = messages_until(world, id, None);
    let replies = sent
        .iter()
        .filter(|text| text.contains(r#""role":"assistant""#));
    assert_eq!(now.carried_turns, replies.count() as u64);
}

/// Symptom: the context of a fork was not that of the original, and it said that no reply is sent
/// again. Cause: the replay of its path took hidden reasoning for context, and the usage of replies
/// that were no turn. Fix: one rule for both, and replies are counted. Kind: a state that is
/// computed twice in two ways.
#[test]
fn a_fork_counts_replies_as_the_original_did() {
    let mut world = RunnerFixture::new();
    let chat = world.create(None);
    let answers = [
        reply_with_reasoning(false, "hidden"),
        unreadable_reply(),
        reply_with_reasoning(true, "shown"),
        reply(Vec::new(), usage(40, 4)),
    ];
    for (n, answer) in answers.into_iter().enumerate() {
        world.start(&chat, Some(&format!("question {n}"))).unwrap();
        check_fork(&world, &chat);
        world.submit(&chat, answer).unwrap();
        check_fork(&world, &chat);
    }
    world.audit();
}

/// Symptom: a fork of a link that was handed off began with the context of the request for its
/// summary. Cause: the replay took its usage for that of the thread. Fix: it is passed over. Kind:
/// usage of a request that is not the thread's own.
#[test]
fn a_summary_is_not_the_context_of_a_fork() {
    let mut chain = fill(json!({}));
    let first = chain.links[0].clone();
    let said = ReplyBlock::Text {
        text: "a summary".to_owned(),
    };
    chain.submit(reply(vec![said], usage(5_000, 20)));
    assert_eq!(chain.links.len(), 2);
    check_fork(&chain.world, &first);
    chain.check();
}

/// Symptom: a thread that goes on after a hand-off said that no reply is sent again. Cause: the
/// count was not given to it. Fix: it is what the hand-off carries. Kind: what one way to make a
/// link sets and another does not.
#[test]
fn a_link_after_a_hand_off_counts_the_replies_that_it_carries() {
    let chain = fill(json!({"summary_directive": null}));
    assert_eq!(chain.links.len(), 2);
    let head = chain.load(&chain.thread).head.value;
    let sent = messages_until(&chain.world, &chain.thread, None);
    let replies = sent
        .iter()
        .filter(|text| text.contains(r#""role":"assistant""#));
    let replies = replies.count() as u64;
    assert!(replies > 0, "{sent:?}");
    // The context that it begins with is none of them.
    let texts = chain.event(&chain.links[0], "thread_handoff");
    assert_eq!(texts["trailing_turns"], head.carried_turns);
    assert!(head.carried_turns > 0 && head.carried_turns <= replies);
}
