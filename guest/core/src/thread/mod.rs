//! The records of a thread: its definition (`ThreadRecord`), its state (`Head`), and its chain with
//! the account (`ChainRecord`). Each carries a format number and is stored as JSON text.

mod chain;
mod create;
mod head;
mod record;
mod status;

pub use chain::ChainRecord;
pub use create::{Draft, Parent, Resolved, check_title, create, new_id};
pub use head::{
    CHARGED_MAX, Charged, Counters, HOLDS_MAX, Head, Held, Hold, Intent, Late, OwnHold, Pending,
    Round, RoundCall, StepKind, WAIT_MAX, WaitFor,
};
pub use record::{Overrides, ThreadRecord, Within};
pub use status::{Cause, Status};

/// Format of every record and entry that this version writes. Older ones are read for ever.
pub const FORMAT: u32 = 1;
