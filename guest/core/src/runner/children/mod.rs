//! Calls of the tools that the runner itself performs: to spawn children, send them messages, end
//! them and wait for them.
//!
//! They change records only, in the commit that records the reply. The caller of a decision
//! prepares them: the threads that each names are looked up before, and a call that cannot be
//! performed is prepared as its answer.

mod child_snapshot;
mod propagation;
mod wait;

pub use child_snapshot::ChildSnapshot;
use child_snapshot::children_to_json;
pub use propagation::{apply_intent, finish_propagation, propagate_intent};
pub(super) use propagation::{drop_resumption, pass_to_children};
pub use wait::WaitRequest;
pub(super) use wait::{WaitOutcome, begin_wait, check_wait, missing_wait_error};

use super::mail::inbox_write;
use crate::continuation::LiveWindow;
use crate::error::{Error, ErrorKind};
use crate::history::Message;
use crate::json::{self, ObjectWriter};
use crate::ledger::ReserveGrant;
use crate::limits::ThreadCaps;
use crate::plan::{LoadedThread, RelatedThread, ThreadChange};
use crate::thread::{
    self, ChainPlace, DecisionRecord, EndIntent, InboxMessage, InheritedBounds, MAIL_BYTES_MAX,
    MAIL_MAX, ResolvedDraft, SpawnParent, StatusCause, ThreadDraft, ThreadStatus,
};

/// Most children that one reply spawns.
pub const SPAWNS_MAX: usize = 16;
/// Most chains above one another, the root's counted.
pub const DEPTH_MAX: u64 = 64;
/// Most bytes of a message that a thread sends to another, as JSON text: an inbox full of them can
/// be taken at once.
pub const SENT_BYTES_MAX: usize = 8 << 10;
/// Most bytes, as JSON text, of the answer of one call of the built-in tools.
pub const ANSWER_BYTES_MAX: usize = 48 << 10;

/// Inputs of a decision beside the records of the thread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DecisionInputs {
    /// Mail that waits.
    pub mail: Vec<InboxMessage>,
    /// For each call of a reply, in order, the prepared call if it is one of the built-in tools.
    pub prepared: Vec<Option<PreparedCall>>,
    /// The children of the open wait, if the round has one.
    pub waiting: Option<WaitRequest>,
    /// Open calls that were decided and are not handed out yet.
    pub decided: Vec<DecidedCall>,
    /// Patterns of the operator's policy, as it is now, of calls that need consent.
    pub approvals: Vec<String>,
    /// The live window of the thread: only where a decision asked for it, see
    /// [`super::CommitDecision::NeedsWindow`].
    pub window: Option<LiveWindow>,
    /// The tip of the chain, for a submission to a link that was continued.
    pub tip: Option<Box<LoadedThread>>,
    /// True if the input of a start was taken before, by its id: it is left out.
    pub known_input: bool,
}

/// An open call that was decided, with what the commit needs that applies the decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecidedCall {
    /// Index of the call.
    pub index: u32,
    /// The record of the decision; `None` if it is missing or cannot be read.
    pub record: Option<DecisionRecord>,
    /// The call prepared, if it is an approved one of the built-in tools.
    pub prepared: Option<PreparedCall>,
}

/// A call of one of the built-in tools, with the threads that it names looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreparedCall {
    /// A call that only asks, or that cannot be performed: the text for the model, and whether that
    /// is a failure.
    Answer(String, bool),
    /// A question about children: the part of each result from this byte on.
    Results(Vec<ChildSnapshot>, usize),
    /// A request to create a child.
    Spawn(Box<SpawnRequest>),
    /// A message for a descendant, the bytes of the messages that wait there, and the word for
    /// what is done. A descendant that has ended is resumed with it by whoever drives the tree.
    Send(Box<RelatedThread>, Message, usize, &'static str),
    /// A request to end a descendant.
    Stop(Box<RelatedThread>, EndIntent),
    /// A wait for children.
    Wait(WaitRequest),
}

/// A child that is to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpawnRequest {
    /// The requested thread.
    pub draft: ThreadDraft,
    /// The draft as the library resolved it.
    pub resolved: ResolvedDraft,
    /// Money to be reserved for it; `None` if it draws on its parent's account.
    pub grant: Option<ReserveGrant>,
    /// Random digits for its id.
    pub random: String,
}

/// Outcome of a performed call.
pub(super) enum PerformedCall {
    /// The result, and whether the call failed.
    Answered(String, bool),
    /// A cap does not allow the call: its result, and the cause that stops the run.
    Stops(String, StatusCause),
}

/// Returns the upper bounds of a child of this thread.
pub fn child_bounds(
    limits: ThreadCaps,
    capabilities: &[String],
    approvals: &[String],
) -> InheritedBounds {
    InheritedBounds {
        approvals: approvals.to_vec(),
        limits: ThreadCaps {
            depth: limits.depth.map(|depth| depth.saturating_sub(1)),
            ..limits
        },
        capabilities: capabilities.to_vec(),
    }
}

/// Performs a prepared call. `room` is the number of bytes that its answer may take, `spawned` the
/// children that this reply has spawned.
pub(super) fn perform_call(
    change: &mut ThreadChange<'_>,
    prepared: PreparedCall,
    room: usize,
    spawned: &mut Vec<ChildSnapshot>,
) -> Result<PerformedCall, Error> {
    let full = change.store_full_cause().map(|cause| cause.message);
    let refused = |why: &str| Ok(PerformedCall::Answered(format!("not done: {why}"), true));
    match (prepared, full) {
        (PreparedCall::Answer(text, failed), _) => Ok(PerformedCall::Answered(text, failed)),
        (PreparedCall::Results(children, from), _) => {
            let room = room.min(ANSWER_BYTES_MAX);
            Ok(PerformedCall::Answered(
                children_to_json(&children, from, room),
                false,
            ))
        }
        (PreparedCall::Wait(_), _) => refused("name all that you wait for in one call"),
        (_, Some(full)) => refused(&full),
        (PreparedCall::Spawn(_), None) if spawned.len() >= SPAWNS_MAX => {
            refused(&format!("one reply spawns at most {SPAWNS_MAX} children"))
        }
        (PreparedCall::Spawn(spawning), None) => spawn_child(change, *spawning, spawned),
        (PreparedCall::Send(to, message, waiting, done), None) => {
            let added = change.related_head_mut(&to).mail_to - to.head.value.mail_to;
            let added = added as usize * SENT_BYTES_MAX;
            if change.related_head_mut(&to).mail_count() >= MAIL_MAX
                || waiting + added + SENT_BYTES_MAX > MAIL_BYTES_MAX
            {
                return refused("its inbox is full: try again later");
            }
            send_message(change, &to, &message);
            Ok(PerformedCall::Answered(done_text(&to.id, done), false))
        }
        (PreparedCall::Stop(to, intent), None) => {
            let head = change.related_head_mut(&to);
            let stronger = head.intent.is_none_or(|now| now == EndIntent::Cancel);
            if stronger {
                head.intent = Some(intent);
                head.sweep = Some(intent);
                // Its end names the last one.
                head.sweep_to = None;
            }
            Ok(PerformedCall::Answered(
                done_text(&to.id, intent.as_str()),
                false,
            ))
        }
    }
}

fn done_text(thread: &str, what: &str) -> String {
    let mut text = String::new();
    ObjectWriter::new(&mut text)
        .add("thread", thread)
        .add("done", what)
        .finish();
    text
}

/// Puts a message into the inbox of a descendant, which is then due unless it is held or waits.
fn send_message(change: &mut ThreadChange<'_>, to: &RelatedThread, message: &Message) {
    let head = change.related_head_mut(to);
    let number = head.mail_to;
    head.mail_to += 1;
    if !matches!(head.status, ThreadStatus::Running | ThreadStatus::Waiting) {
        head.mark_due();
    }
    change
        .extra
        .push(inbox_write(&to.chain, number, json::to_text(message)));
}

fn spawn_child(
    change: &mut ThreadChange<'_>,
    spawning: SpawnRequest,
    spawned: &mut Vec<ChildSnapshot>,
) -> Result<PerformedCall, Error> {
    let SpawnRequest {
        draft,
        resolved,
        grant,
        random,
    } = spawning;
    if let Some(cause) = spawn_cap_cause(change) {
        return Ok(PerformedCall::Stops(
            format!("not spawned: {}", cause.message),
            cause,
        ));
    }
    if change.chain.depth + 1 >= DEPTH_MAX {
        let text = format!("not spawned: at most {DEPTH_MAX} threads lie above one another");
        return Ok(PerformedCall::Answered(text, true));
    }
    let refused = |why: String| Ok(PerformedCall::Answered(format!("not spawned: {why}"), true));
    // Everything that can be wrong with the request is found before money is set aside: it is the
    // result of the call.
    let id = match thread::new_id(&draft, change.now(), &random) {
        Ok(id) if change.creates_thread(&id) => {
            return refused(ErrorKind::Exists(id).to_full_text());
        }
        Ok(id) => Some(id),
        Err(error) => return refused(error.kind().to_full_text()),
    };
    let draft = ThreadDraft { id, ..draft };
    let funds = match change.fund_child(grant) {
        Ok(funds) => funds,
        Err(refusal) => return refused(refusal.to_string()),
    };
    let reserved = grant.and(funds.account.limit);
    let number = change.chain_mut().add_child();
    let (own, chain) = (change.thread.id.clone(), change.thread.chain.clone());
    let parent = SpawnParent {
        thread: &own,
        chain: &chain,
        number,
        depth: change.chain.depth + 1,
        funds,
    };
    let place = ChainPlace::Child(parent);
    let plan = thread::create(&draft, resolved, place, change.now(), &random)?;
    change.head.counters.spawns += 1;
    spawned.push(ChildSnapshot::new(&plan.thread, &plan.head, &plan.chain));
    let created = plan.thread.id.clone();
    change.add_created(plan)?;
    let mut text = String::new();
    ObjectWriter::new(&mut text)
        .add("thread", &created)
        .add("status", "created")
        .add_present("reserved_usd", &reserved.map(|amount| amount.to_string()))
        .finish();
    Ok(PerformedCall::Answered(text, false))
}

/// Returns the cause of the cap that allows no further child, if one does not.
///
/// The call is refused and has its result, and the run suspends: nothing is left to be done in
/// place but to ask again.
fn spawn_cap_cause(change: &ThreadChange<'_>) -> Option<StatusCause> {
    let limits = change.limits();
    // A hand-off begins the counters of the next link anew; the number of the chain only grows.
    let spawns = change.chain.last_child_number();
    if let Some(most) = limits.spawns.filter(|most| spawns >= *most) {
        let message =
            format!("the thread has spawned {spawns} of {most} children: raise the cap to go on");
        return Some(StatusCause::with_bound(
            "limit",
            "spawns_exceeded",
            message,
            spawns,
            most,
        ));
    }
    let none = limits.depth == Some(0);
    let message = "no level of children is left below this thread: raise its cap of depth to go on";
    none.then(|| StatusCause::with_bound("limit", "depth_exceeded", message, 1, 0))
}
