//! The arguments of `top`.

use super::duration;
use clap::Args;
use std::time::Duration;

/// The arguments of `top`.
#[derive(Debug, Args)]
#[command(after_help = "\
The newest threads, or one with all that it spawned, as they change. q ends it;
arrows and pages move. It needs a terminal: `list` and `tree` print the same.

  threadkeep top family --every 1s")]
pub struct TopArgs {
    /// A thread, with all that it spawned, instead of the newest threads
    pub thread: Option<String>,
    /// The time after which the threads are looked at again
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "2s")]
    pub every: Duration,
}
