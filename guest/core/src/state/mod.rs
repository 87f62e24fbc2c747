//! The state of a thread: one JSON document in three scopes, and its changes: patches (RFC 6902),
//! operations that commute, and whole documents.
//!
//! Invariants: a change is applied when it is appended, so no stored change can fail when it is
//! applied again; its document can be stored and read (nesting, names, size). Applied to the same
//! document, a change makes the same text, byte for byte.
//!
//! Not here: records, heads and entries, and when a scope is emptied (`thread`, `history`, `plan`).

mod change;
mod crossing;
mod document;
mod edits;
mod operation;
mod patch;
mod patch_size;
mod pointer;
mod scope;
mod storable;

pub use change::StateChange;
pub use crossing::find_crossing;
pub use document::StateDocument;
pub use edits::{
    EDITS_BYTES_MAX, EditRefusal, OPERATIONS_MAX, ScopedOperation, ScopedPatch, StateEdits,
    StateSnapshot,
};
pub use operation::OperationKind;
pub use patch::{PatchRefusal, apply_patch};
pub use patch_size::{PATCH_COPIED_BYTES_MAX, PatchSize};
pub use pointer::{JsonPointer, POINTER_BYTES_MAX};
pub use scope::StateScope;
pub use storable::{STATE_BYTES_MAX, STATE_DEPTH_MAX, find_excess_depth};
