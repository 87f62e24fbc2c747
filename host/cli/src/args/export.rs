//! The arguments of `export`.

use super::ThreadArgs;
use clap::{Args, Subcommand};

/// The arguments of `export`.
#[derive(Debug, Args)]
#[command(after_help = "  threadkeep export html @last > thread.html")]
pub struct ExportArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: ExportCommand,
}

/// A form in which a thread is written for people elsewhere.
#[derive(Debug, Subcommand)]
pub enum ExportCommand {
    /// Write one page for a browser: chain, tree, conversation, money and times
    #[command(after_help = "\
The page stands alone: it loads nothing, runs no script, and says so to the browser. What \
models and tools wrote is text in it and nothing else.

  threadkeep export html @last > thread.html")]
    Html(ThreadArgs),
}
