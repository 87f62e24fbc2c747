//! The files of one thread's documents: its directory inside `.ai/threads`, the checks of its
//! entries, and replacement.
//!
//! All access goes through the directory that was given. A symbolic link at a directory or at a
//! file name is refused, also one that replaces an entry after its check; nothing outside is read,
//! written or removed. [`FileReplacement`] is the only helper that writes a file atomically and
//! durably. The content of documents is decided elsewhere.

use super::DocumentError;
use crate::authority::{
    AuthorityError, THREADS_PATH, child_dir, file_identity, has_one_name, open_private,
    open_without_hard_links, private_child_dir, read_bounded,
};
use cap_std::fs::{Dir, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest id, in bytes: the component's bound, enforced here too because an id becomes a path.
const ID_BYTES_MAX: usize = 200;
/// Most segments of an id, for the same reason: bounds the depth of directories.
const SEGMENTS_MAX: usize = 16;
/// Longest wait for another process that writes the same documents. A refresh takes milliseconds, a
/// rebuild of a long history seconds.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);
/// Interval between attempts to take the lock.
const LOCK_POLL: Duration = Duration::from_millis(5);
/// Suffix of a temporary file's name. The name is fixed, so that a crash leaves at most one file
/// behind, and the next writer removes it.
pub(super) const TEMPORARY: &str = ".new";

/// A fault that a test plants: called with the path of a file in the project before bytes are
/// written to it, whose error the write then has.
pub type WriteFault = Arc<dyn Fn(&str) -> io::Result<()> + Send + Sync>;

/// The action if the directory of a thread is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MissingDirectory {
    Make,
    Leave,
}

/// The directory of a thread's documents, locked against other writers while this value lives.
pub(super) struct DocumentDirectory {
    dir: Dir,
    id: String,
    fault: Option<WriteFault>,
    /// Another handle of the locked directory; `None` where directories cannot be locked.
    _lock: Option<std::fs::File>,
}

impl DocumentDirectory {
    /// Opens and locks the directory of a thread; makes it if wanted. It blocks.
    pub(super) fn open(
        threads: &Dir,
        id: &str,
        absent: MissingDirectory,
    ) -> Result<Option<Self>, DocumentError> {
        let segments = split_id(id)?;
        let mut place = String::from(THREADS_PATH);
        let mut dir = threads
            .try_clone()
            .map_err(|source| AuthorityError::from_io(&place, source))?;
        for segment in segments {
            place = format!("{place}/{segment}");
            dir = match (child_dir(&dir, segment), absent) {
                (Ok(child), _) => child,
                (Err(error), MissingDirectory::Leave) if error.is_missing() => return Ok(None),
                (Err(error), MissingDirectory::Make) if error.is_missing() => {
                    let child = private_child_dir(&dir, segment);
                    sync_dir(&dir).map_err(|source| AuthorityError::from_io(&place, source))?;
                    child.map_err(|error| error.with_place(&place))?
                }
                (Err(error), _) => return Err(error.with_place(&place).into()),
            };
        }
        let lock = lock_dir(&dir, id)?;
        Ok(Some(Self {
            dir,
            id: id.to_owned(),
            fault: None,
            _lock: lock,
        }))
    }

    /// The same directory, whose files are written with this fault.
    pub(super) fn with_fault(self, fault: Option<WriteFault>) -> Self {
        Self { fault, ..self }
    }

    /// Opens a directory inside that of the thread; makes it if wanted. The lock of the thread's
    /// directory covers it: it must not be used after that is released.
    pub(super) fn open_inner(
        &self,
        name: &str,
        absent: MissingDirectory,
    ) -> Result<Option<Self>, DocumentError> {
        let opened = match (child_dir(&self.dir, name), absent) {
            (Err(error), MissingDirectory::Make) if error.is_missing() => {
                let made = private_child_dir(&self.dir, name);
                sync_dir(&self.dir).map_err(|error| self.to_error(name, error))?;
                made
            }
            (Err(error), MissingDirectory::Leave) if error.is_missing() => return Ok(None),
            (opened, _) => opened,
        };
        Ok(Some(Self {
            dir: opened.map_err(|error| error.with_place(&self.shown_path(name)))?,
            id: format!("{}/{name}", self.id),
            fault: self.fault.clone(),
            _lock: None,
        }))
    }

    /// Lists the regular files of the directory, each with its metadata, by name. Links and
    /// directories are left out.
    pub(super) fn list_files(&self) -> Result<Vec<(String, Metadata)>, DocumentError> {
        let failed = |error| self.to_error("", error);
        let mut files = Vec::new();
        for entry in self.dir.entries().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            match self.dir.symlink_metadata(&name) {
                Ok(seen) if seen.is_file() => files.push((name, seen)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(self.to_error(&name, error)),
            }
        }
        files.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(files)
    }

    /// Removes a regular file. A file that is not there is as good as removed.
    pub(super) fn remove(&self, name: &str) -> Result<(), DocumentError> {
        if self.check_file(name)?.is_none() {
            return Ok(());
        }
        match self.dir.remove_file(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.to_error(name, error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Moves a regular file into another directory of the thread, in the place of a file there. A
    /// file that is not there is as good as moved.
    pub(super) fn move_to(&self, name: &str, to: &Self) -> Result<(), DocumentError> {
        if self.check_file(name)?.is_none() {
            return Ok(());
        }
        to.check_file(name)?;
        let moved = self.dir.rename(name, &to.dir, name);
        moved.map_err(|error| self.to_error(name, error))
    }

    /// Removes an inner directory that is empty. One that is not stays.
    pub(super) fn remove_inner(&self, name: &str) {
        // It is only tidier: the next save makes it again.
        let _ = self.dir.remove_dir(name);
    }

    /// Makes what was created, moved and removed in the directory durable.
    pub(super) fn sync(&self) -> Result<(), DocumentError> {
        sync_dir(&self.dir).map_err(|error| self.to_error("", error))
    }

    /// Returns the thread's id, in the case of its record.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the metadata of a regular file, or `None` if the name is free; anything else is an
    /// error.
    pub(super) fn check_file(&self, name: &str) -> Result<Option<Metadata>, DocumentError> {
        let place = || self.shown_path(name);
        match self.dir.symlink_metadata(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.to_error(name, error)),
            Ok(seen) if seen.is_symlink() => Err(AuthorityError::Link { place: place() }.into()),
            Ok(seen) if seen.is_file() => Ok(Some(seen)),
            Ok(_) => Err(AuthorityError::NotRegular { place: place() }.into()),
        }
    }

    /// Opens a document for reading; `None` if there is none. A file with a second name is refused.
    pub(super) fn open_for_reading(&self, name: &str) -> Result<Option<File>, DocumentError> {
        let Some(seen) = self.check_file(name)? else {
            return Ok(None);
        };
        let file = open_without_hard_links(&self.dir, Path::new(name), &self.shown_path(name))?;
        self.check_identity(name, &seen, file).map(Some)
    }

    /// Opens a document for reading and writing; `None` if there is none, or if the file has a
    /// second name, through which it must not be changed.
    pub(super) fn open_for_writing(&self, name: &str) -> Result<Option<File>, DocumentError> {
        let Some(seen) = self.check_file(name)?.filter(has_one_name) else {
            return Ok(None);
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let opened = self.dir.open_with(name, &options);
        let file = opened.map_err(|error| self.to_error(name, error))?;
        self.check_identity(name, &seen, file).map(Some)
    }

    /// Reads a whole document of at most `bytes_max` bytes.
    pub(super) fn read(
        &self,
        name: &str,
        bytes_max: u64,
    ) -> Result<Option<Vec<u8>>, DocumentError> {
        match self.open_for_reading(name)? {
            Some(file) => Ok(Some(read_bounded(file, &self.shown_path(name), bytes_max)?)),
            None => Ok(None),
        }
    }

    /// Converts an error of the operating system about a document.
    pub(super) fn to_error(&self, name: &str, source: io::Error) -> DocumentError {
        AuthorityError::from_io(&self.shown_path(name), source).into()
    }

    fn check_identity(
        &self,
        name: &str,
        seen: &Metadata,
        file: File,
    ) -> Result<File, DocumentError> {
        let opened = file
            .metadata()
            .map_err(|error| self.to_error(name, error))?;
        if file_identity(seen) != file_identity(&opened) || !opened.is_file() {
            let place = self.shown_path(name);
            return Err(AuthorityError::Replaced { place }.into());
        }
        Ok(file)
    }

    fn shown_path(&self, name: &str) -> String {
        format!("{THREADS_PATH}/{}/{name}", self.id)
    }
}

/// A file that is written beside the one that it will replace: temporary, fsync, rename, fsync the
/// directory. Until [`FileReplacement::commit`] nothing has changed; if dropped before, it leaves
/// nothing behind.
pub(super) struct FileReplacement {
    place: Arc<DocumentDirectory>,
    name: String,
    temporary: String,
    file: File,
    committed: bool,
}

impl FileReplacement {
    /// Begins to replace the file at `name`, which must be a regular file or missing.
    pub(super) fn begin(place: Arc<DocumentDirectory>, name: &str) -> Result<Self, DocumentError> {
        place.check_file(name)?;
        let temporary = format!("{name}{TEMPORARY}");
        let failed = |error| place.to_error(&temporary, error);
        match place.dir.remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let file = open_private(&place.dir, &temporary, options).map_err(failed)?;
        Ok(Self {
            name: name.to_owned(),
            place,
            temporary,
            file,
            committed: false,
        })
    }

    /// Appends to the new file.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), DocumentError> {
        let place = &self.place;
        let allowed = match &place.fault {
            Some(fault) => fault(&place.shown_path(&self.temporary)),
            None => Ok(()),
        };
        // A disk that becomes full takes a part of them.
        let taken = if allowed.is_ok() {
            bytes
        } else {
            &bytes[..bytes.len() / 2]
        };
        let written = self.file.write_all(taken).and(allowed);
        written.map_err(|error| place.to_error(&self.temporary, error))
    }

    /// Puts the new file in place, durably.
    pub(super) fn commit(mut self) -> Result<(), DocumentError> {
        let (place, name) = (Arc::clone(&self.place), self.name.as_str());
        let failed = |error| place.to_error(name, error);
        self.file.sync_all().map_err(failed)?;
        place.check_file(name)?;
        let renamed = place.dir.rename(&self.temporary, &place.dir, name);
        renamed.map_err(failed)?;
        self.committed = true;
        sync_dir(&place.dir).map_err(failed)
    }
}

impl Drop for FileReplacement {
    fn drop(&mut self) {
        if !self.committed {
            // A file that cannot be removed is removed by the next writer.
            let _ = self.place.dir.remove_file(&self.temporary);
        }
    }
}

/// Splits an id into segments, each a plain name without special meaning.
fn split_id(id: &str) -> Result<Vec<&str>, DocumentError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let valid = |segment: &&str| !segment.is_empty() && segment.bytes().all(plain);
    let segments: Vec<&str> = id.split('/').take(SEGMENTS_MAX + 1).collect();
    if id.len() > ID_BYTES_MAX || segments.len() > SEGMENTS_MAX || !segments.iter().all(valid) {
        return Err(DocumentError::Id(id.chars().take(ID_BYTES_MAX).collect()));
    }
    Ok(segments)
}

/// Opens the directory as a file: the handle of a [`Dir`] may be path-only, and such a handle can
/// be neither locked nor synced.
fn open_as_file(dir: &Dir) -> io::Result<std::fs::File> {
    dir.open(".").map(File::into_std)
}

#[cfg(unix)]
fn sync_dir(dir: &Dir) -> io::Result<()> {
    open_as_file(dir)?.sync_all()
}

/// On other systems a directory cannot be synced.
#[cfg(not(unix))]
fn sync_dir(_: &Dir) -> io::Result<()> {
    Ok(())
}

/// Locks the directory itself, so that no lock file lies beside the documents. Where it cannot be
/// locked, nothing excludes a second process; the check of the file's end or a repair fixes what
/// two of them write.
fn lock_dir(dir: &Dir, id: &str) -> Result<Option<std::fs::File>, DocumentError> {
    let Ok(file) = open_as_file(dir) else {
        return Ok(None);
    };
    let since = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(std::fs::TryLockError::Error(_)) => return Ok(None),
            Err(std::fs::TryLockError::WouldBlock) if since.elapsed() > LOCK_WAIT_MAX => {
                return Err(DocumentError::Busy(id.to_owned()));
            }
            Err(std::fs::TryLockError::WouldBlock) => std::thread::sleep(LOCK_POLL),
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

    fn threads() -> (tempfile::TempDir, Dir) {
        let temporary = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(temporary.path(), cap_std::ambient_authority()).unwrap();
        (temporary, dir)
    }

    fn replace(place: &Arc<DocumentDirectory>, text: &[u8]) -> Result<(), DocumentError> {
        let mut replacement = FileReplacement::begin(Arc::clone(place), "thread.json")?;
        replacement.write(text)?;
        replacement.commit()
    }

    #[test]
    fn ids_that_are_no_names_are_refused() {
        let (_temporary, dir) = threads();
        let (long, deep) = ("x".repeat(201), ["a"; 17].join("/"));
        let ids = [
            "", "/", "a/", "/a", "a//b", "..", "a/../b", ".", "a.b", "a\0", "a\\b", "é", &long,
            &deep,
        ];
        for id in ids {
            let refused = DocumentDirectory::open(&dir, id, MissingDirectory::Make);
            assert!(matches!(refused, Err(DocumentError::Id(_))), "{id:?}");
        }
        assert_eq!(dir.entries().unwrap().count(), 0);
    }

    #[test]
    fn directories_are_made_only_when_wanted() {
        let (_temporary, dir) = threads();
        assert!(
            DocumentDirectory::open(&dir, "a/B/c", MissingDirectory::Leave)
                .unwrap()
                .is_none()
        );
        assert!(
            DocumentDirectory::open(&dir, "a/B/c", MissingDirectory::Make)
                .unwrap()
                .is_some()
        );
        assert!(dir.is_dir("a/B/c"));
    }

    #[cfg(unix)]
    #[test]
    fn a_second_writer_waits_for_the_first() {
        let (_temporary, dir) = threads();
        let first = DocumentDirectory::open(&dir, "a", MissingDirectory::Make)
            .unwrap()
            .unwrap();
        assert!(first._lock.is_some(), "directories can be locked here");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                drop(
                    DocumentDirectory::open(&dir, "a", MissingDirectory::Make)
                        .unwrap()
                        .unwrap(),
                )
            });
            std::thread::sleep(LOCK_POLL * 20);
            assert!(!second.is_finished(), "two write at once");
            drop(first);
            second.join().unwrap();
        });
    }

    #[test]
    fn a_replacement_is_whole_or_nothing() {
        let (_temporary, dir) = threads();
        let place = Arc::new(
            DocumentDirectory::open(&dir, "a", MissingDirectory::Make)
                .unwrap()
                .unwrap(),
        );
        replace(&place, b"one").unwrap();
        let mut dropped = FileReplacement::begin(Arc::clone(&place), "thread.json").unwrap();
        dropped.write(b"tw").unwrap();
        drop(dropped);
        assert_eq!(dir.read("a/thread.json").unwrap(), b"one");
        // A crash leaves the temporary file; the next writer removes it.
        dir.write("a/thread.json.new", "torn").unwrap();
        replace(&place, b"three").unwrap();
        assert_eq!(dir.read("a/thread.json").unwrap(), b"three");
        assert_eq!(dir.read_dir("a").unwrap().count(), 1);
    }

    fn word<T>(result: &Result<T, DocumentError>) -> &'static str {
        match result {
            Err(DocumentError::Authority(AuthorityError::Link { .. })) => "link",
            Err(DocumentError::Authority(AuthorityError::NotRegular { .. })) => "not-regular",
            Err(_) => "else",
            Ok(_) => "done",
        }
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_regular_file_is_refused() {
        let (_temporary, dir) = threads();
        dir.write("outside", "keep").unwrap();
        let place = Arc::new(
            DocumentDirectory::open(&dir, "a", MissingDirectory::Make)
                .unwrap()
                .unwrap(),
        );
        for target in ["../outside", "gone", "thread.json"] {
            dir.symlink(target, "a/thread.json").unwrap();
            assert_eq!(word(&replace(&place, b"x")), "link", "{target}");
            assert_eq!(
                word(&place.open_for_writing("thread.json")),
                "link",
                "{target}"
            );
            assert_eq!(word(&place.read("thread.json", 9)), "link", "{target}");
            dir.remove_file("a/thread.json").unwrap();
        }
        // A link at the temporary name is removed itself, and nothing is written through it.
        dir.symlink("../outside", "a/thread.json.new").unwrap();
        replace(&place, b"x").unwrap();
        dir.remove_file("a/thread.json").unwrap();
        dir.create_dir("a/thread.json").unwrap();
        assert_eq!(word(&replace(&place, b"x")), "not-regular");
        dir.hard_link("outside", &dir, "a/transcript.md").unwrap();
        assert!(place.open_for_writing("transcript.md").unwrap().is_none());
        assert_eq!(dir.read("outside").unwrap(), b"keep");
    }
}
