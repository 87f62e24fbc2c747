//! How much a section works with, and stores to work in.

use cap_std::fs::Dir;
use std::path::Path;
use std::sync::Arc;
use threadkeep::storage::Storage;
use threadkeep::storage::sqlite::{Durability, SqliteOptions, SqliteStore};

/// How much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// As little as shows that it works.
    Trial,
    /// A tenth of what the design names.
    Tenth,
    /// What the design names.
    Full,
}

impl Size {
    /// Part of `full`.
    pub fn of(self, full: usize) -> usize {
        match self {
            Self::Trial => (full / 10_000).max(20),
            Self::Tenth => full / 10,
            Self::Full => full,
        }
    }

    /// How often something is measured.
    pub fn steps(self, steps: usize) -> usize {
        match self {
            Self::Trial => 4,
            Self::Tenth | Self::Full => steps,
        }
    }
}

/// A new store in a folder. It does not wait for the disk: what grows with a store is the work, not the wait.
pub fn store(folder: &Path) -> Arc<dyn Storage> {
    let dir = Dir::open_ambient_dir(folder, cap_std::ambient_authority()).expect("a folder");
    let options = SqliteOptions {
        durability: Durability::Normal,
        ..SqliteOptions::local()
    };
    Arc::new(SqliteStore::open(&dir, "bench.db", options).expect("a store"))
}
