//! Hand-offs that are not made, or not once more: an overflow, a message that is too large, a model
//! that makes no progress; and the cost of one.

use super::fixture::{DrivenChain, library, library_without_summary, words};
use super::summaries::fill;
use crate::runner::fixture::{fails, raise};
use serde_json::json;
use std::sync::Arc;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::runner::{HolderProof, StepOutcome};
use threadkeep_core::thread::ThreadStatus;
use threadkeep_tests::counting_store::CallCountingStore;

fn overflow() -> StepOutcome {
    StepOutcome::Failure(threadkeep_core::runner::LlmFailure {
        refused: true,
        ..fails("context-overflow", true)
    })
}

#[test]
fn an_overflow_hands_off_once() {
    let mut chain = DrivenChain::start(library_without_summary(), None, Some("the first question"));
    for n in 0..3 {
        chain.say(&format!("answer {n} {}", words(90)));
        chain.ask(&format!("question {n}"));
    }
    chain.submit(overflow());
    assert_eq!(chain.links.len(), 2);
    let limit = chain.event(&chain.links[0], "context_limit_reached");
    assert!(limit["tokens_used"].as_u64() < Some(900), "{limit}");
    assert_eq!(chain.request().last().unwrap().1, "question 2");
    chain.check();
    chain.submit(overflow());
    assert_eq!(chain.links.len(), 2);
    assert_eq!(chain.status(), ThreadStatus::Suspended);
    assert_eq!(chain.cause(), "provider_context_overflow");
    chain.check();
}

#[test]
fn an_overflow_with_nothing_to_leave_out_suspends() {
    let mut chain = DrivenChain::start(library(json!({})), None, Some("the only question"));
    chain.submit(overflow());
    assert_eq!(chain.links.len(), 1);
    assert_eq!(chain.cause(), "provider_context_overflow");
    assert_eq!(chain.load(&chain.thread).head.value.phase, None);
    chain.check();
}

#[test]
fn a_message_that_must_be_carried_and_does_not_fit_suspends() {
    let mut chain = DrivenChain::start(library(json!({})), None, Some("the first question"));
    chain.say(&words(300));
    chain.ask(&words(600));
    assert_eq!(chain.links.len(), 1);
    assert_eq!(chain.status(), ThreadStatus::Suspended);
    assert_eq!(chain.cause(), "handoff_impossible");
    let cause = chain.load(&chain.thread).head.value.cause.clone().unwrap();
    for advice in [
        "shorter message",
        "resume_ceiling_tokens",
        "trigger_threshold",
    ] {
        assert!(cause.message.contains(advice), "{}", cause.message);
    }
    // As the cause and the command line advise.
    chain.ask("in short").say("## Pending Work");
    assert_eq!(chain.links.len(), 2);
    assert_eq!(chain.status(), ThreadStatus::Running);
    assert_eq!(chain.request().last().unwrap().1, "in short");
    chain.check();
}

#[test]
fn a_window_smaller_than_the_prompt_is_refused_as_before() {
    let prompt = json!({"name": "work", "body": words(1_200), "front": {}}).to_string();
    let library = library(json!({})).with("directive", "work", &prompt);
    let chain = DrivenChain::start(library, Some("work"), None);
    assert_eq!(chain.links.len(), 1);
    assert_eq!(chain.status(), ThreadStatus::Suspended);
    chain.check();
}

#[test]
fn a_model_that_fills_its_window_again_and_again_is_stopped() {
    let mut chain = DrivenChain::start(library_without_summary(), Some("work"), None);
    let turns = ThreadCaps {
        turns: Some(10_000),
        ..ThreadCaps::NONE
    };
    let thread = chain.thread.clone();
    let raised = raise(turns);
    chain.world.service.signal(&thread, "r", &raised).unwrap();
    while chain.status() == ThreadStatus::Running {
        chain.call_tool(110);
    }
    assert_eq!(chain.cause(), "handoff_loop");
    assert_eq!(chain.links.len(), 13);
    chain.check();
    // Without a message it stays so; a person's word lets it go on.
    chain.try_start(None).unwrap();
    assert_eq!(chain.cause(), "handoff_loop");
    chain.ask("go on");
    assert_eq!(chain.links.len(), 14);
    assert_eq!(chain.status(), ThreadStatus::Running);
    chain.check();
}

#[test]
fn caps_do_not_start_again() {
    let mut chain = DrivenChain::start(library_without_summary(), Some("work"), None);
    for _ in 0..12 {
        if chain.status() == ThreadStatus::Running {
            chain.call_tool(110);
        }
    }
    assert!(chain.links.len() > 1);
    assert_eq!(chain.status(), ThreadStatus::Suspended);
    assert_eq!(chain.cause(), "turns_exceeded");
    chain.check();
}

#[test]
fn another_holder_goes_on_with_the_phase() {
    let mut chain = fill(json!({}));
    let (thread, before) = (chain.thread.clone(), chain.submission(overflow()));
    let handed = chain
        .world
        .service
        .claim(&thread, "other/1", HolderProof::Dead);
    chain.take_step(handed.unwrap());
    assert!(chain.is_summarizing());
    assert!(chain.world.service.submit(&thread, &before, 0).is_err());
    chain.say("a summary");
    assert_eq!(chain.links.len(), 2);
    let head = chain.load(&chain.thread).head.value;
    assert_eq!(head.holder.as_deref(), Some("other/1"));
    chain.check();
}

/// 500 rounds of tools after one message: the message is carried, with a gap behind it.
#[test]
fn one_message_and_many_rounds_keep_the_message() {
    let mut chain = DrivenChain::start(
        library_without_summary(),
        Some("work"),
        Some("the one question"),
    );
    let turns = ThreadCaps {
        turns: Some(10_000),
        ..ThreadCaps::NONE
    };
    let (thread, raised) = (chain.thread.clone(), raise(turns));
    chain.world.service.signal(&thread, "r", &raised).unwrap();
    for _ in 0..60 {
        chain.call_tool(40);
        let asked = chain.request();
        let question = ("user".to_owned(), "the one question".to_owned());
        assert!(asked.contains(&question), "{asked:?}");
        if chain.links.len() == 4 {
            break;
        }
    }
    assert_eq!(chain.links.len(), 4);
    chain.check();
}

/// A hand-off reads the entries that it carries and at most 64 more, and adds one commit to what a
/// turn costs, or two where a summary is written.
#[test]
fn a_hand_off_of_a_long_thread_reads_little() {
    let store = CallCountingStore::over(Arc::new(MemoryStore::new()));
    let library = library_without_summary();
    let mut chain = DrivenChain::start_over(store.clone(), library, None, Some("first"));
    chain.say("answer");
    let thread = chain.thread.clone();
    for n in 0..10_000 {
        let role = ["user", "assistant"][n % 2];
        let content = format!("message {n}");
        let event = json!({"type": "message", "role": role, "content": content}).to_string();
        let service = &chain.world.service;
        service.append(&thread, None, None, &[event]).unwrap();
    }
    store.take_calls();
    chain.world.count("starts");
    let handed = chain.world.start(&thread, Some("go on")).unwrap();
    let calls = store.take_calls();
    assert_eq!(calls.commits, 1);
    let base = handed.loaded.thread.value.base.clone().unwrap();
    let carried: u64 = base.parts[1..]
        .iter()
        .map(|part| part.to - part.from + 1)
        .sum();
    assert!(carried > 3, "{base:?}");
    assert!(
        calls.entries as u64 <= carried + 64,
        "{} of {carried}",
        calls.entries
    );
    chain.take_step(handed);
    chain.check();
}
