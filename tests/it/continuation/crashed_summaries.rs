//! Faults of the store within the phase of a hand-off: its death at every commit of a summary that
//! is tried again, and no room for the commit that makes the next link.

use super::fixture::{DrivenChain, library, words};
use crate::children::fixture::FillableStore;
use crate::runner::fixture::{RunnerFixture, fails};
use serde_json::json;
use std::sync::Arc;
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_component::service::Error;
use threadkeep_core::runner::{HolderProof, StepOutcome};
use threadkeep_core::thread::{StepKind, ThreadStatus};
use threadkeep_tests::crash_points::die_at_every_commit;
use threadkeep_tests::faulty::FaultyStore;

const CHAT: &str = "chat";

/// A chat over a store that is asked until its summary is asked for.
fn summarizing_chat(store: Arc<dyn StorageBackend>) -> DrivenChain {
    let mut world = RunnerFixture::over(store, library(json!({})));
    let draft = threadkeep_core::thread::ThreadDraft {
        id: Some(CHAT.to_owned()),
        ..Default::default()
    };
    world.service.create(&draft).unwrap();
    let handed = world.start(CHAT, Some("the first question")).unwrap();
    let mut chain = DrivenChain::of_step(world, handed);
    for n in 0..9 {
        chain.say(&format!("answer {n} {}", words(90)));
        chain.ask(&format!("question {n}"));
        if chain.is_summarizing() {
            return chain;
        }
    }
    panic!("no hand-off was due: {:?}", chain.request());
}

/// Fails the first attempt at the summary, waits, succeeds with the second, and answers.
fn retry_summary(chain: &mut DrivenChain) -> Result<(), Error> {
    chain.try_submit(StepOutcome::Failure(fails("transient", true)))?;
    assert_eq!(chain.handed.step.kind, Some(StepKind::Wait));
    chain.try_submit(StepOutcome::Waited)?;
    assert!(chain.is_summarizing());
    chain.try_say("a summary")?;
    chain.try_say("the answer")
}

/// Retries the summary over a store that dies.
fn retry_until_death(memory: &Arc<MemoryStore>, store: Arc<FaultyStore>) {
    let chat = summarizing_chat(Arc::<MemoryStore>::clone(memory));
    let world = RunnerFixture::over(store, library(json!({})));
    world.advance(1_000);
    let mut chain = DrivenChain::of_step(world, chat.handed);
    let _ = retry_summary(&mut chain);
}

/// Goes on with the chat in another process until it is idle; checks that it has two links and
/// that its account has what both have spent.
fn carry_on(memory: &Arc<MemoryStore>) {
    let world = RunnerFixture::over(Arc::<MemoryStore>::clone(memory), library(json!({})));
    world.advance(2_000);
    let tip = world.service.load(CHAT).unwrap().chain.value.tip.clone();
    if world.status(&tip) == "running" {
        let claimed = world.service.claim(&tip, "second/1", HolderProof::Dead);
        let mut chain = DrivenChain::of_step(world, claimed.unwrap());
        for _ in 0..6 {
            match chain.handed.step.kind {
                Some(StepKind::CallLlm) => chain.say("a summary"),
                Some(StepKind::Wait) => chain.submit(StepOutcome::Waited),
                _ => break,
            };
        }
    }
    let world = RunnerFixture::over(Arc::<MemoryStore>::clone(memory), library(json!({})));
    let root = world.service.load(CHAT).unwrap();
    let tip = world.service.load(&root.chain.value.tip).unwrap();
    assert_eq!(tip.head.value.status, ThreadStatus::Idle);
    assert_eq!(tip.thread.value.previous.as_deref(), Some(CHAT));
    let spent = tip.head.value.spend_under_cap();
    assert_eq!(tip.chain.value.account.spent, spent);
}

#[tokio::test]
async fn death_at_every_commit_of_a_retried_summary_leaves_one_tip() {
    let work = async |memory: &_, store| retry_until_death(memory, store);
    let commits = die_at_every_commit(work, async |memory, (), _| carry_on(memory)).await;
    assert_eq!(commits, 4, "failure, wait, summary and answer");
}

/// A store without room for the next link records what the summary has cost, and suspends the run
/// in the phase; with room, it goes on to the next link.
#[test]
fn a_full_store_at_the_last_commit_of_a_hand_off_suspends_in_the_phase() {
    let store = Arc::new(FillableStore::new());
    let mut chain = summarizing_chat(Arc::<FillableStore>::clone(&store));
    let before = chain.load(CHAT).head.value;
    store.fill();
    chain.say("a summary");
    assert_eq!(chain.links, [CHAT]);
    assert_eq!(chain.status(), ThreadStatus::Suspended);
    assert_eq!(chain.cause(), "store_full");
    let full = chain.load(CHAT);
    assert_eq!(full.thread.value.next, None);
    assert!(full.head.value.phase.is_some());
    assert_eq!(full.head.value.hold, None);
    assert!(full.head.value.counters.spend > before.counters.spend);
    chain.world.audit();
    store.free();
    chain.try_start(None).unwrap();
    while chain.is_summarizing() {
        chain.say("a summary");
    }
    assert_eq!(chain.links.len(), 2);
    chain.say("the answer");
    assert_eq!(chain.status(), ThreadStatus::Idle);
    let tip = chain.load(&chain.thread);
    let spent = tip.head.value.spend_under_cap();
    assert_eq!(tip.chain.value.account.spent, spent);
    chain.check();
}
