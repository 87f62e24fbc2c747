//! The arguments of `open`, `append` and `close`, for an external loop.

use super::duration;
use crate::token::LeaseToken;
use clap::{Args, ValueEnum};
use std::time::Duration;

/// Default time of a lease, and of a hold of money.
pub(super) const LEASE_TIME_DEFAULT: &str = "10m";

/// The arguments of `open`.
#[derive(Debug, Args)]
#[command(after_help = "\
The token alone goes to standard output:

  export THREADKEEP_TOKEN=$(threadkeep open my-chat)
  threadkeep append my-chat < said.jsonl
  threadkeep close my-chat idle")]
pub struct OpenArgs {
    /// Its id
    pub thread: String,
    /// The time of the lease, at most 1h: after it another process may end the lease
    #[arg(
        long = "for",
        value_name = "TIME",
        value_parser = duration,
        default_value = LEASE_TIME_DEFAULT
    )]
    pub time: Duration,
}

/// The arguments of `append`.
#[derive(Debug, Args)]
#[command(after_help = "\
All lines are one commit. Messages that were sent to the thread meanwhile are taken with it \
and printed, one a line. Without a token, lines can be added to a thread that nobody holds. A \
line with `patch` or `op` changes the state of the thread, one with `snapshot` replaces it: \
see docs/state.md.

  threadkeep append my-chat < said.jsonl
  echo '{\"type\": \"note\", \"name\": \"by\", \"body\": 1}' | threadkeep append my-chat")]
pub struct AppendArgs {
    /// Its id
    pub thread: String,
    /// The token of the lease, THREAD#NUMBER [default: THREADKEEP_TOKEN, if it is set]
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<LeaseToken>,
    /// The version that you saw: if the thread is at another, nothing is added [default: the
    /// newest]
    #[arg(long, value_name = "VERSION")]
    pub expected: Option<u64>,
}

/// The arguments of `close`.
#[derive(Debug, Args)]
pub struct CloseArgs {
    /// Its id
    pub thread: String,
    /// The way in which the thread goes on or ends
    pub outcome: CloseOutcome,
    /// The token of the lease, THREAD#NUMBER [default: THREADKEEP_TOKEN]
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<LeaseToken>,
    /// The result of a completed thread, any JSON; or of an error: {"code": ..., "message": ...}
    #[arg(long, value_name = "JSON")]
    pub result: Option<String>,
}

/// The outcome of an external loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CloseOutcome {
    /// The thread is idle and takes the next input.
    Idle,
    /// The thread has completed.
    Completed,
    /// The thread has failed.
    Error,
}

impl CloseOutcome {
    /// The name of the outcome.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Completed => "completed",
            Self::Error => "error",
        }
    }
}
