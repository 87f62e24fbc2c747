//! Calls of the tools that the runner itself performs: to spawn children, send them messages, end
//! them and wait for them.
//!
//! They change records only, in the commit that records the reply. The caller of a decision
//! prepares them: the threads that each names are looked up before, and a call that cannot be
//! performed is prepared as its answer.

mod answers;
mod told;
mod wait;

pub use answers::Child;
use answers::answer_children;
pub use told::{end, swept, tell};
pub(super) use told::{ends_later, pass_on, pass_through};
pub use wait::Waiting;
pub(super) use wait::{go_on, woken};

use super::mail::{Mail, inbox_write};
use super::{MAIL_BYTES_MAX, MAIL_MAX};
use crate::error::Error;
use crate::history::Message;
use crate::json::{self, Fields};
use crate::ledger::Grant;
use crate::limits::Limits;
use crate::plan::{Change, Neighbour};
use crate::thread::{self, Cause, Draft, Intent, Parent, Resolved, Status, Within};

/// Most children that one reply spawns.
pub const SPAWNS_MAX: usize = 16;
/// Most chains above one another, the root's counted.
pub const DEPTH_MAX: u64 = 64;
/// Most bytes of a message that a thread sends to another, as JSON text: an inbox full of them can
/// be taken at once.
pub const SENT_BYTES_MAX: usize = 8 << 10;
/// Most bytes, as JSON text, of the answer of one call of the runner's own tools.
pub const ANSWER_BYTES_MAX: usize = 48 << 10;

/// Inputs of a decision beside the records of the thread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kit {
    /// Mail that waits.
    pub mail: Vec<Mail>,
    /// For each call of a reply, in order, the prepared call if it is one of the runner's own
    /// tools.
    pub prepared: Vec<Option<Prepared>>,
    /// The children of the open wait, if the round has one.
    pub waiting: Option<Waiting>,
}

/// A call of one of the runner's own tools, with the threads that it names looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prepared {
    /// A call that only asks, or that cannot be performed: the text for the model, and whether that
    /// is a failure.
    Answer(String, bool),
    /// A question about children: the part of each result from this byte on.
    Results(Vec<Child>, usize),
    /// A request to create a child.
    Spawn(Box<Spawning>),
    /// A message for a descendant, and the bytes of the messages that wait there.
    Send(Box<Neighbour>, Message, usize),
    /// A request to end a descendant.
    Stop(Box<Neighbour>, Intent),
    /// A wait for children.
    Wait(Waiting),
}

/// A child that is to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spawning {
    /// The requested thread.
    pub draft: Draft,
    /// The draft as the library resolved it.
    pub resolved: Resolved,
    /// Money to be reserved for it; `None` if it draws on its parent's account.
    pub grant: Option<Grant>,
    /// Random digits for its id.
    pub random: String,
}

/// Outcome of a performed call.
pub(super) enum Done {
    /// The result, and whether the call failed.
    Answered(String, bool),
    /// A cap does not allow the call: its result, and the cause that stops the run.
    Stops(String, Cause),
}

/// Returns the upper bounds of a child of this thread.
pub fn within(limits: Limits, capabilities: &[String]) -> Within {
    Within {
        limits: Limits {
            depth: limits.depth.map(|depth| depth.saturating_sub(1)),
            ..limits
        },
        capabilities: capabilities.to_vec(),
    }
}

/// Performs a prepared call. `room` is the number of bytes that its answer may take, `spawned` the
/// children that this reply has spawned.
pub(super) fn perform(
    change: &mut Change<'_>,
    prepared: Prepared,
    room: usize,
    spawned: &mut Vec<Child>,
) -> Result<Done, Error> {
    let full = change.store_full().map(|cause| cause.message);
    let refused = |why: &str| Ok(Done::Answered(format!("not done: {why}"), true));
    match (prepared, full) {
        (Prepared::Answer(text, failed), _) => Ok(Done::Answered(text, failed)),
        (Prepared::Results(children, from), _) => {
            let room = room.min(ANSWER_BYTES_MAX);
            Ok(Done::Answered(
                answer_children(&children, from, room),
                false,
            ))
        }
        (Prepared::Wait(_), _) => refused("name all that you wait for in one call"),
        (_, Some(full)) => refused(&full),
        (Prepared::Spawn(_), None) if spawned.len() >= SPAWNS_MAX => {
            refused(&format!("one reply spawns at most {SPAWNS_MAX} children"))
        }
        (Prepared::Spawn(spawning), None) => spawn(change, *spawning, spawned),
        (Prepared::Send(to, message, waiting), None) => {
            let added = change.beside(&to).mail_to - to.head.value.mail_to;
            let added = added as usize * SENT_BYTES_MAX;
            if change.beside(&to).mail() >= MAIL_MAX
                || waiting + added + SENT_BYTES_MAX > MAIL_BYTES_MAX
            {
                return refused("its inbox is full: try again later");
            }
            send(change, &to, &message);
            Ok(Done::Answered(told(&to.id, "sent"), false))
        }
        (Prepared::Stop(to, intent), None) => {
            let head = change.beside(&to);
            let stronger = head.intent.is_none_or(|now| now == Intent::Cancel);
            if stronger {
                head.intent = Some(intent);
                head.sweep = Some(intent);
            }
            Ok(Done::Answered(told(&to.id, intent.as_str()), false))
        }
    }
}

fn told(thread: &str, what: &str) -> String {
    let mut text = String::new();
    Fields::new(&mut text)
        .add("thread", thread)
        .add("done", what)
        .end();
    text
}

/// Puts a message into the inbox of a descendant, which is then due unless it is held or waits.
fn send(change: &mut Change<'_>, to: &Neighbour, message: &Message) {
    let head = change.beside(to);
    let number = head.mail_to;
    head.mail_to += 1;
    if !matches!(head.status, Status::Running | Status::Waiting) {
        head.due = Some(0);
    }
    change
        .extra
        .push(inbox_write(&to.chain, number, json::text(message)));
}

fn spawn(
    change: &mut Change<'_>,
    spawning: Spawning,
    spawned: &mut Vec<Child>,
) -> Result<Done, Error> {
    let Spawning {
        draft,
        resolved,
        grant,
        random,
    } = spawning;
    if let Some(cause) = no_more(change) {
        return Ok(Done::Stops(
            format!("not spawned: {}", cause.message),
            cause,
        ));
    }
    if change.chain.depth + 1 >= DEPTH_MAX {
        let text = format!("not spawned: at most {DEPTH_MAX} threads lie above one another");
        return Ok(Done::Answered(text, true));
    }
    let refused = |why: String| Ok(Done::Answered(format!("not spawned: {why}"), true));
    // Everything that can be wrong with the request is found before money is set aside: it is the
    // result of the call.
    let id = match thread::new_id(&draft, change.now(), &random) {
        Ok(id) => Some(id),
        Err(error) => return refused(error.to_string()),
    };
    let draft = Draft { id, ..draft };
    let funds = match change.fund(grant) {
        Ok(funds) => funds,
        Err(refusal) => return refused(refusal.to_string()),
    };
    let reserved = grant.and(funds.account.limit);
    let number = change.chain.children + 1;
    let (own, chain) = (change.thread.id.clone(), change.thread.chain.clone());
    let parent = Parent {
        thread: &own,
        chain: &chain,
        number,
        depth: change.chain.depth + 1,
        funds,
    };
    let plan = thread::create(&draft, resolved, Some(parent), change.now(), &random)?;
    change.chain.children = number;
    change.head.counters.spawns += 1;
    spawned.push(Child::new(&plan.thread, &plan.head, &plan.chain));
    change.extra.extend(plan.writes);
    let mut text = String::new();
    Fields::new(&mut text)
        .add("thread", &plan.thread.id)
        .add("status", "created")
        .add_present("reserved_usd", &reserved.map(|amount| amount.to_string()))
        .end();
    Ok(Done::Answered(text, false))
}

/// Returns the cause of the cap that allows no further child, if one does not.
fn no_more(change: &Change<'_>) -> Option<Cause> {
    let limits = change.limits();
    let spawns = change.head.counters.spawns;
    if let Some(most) = limits.spawns.filter(|most| spawns >= *most) {
        let message =
            format!("the thread has spawned {spawns} of {most} children: raise the cap to go on");
        return Some(Cause::bound(
            "limit",
            "spawns_exceeded",
            message,
            spawns,
            most,
        ));
    }
    let none = limits.depth == Some(0);
    let message = "no level of children is left below this thread: raise its cap of depth to go on";
    none.then(|| Cause::bound("limit", "depth_exceeded", message, 1, 0))
}
