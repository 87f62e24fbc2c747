//! The arguments of `open`, `append` and `close`, for a loop outside of the runner.

use super::duration;
use crate::token::LeaseToken;
use clap::{Args, ValueEnum};
use std::time::Duration;

/// Default time for which `open` holds a thread.
pub(super) const HOLD_TIME_DEFAULT: &str = "10m";

/// The arguments of `open`.
#[derive(Debug, Args)]
#[command(after_help = "\
The token alone goes to standard output:

  export THREADKEEP_TOKEN=$(threadkeep open my-chat)
  echo '{\"type\": \"message\", \"role\": \"user\", \"content\": \"Hello.\"}' | threadkeep append \
  my-chat
  threadkeep close my-chat idle")]
pub struct OpenArgs {
    /// Its id
    pub thread: String,
    /// The time to hold it, at most 1h: after it another process may end the hold
    #[arg(
        long = "for",
        value_name = "TIME",
        value_parser = duration,
        default_value = HOLD_TIME_DEFAULT
    )]
    pub time: Duration,
}

/// The arguments of `append`.
#[derive(Debug, Args)]
#[command(after_help = "\
All lines are one commit. Messages that were sent to the thread meanwhile are taken with it and \
printed, one a line.
Without a token, events can be added to a thread that nobody holds.

  echo '{\"type\": \"message\", \"role\": \"user\", \"content\": \"Hello.\"}' | threadkeep append \
  my-chat")]
pub struct AppendArgs {
    /// Its id
    pub thread: String,
    /// The token of a hold, THREAD#NUMBER [default: THREADKEEP_TOKEN, if it is set]
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
    /// The outcome of the hold
    pub outcome: CloseOutcome,
    /// The token of the hold, THREAD#NUMBER [default: THREADKEEP_TOKEN]
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<LeaseToken>,
    /// The result of a completed thread, any JSON; or of an error: {"code": ..., "message": ...}
    #[arg(long, value_name = "JSON")]
    pub result: Option<String>,
}

/// The outcome of a hold.
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
