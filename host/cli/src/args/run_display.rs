//! What `run`, `resume` and `chat` show of a run.

use clap::Args;

/// What is shown of a run beside its replies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub struct RunDisplayArgs {
    /// Show what the model thinks, on standard error; the transcript has it anyway
    #[arg(long)]
    pub show_thinking: bool,
}
