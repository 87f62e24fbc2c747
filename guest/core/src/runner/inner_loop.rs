//! The loop inside the component: how it begins, what it does about a due thread, what its answer
//! is, and how a step is kept that it has handed out and has no more steps to perform.
//!
//! Here are the rules. The service performs the loop.

use super::CommitDecision;
use super::admission::set_lease;
use crate::error::Error;
use crate::plan::{DecisionContext, DueCall, LoadedThread, ThreadChange, due_calls};
use crate::thread::{Head, PendingStep, ThreadStatus};
use crate::time::UnixTime;

/// The call with which the loop gets the thread going that it was asked to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopBeginning {
    /// The holder has the thread from an earlier call, and goes on with its pending step.
    GoOn,
    /// The run is started, or goes on in place.
    Start,
    /// The thread has ended, and its message is for a successor.
    Resume,
    /// The thread waits for its children, and is sent the message.
    Signal,
    /// Nothing is begun: what is due below the thread is performed.
    Nothing,
}

/// The message that the loop was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopInput {
    /// None, or one that the chain has taken before: a thread at rest is begun only where there is
    /// something to answer or to try again, and one that has ended is not.
    Nothing,
    /// None, and the thread goes on as a resume without a message says ([`RESUMPTION_INPUT`]).
    Resumption,
    /// A message that the chain has not taken.
    Message,
}

/// The input of the loop that is no message, and asks for the thread to be resumed all the same.
pub const RESUMPTION_INPUT: &str = "null";

/// Returns true if this holder has the thread, for a run.
pub fn is_held_by(head: &Head, holder: &str) -> bool {
    head.status == ThreadStatus::Running
        && head.holder.as_deref() == Some(holder)
        && !head.is_external_loop()
}

/// Chooses how the loop begins.
pub fn choose_beginning(head: &Head, holder: &str, input: LoopInput) -> LoopBeginning {
    let has_input = input == LoopInput::Message;
    let asked = input != LoopInput::Nothing || head.asked || head.mail_count() > 0;
    match head.status {
        ThreadStatus::Running if is_held_by(head, holder) => LoopBeginning::GoOn,
        // One that somebody else has is refused as busy.
        ThreadStatus::Running | ThreadStatus::Created | ThreadStatus::Suspended => {
            LoopBeginning::Start
        }
        ThreadStatus::Idle if asked => LoopBeginning::Start,
        ThreadStatus::Waiting if has_input => LoopBeginning::Signal,
        ThreadStatus::Completed
        | ThreadStatus::Error
        | ThreadStatus::Cancelled
        | ThreadStatus::Killed
            if input != LoopInput::Nothing =>
        {
            LoopBeginning::Resume
        }
        ThreadStatus::Idle
        | ThreadStatus::Waiting
        | ThreadStatus::Completed
        | ThreadStatus::Error
        | ThreadStatus::Cancelled
        | ThreadStatus::Killed
        | ThreadStatus::Continued => LoopBeginning::Nothing,
    }
}

/// Chooses the first of the calls that get a due thread going; `None` for one whose lease has
/// expired: nothing proves that its holder is gone.
pub fn choose_due_call(head: &Head) -> Option<DueCall> {
    let call = due_calls(head).first().copied();
    call.filter(|call| *call != DueCall::Claim || head.holder.is_none())
}

/// Work that the loop has left to others, or to a later call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoopRest {
    /// True if there was something to do, and no step was left for it.
    pub out_of_steps: bool,
    /// The earliest time at which a thread of this holder goes on.
    pub sleeps_until: Option<UnixTime>,
    /// True if another holder has a thread of the tree.
    pub has_other_holder: bool,
    /// True if a thread of the tree waits, or is still to be begun.
    pub has_open_thread: bool,
    /// The time at which a thread of the tree may be due.
    pub next: Option<UnixTime>,
}

/// The need of a run that is not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopReason {
    /// The steps of the call are used up.
    Steps,
    /// A time.
    Time,
    /// A thread that another holder has.
    Holder,
    /// A person: a decision, a higher cap, or a new start.
    Person,
}

impl LoopReason {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Time => "time",
            Self::Holder => "holder",
            Self::Person => "person",
        }
    }
}

/// Returns what a run waits for and until when; `None` if it is finished. `status` is that of the
/// thread that was to be run.
pub fn reason_to_go_on(
    status: ThreadStatus,
    rest: LoopRest,
) -> Option<(LoopReason, Option<UnixTime>)> {
    let until = [rest.sleeps_until, rest.next].into_iter().flatten().min();
    let waits = rest.has_open_thread || status == ThreadStatus::Waiting;
    if rest.out_of_steps {
        Some((LoopReason::Steps, None))
    } else if rest.sleeps_until.is_some() {
        Some((LoopReason::Time, until))
    } else if rest.has_other_holder {
        Some((LoopReason::Holder, until))
    } else if waits {
        Some((LoopReason::Time, until))
    } else if status == ThreadStatus::Suspended {
        Some((LoopReason::Person, None))
    } else {
        None
    }
}

/// Parks the pending step: it was handed out, and nothing of it was begun.
///
/// # Errors
/// If the change is not consistent.
pub fn park_step(
    loaded: &LoadedThread,
    version: u64,
    moment: DecisionContext<'_>,
) -> Result<CommitDecision, Error> {
    let mut change = ThreadChange::new(loaded, moment);
    change.closing = true;
    match pending(&mut change, version) {
        Some(step) if !step.parked => step.parked = true,
        _ => return Ok(CommitDecision::Repeat),
    }
    Ok(CommitDecision::Commit(change.into_head_plan()?))
}

/// Begins a step that was parked: its time and the lease begin now. [`CommitDecision::Repeat`] for
/// a step that was begun.
///
/// # Errors
/// If the change is not consistent.
pub fn begin_step(
    loaded: &LoadedThread,
    version: u64,
    moment: DecisionContext<'_>,
) -> Result<CommitDecision, Error> {
    let mut change = ThreadChange::new(loaded, moment);
    let Some(step) = pending(&mut change, version).filter(|step| step.parked) else {
        return Ok(CommitDecision::Repeat);
    };
    let millis = step.deadline.millis_since(step.started);
    step.parked = false;
    step.started = moment.now;
    step.deadline = moment.now.plus_millis(millis);
    let deadline = step.deadline;
    set_lease(&mut change, deadline);
    Ok(CommitDecision::Commit(change.into_head_plan()?))
}

fn pending<'a>(change: &'a mut ThreadChange<'_>, version: u64) -> Option<&'a mut PendingStep> {
    let step = change.head.step.as_mut();
    step.filter(|step| step.version == version)
}
