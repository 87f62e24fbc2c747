//! The names in a project's `.ai/threads` that tell which store it has. The native host and the
//! bundle look for the same ones.

/// The file of a store in SQLite, which only a native host reads.
pub const SQLITE_STORE: &str = "registry.db";

/// The directory of a store of plain files.
pub const FILES_STORE: &str = "store.d";

/// The file that says which store counts while a project has two, because one is copied.
pub const STORE_CHOICE: &str = "current-store";

/// Every name of which one is there if the project has kept threads.
pub const STORE_NAMES: [&str; 3] = [FILES_STORE, SQLITE_STORE, STORE_CHOICE];
