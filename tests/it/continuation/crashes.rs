//! Death of the store at every commit of a chat that is handed off: whoever goes on finds one tip,
//! and each summary is charged once.

use super::fixture::{DrivenChain, library, words};
use crate::runner::fixture::RunnerFixture;
use serde_json::json;
use std::sync::Arc;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_core::runner::{HolderProof, StepOutcome};
use threadkeep_core::thread::{StepKind, ThreadStatus};
use threadkeep_tests::crash_points::die_at_every_commit;
use threadkeep_tests::faulty::FaultyStore;

const QUESTIONS: usize = 9;

/// Drives a chat until all questions are answered in two links, or its store dies.
fn chat_until_death(store: Arc<FaultyStore>) {
    let mut world = RunnerFixture::over(store, library(json!({})));
    let draft = threadkeep_core::thread::ThreadDraft {
        id: Some("chat".to_owned()),
        ..Default::default()
    };
    if world.service.create(&draft).is_ok()
        && let Ok(handed) = world.start("chat", Some("the first question"))
    {
        let mut chain = DrivenChain::of_step(world, handed);
        let _ = answer_all(&mut chain);
    }
}

/// Answers and asks until the questions are answered.
fn answer_all(chain: &mut DrivenChain) -> Result<(), threadkeep_component::service::Error> {
    for n in 0..QUESTIONS {
        while chain.handed.step.kind == Some(StepKind::CallLlm) {
            let text = match chain.is_summarizing() {
                true => "a summary".to_owned(),
                false => format!("answer {n} {}", words(90)),
            };
            chain.try_say(&text)?;
        }
        chain.try_start(Some(&format!("question {n}")))?;
    }
    Ok(())
}

/// Goes on with the thread in another process, to its end.
fn carry_on(memory: &Arc<MemoryStore>) {
    let world = RunnerFixture::over(Arc::<MemoryStore>::clone(memory), library(json!({})));
    let Ok(root) = world.service.load("chat") else {
        return;
    };
    let tip = root.chain.value.tip.clone();
    let loaded = world.service.load(&tip).unwrap();
    let handed = match loaded.head.value.status {
        ThreadStatus::Running => {
            let claimed = world.service.claim(&tip, "second/1", HolderProof::Dead);
            claimed.unwrap()
        }
        _ => world
            .service
            .start(
                &tip,
                Some(&crate::runner::fixture::user("once more")),
                "second/1",
                "s",
                None,
            )
            .unwrap(),
    };
    let mut chain = DrivenChain::of_step(world, handed);
    for _ in 0..6 {
        match chain.handed.step.kind {
            Some(StepKind::CallLlm) => chain.try_say("fine").unwrap(),
            Some(StepKind::Wait) => chain.try_submit(StepOutcome::Waited).unwrap(),
            _ => break,
        }
    }
    assert_eq!(chain.status(), ThreadStatus::Idle);
}

#[tokio::test]
async fn death_at_every_commit_of_a_hand_off_leaves_one_tip() {
    let work = async |_: &_, store| chat_until_death(store);
    let commits = die_at_every_commit(work, async |memory, (), _| carry_on(memory)).await;
    assert!(commits > 15, "{commits}");
}
