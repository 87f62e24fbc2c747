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

/// The problem of a project in which nothing says which of two stores counts.
pub const TWO_STORES: &str = "the project has two stores, .ai/threads/registry.db and \
                              .ai/threads/store.d: move away the one that does not count, or name \
                              the other";

/// The stores that `.ai/threads` has, by their names alone: an empty file counts as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundStores {
    /// None yet.
    Nothing,
    /// That in SQLite.
    Sqlite,
    /// That of plain files.
    Files,
    /// Both: [`STORE_CHOICE`] says which counts, or the person who runs a command.
    Both,
}

impl FoundStores {
    /// Looks for the stores; `is_there` tells whether an entry of this name is in `.ai/threads`.
    pub fn look(is_there: impl Fn(&str) -> bool) -> Self {
        match (is_there(SQLITE_STORE), is_there(FILES_STORE)) {
            (false, false) => Self::Nothing,
            (true, false) => Self::Sqlite,
            (false, true) => Self::Files,
            (true, true) => Self::Both,
        }
    }
}
