//! Hand-offs for which there is no money, or for which other calls hold it.

use super::fixture::{DrivenChain, library, words};
use crate::runner::fixture::{RunnerFixture, raise, says};
use serde_json::json;
use std::sync::Arc;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::{Signal, StepOutcome};
use threadkeep_core::thread::{CreatorOverrides, StepKind, ThreadDraft, ThreadStatus};

/// Caps of so much spend alone.
fn spend_cap(spend: Option<u64>) -> ThreadCaps {
    ThreadCaps {
        spend: spend.map(NanoUsd::new),
        ..ThreadCaps::NONE
    }
}

/// Creates a chat with a cap on spend.
fn create_chat(world: &RunnerFixture, spend: Option<u64>) -> String {
    let draft = ThreadDraft {
        overrides: CreatorOverrides {
            limits: spend_cap(spend),
            ..CreatorOverrides::default()
        },
        ..ThreadDraft::default()
    };
    world
        .service
        .create(&draft)
        .unwrap()
        .thread
        .value
        .id
        .clone()
}

/// Asks until a hand-off has begun, or the money has run out.
fn ask_until_full(chain: &mut DrivenChain) {
    for n in 0..9 {
        chain.say(&format!("answer {n} {}", words(90)));
        chain.ask(&format!("question {n}"));
        let begun = chain.load(&chain.thread).head.value.phase.is_some();
        if begun || chain.links.len() > 1 {
            return;
        }
    }
    panic!("no hand-off was due: {:?}", chain.request());
}

/// A chat that is asked until a hand-off begins, with a cap on spend.
fn fill_with(spend: Option<u64>) -> DrivenChain {
    let mut world = RunnerFixture::over(Arc::new(MemoryStore::new()), library(json!({})));
    let thread = create_chat(&world, spend);
    let handed = world.start(&thread, Some("the first question")).unwrap();
    let mut chain = DrivenChain::of_step(world, handed);
    ask_until_full(&mut chain);
    chain
}

/// Money that the chat of [`fill_with`] has spent when a hand-off begins.
fn spent_until_full() -> u64 {
    let chain = fill_with(None);
    assert!(chain.is_summarizing());
    chain.load(&chain.thread).head.value.counters.spend.get()
}

/// Symptom: a chat without money was handed off without a summary, and its next link was suspended
/// for money all the same; raised, the model had lost everything. Cause: any refusal of the
/// summary's money was a reason to go on without one. Fix: where the next link cannot be paid
/// either, the run is suspended in the phase. Kind: refusals of money, by a cap and a frozen
/// account.
#[test]
fn without_money_the_run_is_suspended_before_anything_is_left_out() {
    let mut chain = fill_with(Some(spent_until_full() + 200_000));
    assert_eq!(chain.links.len(), 1);
    assert_eq!(chain.status(), ThreadStatus::Suspended);
    assert_eq!(chain.cause(), "spend_exceeded");
    assert!(chain.load(&chain.thread).head.value.phase.is_some());
    chain.check();
    let (thread, raised) = (chain.thread.clone(), raise(spend_cap(Some(1_000_000_000))));
    chain.world.service.signal(&thread, "r", &raised).unwrap();
    chain.try_start(None).unwrap();
    assert!(chain.is_summarizing());
    chain.say("a summary");
    assert_eq!(chain.links.len(), 2);
    assert!(chain.request()[0].1.contains("a summary"));
    chain.check();
}

#[test]
fn money_for_the_next_link_alone_hands_off_without_a_summary() {
    let chain = fill_with(Some(spent_until_full() + 700_000));
    assert_eq!(chain.links.len(), 2);
    assert_eq!(chain.status(), ThreadStatus::Running);
    let closing = chain.event(&chain.links[0], "thread_handoff");
    let said = closing["summary_problem"].as_str().unwrap();
    assert!(said.contains("which the account does not have"), "{said}");
    chain.check();
}

/// A child that nears its limit, and a sibling whose call is under way, on the account of their
/// parent.
fn siblings(spend: Option<u64>) -> (DrivenChain, String) {
    let mut world = RunnerFixture::over(Arc::new(MemoryStore::new()), library(json!({})));
    let top = create_chat(&world, spend);
    world.start(&top, Some("begin")).unwrap();
    world.submit(&top, says("begun")).unwrap();
    let full = world.spawn(&top, "full", None);
    let other = world.spawn(&top, "other", None);
    let handed = world.start(&full, Some("the first question")).unwrap();
    let mut chain = DrivenChain::of_step(world, handed);
    for n in 0..2 {
        chain.say(&format!("answer {n} {}", words(90)));
        chain.ask(&format!("question {n}"));
    }
    let large = words(600);
    chain.world.start(&other, Some(&large)).unwrap();
    ask_until_full(&mut chain);
    (chain, other)
}

/// Money that the account of [`siblings`] must have for the summary while the sibling's call is
/// under way, and the part that this call holds.
fn siblings_need() -> (u64, u64) {
    let (chain, other) = siblings(None);
    assert!(chain.is_summarizing());
    let account = chain.load("full").above[0].value.account.clone();
    let held = chain.load(&other).head.value.hold.unwrap().amount.get();
    let need = account.spent.get() + account.held.get();
    (need, held)
}

/// Symptom: a chat was handed off without a summary while calls of its siblings held the money for
/// one. Cause: as above. Fix: it waits for them, as it does for a turn. Kind: as above.
#[test]
fn a_summary_waits_for_money_that_siblings_hold() {
    let (need, held) = siblings_need();
    let (mut chain, other) = siblings(Some(need - held / 2));
    assert_eq!(chain.links.len(), 1);
    assert_eq!(chain.handed.step.kind, Some(StepKind::Wait));
    assert_eq!(chain.cause(), "money_held");
    chain.submit(StepOutcome::Waited);
    assert_eq!(chain.handed.step.kind, Some(StepKind::Wait));
    chain.world.submit(&other, says("done")).unwrap();
    chain.submit(StepOutcome::Waited);
    assert!(chain.is_summarizing());
    chain.say("a summary");
    assert_eq!(chain.links.len(), 2);
    chain.check();
}

/// The account of a thread is frozen when the thread is killed.
#[test]
fn a_frozen_account_suspends_before_anything_is_left_out() {
    let (mut chain, other) = siblings(None);
    chain.world.submit(&other, says("done")).unwrap();
    chain.submit(StepOutcome::Stopped(threadkeep_core::runner::LlmFailure {
        kind: "cancelled".to_owned(),
        ..Default::default()
    }));
    let top = chain.load("full").above[0].value.tip.clone();
    let service = &chain.world.service;
    service.signal(&top, "k", &Signal::Kill).unwrap();
    let started = chain.try_start(None);
    assert_eq!(chain.links.len(), 1);
    assert_eq!(chain.status(), ThreadStatus::Suspended, "{started:?}");
    assert!(chain.load("full").head.value.phase.is_some());
    chain.world.audit();
}
