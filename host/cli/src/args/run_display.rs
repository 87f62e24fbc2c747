//! The output of `run`, `resume` and `chat` beside the replies.

use clap::Args;

/// The output of a run beside its replies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub struct RunDisplayArgs {
    /// Show what the model thinks, on standard error; the transcript has it anyway
    #[arg(long)]
    pub show_thinking: bool,
}
