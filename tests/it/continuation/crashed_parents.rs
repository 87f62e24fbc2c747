//! Death of the store at every commit of a parent that waits for its child and is handed off when
//! the child's result comes: whoever goes on brings it to its end.

use super::fixture::DrivenChain;
use super::trees::{library, spawn_child};
use crate::runner::fixture::{RunnerFixture, calls, says};
use std::sync::Arc;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_component::service::Error;
use threadkeep_core::runner::{HolderProof, StepOutcome};
use threadkeep_core::thread::{StepKind, ThreadDraft, ThreadStatus};
use threadkeep_tests::crash_points::die_at_every_commit;
use threadkeep_tests::faulty::FaultyStore;

const TOP: &str = "top";
/// Tokens of the parent's window that are used before it waits: the trigger is at 18,000.
const USED: u64 = 17_600;
const STEPS_MAX: usize = 20;

/// A parent whose window is nearly full and that waits for its child, and the child.
fn full_parent(memory: &Arc<MemoryStore>) -> String {
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
    loop {
        let head = parent.load(TOP).head.value;
        let left = USED.saturating_sub(head.context.max(head.estimated));
        if left < 150 {
            break;
        }
        let result = (left.saturating_sub(100)).clamp(1, 2_500);
        parent.call_tool(usize::try_from(result).unwrap());
        assert_eq!(parent.links, [TOP], "{head:?}");
    }
    parent.submit(calls(&[("wait_threads", "{}")]));
    assert_eq!(parent.links, [TOP], "it was handed off before it waited");
    assert_eq!(parent.status(), ThreadStatus::Waiting);
    child
}

/// Ends the child with a long result, and lets the parent go on to its end in its second link.
fn work(faulty: Arc<FaultyStore>, child: &str) -> Result<(), Error> {
    let mut world = RunnerFixture::over(faulty, library());
    world.advance(1_000);
    world.start(child, None)?;
    world.submit(child, says(&"a long result ".repeat(200)))?;
    let claimed = world.service.claim(TOP, "first/1", HolderProof::None)?;
    let mut parent = DrivenChain::of_step(world, claimed);
    assert_eq!(parent.links.len(), 1, "{:?}", parent.links);
    assert_ne!(parent.thread, TOP, "the result hands it off");
    parent.try_say("all is done")
}

/// Takes the tip of a chain over, and goes on with it until it stops.
fn go_on(memory: &Arc<MemoryStore>, thread: &str, at: u64) {
    let mut world = RunnerFixture::over(Arc::<MemoryStore>::clone(memory), library());
    world.advance(at);
    let tip = world.service.load(thread).unwrap().chain.value.tip.clone();
    let holder = format!("second/{at}");
    let handed = match world.service.load(&tip).unwrap().head.value.status {
        ThreadStatus::Completed => return,
        ThreadStatus::Running => world.service.claim(&tip, &holder, HolderProof::Dead),
        ThreadStatus::Waiting => world.service.claim(&tip, &holder, HolderProof::None),
        _ => world.start(&tip, None),
    };
    let mut chain = DrivenChain::of_step(world, handed.unwrap());
    for _ in 0..STEPS_MAX {
        match chain.handed.step.kind {
            Some(StepKind::CallLlm) => chain.say(&"a long result ".repeat(200)),
            Some(StepKind::Wait) => chain.submit(StepOutcome::Waited),
            _ => break,
        };
    }
}

/// Brings both threads to their end in other processes.
fn carry_on(memory: &Arc<MemoryStore>, child: &str) {
    go_on(memory, child, 2_000);
    go_on(memory, TOP, 3_000);
    let world = RunnerFixture::over(Arc::<MemoryStore>::clone(memory), library());
    let root = world.service.load(TOP).unwrap();
    let tip = world.service.load(&root.chain.value.tip).unwrap();
    assert_eq!(root.head.value.status, ThreadStatus::Continued);
    assert_eq!(tip.thread.value.previous.as_deref(), Some(TOP));
    assert_eq!(tip.head.value.status, ThreadStatus::Completed);
    assert_eq!(world.status(child), "completed");
}

#[tokio::test]
async fn death_at_every_commit_of_a_parent_that_is_handed_off_as_its_wait_ends_loses_nothing() {
    let until_death = async |memory: &_, store| {
        let child = full_parent(memory);
        let _ = work(store, &child);
        child
    };
    let carry_on = async |memory: &_, child: String, _| carry_on(memory, &child);
    let commits = die_at_every_commit(until_death, carry_on).await;
    assert_eq!(
        commits, 4,
        "start and end of the child, claim and end of the parent"
    );
}
