//! A directory one of whose operations fails: by a kill, after which no other does anything, or by
//! an error of the system, after which the next ones work. It counts what is done.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use threadkeep_storage::directory::{DirectoryFile, EntryMetadata, FileDirectory};

/// The failure that is planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlannedFailure {
    /// None.
    Never,
    /// The process ends at the operation with this number, from 0, before it has done anything; a
    /// write has done the half.
    KillAt(u64),
    /// The process ends right after this operation: it is done, and nobody is told.
    KillAfter(u64),
    /// This operation fails with this error; a write has done the half.
    ErrorAt(u64, io::ErrorKind),
    /// Every operation of these names fails with this error.
    ErrorAlways(&'static [&'static str], io::ErrorKind),
}

/// The numbers of what was done so far.
#[derive(Debug, Default)]
pub struct DirectoryCounts {
    pub operations: AtomicU64,
    pub bytes_written: AtomicU64,
    pub bytes_read: AtomicU64,
}

/// The directory; its files count as it does.
pub struct FailingDirectory {
    inner: Box<dyn FileDirectory>,
    plan: FailurePlan,
}

#[derive(Debug, Clone)]
struct FailurePlan {
    failure: PlannedFailure,
    counts: Arc<DirectoryCounts>,
}

impl FailingDirectory {
    /// The directory, and its counts.
    pub fn new(
        inner: Box<dyn FileDirectory>,
        failure: PlannedFailure,
    ) -> (Box<Self>, Arc<DirectoryCounts>) {
        let counts: Arc<DirectoryCounts> = Arc::default();
        let plan = FailurePlan {
            failure,
            counts: Arc::clone(&counts),
        };
        (Box::new(Self { inner, plan }), counts)
    }
}

impl FailurePlan {
    /// Does an operation, or its half where it fails.
    fn perform<T>(
        &self,
        name: &str,
        act: impl FnOnce() -> io::Result<T>,
        half: impl FnOnce(),
    ) -> io::Result<T> {
        let number = self.counts.operations.fetch_add(1, Ordering::Relaxed);
        let killed = || io::Error::other("the process was killed");
        match self.failure {
            PlannedFailure::KillAt(at) | PlannedFailure::KillAfter(at) if number > at => {
                Err(killed())
            }
            PlannedFailure::KillAt(at) if number == at => {
                half();
                Err(killed())
            }
            PlannedFailure::KillAfter(at) if number == at => act().and(Err(killed())),
            PlannedFailure::ErrorAt(at, kind) if number == at => {
                half();
                Err(kind.into())
            }
            PlannedFailure::ErrorAlways(names, kind) if names.contains(&name) => Err(kind.into()),
            _ => act(),
        }
    }
}

struct FailingFile {
    inner: Box<dyn DirectoryFile>,
    plan: FailurePlan,
}

impl FailingDirectory {
    fn wrap(&self, file: io::Result<Box<dyn DirectoryFile>>) -> io::Result<Box<dyn DirectoryFile>> {
        let plan = self.plan.clone();
        Ok(Box::new(FailingFile { inner: file?, plan }))
    }
}

impl FileDirectory for FailingDirectory {
    fn open(&self, name: &str) -> io::Result<Box<dyn DirectoryFile>> {
        self.wrap(self.plan.perform("open", || self.inner.open(name), || ()))
    }

    fn create_new(&self, name: &str) -> io::Result<Box<dyn DirectoryFile>> {
        let act = || self.inner.create_new(name);
        self.wrap(self.plan.perform("create", act, || ()))
    }

    fn hard_link(&self, name: &str, second: &str) -> io::Result<()> {
        let act = || self.inner.hard_link(name, second);
        self.plan.perform("link", act, || ())
    }

    fn rename(&self, name: &str, new_name: &str) -> io::Result<()> {
        let act = || self.inner.rename(name, new_name);
        self.plan.perform("rename", act, || ())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.plan
            .perform("remove", || self.inner.remove(name), || ())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.plan.perform("list", || self.inner.list(), || ())
    }

    fn metadata(&self, name: &str) -> io::Result<EntryMetadata> {
        let act = || self.inner.metadata(name);
        self.plan.perform("metadata", act, || ())
    }

    fn sync(&self) -> io::Result<()> {
        self.plan.perform("sync", || self.inner.sync(), || ())
    }
}

impl DirectoryFile for FailingFile {
    fn read_at(&mut self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let inner = &mut self.inner;
        let read = self
            .plan
            .perform("read", || inner.read_at(offset, bytes), || ())?;
        let count = &self.plan.counts.bytes_read;
        count.fetch_add(read.len() as u64, Ordering::Relaxed);
        Ok(read)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let plan = self.plan.clone();
        let inner = std::cell::RefCell::new(&mut self.inner);
        let half = || {
            let _ = inner.borrow_mut().append(&bytes[..bytes.len() / 2]);
        };
        let count = &plan.counts.bytes_written;
        count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        plan.perform("write", || inner.borrow_mut().append(bytes), half)
    }

    fn size(&mut self) -> io::Result<u64> {
        let inner = &mut self.inner;
        self.plan.perform("size", || inner.size(), || ())
    }

    fn sync(&mut self) -> io::Result<()> {
        let inner = &mut self.inner;
        self.plan.perform("sync", || inner.sync(), || ())
    }
}
