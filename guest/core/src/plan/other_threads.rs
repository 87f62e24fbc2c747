//! Tells if a commit of one thread gives other threads something to do, and which call gets a due
//! thread going.

use super::{CommitPlan, StoreWrite};
use crate::thread::{Head, ThreadStatus};
use crate::{id, key};

/// A call by which a driver gets a due thread going.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DueCall {
    /// The thread passes its end on to its children.
    Sweep,
    /// A new holder begins the run, or continues a suspended one.
    Start,
    /// A new holder takes over a wait that is over, or a run whose lease has expired.
    Claim,
    /// A new holder goes on with a thread that had ended, in a successor.
    Resume,
}

/// Returns the calls that get a due thread going, in the order in which they are to be made.
pub fn due_calls(head: &Head) -> Vec<DueCall> {
    let held = head.status == ThreadStatus::Running;
    let sweeps = head.sweep.is_some() || (head.intent.is_some() && !held);
    let goes_on = match head.status {
        ThreadStatus::Running | ThreadStatus::Waiting => Some(DueCall::Claim),
        ThreadStatus::Created | ThreadStatus::Suspended | ThreadStatus::Idle => {
            Some(DueCall::Start)
        }
        _ if is_to_be_resumed(head) => Some(DueCall::Resume),
        ThreadStatus::Completed
        | ThreadStatus::Error
        | ThreadStatus::Cancelled
        | ThreadStatus::Killed
        | ThreadStatus::Continued => None,
    };
    let sweep = sweeps.then_some(DueCall::Sweep);
    sweep.into_iter().chain(goes_on).collect()
}

impl DueCall {
    /// The name of the call.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sweep => "sweep",
            Self::Start => "start",
            Self::Claim => "claim",
            Self::Resume => "resume",
        }
    }
}

/// Returns true if a thread has ended and was sent a message to go on with: it is due until a
/// driver resumes it.
pub fn is_to_be_resumed(head: &Head) -> bool {
    let ended = head.status.is_terminal() && head.status != ThreadStatus::Continued;
    ended && head.due.is_some() && head.mail_count() > 0
}

/// Returns true if a due thread is suspended and is to go on before waits are looked at: a thread
/// that waits for it would otherwise be told that it is suspended.
pub fn is_revival(head: &Head) -> bool {
    head.status == ThreadStatus::Suspended
}

impl CommitPlan {
    /// Returns true if the commit creates or changes other threads, or leaves an end to be passed
    /// on to the children of its own. The parent does not count: a commit changes it only where the
    /// run ends or waits, which the step says.
    pub fn concerns_other_threads(&self) -> bool {
        let own = id::key(&self.thread.id);
        let parent = self.thread.parent.as_deref().map(id::key);
        let changes_other = |write: &StoreWrite| match write {
            StoreWrite::Put {
                collection, key, ..
            } => *collection == key::HEAD && *key != own && Some(key) != parent.as_ref(),
            StoreWrite::Check { .. }
            | StoreWrite::Delete { .. }
            | StoreWrite::Append { .. }
            | StoreWrite::Trim { .. } => false,
        };
        self.head.sweep.is_some() || self.writes.iter().any(changes_other)
    }
}
