//! Correction of a charge after the fact: the real usage of an attempt that was charged by estimate
//! because its driver was believed to be gone. It is applied once, whoever holds the thread by now,
//! and also when the thread has ended.
//!
//! A thread that no caller holds records it at once, even one that has ended: corrections of usage
//! are all that its history still gains. A thread that is held keeps it in its head, and its next
//! entry records it.

use super::Decision;
use crate::error::Error;
use crate::history::Reason;
use crate::ledger::Usage;
use crate::plan::{Change, Loaded, Moment};
use crate::thread::{Late, Status};

/// Returns the error for a fenced driver, and records the usage that it reports of an attempt that
/// was charged.
pub(super) fn fenced(
    loaded: &Loaded,
    version: u64,
    usage: Option<Usage>,
    error: Error,
    moment: Moment<'_>,
) -> Result<Decision, Error> {
    let charged = &loaded.head.value.charged;
    let known = |at: &usize| charged[*at].version == version && charged[*at].late.is_none();
    let at = (0..charged.len()).find(known);
    let (Some(at), Some(usage)) = (at, usage) else {
        return Err(error);
    };
    let mut change = Change::new(loaded, moment);
    change.closing = true;
    let told = &mut change.head.charged[at];
    told.late = Some(Late {
        spend: told.hold.prices.cost(usage),
        usage,
        money: false,
        recorded: false,
    });
    let plan = match loaded.head.value.status {
        Status::Running => change.into_head_plan()?,
        _ => change.into_plan(Reason::Settled)?,
    };
    Ok(Decision::Late(Box::new(plan), error))
}
