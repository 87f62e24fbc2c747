//! Death of the store at every commit of a chat that is handed off: whoever goes on finds one tip,
//! and each summary is charged once.

use super::fixture::{DrivenChain, library, words};
use crate::runner::fixture::RunnerFixture;
use serde_json::json;
use std::sync::Arc;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_core::runner::{HolderProof, StepOutcome};
use threadkeep_core::thread::{StepKind, ThreadStatus};
use threadkeep_tests::auditor::audit;
use threadkeep_tests::faulty::{DeathPoint, FaultyStore};

const QUESTIONS: usize = 9;

/// Drives a chat until all questions are answered in two links, or its store dies. Returns the
/// number of commits.
fn run_until_death(memory: &Arc<MemoryStore>, death: DeathPoint) -> u64 {
    let faulty = Arc::new(FaultyStore::new(Arc::<MemoryStore>::clone(memory), death));
    let mut world = RunnerFixture::over(faulty.clone(), library(json!({})));
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
    faulty.commits()
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
fn carry_on(memory: &Arc<MemoryStore>, what: DeathPoint) {
    let findings = audit(&**memory);
    assert!(findings.is_empty(), "{what:?}: {findings:#?}");
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
    assert_eq!(chain.status(), ThreadStatus::Idle, "{what:?}");
    let findings = audit(&**memory);
    assert!(findings.is_empty(), "{what:?}: {findings:#?}");
}

#[test]
fn death_at_every_commit_of_a_hand_off_leaves_one_tip() {
    let whole = Arc::new(MemoryStore::new());
    let commits = run_until_death(&whole, DeathPoint::Before(u64::MAX));
    carry_on(&whole, DeathPoint::Before(u64::MAX));
    assert!(commits > 15, "{commits}");
    for n in 1..=commits {
        for death in [
            DeathPoint::Before(n),
            DeathPoint::After(n),
            DeathPoint::Unknown(n),
            DeathPoint::UnknownLost(n),
        ] {
            let memory = Arc::new(MemoryStore::new());
            run_until_death(&memory, death);
            carry_on(&memory, death);
        }
    }
}
