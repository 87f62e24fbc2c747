//! The next action of a run, as a value. The functions that record a result return it;
//! [`super::outcome`] alone applies it.

use super::admission::AttemptNeeds;
use super::children::{DecidedCall, WaitRequest};
use super::hand_off_terms::PreparedHandOff;
use crate::thread::StatusCause;

/// The next action of a run.
#[derive(Debug)]
pub(super) enum RunTransition {
    /// Apply decisions and hand out the open calls; if there are none, stop for decisions that are
    /// missing; if none is, wait for children; if no call waits, call the model.
    Continue {
        /// The children of an open wait.
        wait: Option<WaitRequest>,
        /// Open calls that were decided.
        decided: Vec<DecidedCall>,
        /// Longest time of the open calls in milliseconds.
        tool_millis: u64,
    },
    /// Call the model.
    CallModel(AttemptNeeds),
    /// Wait, then make the same request again.
    Retry(RetryWait),
    /// Go on in another thread, with a summary or without.
    HandOff(PreparedHandOff),
    /// A provider refused the request as too long: go on in another thread, or suspend the run for
    /// this cause where nothing can be left out.
    Overflow(StatusCause),
    /// Suspend the run: it needs a person or a driver.
    Suspend(StatusCause),
    /// Suspend the run at its driver's wish: calls that may not run twice are interrupted.
    Stop(StatusCause),
    /// Finish the run: this was the model's last text.
    Finish(String),
}

/// The wait before the next attempt of a request.
#[derive(Debug, Default)]
pub(super) struct RetryWait {
    /// Time of the wait in milliseconds.
    pub millis: u64,
    /// Attempts of the request before the one that failed.
    pub tries: u32,
    /// Most output tokens of the attempt that failed.
    pub output: u64,
    /// Code of the failure, if that may have cost something.
    pub failed: Option<String>,
}
