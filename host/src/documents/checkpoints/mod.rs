//! Checkpoints on disk: `state.json`, its copies in `checkpoints.d`, the archive of threads that
//! have ended, and the settings that say when and for how long (docs/checkpoints.md).
//!
//! The component alone decides the content of a checkpoint ([`Tenant::render`]); here is when it is
//! written and what is kept.
//!
//! [`Tenant::render`]: crate::tenant::Tenant::render

mod check;
mod copies;
mod imported_messages;
mod merge_patch;
mod prune;
mod save;
mod settings;
mod state_file;
mod trigger;
mod writer;

pub use copies::{COPIES_DIR, RemovalReason};
pub use prune::{PruneFailure, PruneReport, PrunedFile};
pub use save::{STATE_BYTES_MAX, STATE_FILE, SavedCheckpoint};
pub use settings::{AgeCleanup, CheckpointSettings, CompletionAction, RetryBackoff, SETTINGS_NAME};
pub use state_file::{ImportedHistory, StateFile, StateFileError};
pub use trigger::{SaveTrigger, TriggerSet};
pub use writer::CHECKPOINT_FAILED;
pub(super) use writer::CheckpointWriter;
