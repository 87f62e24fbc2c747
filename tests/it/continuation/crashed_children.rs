//! Death of the store at every commit of a directive that is handed off while its parent waits for
//! it: whoever goes on brings both to their end.

use super::fixture::DrivenChain;
use super::trees::{library, spawn_child};
use crate::runner::fixture::{RunnerFixture, calls};
use std::sync::Arc;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_component::service::Error;
use threadkeep_core::runner::{HolderProof, StepOutcome};
use threadkeep_core::thread::{StepKind, ThreadDraft, ThreadStatus};
use threadkeep_tests::crash_points::die_at_every_commit;
use threadkeep_tests::faulty::{DeathPoint, FaultyStore};

const TOP: &str = "top";
/// Steps that bring each thread to its end.
const STEPS_MAX: usize = 20;

/// Returns a parent whose child was spawned, and the child's id.
fn parent_and_child(memory: &Arc<MemoryStore>) -> (DrivenChain, String) {
    let mut world = RunnerFixture::over(Arc::<MemoryStore>::clone(memory), library());
    let draft = ThreadDraft {
        id: Some(TOP.to_owned()),
        directive: Some("boss".to_owned()),
        ..ThreadDraft::default()
    };
    world.service.create(&draft).unwrap();
    let handed = world.start(TOP, None).unwrap();
    let mut parent = DrivenChain::of_step(world, handed);
    let child = spawn_child(&mut parent);
    (parent, child)
}

/// Lets the parent wait, and drives the child to its end in its second link.
fn work(faulty: Arc<FaultyStore>, parent: DrivenChain, child: &str) -> Result<(), Error> {
    let wait = parent.submission(calls(&[("wait_threads", "{}")]));
    let mut world = RunnerFixture::over(faulty, library());
    world.advance(1_000);
    world.service.submit(TOP, &wait, 0)?;
    let handed = world.start(child, None)?;
    let mut chain = DrivenChain::of_step(world, handed);
    while chain.links.len() == 1 {
        chain.try_call_tool(110)?;
    }
    chain.try_say("the child is done")
}

/// Takes the tip of a chain over, and goes on with it until it stops; returns its status.
fn go_on(memory: &Arc<MemoryStore>, thread: &str, at: u64) -> ThreadStatus {
    let mut world = RunnerFixture::over(Arc::<MemoryStore>::clone(memory), library());
    world.advance(at);
    let tip = world.service.load(thread).unwrap().chain.value.tip.clone();
    let status = world.service.load(&tip).unwrap().head.value.status;
    let holder = format!("second/{at}");
    let handed = match status {
        ThreadStatus::Completed => return status,
        ThreadStatus::Running => world.service.claim(&tip, &holder, HolderProof::Dead),
        ThreadStatus::Waiting => world.service.claim(&tip, &holder, HolderProof::None),
        _ => world.start(&tip, None),
    };
    let mut chain = DrivenChain::of_step(world, handed.unwrap());
    for _ in 0..STEPS_MAX {
        match chain.handed.step.kind {
            Some(StepKind::CallLlm) if thread == TOP && has_waited(&chain) => {
                chain.say("all is done");
            }
            Some(StepKind::CallLlm) if thread == TOP => {
                chain.submit(calls(&[("wait_threads", "{}")]));
            }
            Some(StepKind::CallLlm) => {
                chain.say("the child is done");
            }
            Some(StepKind::CallTools) => {
                chain.perform_calls(110).unwrap();
            }
            Some(StepKind::Wait) => {
                chain.submit(StepOutcome::Waited);
            }
            _ => break,
        }
    }
    chain.status()
}

/// Returns true if the parent was told the end of its child.
fn has_waited(chain: &DrivenChain) -> bool {
    let request = chain.request();
    request.iter().filter(|(role, _)| role == "tool").count() > 1
}

/// Brings both threads to their end in other processes.
fn carry_on(memory: &Arc<MemoryStore>, child: &str, death: DeathPoint) {
    if death == DeathPoint::NEVER {
        let world = RunnerFixture::over(Arc::<MemoryStore>::clone(memory), library());
        let first = world.service.load(child).unwrap().thread.value;
        assert!(first.next.is_some(), "it was handed off");
    }
    go_on(memory, TOP, 2_000);
    let child = go_on(memory, child, 3_000);
    assert_eq!(child, ThreadStatus::Completed);
    let top = go_on(memory, TOP, 4_000);
    assert_eq!(top, ThreadStatus::Completed);
}

#[tokio::test]
async fn death_at_every_commit_of_a_child_that_is_handed_off_loses_nothing() {
    let until_death = async |memory: &_, store| {
        let (parent, child) = parent_and_child(memory);
        let _ = work(store, parent, &child);
        child
    };
    let carry_on = async |memory: &_, child: String, death| carry_on(memory, &child, death);
    let commits = die_at_every_commit(until_death, carry_on).await;
    assert!(commits > 10, "{commits}");
}
