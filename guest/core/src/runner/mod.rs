//! A run as a step machine: start, claim, submit, signal; each decides one commit and the next
//! step. Beside it, the operations of an external loop, which a host runs instead: open, append,
//! close.
//!
//! Nothing here waits or calls. A step is named by the version that hands it out; `submit` answers
//! it and gets the next. Every decision may be repeated: [`CommitDecision::Repeat`] says that it
//! was made already.

mod admission;
mod append;
mod call_decision;
mod checks;
mod children;
mod claim;
mod consent;
mod ending;
mod external_hold;
mod external_loop;
mod failure;
mod finish_reason;
mod fork;
mod hand_off_plan;
mod hand_off_terms;
mod handing_off;
mod inner_loop;
mod mail;
mod message_ids;
mod open_calls;
mod outcome;
mod outcome_edits;
mod reply;
mod reply_blocks;
mod reply_calls;
mod result_blocks;
mod resume;
mod round;
mod settlement;
mod signal;
mod start;
mod step;
mod submission;
mod submit;
mod successor;
mod summary_attempt;
mod suspension;
mod transition;
mod usage_correction;

pub use append::{AppendRequest, append};
pub use call_decision::{ANSWER_TEXT_BYTES_MAX, CallDecision, NOTE_BYTES_MAX};
pub use children::{
    ANSWER_BYTES_MAX, ChildSnapshot, DEPTH_MAX, DecidedCall, DecisionInputs, PreparedCall,
    SENT_BYTES_MAX, SPAWNS_MAX, SpawnRequest, WaitRequest, apply_intent, child_bounds,
    finish_propagation, propagate_intent,
};
pub use claim::{HolderProof, KeptPartial, claim, recover};
pub use consent::decision_key;
pub use external_hold::{Attempt, CallBill, HoldEstimate, HoldRequest, attempt_key, hold, settle};
pub use external_loop::{LoopEnding, LoopFailure, close, open, parse_failure};
pub use fork::{FORKED, ForkPoint, ForkRequest, fork};
pub use hand_off_plan::{hand_off_plan, hand_off_plan_needs};
pub use handing_off::HAND_OFFS_MAX;
pub use inner_loop::{
    LoopBeginning, LoopInput, LoopReason, LoopRest, RESUMPTION_INPUT, begin_step, choose_beginning,
    choose_due_call, is_held_by, park_step, reason_to_go_on,
};
pub use message_ids::{KnownMessage, is_known_message, message_digest, message_key};
pub use reply_blocks::{LlmCompletion, ReplyBlock, UnreadableReply};
pub use result_blocks::{ResultContent, parse_result_content};
pub use resume::{ResumeRequest, check_may_be_resumed, resume};
pub use round::{ToolOutcome, ToolState};
pub use signal::{CapRaise, HostFailure, Signal, signal};
pub use start::{
    StartRequest, check_handed_off_start, is_repeated_start, is_start_refused, parse_about, start,
};
pub use step::{Step, StepCall, pending_step};
pub use submission::{LlmFailure, StepOutcome, StepSubmission};
pub use submit::submit;
pub use summary_attempt::summary_terms;
#[cfg(test)]
pub(crate) use summary_attempt::terms_within;
pub use suspension::{NeedsDetail, suspension_needs};
pub use threadkeep_units::time::MODEL_MILLIS;

use crate::continuation::WindowNeeds;
use crate::error::Error;
use crate::plan::CommitPlan;

/// Time for which a lease outlasts its step's deadline.
pub const LEASE_GRACE_MILLIS: u64 = threadkeep_units::lease_grace::LEASE_GRACE_SECONDS * 1_000;
/// Longest time between now and the deadline of an external loop's lease: long enough for a model,
/// its tools and a person at a keyboard. The death of a holder is known within it, and a live loop
/// moves its deadline.
pub const OPEN_MILLIS_MAX: u64 = 3_600_000;
/// Request name of the lease of an external loop: no caller can name a request so.
const OPEN_REQUEST_NAME: &str = "\0open";
/// Attempts of one request after the first.
pub const RETRIES_MAX: u32 = 3;
/// Wait before the first retry; it doubles with each.
pub const BACKOFF_MILLIS: u64 = 500;
/// Longest time between two checks of whether money that other calls held is free.
pub const MONEY_WAIT_MILLIS_MAX: u64 = 15_000;
/// Longest wait that a provider may ask for without suspending the run: above it a person should
/// know.
pub const RETRY_AFTER_MILLIS_MAX: u64 = 600_000;
/// Longest time that is charged after the last kept text, or the start, of a call whose holder
/// died: a live driver keeps a text every two seconds, and a longer silence is more likely the
/// holder's death than the model's.
pub const SILENCE_MILLIS_MAX: u64 = 20_000;
/// Rounds in a row in which no call could be run, before the run suspends.
pub const BAD_ROUNDS_MAX: u32 = 3;
/// Steps in a row lost to dead holders, before the run suspends.
pub const LOST_STEPS_MAX: u32 = 3;
/// Least output tokens that an attempt is lowered to where money is short.
pub const OUTPUT_TOKENS_FLOOR: u64 = 256;
/// Most calls of one reply that are run; the others are refused, and the model is told.
pub const CALLS_MAX: usize = 32;
/// Most bytes, as JSON text, of the results of one round.
pub const ROUND_BYTES_MAX: usize = 512 << 10;
/// Most bytes, as JSON text, of one reply, counting [`BLOCK_BYTES`] more for each block. With one
/// message of the inbox it still fits an entry.
pub const REPLY_BYTES_MAX: usize = 500 << 10;
/// Most bytes that a block adds to an entry beside its own text: names of fields, and for a call
/// that is refused its result.
pub const BLOCK_BYTES: usize = 1_536;
/// Most bytes, as JSON text, of the answers of the built-in tools to the calls of one reply, apart
/// from a sentence for each.
pub const BUILTIN_ANSWERS_BYTES_MAX: usize = 96 << 10;
/// Most bytes of a tool's name and of a model's id of a call that are kept: valid ones are shorter.
pub const CALL_NAME_BYTES_MAX: usize = 128;
/// Most bytes of the sentence that tells a model why a call was refused.
pub const REFUSAL_BYTES_MAX: usize = 512;
/// Most bytes, as JSON text, of a partial text that is kept.
pub const PARTIAL_BYTES_MAX: usize = 256 << 10;

/// Outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitDecision {
    /// The request was decided before: the pending step is the answer.
    Repeat,
    /// The plan is to be committed; the pending step of its head is the answer.
    Commit(Box<CommitPlan>),
    /// The decision needs [`DecisionInputs::window`], which is loaded for it alone.
    NeedsWindow(WindowNeeds),
    /// The plan is to be committed, and the answer is the error all the same: a fenced driver
    /// reported usage.
    CommitThenFail(Box<CommitPlan>, Error),
}
