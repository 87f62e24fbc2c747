//! The arguments of the commands that read a thread at a version, and of `fork`, which begins one
//! there.

use super::CapArgs;
use clap::{Args, ValueEnum};

/// Most events that `show` gives at once.
pub const EVENTS_MAX: u32 = 100;

/// Most turns that `transcript --last` gives: a longer part is the whole, or begins at a version.
const LAST_MAX: u32 = 1_000;

/// Most versions that `checkpoints` lists at once.
pub const CHECKPOINTS_MAX: u32 = 1_000;

/// The arguments of `show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Its id
    pub thread: String,
    /// The number of its last events, at most 100
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(0..=i64::from(EVENTS_MAX))
    )]
    pub events: u32,
    /// Its last events up to this version, instead of the newest
    #[arg(long, value_name = "VERSION")]
    pub at: Option<u64>,
    /// Show times in UTC, not as the time that has passed
    #[arg(long)]
    pub utc: bool,
}

/// The arguments of `transcript`.
#[derive(Debug, Args)]
pub struct TranscriptArgs {
    /// Its id
    pub thread: String,
    /// The format of the transcript
    #[arg(long, value_name = "FORMAT", default_value = "markdown")]
    pub format: TranscriptFormat,
    /// Up to this version, instead of the newest
    #[arg(long, value_name = "VERSION")]
    pub at: Option<u64>,
    /// Its last N turns alone: model replies, and messages to it
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(LAST_MAX))
    )]
    pub last: Option<u32>,
    /// Go on with what is added, until nobody runs the thread any more
    #[arg(long, short = 'f', conflicts_with = "at")]
    pub follow: bool,
}

/// Formats of a transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TranscriptFormat {
    /// Markdown, for people.
    Markdown,
    /// JSON lines: a manifest, then one event a line.
    Jsonl,
    /// The state document.
    State,
}

impl TranscriptFormat {
    /// The name of the format.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Markdown => "markdown",
            Self::Jsonl => "jsonl",
            Self::State => "state",
        }
    }
}

/// The arguments of `state`.
#[derive(Debug, Args)]
#[command(after_help = "\
The document has an object for each scope: `thread` is kept, `run` is emptied where the next \
run begins, `tool_call` has an object for each open call. `threadkeep append` and tools change \
it.")]
pub struct StateArgs {
    /// Its id
    pub thread: String,
    /// As it was at this version, instead of the newest
    #[arg(long, value_name = "VERSION")]
    pub at: Option<u64>,
}

/// The arguments of `checkpoints`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each commit of a thread is one. `show` and `transcript` take a version as --at, and `fork` \
begins a new thread there.")]
pub struct CheckpointsArgs {
    /// Its id
    pub thread: String,
    /// The number of versions, 1 to 1000
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(CHECKPOINTS_MAX))
    )]
    pub limit: u32,
    /// Begin with this version, instead of the newest
    #[arg(long, value_name = "VERSION")]
    pub at: Option<u64>,
    /// Show times in UTC, not as the time that has passed
    #[arg(long)]
    pub utc: bool,
}

/// The arguments of `fork`.
#[derive(Debug, Args)]
#[command(after_help = "\
The new thread rests on the entries of the other up to the version, and has an account, caps \
and counters of its own. Neither sees what the other does from there on. A fork of a chat is \
idle; that of a directive's thread is suspended until `threadkeep resume`. The id alone goes \
to standard output:

  threadkeep checkpoints THREAD
  fork=$(threadkeep fork THREAD --at 7)")]
pub struct ForkArgs {
    /// The id of the thread that it is to begin as
    pub thread: String,
    /// The version at which it is to begin, instead of the newest
    #[arg(long, value_name = "VERSION")]
    pub at: Option<u64>,
    /// A title for people, instead of that of the other thread
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// Its owner, instead of that of the other thread
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// A task of yours, instead of that of the other thread
    #[arg(long, value_name = "NAME")]
    pub task: Option<String>,
    /// Caps, at most the operator's; those that are left out are as the other thread began.
    #[command(flatten)]
    pub caps: CapArgs,
}
