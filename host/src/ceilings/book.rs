//! Storage of the totals that a tenant has used: in memory, or in a file of the operator that
//! outlives the process.

use super::CeilingRefusal;
use crate::authority::{self, AuthorityError};
use cap_std::fs::{Dir, OpenOptions};
use serde::{Deserialize, Serialize};
use std::fs::TryLockError;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use threadkeep_storage::locks::SleepingMutex;

/// Largest size of a book's file, which holds a few numbers.
const BOOK_BYTES_MAX: u64 = 4 << 10;
/// Longest wait for the lock of a book. A change takes milliseconds, so a longer wait means that
/// the locking process stands still; a refused call can be tried again, a hanging one cannot.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(4);
/// Longest wait after a wait in vain, until one succeeds: otherwise hundreds of calls would each
/// wait the full time, one after another.
const LOCK_WAIT_STUCK_MAX: Duration = Duration::from_millis(100);
/// Pause before a held lock is tried again: about the time of one change.
const LOCK_POLL: Duration = Duration::from_millis(5);

/// Totals that a tenant has used since its book was begun. A call under way is counted with the
/// most that it can come to; so is a call whose process died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UsageTotals {
    /// Nano-USD spent on models.
    pub spend_nanos: u64,
    /// Model calls of unknown cost, because the operator has no price for the model.
    pub unpriced_calls: u64,
    /// Model calls.
    pub model_calls: u64,
    /// Bytes to and from models.
    pub model_bytes: u64,
    /// Tool calls.
    pub tool_calls: u64,
    /// Bytes of arguments and results.
    pub tool_bytes: u64,
}

impl UsageTotals {
    fn fields_mut(&mut self) -> [&mut u64; 6] {
        let Self {
            spend_nanos,
            unpriced_calls,
            model_calls,
            model_bytes,
            tool_calls,
            tool_bytes,
        } = self;
        [
            spend_nanos,
            unpriced_calls,
            model_calls,
            model_bytes,
            tool_calls,
            tool_bytes,
        ]
    }

    /// Adds as much as fits and returns what was added.
    pub(super) fn add(&mut self, mut more: Self) -> Self {
        for (total, more) in self.fields_mut().into_iter().zip(more.fields_mut()) {
            *more = (*more).min(u64::MAX - *total);
            *total += *more;
        }
        more
    }

    /// Replaces the amounts added for a call by its actual amounts.
    pub(super) fn replace(&mut self, mut held: Self, mut actual: Self) {
        let pairs = held.fields_mut().into_iter().zip(actual.fields_mut());
        for (total, (held, actual)) in self.fields_mut().into_iter().zip(pairs) {
            *total = total.saturating_sub(*held).saturating_add(*actual);
        }
    }
}

/// Stores the used totals. An embedder implements it to keep them in a database.
pub trait UsageBook: Send + Sync {
    /// The totals used so far.
    ///
    /// # Errors
    /// If they cannot be read.
    fn read_totals(&self) -> Result<UsageTotals, CeilingRefusal>;

    /// Changes the totals exclusively: no other change happens meanwhile. If `change` refuses,
    /// nothing changes. The change is durable, where the book is, when this returns. `change` may
    /// be called again from the start, as a transaction may.
    ///
    /// # Errors
    /// The refusal of `change`, or a refusal because the totals cannot be stored.
    fn change(
        &self,
        change: &mut dyn FnMut(&mut UsageTotals) -> Result<(), CeilingRefusal>,
    ) -> Result<(), CeilingRefusal>;

    /// True if a change may wait for a disk, a lock or a network. It is then made on a thread for
    /// blocking work, one change of a guard at a time, and never on a thread of the async runtime.
    fn may_block(&self) -> bool {
        true
    }
}

/// A book that ends with the process. [`UsageBook::read_totals`] is the snapshot from which a later
/// process may continue.
#[derive(Debug, Default)]
pub struct InMemoryBook(SleepingMutex<UsageTotals>);

impl InMemoryBook {
    /// A book that continues from totals used before.
    pub fn from_totals(used: UsageTotals) -> Self {
        Self(SleepingMutex::new(used))
    }
}

impl UsageBook for InMemoryBook {
    fn read_totals(&self) -> Result<UsageTotals, CeilingRefusal> {
        Ok(*self.0.lock())
    }

    fn change(
        &self,
        change: &mut dyn FnMut(&mut UsageTotals) -> Result<(), CeilingRefusal>,
    ) -> Result<(), CeilingRefusal> {
        let mut kept = self.0.lock();
        let mut used = *kept;
        change(&mut used)?;
        *kept = used;
        Ok(())
    }

    fn may_block(&self) -> bool {
        false
    }
}

/// A book in a JSON file, shared by all processes that name it. Every change is read, made and
/// written under a lock file beside it, and is durable before the call that it admits is sent.
#[derive(Debug)]
pub struct FileBook {
    dir: Dir,
    name: String,
    lock_wait_max: Duration,
    /// True if the last wait for the lock was in vain.
    last_wait_failed: AtomicBool,
}

impl FileBook {
    /// The book of this name in a directory that no tenant can write. The first change makes the
    /// file.
    pub fn new(dir: Dir, name: &str) -> Self {
        Self {
            dir,
            name: name.to_owned(),
            lock_wait_max: LOCK_WAIT_MAX,
            last_wait_failed: AtomicBool::new(false),
        }
    }

    /// Locks the book against other processes; the lock ends with the handle.
    fn lock(&self) -> io::Result<std::fs::File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true);
        let name = format!("{}.lock", self.name);
        let lock = authority::open_private(&self.dir, &name, options)?.into_std();
        let longest = match self.last_wait_failed.load(Ordering::Relaxed) {
            true => LOCK_WAIT_STUCK_MAX.min(self.lock_wait_max),
            false => self.lock_wait_max,
        };
        let begun = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => {
                    self.last_wait_failed.store(false, Ordering::Relaxed);
                    return Ok(lock);
                }
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if begun.elapsed() < longest => {
                    std::thread::sleep(LOCK_POLL);
                }
                Err(TryLockError::WouldBlock) => {
                    self.last_wait_failed.store(true, Ordering::Relaxed);
                    let problem = format!(
                        "another process keeps {name} locked: end that process, or try again"
                    );
                    return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
                }
            }
        }
    }

    fn read(&self) -> Result<UsageTotals, CeilingRefusal> {
        let file = match authority::open_regular(&self.dir, Path::new(&self.name), &self.name) {
            Ok(file) => file,
            Err(error) if error.is_missing() => return Ok(UsageTotals::default()),
            Err(error) => return Err(self.book_refusal(&error)),
        };
        // A user who can write the file can lower the recorded spending.
        let found = file.metadata();
        let found = found.map_err(|error| self.book_refusal(&error))?;
        authority::check_written_by_owner(&found, &self.name)
            .map_err(|error| self.book_refusal(&error))?;
        let bytes = authority::read_bounded(file, &self.name, BOOK_BYTES_MAX);
        let bytes = bytes.map_err(|error| self.book_refusal(&error))?;
        // Parsed as a map first: serde would read a list as the struct, field by field.
        let table: serde_json::Map<_, _> =
            serde_json::from_slice(&bytes).map_err(|error| self.book_refusal(&error))?;
        serde_json::from_value(table.into()).map_err(|error| self.book_refusal(&error))
    }

    /// Writes atomically and durably: temporary file, fsync, rename, fsync of the directory.
    fn write(&self, used: &UsageTotals) -> io::Result<()> {
        let temporary = format!("{}.new", self.name);
        // A file left by a dead process or planted under this name is removed, not written through.
        match self.dir.remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let mut file = authority::open_private(&self.dir, &temporary, options)?;
        file.write_all(serde_json::to_string(used)?.as_bytes())?;
        file.sync_all()?;
        self.dir.rename(&temporary, &self.dir, &self.name)?;
        #[cfg(unix)]
        self.dir.open(".")?.sync_all()?;
        Ok(())
    }

    fn book_refusal(&self, error: &dyn std::error::Error) -> CeilingRefusal {
        let mut message = format!("the operator's book {} cannot be kept: {error}", self.name);
        if let Some(source) = error.source() {
            message = format!("{message}: {source}");
        }
        CeilingRefusal {
            ceiling: "book",
            message,
            retry_after: None,
        }
    }
}

impl UsageBook for FileBook {
    fn read_totals(&self) -> Result<UsageTotals, CeilingRefusal> {
        self.read()
    }

    fn change(
        &self,
        change: &mut dyn FnMut(&mut UsageTotals) -> Result<(), CeilingRefusal>,
    ) -> Result<(), CeilingRefusal> {
        let failed = |error: io::Error| {
            let source = AuthorityError::from_io(&self.name, error);
            self.book_refusal(&source)
        };
        let _lock = self.lock().map_err(failed)?;
        let before = self.read()?;
        let mut used = before;
        change(&mut used)?;
        match used == before {
            true => Ok(()),
            false => self.write(&used).map_err(failed),
        }
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests plant files from outside the library"
)]
mod tests {
    use super::*;

    fn spend(book: &dyn UsageBook, nanos: u64) -> Result<(), CeilingRefusal> {
        book.change(&mut |used| {
            used.spend_nanos += nanos;
            Ok(())
        })
    }

    #[test]
    fn a_file_is_shared_and_outlives_its_book() {
        let temp = tempfile::TempDir::new().expect("a temporary directory");
        let open = || {
            let dir = Dir::open_ambient_dir(temp.path(), cap_std::ambient_authority());
            FileBook::new(dir.expect("opened"), "used.json")
        };
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let book = open();
                std::thread::spawn(move || (0..5).for_each(|_| spend(&book, 1).expect("kept")))
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("done"));
        assert_eq!(open().read_totals().map(|used| used.spend_nanos), Ok(20));
        let refused = open().change(&mut |used| {
            used.spend_nanos = 0;
            Err(CeilingRefusal {
                ceiling: "spend",
                message: String::new(),
                retry_after: None,
            })
        });
        assert!(refused.is_err());
        assert_eq!(open().read_totals().map(|used| used.spend_nanos), Ok(20));
    }

    /// Symptom: a process that stopped while it held the lock hung every run of every other
    /// process. Cause: the wait for the lock was unbounded. Fix: the wait is bounded, and the call
    /// refused.
    #[test]
    fn held_lock_is_refused_after_bounded_wait() {
        let temp = tempfile::TempDir::new().expect("a temporary directory");
        let dir = Dir::open_ambient_dir(temp.path(), cap_std::ambient_authority());
        let mut book = FileBook::new(dir.expect("opened"), "used.json");
        spend(&book, 1).expect("nobody holds it");
        let lock = std::fs::File::open(temp.path().join("used.json.lock")).expect("opened");
        lock.lock().expect("locked");
        book.lock_wait_max = Duration::from_millis(20);
        for _ in 0..2 {
            let refused = spend(&book, 1).expect_err("it is held");
            assert_eq!(refused.code(), "ceiling_book");
            let told = &refused.message;
            assert!(
                told.contains("used.json.lock") && told.contains("end that process"),
                "{told}"
            );
            assert!(book.last_wait_failed.load(Ordering::Relaxed));
        }
        drop(lock);
        spend(&book, 1).expect("it is free now");
        assert!(!book.last_wait_failed.load(Ordering::Relaxed));
        assert_eq!(book.read_totals().map(|used| used.spend_nanos), Ok(2));
    }

    /// Symptom: every user of a machine could hold the lock of a book, or write the book. Cause:
    /// the umask decided. Fix: both files are private, also where an earlier version made them, and
    /// a book that others may write is refused.
    #[cfg(unix)]
    #[test]
    fn a_book_and_its_lock_are_private() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::TempDir::new().expect("a temporary directory");
        let mode = |name: &str| {
            let found = std::fs::metadata(temp.path().join(name)).expect("there");
            found.permissions().mode() & 0o777
        };
        let set_mode = |name: &str, mode| {
            let path = temp.path().join(name);
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("ours");
        };
        std::fs::write(temp.path().join("used.json.lock"), "").expect("written");
        set_mode("used.json.lock", 0o666);
        let dir = Dir::open_ambient_dir(temp.path(), cap_std::ambient_authority());
        let book = FileBook::new(dir.expect("opened"), "used.json");
        spend(&book, 1).expect("kept");
        assert_eq!(mode("used.json"), 0o600);
        assert_eq!(mode("used.json.lock"), 0o600);
        set_mode("used.json", 0o620);
        let refused = spend(&book, 1).expect_err("others may write it");
        assert!(refused.message.contains("used.json"), "{}", refused.message);
        assert!(refused.message.contains("0600"), "{}", refused.message);
    }

    #[test]
    fn waiting_change_continues_when_lock_is_free() {
        let temp = tempfile::TempDir::new().expect("a temporary directory");
        let dir = Dir::open_ambient_dir(temp.path(), cap_std::ambient_authority());
        let mut book = FileBook::new(dir.expect("opened"), "used.json");
        spend(&book, 1).expect("nobody holds it");
        let lock = std::fs::File::open(temp.path().join("used.json.lock")).expect("opened");
        lock.lock().expect("locked");
        book.lock_wait_max = Duration::from_secs(600);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| spend(&book, 1));
            std::thread::sleep(4 * LOCK_POLL);
            assert!(!waits.is_finished());
            drop(lock);
            waits.join().expect("done").expect("it is free now");
        });
        assert_eq!(book.read_totals().map(|used| used.spend_nanos), Ok(2));
    }

    #[test]
    fn totals_saturate() {
        let spend = |spend_nanos| UsageTotals {
            spend_nanos,
            ..UsageTotals::default()
        };
        let mut used = spend(u64::MAX - 5);
        let held = used.add(spend(9));
        assert_eq!((held, used), (spend(5), spend(u64::MAX)));
        used.replace(held, spend(2));
        assert_eq!(used, spend(u64::MAX - 3));
        used.replace(spend(u64::MAX), spend(1));
        assert_eq!(used, spend(1));
    }

    #[test]
    fn malformed_book_refuses_everything() {
        let temp = tempfile::TempDir::new().expect("a temporary directory");
        let dir = Dir::open_ambient_dir(temp.path(), cap_std::ambient_authority());
        let book = FileBook::new(dir.expect("opened"), "used.json");
        for text in ["", "{", "[]", r#"{"spend": 1}"#, r#"{"spend_nanos": -1}"#] {
            std::fs::write(temp.path().join("used.json"), text).expect("written");
            let refused = spend(&book, 1).expect_err(text);
            assert_eq!(refused.code(), "ceiling_book");
            assert!(refused.message.contains("used.json"), "{refused}");
        }
        std::fs::write(temp.path().join("used.json"), r#"{"spend_nanos": 7}"#).expect("written");
        assert_eq!(book.read_totals().map(|used| used.spend_nanos), Ok(7));
    }
}
