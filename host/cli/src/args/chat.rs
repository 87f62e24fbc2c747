//! The arguments of `chat`.

use super::{NewThreadArgs, RunDisplayArgs};
use clap::Args;
use std::path::PathBuf;

/// The arguments of `chat`.
#[derive(Debug, Args)]
#[command(after_help = "\
On a terminal: arrow keys edit and recall, a paste of several lines is one message, a line that
ends with a backslash goes on in the next one, and /help says what else there is. Ctrl-C stops a
reply and drops what was typed ahead; twice it leaves.

A file or a pipe is one message; with --each-line each of its lines is one. With --json each
message gets one document, on one line.

  threadkeep chat --capability 'execute.tool.*'
  echo 'What is a lease?' | threadkeep chat
  threadkeep chat --each-line < questions.txt")]
pub struct ChatArgs {
    /// The chat to go on with, instead of a new one
    pub thread: Option<String>,
    /// A capability of a new chat, such as execute.tool.read_file or execute.tool.*; may be
    /// repeated
    #[arg(long, value_name = "NAME")]
    pub capability: Vec<String>,
    /// An image that the first message shows to the model (png, jpeg, gif or webp); may be repeated
    #[arg(long, value_name = "FILE")]
    pub image: Vec<PathBuf>,
    /// Take each line of a file or a pipe for a message, instead of all of it for one
    #[arg(long)]
    pub each_line: bool,
    /// What is shown of the runs.
    #[command(flatten)]
    pub display: RunDisplayArgs,
    /// The properties of a new chat.
    #[command(flatten)]
    pub new: NewThreadArgs,
}
