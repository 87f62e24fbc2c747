//! Correction of a charge after the fact: the real usage of an attempt that was charged by estimate
//! because its driver was believed to be gone. It is applied once, whoever holds the thread by now,
//! and also when the thread has ended.
//!
//! A thread that no caller holds records it at once, even one that has ended: corrections of usage
//! are all that its history still gains. A thread that is held keeps it in its head, and its next
//! entry records it: an entry of another driver would stand between a step and its answer.

use super::CommitDecision;
use super::settlement::believable_usage;
use crate::error::Error;
use crate::history::CommitReason;
use crate::ledger::Usage;
use crate::plan::{DecisionContext, LoadedThread, ThreadChange};
use crate::thread::{ReportedUsage, ThreadStatus};

/// Returns the error for a fenced driver, and records the usage that it reports of an attempt that
/// was charged.
pub(super) fn record_fenced_usage(
    loaded: &LoadedThread,
    version: u64,
    usage: Option<Usage>,
    error: Error,
    moment: DecisionContext<'_>,
) -> Result<CommitDecision, Error> {
    let charged = &loaded.head.value.charged;
    let known = |at: &usize| charged[*at].version == version && charged[*at].late.is_none();
    let at = (0..charged.len()).find(known);
    let (Some(at), Some(usage)) = (at, usage) else {
        return Err(error);
    };
    let told = &charged[at];
    let usage = believable_usage(usage, told.hold.basis, (told.tokens, told.tokens));
    let mut change = ThreadChange::new(loaded, moment);
    change.closing = true;
    let told = &mut change.head.charged[at];
    told.late = Some(ReportedUsage {
        spend: told.hold.prices.cost(usage),
        usage,
        money: false,
        recorded: false,
    });
    let plan = match loaded.head.value.status {
        ThreadStatus::Running => change.into_head_plan()?,
        _ => change.into_plan(CommitReason::Settled)?,
    };
    Ok(CommitDecision::CommitThenFail(Box::new(plan), error))
}
