//! Checkpoints on disk: `state.json`, its copies in `checkpoints.d`, the archive of threads that
//! have ended, and the settings that say when and for how long (docs/checkpoints.md).
//!
//! The component alone decides the content of a checkpoint ([`Tenant::render`]); here is when it is
//! written and what is kept.
//!
//! [`Tenant::render`]: crate::tenant::Tenant::render

mod check;
mod imported_messages;
mod prune;
mod save;
mod state_file;
mod trigger;
mod writer;

pub use crate::thread_files::{
    AgeCleanup, COPIES_DIR, CheckpointSettings, CompletionAction, RemovalReason, RetryBackoff,
    SETTINGS_NAME, STATE_BYTES_MAX, STATE_FILE, SaveTrigger, TriggerSet,
};
pub use prune::{PruneFailure, PruneReport, PrunedFile};
pub use save::SavedCheckpoint;
pub use state_file::{ImportedHistory, StateFile, StateFileError};
pub(super) use trigger::SaveOccasion;
pub use writer::CHECKPOINT_FAILED;
pub(super) use writer::CheckpointWriter;
