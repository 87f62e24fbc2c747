//! Runs the service compiled natively over a host's storage: the same core without the component
//! around it.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use threadkeep::component::{RandomSource, RandomUnavailable, TenantContext};
use threadkeep::library::LibraryError as HostLibraryError;
use threadkeep::storage::{self, CommitOp, CommitOutcome, RecordKey};
use threadkeep_component::ports::{
    HostPorts, LibraryError, RecordDamage, ScanPage, StorageError, StoredItem,
};
use threadkeep_core::plan::{StoreWrite, WriteCondition};
use threadkeep_core::time::UnixTime;

/// Ports over a host's context.
pub struct NativePorts {
    context: TenantContext,
}

impl NativePorts {
    /// Ports over the context that a tenant's component would use.
    pub fn new(context: TenantContext) -> Self {
        Self { context }
    }

    /// The host's context.
    pub fn context(&self) -> &TenantContext {
        &self.context
    }
}

/// Random bytes that count up, so that a seed repeats a history exactly.
#[derive(Debug, Default)]
pub struct CountingRandom {
    next: AtomicU64,
}

impl RandomSource for CountingRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomUnavailable> {
        let n = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let digits = n.to_be_bytes();
        let kept = bytes.len().min(digits.len());
        let start = bytes.len() - kept;
        bytes.fill(0);
        bytes[start..].copy_from_slice(&digits[digits.len() - kept..]);
        Ok(())
    }
}

impl HostPorts for NativePorts {
    fn get(&self, keys: &[(&str, &str)]) -> Result<Vec<StoredItem>, StorageError> {
        let keys: Vec<RecordKey> = keys
            .iter()
            .map(|(collection, name)| RecordKey::new(*collection, *name))
            .collect();
        let items = self.context.storage.get(&keys).map_err(storage_error)?;
        Ok(items.into_iter().map(item).collect())
    }

    fn scan(
        &self,
        collection: &str,
        start: &str,
        end: &str,
        limit: u32,
        reverse: bool,
    ) -> Result<ScanPage, StorageError> {
        let page = self
            .context
            .storage
            .scan(collection, start, end, limit, reverse)
            .map_err(storage_error)?;
        let damaged = page.damaged.into_iter();
        Ok(ScanPage {
            items: page.items.into_iter().map(item).collect(),
            damaged: damaged
                .map(|item| (item.name, record_damage(item.message)))
                .collect(),
            cursor: page.cursor,
        })
    }

    fn read_log(
        &self,
        log: &str,
        partition: &str,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<(u64, String)>, StorageError> {
        let lines = self
            .context
            .storage
            .read_log(log, partition, start, limit, reverse)
            .map_err(storage_error)?;
        Ok(lines
            .into_iter()
            .map(|line| (line.position, line.value))
            .collect())
    }

    fn commit(&self, writes: Vec<StoreWrite>, closing: bool) -> Result<bool, StorageError> {
        let ops: Vec<CommitOp> = writes.into_iter().map(op).collect();
        match self
            .context
            .storage
            .commit(&ops, closing)
            .map_err(storage_error)?
        {
            CommitOutcome::Committed => Ok(true),
            CommitOutcome::Conflict => Ok(false),
        }
    }

    fn now(&self) -> UnixTime {
        let now = self.context.clock.now();
        UnixTime {
            seconds: now.seconds,
            nanos: now.nanos,
        }
    }

    fn random(&self, bytes: u32) -> String {
        let mut buffer = vec![0; bytes as usize];
        self.context
            .random
            .fill(&mut buffer)
            .expect("random numbers");
        buffer.iter().fold(String::new(), |mut hex, byte| {
            // Writing to a String cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }

    fn library(&self, kind: &str, names: &[&str]) -> Result<Vec<Option<String>>, LibraryError> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let documents = self.context.library.documents(kind, &names);
        documents.map_err(library_error)
    }

    fn library_names(&self, kind: &str) -> Result<Vec<String>, LibraryError> {
        self.context.library.names(kind).map_err(library_error)
    }
}

fn library_error(error: HostLibraryError) -> LibraryError {
    match error {
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
        HostLibraryError::Other { code, message } => LibraryError::Other(code.to_owned(), message),
    }
}

fn record_damage(message: String) -> RecordDamage {
    RecordDamage {
        code: "damaged".to_owned(),
        message,
    }
}

fn item(item: storage::StoredRecord) -> StoredItem {
    StoredItem {
        collection: item.key.collection,
        name: item.key.name,
        version: item.version,
        value: item.value,
    }
}

fn op(write: StoreWrite) -> CommitOp {
    match write {
        StoreWrite::Check {
            collection,
            key,
            expect,
        } => CommitOp::Check {
            key: RecordKey::new(collection, key),
            expect: record_expectation(expect),
        },
        StoreWrite::Put {
            collection,
            key,
            expect,
            value,
        } => CommitOp::Put {
            key: RecordKey::new(collection, key),
            expect: record_expectation(expect),
            value,
        },
        StoreWrite::Delete { collection, key } => CommitOp::Delete {
            key: RecordKey::new(collection, key),
        },
        StoreWrite::Append {
            log,
            partition,
            at,
            value,
        } => CommitOp::Append {
            log: log.to_owned(),
            partition,
            at,
            value,
        },
        StoreWrite::Trim {
            log,
            partition,
            below,
        } => CommitOp::Trim {
            log: log.to_owned(),
            partition,
            below,
        },
    }
}

fn record_expectation(expect: WriteCondition) -> storage::RecordExpectation {
    match expect {
        WriteCondition::Any => storage::RecordExpectation::Any,
        WriteCondition::Absent => storage::RecordExpectation::Absent,
        WriteCondition::Version(version) => storage::RecordExpectation::Version(version),
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
