//! The arguments of `init`.

use clap::Args;

/// The arguments of `init`, which takes the options of every command alone.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
Writes a directive, a model table with a comment for each key that is set in the environment, and a
line in .gitignore for .ai/threads. What is there stays as it is, so it may be repeated. No key is
written anywhere.

  threadkeep init
  threadkeep init --project notes")]
pub struct InitArgs {}
