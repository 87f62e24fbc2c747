//! The size of a section's work, and the stores for it.

use cap_std::fs::Dir;
use std::path::Path;
use std::sync::Arc;
use threadkeep::storage::StorageBackend;
use threadkeep::storage::sqlite::{CommitDurability, SqliteOptions, SqliteStore};

/// The size of a section's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchSize {
    /// The least that proves that the section works.
    Trial,
    /// A tenth of the design's numbers.
    Tenth,
    /// The design's numbers.
    Full,
}

impl BenchSize {
    /// Returns the part of `full` for this size.
    pub fn scale_count(self, full: usize) -> usize {
        match self {
            Self::Trial => (full / 10_000).max(20),
            Self::Tenth => full / 10,
            Self::Full => full,
        }
    }

    /// Returns the number of measurements.
    pub fn steps(self, steps: usize) -> usize {
        match self {
            Self::Trial => 4,
            Self::Tenth | Self::Full => steps,
        }
    }
}

/// Creates a store in a folder. It does not wait for the disk: the work grows with a store, the
/// wait does not.
pub fn store(folder: &Path) -> Arc<dyn StorageBackend> {
    let dir = Dir::open_ambient_dir(folder, cap_std::ambient_authority()).expect("a folder");
    let options = SqliteOptions {
        durability: CommitDurability::Normal,
        ..SqliteOptions::local()
    };
    Arc::new(SqliteStore::open(&dir, "bench.db", options).expect("a store"))
}
