//! Links of chains that rest on the histories before them, planted as the core creates them and as
//! nothing writes them yet.

use crate::audit::fixture::{create, run_to_end};
use crate::runner::fixture::RunnerFixture;
use std::sync::Arc;
use threadkeep::storage::StorageBackend;
use threadkeep_component::ports::HostPorts;
use threadkeep_core::history::{CommitReason, Event, ThreadHandoff, ThreadResumed};
use threadkeep_core::ledger::UnknownBill;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::plan::{CommitPlan, DecisionContext, LoadedThread, ThreadChange};
use threadkeep_core::thread::{self, BasePart, ChainLink, HistoryBase, ThreadStatus};
use threadkeep_tests::fixture::MapLibrary;

/// Ids of the two links of a planted chain.
pub const ROOT: &str = "Root";
pub const LINK: &str = "Link";

/// A link that continues a tip, on its entries from a version on.
#[derive(Debug, Clone, Copy)]
pub struct PlantedLink<'a> {
    pub tip: &'a str,
    pub id: &'a str,
    pub from: u64,
}

/// Returns the link [`LINK`] after [`ROOT`].
pub fn link_of_root(from: u64) -> PlantedLink<'static> {
    PlantedLink {
        tip: ROOT,
        id: LINK,
        from,
    }
}

/// Creates a thread, performs a run of it, and plants a link that rests on its entries from a
/// version on.
pub fn chain_of_two(
    store: Arc<dyn StorageBackend>,
    directive: Option<&str>,
    from: u64,
) -> RunnerFixture {
    let mut world = RunnerFixture::over(store, MapLibrary::small());
    create(&world, ROOT, directive);
    run_to_end(&mut world, ROOT);
    plant_link(&world, link_of_root(from));
    world
}

/// Writes the end of a tip and the link after it.
pub fn plant_link(world: &RunnerFixture, link: PlantedLink<'_>) {
    let written = world.service.commit(&link_plan(world, link));
    assert!(matches!(written, Ok(true)), "{written:?}");
}

/// Returns the plan that ends a tip and creates the link after it, in one commit.
pub fn link_plan(world: &RunnerFixture, link: PlantedLink<'_>) -> Box<CommitPlan> {
    let loaded = world.service.load(link.tip).unwrap();
    let ended = continue_plan(world, &loaded, link.id);
    let mut tip = ended.apply_to(&loaded).unwrap();
    tip.head.value_mut().carried_spend = loaded.head.value.carried_spend;
    let head = &tip.head.value;
    let base = HistoryBase {
        length: head.version,
        parts: vec![BasePart {
            thread: link.tip.to_owned(),
            from: link.from,
            to: head.version,
            hash: head.hash.clone(),
        }],
    };
    let place = ChainLink {
        tip: &tip,
        base: Some(base),
        ceiling: ThreadCaps::NONE,
        takes_draw: false,
    };
    let now = world.service.ports().now();
    let created = thread::create_link(place, link.id.to_owned(), now).unwrap();
    ended.join(created).unwrap()
}

fn continue_plan(world: &RunnerFixture, tip: &LoadedThread, next: &str) -> Box<CommitPlan> {
    let moment = DecisionContext {
        now: world.service.ports().now(),
        commit: "0123456789abcdef",
        ceiling: ThreadCaps::NONE,
        unknown_bill: UnknownBill::Estimate,
        store_full_message: None,
    };
    let mut change = ThreadChange::new(tip, moment);
    change.thread_mut().next = Some(next.to_owned());
    // The link after it carries what this one carried.
    change.head.carried_spend = None;
    let new_thread_id = next.to_owned();
    if tip.head.value.status.is_terminal() {
        change.push_event(Event::ThreadResumed(ThreadResumed {
            new_thread_id,
            directive: change.thread.directive.clone(),
            message_preview: "Once more.".to_owned(),
            reconstructed_turns: 2,
        }));
        return change.into_plan(CommitReason::Resumed).unwrap();
    }
    change.push_event(Event::ThreadHandoff(ThreadHandoff {
        new_thread_id,
        trailing_turns: 2,
        summary_generated: false,
        summary_tokens: 0,
        summary_problem: None,
    }));
    change.thread_mut().outcome = Some(ThreadStatus::Continued);
    change.head.status = ThreadStatus::Continued;
    change.head.due = None;
    change.stop_drawing();
    change.into_plan(CommitReason::Handoff).unwrap()
}
