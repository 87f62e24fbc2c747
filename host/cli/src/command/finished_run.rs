//! The answer about a run that this process performs no longer.

use super::{cap_warning, charges, fault, tree_totals, view};
use crate::answer::{LeftAloneRow, RunAnswer, ThreadCost};
use crate::contract::Thread;
use crate::exit::CommandExit;
use crate::screen::OutputScreen;
use crate::threads::ProjectThreads;
use std::collections::BTreeMap;

/// The parts of an answer that the record of its thread does not hold.
#[derive(Debug, Default)]
pub struct RunParts {
    /// The text of the last reply.
    pub text: String,
    /// True if the user stopped the run at once.
    pub stopped: bool,
    /// The threads of the tree that this process performed, each with the version before its first
    /// run.
    pub performed: BTreeMap<String, u64>,
    /// The threads that the run has left for the next link of their chain.
    pub handed_off: Vec<String>,
    /// Their costs.
    pub left_cost: ThreadCost,
    /// The threads that the run does not try to begin again.
    pub left_alone: Vec<LeftAloneRow>,
}

/// Builds the answer from the records; tells the user what was charged for calls of unknown cost.
pub async fn build_answer(
    opened: &impl ProjectThreads,
    thread: &Thread,
    parts: RunParts,
    screen: &mut OutputScreen,
) -> RunAnswer {
    let charged = charges::load_charges(opened, &thread.id, &parts.performed).await;
    for row in &charged {
        screen.note(&row.describe(&thread.id));
    }
    let tree = tree_totals::load_view(opened, &thread.id).await;
    let tree = tree.map_err(|error| {
        screen.warn(&format!("the threads below it cannot be read: {error}"));
    });
    let tree = tree.ok();
    let payer = tree_totals::find_payer(opened, thread).await;
    let tree_spend = tree.as_ref().map(|tree| tree.spend);
    let tree = tree.unwrap_or_default();
    cap_warning::warn_of_account(opened, &thread.id, &thread.status, tree_spend, screen).await;
    RunAnswer {
        thread_id: thread.id.clone(),
        chain_id: thread.chain.clone(),
        handed_off: parts.handed_off,
        run: thread.run.number.into(),
        status: thread.status.clone(),
        outcome: thread.outcome.clone(),
        text: parts.text,
        result: thread.result.as_deref().map(view::parse_json),
        cause: thread.cause.as_ref().map(view::cause),
        waits_for: view::thread_needs(thread),
        bound: fault::cap_source(opened, thread),
        payer: payer.unwrap_or_else(|_| thread.id.clone()),
        wait: thread.cause.as_ref().and_then(|cause| cause.retry),
        cost: parts.left_cost.plus(view::cost(&thread.cost)),
        tree_spend,
        tree_threads: tree.threads,
        tree_unreadable: tree.unreadable,
        suspended: tree.suspended,
        suspended_left_out: tree.suspended_left_out,
        charged,
        left_alone: parts.left_alone,
        exit: match parts.stopped {
            true => CommandExit::Stopped,
            false => CommandExit::from_status(&thread.status),
        },
    }
}
