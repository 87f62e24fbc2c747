//! The records of a thread: its definition (`ThreadRecord`), its state (`Head`), and its chain with
//! the account (`ChainRecord`). Each carries a format number and is stored as JSON text.

mod base;
mod call_decision;
mod cap_lift;
mod caps;
mod chain;
mod create;
mod creation_key;
mod fork_origin;
mod genesis;
mod hand_off_phase;
mod head;
mod history_path;
mod inbox;
mod link;
mod link_checks;
mod path_replay;
mod record;
mod record_checks;
mod record_format;
mod state_record;
mod status;
mod tool_round;
mod window_count;

pub use base::{BASE_PARTS_MAX, BasePart, HistoryBase};
pub use call_decision::{DecisionRecord, DecisionVerdict};
pub use cap_lift::raise_floor;
pub use caps::find_reached_cap;
pub(crate) use caps::raise_advice;
pub use chain::ChainRecord;
pub use create::{
    ChainPlace, ResolvedDraft, SpawnParent, ThreadDraft, check_title, create, new_id,
};
pub(crate) use create::{absent_thread, begin_thread, new_head, request_write};
pub use creation_key::{CreationRecord, creation_key, resume_key};
pub use fork_origin::ForkOrigin;
pub use genesis::{check_own_history, genesis_hash};
pub use hand_off_phase::HandOffPhase;
pub use head::{
    CHARGED_MAX, ChargedAttempt, ChildWait, DUE_NEW, EndIntent, ExternalHold, HEAD_BYTES_MAX,
    HOLDS_MAX, Head, HeldTotals, Hold, PendingStep, ReportedUsage, StepKind, UsageCounters,
    WAIT_MAX,
};
pub use history_path::{HistoryPath, PathRange};
pub use inbox::{InboxMessage, MAIL_BYTES_MAX, MAIL_MAX};
pub(crate) use link::inherit_state;
pub use link::{ChainLink, LinkSuccessor, create_link, open_successor};
pub use link_checks::{find_link_problem, find_step_problem};
pub use path_replay::{PathReplay, UnansweredCall};
pub use record::{CreatorOverrides, InheritedBounds, RESULT_BYTES_MAX, ThreadRecord};
pub use record_checks::find_contradiction;
pub use record_format::RecordFormat;
pub use state_record::{StateRecord, StateSummary};
pub use status::{CauseDetail, StatusCause, ThreadStatus};
pub use tool_round::{APPROVAL_NEEDED, CallConsent, RoundCall, ToolRound};
pub use window_count::WindowCount;

/// Format of every record and entry that this version writes. Older ones are read for ever.
pub const FORMAT: u32 = 1;
