//! A store of plain files, for hosts without SQLite and for the bundle under WASI: to about 100,000
//! log entries.
//!
//! **A commit is an immutable file** under a number that only grows. Its writer makes it under a
//! temporary name, makes it durable, and links it as the next number, which fails if that number
//! exists. So of two writers one is first; the other reads that commit, checks its conditions
//! again, and tries the next number. There are no locks: any number of processes may use one
//! directory, native and under WASI mixed, and one that dies or is stopped holds nobody up.
//!
//! **Old commits are packed** unchanged into segments ([`segment`]), which are never rewritten, and
//! their files are deleted, lowest first. A snapshot holds the records ([`snapshot`]), so that
//! opening a store reads one snapshot and what came after it.
//!
//! **The base check.** A number that is free again because its file was deleted looks like the next
//! number to a process that was stopped for long. Therefore what a view read is believed, and a
//! commit acknowledged, only if the file of the commit that the view ended with before is still
//! there afterwards, with the same writer's name: files are deleted lowest first, so no later
//! number can have been freed then. Otherwise the store is opened anew, and what was just linked is
//! looked for.

mod commit_text;
mod compaction;
mod file_name;
mod opening;
mod protocol;
mod segment;
mod snapshot;
mod store;
mod view;

pub use protocol::{PlantedFault, SegmentLayout};
pub use store::{FilesOptions, FilesStore, FilesUsage};

use crate::StorageError;
use crate::check::other_error;
use std::io;

/// The place of a log entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EntryPlace {
    /// The commit that added it.
    commit: u64,
    /// Place of its value in the commit.
    offset: u32,
    /// Bytes of its value.
    bytes: u32,
}

impl EntryPlace {
    /// A place in a commit, whose bytes are far below 2^32.
    fn new(commit: u64, offset: usize, bytes: usize) -> Self {
        Self {
            commit,
            offset: offset as u32,
            bytes: bytes as u32,
        }
    }
}

/// A failure with the files of a store.
#[derive(Debug)]
enum StoreFault {
    /// The view is older than what was deleted since: open the store anew.
    Stale,
    /// The file system.
    Io {
        /// The file or the act.
        place: String,
        source: io::Error,
    },
    /// An error that the caller is told as it is.
    Told(StorageError),
}

impl StoreFault {
    fn corrupt(message: String) -> Self {
        Self::Told(StorageError::Corrupt { message })
    }

    /// A file of a later version of this program.
    fn newer(name: &str, format: u32) -> Self {
        Self::Told(other_error(
            "newer-format",
            format!(
                "{name} has format {format}, and this program knows format {}: use a newer \
                 threadkeep",
                commit_text::FORMAT
            ),
        ))
    }

    fn io(place: &str, source: io::Error) -> Self {
        let place = place.to_owned();
        Self::Io { place, source }
    }

    /// True if a file is missing: perhaps it was packed and deleted since.
    fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

impl From<StoreFault> for StorageError {
    fn from(fault: StoreFault) -> Self {
        match fault {
            StoreFault::Told(error) => error,
            StoreFault::Stale => Self::Unavailable {
                message: "the files of the store are being packed: try again".to_owned(),
            },
            StoreFault::Io { place, source } => match source.kind() {
                // Every host has other words for it.
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Unavailable {
                    message: format!("the disk is full: free space on it ({place})"),
                },
                io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => other_error(
                    "read-only",
                    format!("the directory of the store cannot be written ({place}: {source})"),
                ),
                _ => Self::Unavailable {
                    message: format!("{place}: {source}"),
                },
            },
        }
    }
}
