//! Truth that comes late: what an attempt really used that was charged by estimate, because its driver was believed
//! to be gone. It is taken once, whoever holds the thread by now, and also when it has ended.
//!
//! A thread that nobody holds records it at once, an ended one too: usage is all that its history still gains. One that is
//! held keeps it in its head, and its next entry tells of it.

use super::Decision;
use crate::error::Error;
use crate::history::Reason;
use crate::ledger::Usage;
use crate::plan::{Change, Loaded, Moment};
use crate::thread::{Late, Status};

/// The answer to a fenced driver: its error, with what it tells of an attempt that was charged.
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
