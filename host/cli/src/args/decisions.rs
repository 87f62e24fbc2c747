//! The arguments of `approve`, `deny` and `answer`, which decide about calls that wait for it.

use clap::Args;

/// The arguments of `approve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without CALL the only call that waits is meant. `threadkeep show` names those that wait, with \
their arguments.

  threadkeep approve mail-1771322456000-a1b2c3 call_7_0 --note 'Only to this address.'")]
pub struct ApproveArgs {
    /// The thread and its calls.
    #[command(flatten)]
    pub decided: DecidedArgs,
}

/// The arguments of `deny`.
#[derive(Debug, Args)]
#[command(after_help = "\
The model is told that the call was denied, with the note, and goes on without it.

  threadkeep deny mail-1771322456000-a1b2c3 --note 'Not on a Sunday.'")]
pub struct DenyArgs {
    /// The thread and its calls.
    #[command(flatten)]
    pub decided: DecidedArgs,
}

/// The arguments that an approval and a denial share.
#[derive(Debug, Args)]
pub struct DecidedArgs {
    /// Its id
    pub thread: String,
    /// The calls, such as call_7_0; without one the only call that waits
    #[arg(value_name = "CALL")]
    pub calls: Vec<String>,
    /// All calls that wait now
    #[arg(long, conflicts_with = "calls")]
    pub all: bool,
    /// A note that stays in the history; the model is told that of a denial
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
    /// Decide and do not go on: `threadkeep resume` does
    #[arg(long)]
    pub no_run: bool,
}

/// The arguments of `answer`.
#[derive(Debug, Args)]
#[command(
    override_usage = "threadkeep answer <THREAD> [CALL] <TEXT> [--no-run]",
    after_help = "\
The call is not run: the text is its result.

  threadkeep answer mail-1771322456000-a1b2c3 'Send it to the whole list.'"
)]
pub struct AnswerArgs {
    /// Its id
    pub thread: String,
    /// The call, such as call_7_0, unless one waits alone; and the text
    #[arg(value_name = "CALL TEXT", num_args = 1..=2, required = true)]
    pub words: Vec<String>,
    /// Decide and do not go on: `threadkeep resume` does
    #[arg(long)]
    pub no_run: bool,
}

impl AnswerArgs {
    /// Returns the call that is named, if one is, and the text.
    pub fn into_parts(self) -> (Vec<String>, String) {
        let mut words = self.words;
        let text = words.pop().unwrap_or_default();
        (words, text)
    }
}
