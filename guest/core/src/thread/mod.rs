//! The records of a thread: its definition (`ThreadRecord`), its state (`Head`), and its chain with
//! the account (`ChainRecord`). Each carries a format number and is stored as JSON text.

mod cap_lift;
mod chain;
mod create;
mod head;
mod record;
mod status;

pub use cap_lift::raise_floor;
pub use chain::ChainRecord;
pub use create::{ResolvedDraft, SpawnParent, ThreadDraft, check_title, create, new_id};
pub use head::{
    CHARGED_MAX, ChargedAttempt, ChildWait, EndIntent, ExternalHold, HOLDS_MAX, Head, HeldTotals,
    Hold, PendingStep, ReportedUsage, RoundCall, StepKind, ToolRound, UsageCounters, WAIT_MAX,
};
pub use record::{CreatorOverrides, InheritedBounds, ThreadRecord};
pub use status::{CauseDetail, StatusCause, ThreadStatus};

/// Format of every record and entry that this version writes. Older ones are read for ever.
pub const FORMAT: u32 = 1;
