//! Correction of a charge after the fact: the real usage of an attempt that was charged by estimate
//! because its driver was believed to be gone. It is applied once, whoever holds the thread by now,
//! and also when the thread has ended.
//!
//! A thread that no caller holds records it at once, even one that has ended: corrections of usage
//! are all that its history still gains. A thread that is held keeps it in its head, and its next
//! entry records it: an entry of another driver would stand between a step and its answer.
//!
//! A correction of a link that was continued changes what the tip of its chain carries, in the same
//! commit: the tip's head alone, so that it costs the same in a chain of any length.

use super::CommitDecision;
use super::settlement::believable_usage;
use crate::error::Error;
use crate::history::CommitReason;
use crate::ledger::Usage;
use crate::plan::{CommitPlan, DecisionContext, LoadedThread, ThreadChange};
use crate::thread::{ReportedUsage, ThreadStatus};

/// Returns the error for a fenced driver, and records the usage that it reports of an attempt that
/// was charged.
pub(super) fn record_fenced_usage(
    (loaded, tip): (&LoadedThread, Option<&LoadedThread>),
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
    let plan = plan_correction(change, tip)?;
    Ok(CommitDecision::CommitThenFail(plan, error))
}

/// Returns the plan of a change that has noted the real usage of a charged attempt. `tip` is the
/// tip of the chain where the thread was continued, and is left out where that cannot be read.
///
/// # Errors
/// Those of a plan, and `ErrorKind::NewerFormat` for a tip that a newer program has written.
pub(super) fn plan_correction(
    change: ThreadChange<'_>,
    tip: Option<&LoadedThread>,
) -> Result<Box<CommitPlan>, Error> {
    if change.head.status == ThreadStatus::Running {
        return change.into_head_plan();
    }
    let (before, moment) = (change.loaded_thread().head.value.counters, change.moment());
    let corrected = change.into_plan(CommitReason::Settled)?;
    let Some(tip) = tip else {
        return Ok(corrected);
    };
    tip.check_formats()?;
    let tip = corrected.apply_to(tip)?;
    let mut carried = ThreadChange::new(&tip, moment);
    let (head, after) = (&mut carried.head, corrected.head.counters);
    if let Some(spent) = &mut head.carried_spend {
        *spent = spent
            .saturating_sub(before.spend)
            .saturating_add(after.spend);
    }
    // The run of the link that made the attempt may still go on in the tip.
    if head.run == corrected.head.run {
        let tokens = &mut head.counters.run_tokens;
        *tokens = tokens
            .saturating_sub(before.run_tokens)
            .saturating_add(after.run_tokens);
    }
    // The two write no record in common, and the thread that the commit is about is the link.
    Ok(carried.into_head_plan()?.join(corrected)?)
}
