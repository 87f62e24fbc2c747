//! The arguments of `top`.

use super::duration;
use clap::Args;
use std::time::Duration;

/// The shortest time between two looks: a screen is not read faster, and each look takes work.
const EVERY_MIN: Duration = Duration::from_millis(100);

fn refresh_time(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time < EVERY_MIN {
        return Err(format!("the shortest time is {} ms", EVERY_MIN.as_millis()));
    }
    Ok(time)
}

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
    #[arg(long, value_name = "TIME", value_parser = refresh_time, default_value = "2s")]
    pub every: Duration,
}
