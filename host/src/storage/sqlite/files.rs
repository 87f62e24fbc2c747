//! The files of one store inside the granted directory: their names, their checks, and whether they
//! are still the ones that were opened.
//!
//! SQLite reaches the files through a [`ConfinedVfs`] at `/proc/self/fd/<directory>/<name>`, and
//! the lock file is opened beneath the same directory. So the kernel refuses a link at one of our
//! names, and a directory that is renamed or swapped for another is still the granted one. Before
//! each connection the files are checked as well, for a clear error, and because only a check finds
//! a second name of a file (a hard link). A user who can write in the directory could plant one
//! after the check, so the directory must belong to the tenant or the operator alone. `.ai/threads`
//! does: no directory that tools see contains it.
//!
//! Only Linux has `/proc/self/fd`: elsewhere it is [`super::other_systems`].

use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::SystemTime;
use threadkeep_storage::locks::SleepingMutex;

use cap_std::fs::{Dir, Metadata};

use super::super::StorageError;
use super::super::check::other_error;
use super::directory_times::DirectoryTimes;
use super::lock::LockQueue;
#[cfg(not(target_os = "linux"))]
use super::other_systems as platform;
use super::vfs::ConfinedVfs;
use crate::authority;

/// Longest name of a store's file, in bytes: file systems take 255, and `-journal` is added.
const NAME_BYTES_MAX: usize = 200;
/// Suffixes that SQLite adds to the name of its files, and the suffix of the lock file.
const SUFFIXES: [&str; 5] = ["", "-wal", "-shm", "-journal", ".lock"];
/// Size of the smallest SQLite database, one page of the smallest size; every size is a multiple of
/// it.
const DATABASE_BYTES_MIN: u64 = 512;
/// Number of files that stay the same while a store is open: the first three of [`SUFFIXES`].
const STABLE_FILES: usize = 3;

/// A directory and the names of a store in it. It is kept as long as a connection, because
/// connections are opened through it.
#[derive(Debug)]
pub(super) struct StoreFiles {
    held: Arc<StoreDirectory>,
    /// In the order of [`SUFFIXES`]: the database file is the first.
    names: [String; SUFFIXES.len()],
    opened: OnceLock<[Option<FileNumber>; STABLE_FILES]>,
    /// The times of the directory at which the files were found to be those that were opened.
    settled: SleepingMutex<Option<DirectoryTimes>>,
    /// The cookie of the schema that was checked last.
    schema: SleepingMutex<Option<i32>>,
}

/// An open directory and the VFS of one store in it. There is one for each store that is open in
/// this process, however often it is opened. SQLite keeps the path with which it first opened a
/// store's shared memory, for all connections of the process, and deletes by it when the last one
/// closes. So the directory's descriptor, which is in that path, must not be reused for another
/// directory before.
#[derive(Debug)]
struct StoreDirectory {
    vfs: ConfinedVfs,
    dir: Dir,
    lock_queue: LockQueue,
}

/// A store that is open in this process: the number of its directory, where the system has one, and
/// its name.
type OpenStore = (Option<FileNumber>, String, Weak<StoreDirectory>);

/// All of this process, because SQLite's state is global too.
static STORE_DIRECTORIES: SleepingMutex<Vec<OpenStore>> = SleepingMutex::new(Vec::new());

impl StoreDirectory {
    fn open_shared(dir: &Dir, name: &str) -> Result<Arc<Self>, StorageError> {
        let failed = |error: &std::io::Error| unavailable_error("the directory", error);
        let found = dir.dir_metadata().map_err(|error| failed(&error))?;
        let number = authority::file_identity(&found);
        // Where directories have no numbers, their paths tell them apart.
        let path = match number {
            Some(_) => None,
            None => Some(platform::path(dir, name)?),
        };
        let mut all = STORE_DIRECTORIES.lock();
        all.retain(|(.., held)| held.strong_count() > 0);
        let same = all
            .iter()
            .filter(|(at, known, _)| *at == number && known == name)
            .filter_map(|(.., held)| held.upgrade())
            .find(|held| path.as_deref().is_none_or(|path| held.vfs.path() == path));
        if let Some(held) = same {
            return Ok(held);
        }
        let dir = dir.try_clone().map_err(|error| failed(&error))?;
        let held = Arc::new(Self {
            vfs: ConfinedVfs::new(platform::path(&dir, name)?)?,
            dir,
            lock_queue: LockQueue::default(),
        });
        all.push((number, name.to_owned(), Arc::downgrade(&held)));
        Ok(held)
    }
}

/// Device and inode number of a file: no other file has them while it is open.
pub(super) type FileNumber = (u64, u64);

/// Identifies a file, also against a later one of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileIdentity {
    file_number: Option<FileNumber>,
    /// Inode numbers are reused once a file is gone.
    made: Option<SystemTime>,
}

impl StoreFiles {
    /// Checks the name and the file system, not yet the files.
    pub(super) fn new(dir: &Dir, name: &str) -> Result<Self, StorageError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let dots = name.starts_with('.') || !name.contains('.');
        // The suffix of another store's own file.
        let taken = SUFFIXES[1..].iter().any(|suffix| name.ends_with(suffix));
        if dots || taken || name.len() > NAME_BYTES_MAX || !name.bytes().all(plain) {
            let shown: String = name.chars().take(100).collect();
            let message = format!(
                "{shown:?} is no name of a store: letters, digits, `.`, `_`, `-`, with a dot \
                 inside, \
                 and not the end of another file of a store"
            );
            return Err(other_error("bad-name", message));
        }
        platform::check_file_system(dir)?;
        Ok(Self {
            held: StoreDirectory::open_shared(dir, name)?,
            names: SUFFIXES.map(|suffix| format!("{name}{suffix}")),
            opened: OnceLock::new(),
            settled: SleepingMutex::default(),
            schema: SleepingMutex::default(),
        })
    }

    /// True if the file exists and is not empty.
    pub(super) fn is_there(&self) -> Result<bool, StorageError> {
        Ok(self
            .file_metadata(self.name())?
            .is_some_and(|found| found.len() > 0))
    }

    /// Checks every file of the store; returns its VFS.
    pub(super) fn checked_vfs(&self) -> Result<&ConfinedVfs, StorageError> {
        for name in &self.names {
            if let Some(found) = self.file_metadata(name)? {
                check_ordinary(name, &found)?;
            }
        }
        Ok(&self.held.vfs)
    }

    /// Opens the lock file, made if it is missing: not through a link, and only an ordinary file
    /// with one name.
    pub(super) fn open_lock(&self) -> Result<std::fs::File, StorageError> {
        let name = self.lock_name();
        if let Some(found) = self.file_metadata(name)? {
            check_ordinary(name, &found)?;
        }
        let file = platform::open_no_follow(&self.held.dir, name);
        let file = file.map_err(|error| write_error(name, &error))?;
        let found = file
            .metadata()
            .map_err(|error| unavailable_error(name, &error))?;
        check_ordinary(name, &Metadata::from_just_metadata(found))?;
        Ok(file)
    }

    /// Makes the file if there is none, empty and private: SQLite gives its log and its shared
    /// memory the mode of the file that they belong to.
    ///
    /// Those of this user that are there are closed to others: a copy has the mode that its maker's
    /// mask had.
    pub(super) fn make_private(&self) -> Result<(), StorageError> {
        let made = platform::make_private(&self.held.dir, self.name());
        made.map_err(|error| write_error(self.name(), &error))?;
        for name in &self.names {
            let closed = platform::close_to_others(&self.held.dir, name);
            closed.map_err(|error| unavailable_error(name, &error))?;
        }
        Ok(())
    }

    /// The queue of this process for the lock file.
    pub(super) fn lock_queue(&self) -> &LockQueue {
        &self.held.lock_queue
    }

    pub(super) fn lock_name(&self) -> &str {
        &self.names[SUFFIXES.len() - 1]
    }

    /// True if files can be made in the directory.
    pub(super) fn is_writable(&self) -> bool {
        platform::is_writable(&self.held.dir)
    }

    /// Refuses the remains of a store that would be mistaken for no store, and replaced: a log
    /// whose file is gone or empty, and a file that does not end with a page.
    pub(super) fn check_complete(&self) -> Result<(), StorageError> {
        let length = self
            .file_metadata(self.name())?
            .map_or(0, |found| found.len());
        let [file, log, _, journal, _] = &self.names;
        let has_log = self.has_log()?;
        if has_log && length < DATABASE_BYTES_MIN {
            let message = format!(
                "{log} holds commits, and {file}, which they belong to, is empty or gone; put it \
                 back, or both away"
            );
            return Err(StorageError::Corrupt { message });
        }
        // The log or the journal repairs what a crash cut.
        let mended = has_log || self.file_metadata(journal)?.is_some();
        if !mended && length % DATABASE_BYTES_MIN != 0 {
            let message = format!("{file} was cut: it has {length} bytes");
            return Err(StorageError::Corrupt { message });
        }
        Ok(())
    }

    /// True if the write-ahead log exists and is not empty.
    pub(super) fn has_log(&self) -> Result<bool, StorageError> {
        Ok(self
            .file_metadata(&self.names[1])?
            .is_some_and(|found| found.len() > 0))
    }

    /// Records which files were opened: those that are there now.
    pub(super) fn record_opened(&self) -> Result<(), StorageError> {
        let now = self.file_numbers()?;
        // Set once, when the store is opened.
        let _ = self.opened.set(now);
        Ok(())
    }

    /// Records that the schema with this cookie was checked.
    pub(super) fn record_schema(&self, cookie: i32) {
        *self.schema.lock() = Some(cookie);
    }

    /// True if the schema with this cookie was checked last.
    pub(super) fn is_schema_known(&self, cookie: i32) -> bool {
        *self.schema.lock() == Some(cookie)
    }

    /// The identity of the store's file, if it exists.
    pub(super) fn file_identity(&self) -> Result<Option<FileIdentity>, StorageError> {
        Ok(self
            .file_metadata(self.name())?
            .map(|found| FileIdentity::from_metadata(&found)))
    }

    /// Refuses if one of the files is gone or was replaced: later writes would be lost. A file is
    /// not replaced without a change of its directory, so the files are looked at only when that
    /// has moved: this is called before and after each commit.
    ///
    /// # Errors
    /// [`StorageError::Other`] with the code `replaced`.
    pub(super) fn check_unchanged(&self) -> Result<(), StorageError> {
        let Some(opened) = self.opened.get() else {
            return Ok(());
        };
        // Before the files: a change while they are looked at is one after these times.
        let times = DirectoryTimes::read(&self.held.dir);
        if times.is_some() && *self.settled.lock() == times {
            return Ok(());
        }
        if self.file_numbers()? != *opened {
            return Err(self.replaced_error());
        }
        *self.settled.lock() = times.filter(|times| times.are_settled(SystemTime::now()));
        Ok(())
    }

    /// The error of [`Self::check_unchanged`].
    pub(super) fn replaced_error(&self) -> StorageError {
        let message = format!(
            "{} is gone or another file has taken its place since it was opened; close the store \
             and open it again if \
             that was meant",
            self.name()
        );
        other_error("replaced", message)
    }

    fn name(&self) -> &str {
        &self.names[0]
    }

    fn file_numbers(&self) -> Result<[Option<FileNumber>; STABLE_FILES], StorageError> {
        let mut found = [None; STABLE_FILES];
        for (number, name) in found.iter_mut().zip(&self.names) {
            *number = platform::number(&self.held.dir, name)
                .map_err(|error| unavailable_error(name, &error))?;
        }
        Ok(found)
    }

    fn file_metadata(&self, name: &str) -> Result<Option<Metadata>, StorageError> {
        match self.held.dir.symlink_metadata(Path::new(name)) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unavailable_error(name, &error)),
        }
    }
}

impl FileIdentity {
    fn from_metadata(found: &Metadata) -> Self {
        Self {
            file_number: authority::file_identity(found),
            made: found.created().ok().map(|time| time.into_std()),
        }
    }
}

fn check_ordinary(name: &str, found: &Metadata) -> Result<(), StorageError> {
    if !found.is_file() {
        return Err(other_error(
            "not-a-regular-file",
            format!("{name} is a link, a directory or a device"),
        ));
    }
    if has_other_names(found) {
        return Err(other_error(
            "hard-linked",
            format!("{name} has another name somewhere"),
        ));
    }
    Ok(())
}

#[cfg(unix)]
fn has_other_names(found: &Metadata) -> bool {
    use cap_std::fs::MetadataExt;
    found.nlink() > 1
}

#[cfg(not(unix))]
fn has_other_names(_found: &Metadata) -> bool {
    false
}

pub(super) fn unavailable_error(what: &str, error: &std::io::Error) -> StorageError {
    StorageError::Unavailable {
        message: format!("{what}: {error}"),
    }
}

/// The error when a file cannot be opened for writing.
fn write_error(what: &str, error: &std::io::Error) -> StorageError {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            other_error("read-only", format!("{what}: {error}"))
        }
        _ => unavailable_error(what, error),
    }
}

#[cfg(target_os = "linux")]
mod platform {
    use std::ffi::CString;
    use std::os::fd::AsRawFd;

    use rustix::fs::{
        Access, AtFlags, FileType, Mode, OFlags, accessat, chmod, fstat, fstatfs, mknodat, openat,
        statat,
    };
    use rustix::io::Errno;

    use super::*;

    /// File systems that other machines write, or that pass through a program: SQLite's write-ahead
    /// log needs shared memory and reliable locks for all processes that have the file open.
    /// Numbers of `statfs(2)`.
    const NETWORKS: [(i64, &str); 11] = [
        (0x6969, "NFS"),
        (0x517B, "SMB"),
        (0xFE53_4D42, "SMB 2"),
        (0xFF53_4D42, "CIFS"),
        (0x6573_5546, "FUSE"),
        (0x0102_1997, "9P"),
        (0x00C3_6400, "Ceph"),
        (0x5346_414F, "AFS"),
        (0x7375_7245, "Coda"),
        (0x0BD0_0BD0, "Lustre"),
        (0x4750_4653, "GPFS"),
    ];

    pub(super) fn path(dir: &Dir, name: &str) -> Result<CString, StorageError> {
        let path = format!("/proc/self/fd/{}/{name}", dir.as_raw_fd());
        CString::new(path).map_err(|_| other_error("bad-name", "a name with a NUL"))
    }

    pub(super) fn check_file_system(dir: &Dir) -> Result<(), StorageError> {
        let found =
            fstatfs(dir).map_err(|error| unavailable_error("the directory", &error.into()))?;
        // Its width differs between machines; the numbers above have 32 bits.
        check_kind(found.f_type as i64)
    }

    pub(super) fn check_kind(kind: i64) -> Result<(), StorageError> {
        let kind = kind & i64::from(u32::MAX);
        match NETWORKS.iter().find(|(network, _)| *network == kind) {
            None => Ok(()),
            Some((_, network)) => Err(other_error(
                "network-file-system",
                format!(
                    "SQLite is not safe on {network}; put the project on a disk of this machine"
                ),
            )),
        }
    }

    pub(super) fn is_writable(dir: &Dir) -> bool {
        accessat(dir, ".", Access::WRITE_OK, AtFlags::EACCESS).is_ok()
    }

    /// Device and inode number of a file that has this name.
    pub(super) fn number(dir: &Dir, name: &str) -> std::io::Result<Option<FileNumber>> {
        match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some((found.st_dev, found.st_ino))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Read and written by its owner alone.
    const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

    /// Opens without waiting for the other end of a pipe and without following a link. A new file
    /// is private.
    pub(super) fn open_no_follow(dir: &Dir, name: &str) -> std::io::Result<std::fs::File> {
        make_private(dir, name)?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(dir, name, flags, PRIVATE)?.into())
    }

    /// Takes away what others may do with an ordinary file of this user that has one name.
    ///
    /// The file is named, not opened: closing a descriptor of a file releases all POSIX locks that
    /// this process has on it, and those are SQLite's. Another process would then take the store
    /// for one that nobody has open, and truncate the memory that connections here have mapped.
    pub(super) fn close_to_others(dir: &Dir, name: &str) -> std::io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat(dir, name, flags, Mode::empty()) {
            Ok(file) => file,
            // It belonged to a connection that has ended.
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let found = fstat(&file)?;
        let own = found.st_uid == rustix::process::geteuid().as_raw();
        let ordinary = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        let open = Mode::from_raw_mode(found.st_mode).intersects(Mode::RWXG | Mode::RWXO);
        let writable = Mode::from_raw_mode(found.st_mode).contains(Mode::WUSR);
        if !own || !ordinary || !open || !writable || found.st_nlink != 1 {
            return Ok(());
        }
        match set_private(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::ReadOnlyFilesystem => Ok(()),
            done => done,
        }
    }

    /// Makes an empty file if there is none, whatever the umask of the process is. Opens none, as
    /// [`close_to_others`] says.
    pub(super) fn make_private(dir: &Dir, name: &str) -> std::io::Result<()> {
        match mknodat(dir, name, FileType::RegularFile, PRIVATE, 0) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        set_private(&openat(dir, name, flags, Mode::empty())?)
    }

    /// Sets the mode of the file of a descriptor that only names it.
    fn set_private(file: &impl AsRawFd) -> std::io::Result<()> {
        Ok(chmod(
            format!("/proc/self/fd/{}", file.as_raw_fd()),
            PRIVATE,
        )?)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::super::super::check::other_error;
    use super::platform::check_kind;
    use super::*;

    #[test]
    fn a_network_file_system_is_refused() {
        let code = |kind| match check_kind(kind) {
            Ok(()) => "local",
            Err(StorageError::Other { code, .. }) => code,
            Err(_) => "another error",
        };
        // ext4, tmpfs, xfs, btrfs, overlayfs, zfs.
        for kind in [
            0xEF53,
            0x0102_1994,
            0x5846_5342,
            0x9123_683E,
            0x794C_7630,
            0x2FC1_2FC1,
        ] {
            assert_eq!(code(kind), "local", "{kind:#x}");
        }
        // NFS, SMB, CIFS as a signed number of 32 bits, FUSE.
        for kind in [
            0x6969,
            0x517B,
            i64::from(0xFF53_4D42_u32.cast_signed()),
            0x6573_5546,
        ] {
            assert_eq!(code(kind), "network-file-system", "{kind:#x}");
        }
        let told = check_kind(0x6969).unwrap_err();
        assert_ne!(told, other_error("network-file-system", ""));
        assert!(told.to_string().contains("NFS"), "{told}");
    }
}
