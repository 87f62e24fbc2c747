//! The service compiled natively over a host's storage: the same core without the component around it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use threadkeep::clock::Clock;
use threadkeep::library::{Library, LibraryError as HostLibraryError};
use threadkeep::storage::{self, Key, Op, Outcome, Storage};
use threadkeep_component::ports::{Item, LibraryError, Page, Ports, StorageError};
use threadkeep_core::plan::{Expect, Write};
use threadkeep_core::time::Instant;

/// Ports over a host's own traits. Random bytes are a counter, so that a seed repeats a history exactly.
pub struct Native {
    /// The store.
    pub storage: Arc<dyn Storage>,
    /// The files.
    pub library: Arc<dyn Library>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    random: AtomicU64,
}

impl Native {
    /// Ports whose random bytes count from `seed`.
    pub fn new(
        storage: Arc<dyn Storage>,
        library: Arc<dyn Library>,
        clock: Arc<dyn Clock>,
        seed: u64,
    ) -> Self {
        Self {
            storage,
            library,
            clock,
            random: AtomicU64::new(seed),
        }
    }
}

impl Ports for Native {
    fn get(&self, keys: &[(&str, &str)]) -> Result<Vec<Item>, StorageError> {
        let keys: Vec<Key> = keys
            .iter()
            .map(|(collection, name)| Key::new(*collection, *name))
            .collect();
        let items = self.storage.get(&keys).map_err(storage_error)?;
        Ok(items.into_iter().map(item).collect())
    }

    fn scan(
        &self,
        collection: &str,
        start: &str,
        end: &str,
        limit: u32,
        reverse: bool,
    ) -> Result<Page, StorageError> {
        let page = self
            .storage
            .scan(collection, start, end, limit, reverse)
            .map_err(storage_error)?;
        Ok(Page {
            items: page.items.into_iter().map(item).collect(),
            cursor: page.cursor,
        })
    }

    fn read_history(
        &self,
        partition: &str,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<(u64, String)>, StorageError> {
        let lines = self
            .storage
            .read_log("history", partition, start, limit, reverse)
            .map_err(storage_error)?;
        Ok(lines
            .into_iter()
            .map(|line| (line.position, line.value))
            .collect())
    }

    fn commit(&self, writes: Vec<Write>, closing: bool) -> Result<bool, StorageError> {
        let ops: Vec<Op> = writes.into_iter().map(op).collect();
        match self.storage.commit(&ops, closing).map_err(storage_error)? {
            Outcome::Committed => Ok(true),
            Outcome::Conflict(_) => Ok(false),
        }
    }

    fn now(&self) -> Instant {
        let now = self.clock.now();
        Instant {
            seconds: now.seconds,
            nanos: now.nanos,
        }
    }

    fn random(&self, bytes: u32) -> String {
        let n = self.random.fetch_add(1, Ordering::Relaxed);
        format!("{n:0width$x}", width = bytes as usize * 2)
    }

    fn library(&self, kind: &str, name: &str) -> Result<Vec<String>, LibraryError> {
        self.library.get(kind, name).map_err(|error| match error {
            HostLibraryError::Invalid {
                place,
                value,
                problem,
                nearest,
            } => LibraryError::Invalid {
                field: place,
                value,
                problem,
                nearest,
            },
            HostLibraryError::Unavailable { message } => {
                LibraryError::Unavailable("library".to_owned(), message)
            }
            HostLibraryError::Other { code, message } => {
                LibraryError::Other(code.to_owned(), message)
            }
        })
    }
}

fn item(item: storage::Item) -> Item {
    Item {
        collection: item.key.collection,
        name: item.key.name,
        version: item.version,
        value: item.value,
    }
}

fn op(write: Write) -> Op {
    match write {
        Write::Put {
            collection,
            key,
            expect,
            value,
        } => Op::Put {
            key: Key::new(collection, key),
            expect: match expect {
                Expect::Any => storage::Expect::Any,
                Expect::Absent => storage::Expect::Absent,
                Expect::Version(version) => storage::Expect::Version(version),
            },
            value,
        },
        Write::Delete { collection, key } => Op::Delete {
            key: Key::new(collection, key),
        },
        Write::Append {
            partition,
            at,
            value,
        } => Op::Append {
            log: "history".to_owned(),
            partition,
            at,
            value,
        },
    }
}

fn storage_error(error: storage::StorageError) -> StorageError {
    let (code, message) = (String::new(), error.to_string());
    match error {
        storage::StorageError::Unavailable { .. } => StorageError::Unavailable(code, message),
        storage::StorageError::OutcomeUnknown { .. } => StorageError::OutcomeUnknown(code, message),
        storage::StorageError::QuotaExceeded { .. } => StorageError::QuotaExceeded(code, message),
        storage::StorageError::TooLarge { .. } => StorageError::TooLarge(code, message),
        storage::StorageError::Corrupt { .. } => StorageError::Corrupt(code, message),
        storage::StorageError::Other { .. } => StorageError::Other(code, message),
    }
}
