//! The phase of a head whose thread is being handed off.

use crate::json::record;
use crate::money::NanoUsd;

/// The hand-off of a thread while its summary is written. The thread has no open calls then, and
/// each model call that is admitted is one for the summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOffPhase {
    /// The version that began it.
    pub since: u64,
    /// Attempts at a summary that were admitted so far.
    pub tries: u32,
    /// Money that those have cost.
    pub spent: NanoUsd,
    /// True if a provider has refused the request as too long; false if it is near its limit.
    pub overflow: bool,
}

record!(HandOffPhase {
    since,
    tries,
    spent,
    overflow or nothing
});
