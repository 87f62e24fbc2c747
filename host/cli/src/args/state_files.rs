//! The arguments of `prune` and `import`.

use super::NewThreadArgs;
use clap::Args;
use std::path::PathBuf;

/// The arguments of `prune`.
#[derive(Debug, Args)]
#[command(after_help = "\
.ai/config/state_persistence.yaml says how many copies are kept, and for how long. What \
--dry-run names, prune removes, and nothing else. Of the store it removes blobs (images, large \
results) that no history and no message has named for a day:

  threadkeep prune --dry-run")]
pub struct PruneArgs {
    /// The ids of the threads; all threads if none is named
    #[arg(value_name = "THREAD")]
    pub threads: Vec<String>,
    /// Name the files and blobs and remove none
    #[arg(long)]
    pub dry_run: bool,
}

/// The arguments of `import`.
#[derive(Debug, Args)]
#[command(after_help = "\
The new thread has the messages of the file as its history, and is idle: `threadkeep resume \
THREAD MESSAGE` goes on. It is of the directive that the file names, if the project has that \
one, else a chat; what the file says of cost stands in a note, and nothing is spent again.

  threadkeep import --state .ai/threads/a/state.json")]
pub struct ImportArgs {
    /// A state.json, or a copy of one from checkpoints.d or archive.d
    #[arg(long, value_name = "FILE")]
    pub state: PathBuf,
    /// A capability of a chat, instead of those in the file; may be repeated
    #[arg(long, value_name = "NAME")]
    pub capability: Vec<String>,
    /// The properties of the new thread; caps that are left out are those of the file.
    #[command(flatten)]
    pub thread: NewThreadArgs,
}
