//! Storage of one tenant: the trait, its types and its checks are the crate `threadkeep-storage`,
//! which is for the bundle under WASI as well; here is the backend that only a native host has.

pub(crate) mod deadline;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use threadkeep_storage::*;
