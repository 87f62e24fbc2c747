//! The arguments of `copy`.

use clap::{Args, ValueEnum};

/// The arguments of `copy`.
#[derive(Debug, Args)]
#[command(after_help = "\
The copy is audited and compared before it counts. The store that it replaces is put away in \
.ai/threads/replaced.d and never deleted. No other process may have the project open; stop the \
bundles too, which no lock shows.

  threadkeep copy --to files")]
pub struct CopyArgs {
    /// The kind of store that keeps the threads from then on
    #[arg(long, value_name = "KIND")]
    pub to: DurableStoreKind,
}

/// A kind of store that outlives the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DurableStoreKind {
    /// In `.ai/threads/registry.db`.
    Sqlite,
    /// In plain files in `.ai/threads/store.d`.
    Files,
}
