//! The files of one thread's documents: its directory inside `.ai/threads`, the checks of its
//! entries, and replacement.
//!
//! Where a directory can be locked, one writer at a time changes its files, also in place. Where it
//! cannot (under WASI, on some file systems), files are only replaced as a whole, and the temporary
//! files of writers have names of their own.
//!
//! All access goes through the directory that was given. A symbolic link at a directory or at a
//! file name is refused, also one that replaces an entry after its check; nothing outside is read,
//! written or removed. [`FileReplacement`] is the only helper that writes a file atomically and
//! durably. The content of documents is decided elsewhere.

use super::directory_lock::lock_directory;
use super::{THREADS_PATH, ThreadFileError};
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use threadkeep_storage::directory::{
    AuthorityError, DirectoryFile, DirectoryTree, EntryDetails, EntryType, FileAccess, TreeFile,
    TreePlace, open_checked_file, open_child_tree, open_or_create_tree, read_bounded_file,
};

/// Most openings of a document that other writers replace meanwhile.
const OPENINGS_MAX: u32 = 16;

/// Longest id, in bytes: the component's bound, enforced here too because an id becomes a path.
const ID_BYTES_MAX: usize = 200;
/// Most segments of an id, for the same reason: bounds the depth of directories.
const SEGMENTS_MAX: usize = 16;
/// Suffix of a temporary file's name. Under the lock the name is fixed, so that a crash leaves at
/// most one file behind, and the next writer removes it.
const TEMPORARY: &str = ".new";
/// Least digits of the name of a writer: more than an extension has letters.
const WRITER_DIGITS_MIN: usize = 8;
/// Age of a temporary file of a writer without the lock from which that writer is gone: a file is
/// written in far less.
const ABANDONED_AGE: Duration = Duration::from_secs(3_600);

/// A fault that a test plants: called with the path of a file in the project before bytes are
/// written to it, whose error the write then has.
pub type WriteFault = Arc<dyn Fn(&str) -> io::Result<()> + Send + Sync>;

/// The action if the directory of a thread is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingDirectory {
    /// It is made.
    Make,
    /// Nothing is made.
    Leave,
}

/// The directory of a thread's documents, locked against other writers while this value lives,
/// where that is possible.
pub struct DocumentDirectory {
    dir: Box<dyn DirectoryTree>,
    id: String,
    fault: Option<WriteFault>,
    /// True if others may write at the same time.
    is_shared: bool,
    /// The part of the names of temporary files that is this writer's, if others may write.
    writer: Option<String>,
    /// Another handle of the locked directory; `None` where directories cannot be locked.
    _lock: Option<std::fs::File>,
}

impl DocumentDirectory {
    /// Opens and locks the directory of a thread; makes it if wanted. It blocks.
    ///
    /// # Errors
    /// If it is no directory of this user's, or another process keeps it locked.
    pub fn open(
        threads: &dyn DirectoryTree,
        id: &str,
        absent: MissingDirectory,
    ) -> Result<Option<Self>, ThreadFileError> {
        let segments = split_id(id)?;
        let mut place = String::from(THREADS_PATH);
        let cloned = threads.clone_tree();
        let mut dir = cloned.map_err(|source| AuthorityError::from_io(&place, source))?;
        for segment in segments {
            place = format!("{place}/{segment}");
            dir = match (open_child_tree(&*dir, segment), absent) {
                (Ok(child), _) => child,
                (Err(error), MissingDirectory::Leave) if error.is_missing() => return Ok(None),
                (Err(error), MissingDirectory::Make) if error.is_missing() => {
                    let child = open_or_create_tree(&*dir, segment);
                    let synced = dir.sync();
                    synced.map_err(|source| AuthorityError::from_io(&place, source))?;
                    child.map_err(|error| error.with_place(&place))?
                }
                (Err(error), _) => return Err(error.with_place(&place).into()),
            };
        }
        let lock = lock_directory(&*dir, id)?;
        Ok(Some(Self {
            dir,
            id: id.to_owned(),
            fault: None,
            is_shared: lock.is_none(),
            writer: None,
            _lock: lock,
        }))
    }

    /// Opens `.ai/threads` itself, for a file that belongs to no thread. It is not locked: such a
    /// file is replaced as a whole, and whoever reads it must tell a torn one from a whole one,
    /// because two writers at once share the name of the temporary file.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn of_project(threads: &dyn DirectoryTree) -> Result<Self, ThreadFileError> {
        let cloned = threads.clone_tree();
        Ok(Self {
            dir: cloned.map_err(|source| AuthorityError::from_io(THREADS_PATH, source))?,
            id: String::new(),
            fault: None,
            is_shared: true,
            writer: None,
            _lock: None,
        })
    }

    /// The same directory, whose files are written with this fault.
    #[must_use]
    pub fn with_fault(self, fault: Option<WriteFault>) -> Self {
        Self { fault, ..self }
    }

    /// The same directory, for the writer of this name: hexadecimal digits that no other has.
    #[must_use]
    pub fn with_writer(self, name: &str) -> Self {
        let writer = self.is_shared.then(|| name.to_owned());
        Self { writer, ..self }
    }

    /// Returns true if the directory cannot be locked: no file in it may be changed in place.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Removes the temporary files that writers without the lock have left behind.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn remove_abandoned(&self, now: SystemTime) -> Result<(), ThreadFileError> {
        for (name, seen) in self.list_files()? {
            if temporary_target(&name).is_some_and(|(_, writer)| writer) && is_abandoned(&seen, now)
            {
                self.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Opens a directory inside that of the thread; makes it if wanted. The lock of the thread's
    /// directory covers it: it must not be used after that is released.
    pub fn open_inner(
        &self,
        name: &str,
        absent: MissingDirectory,
    ) -> Result<Option<Self>, ThreadFileError> {
        let opened = match (open_child_tree(&*self.dir, name), absent) {
            (Err(error), MissingDirectory::Make) if error.is_missing() => {
                let made = open_or_create_tree(&*self.dir, name);
                self.dir
                    .sync()
                    .map_err(|error| self.to_error(name, error))?;
                made
            }
            (Err(error), MissingDirectory::Leave) if error.is_missing() => return Ok(None),
            (opened, _) => opened,
        };
        Ok(Some(Self {
            dir: opened.map_err(|error| error.with_place(&self.shown_path(name)))?,
            id: format!("{}/{name}", self.id),
            fault: self.fault.clone(),
            is_shared: self.is_shared,
            writer: self.writer.clone(),
            _lock: None,
        }))
    }

    /// Lists the regular files of the directory, each with its details, by name. Links and
    /// directories are left out.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn list_files(&self) -> Result<Vec<(String, EntryDetails)>, ThreadFileError> {
        let names = self.dir.list().map_err(|error| self.to_error("", error))?;
        let mut files = Vec::new();
        for name in names {
            match self.dir.details(&name) {
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
    pub fn remove(&self, name: &str) -> Result<(), ThreadFileError> {
        if self.check_file(name)?.is_none() {
            return Ok(());
        }
        match self.dir.remove(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.to_error(name, error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Moves a regular file of this directory or of the one inside it into another one inside it,
    /// in the place of a file there. A file that is not there is as good as moved.
    ///
    /// # Errors
    /// If something else stands at either name.
    pub fn move_to(&self, from: TreePlace<'_>, directory: &str) -> Result<(), ThreadFileError> {
        let inner = |name| self.open_inner(name, MissingDirectory::Leave);
        let source = from.directory.map(inner).transpose()?.flatten();
        let is_there = match (&source, from.directory) {
            (Some(source), _) => source.check_file(from.name)?.is_some(),
            (None, Some(_)) => false,
            (None, None) => self.check_file(from.name)?.is_some(),
        };
        let Some(target) = inner(directory)?.filter(|_| is_there) else {
            return Ok(());
        };
        target.check_file(from.name)?;
        let to = TreePlace {
            directory: Some(directory),
            name: from.name,
        };
        let moved = self.dir.move_below(from, to);
        moved.map_err(|error| self.to_error(from.name, error))
    }

    /// Removes an inner directory that is empty. One that is not stays.
    pub fn remove_inner(&self, name: &str) {
        // It is only tidier: the next save makes it again.
        let _ = self.dir.remove_tree(name);
    }

    /// Makes what was created, moved and removed in the directory durable.
    pub fn sync(&self) -> Result<(), ThreadFileError> {
        self.dir.sync().map_err(|error| self.to_error("", error))
    }

    /// Returns the thread's id, in the case of its record.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the details of a regular file, or `None` if the name is free.
    ///
    /// # Errors
    /// If something else stands there.
    pub fn check_file(&self, name: &str) -> Result<Option<EntryDetails>, ThreadFileError> {
        let place = || self.shown_path(name);
        let seen = match self.dir.details(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.to_error(name, error)),
            Ok(seen) => seen,
        };
        match seen.entry_type {
            EntryType::File => Ok(Some(seen)),
            EntryType::Link => Err(AuthorityError::Link { place: place() }.into()),
            EntryType::Directory | EntryType::Special => {
                Err(AuthorityError::NotRegular { place: place() }.into())
            }
        }
    }

    /// Opens a document for reading; `None` if there is none.
    ///
    /// # Errors
    /// A file with a second name is refused, and what is no regular file.
    pub fn open_for_reading(
        &self,
        name: &str,
    ) -> Result<Option<Box<dyn TreeFile>>, ThreadFileError> {
        match self.check_file(name)? {
            Some(_) => self.open_checked(name, FileAccess::Read).map(Some),
            None => Ok(None),
        }
    }

    /// Opens a document for reading and writing; `None` if there is none, or if the file has a
    /// second name, through which it must not be changed.
    ///
    /// # Errors
    /// If it is no regular file.
    pub fn open_for_writing(
        &self,
        name: &str,
    ) -> Result<Option<Box<dyn TreeFile>>, ThreadFileError> {
        match self.check_file(name)?.filter(|seen| seen.has_one_name) {
            Some(_) => self.open_checked(name, FileAccess::Change).map(Some),
            None => Ok(None),
        }
    }

    fn open_checked(
        &self,
        name: &str,
        access: FileAccess,
    ) -> Result<Box<dyn TreeFile>, ThreadFileError> {
        let place = self.shown_path(name);
        let open = || open_checked_file(&*self.dir, name, access, &place);
        // A writer without locks may put its file in place meanwhile: that is checked as well.
        let is_last =
            |opened: &Result<_, _>| !matches!(opened, Err(AuthorityError::Replaced { .. }));
        let mut openings = (1..OPENINGS_MAX).map(|_| open());
        Ok(openings.find(is_last).unwrap_or_else(open)?)
    }

    /// Reads a whole document of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// If it is larger, or cannot be opened.
    pub fn read(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, ThreadFileError> {
        let Some(mut file) = self.open_for_reading(name)? else {
            return Ok(None);
        };
        let read = read_bounded_file(&mut *file, &self.shown_path(name), bytes_max);
        Ok(Some(read?))
    }

    /// Converts an error of the operating system about a document.
    pub fn to_error(&self, name: &str, source: io::Error) -> ThreadFileError {
        AuthorityError::from_io(&self.shown_path(name), source).into()
    }

    fn shown_path(&self, name: &str) -> String {
        match self.id.as_str() {
            "" => format!("{THREADS_PATH}/{name}"),
            id => format!("{THREADS_PATH}/{id}/{name}"),
        }
    }
}

/// A file that is written beside the one that it will replace: temporary, fsync, rename, fsync the
/// directory. Until [`FileReplacement::commit`] nothing has changed; if dropped before, it leaves
/// nothing behind.
pub struct FileReplacement {
    place: Arc<DocumentDirectory>,
    name: String,
    temporary: String,
    file: Box<dyn DirectoryFile>,
    committed: bool,
}

impl FileReplacement {
    /// Begins to replace the file at `name`, which must be a regular file or missing.
    pub fn begin(place: Arc<DocumentDirectory>, name: &str) -> Result<Self, ThreadFileError> {
        place.check_file(name)?;
        let temporary = match &place.writer {
            Some(writer) => format!("{name}.{writer}{TEMPORARY}"),
            None => format!("{name}{TEMPORARY}"),
        };
        let failed = |error| place.to_error(&temporary, error);
        match place.dir.remove(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        let file = place.dir.create_new(&temporary).map_err(failed)?;
        Ok(Self {
            name: name.to_owned(),
            place,
            temporary,
            file,
            committed: false,
        })
    }

    /// Appends to the new file.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), ThreadFileError> {
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
        let written = self.file.append(taken).and(allowed);
        written.map_err(|error| place.to_error(&self.temporary, error))
    }

    /// Puts the new file in place, durably.
    pub fn commit(mut self) -> Result<(), ThreadFileError> {
        let (place, name) = (Arc::clone(&self.place), self.name.as_str());
        let failed = |error| place.to_error(name, error);
        self.file.sync().map_err(failed)?;
        place.check_file(name)?;
        let renamed = place.dir.rename(&self.temporary, name);
        renamed.map_err(failed)?;
        self.committed = true;
        place.dir.sync().map_err(failed)
    }
}

impl Drop for FileReplacement {
    fn drop(&mut self) {
        if !self.committed {
            // A file that cannot be removed is removed by the next writer.
            let _ = self.place.dir.remove(&self.temporary);
        }
    }
}

/// Returns the name of the file that a temporary file is to replace, and true if the name tells its
/// writer; `None` for any other name.
pub(super) fn temporary_target(name: &str) -> Option<(&str, bool)> {
    let target = name.strip_suffix(TEMPORARY)?;
    // Documents and copies have an extension of letters, a writer is named by digits.
    match target.rsplit_once('.') {
        Some((target, writer)) if is_writer_name(writer) && target.contains('.') => {
            Some((target, true))
        }
        _ => Some((target, false)),
    }
}

/// Returns true for the name of a writer: hexadecimal digits.
fn is_writer_name(name: &str) -> bool {
    name.len() >= WRITER_DIGITS_MIN && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns true if a temporary file is so old that its writer is gone.
pub(super) fn is_abandoned(seen: &EntryDetails, now: SystemTime) -> bool {
    let modified = seen.modified.unwrap_or(SystemTime::UNIX_EPOCH);
    now.duration_since(modified)
        .is_ok_and(|age| age > ABANDONED_AGE)
}

/// Splits an id into segments, each a plain name without special meaning.
fn split_id(id: &str) -> Result<Vec<&str>, ThreadFileError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let valid = |segment: &&str| !segment.is_empty() && segment.bytes().all(plain);
    let segments: Vec<&str> = id.split('/').take(SEGMENTS_MAX + 1).collect();
    if id.len() > ID_BYTES_MAX || segments.len() > SEGMENTS_MAX || !segments.iter().all(valid) {
        return Err(ThreadFileError::Id(id.chars().take(ID_BYTES_MAX).collect()));
    }
    Ok(segments)
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests plant files from outside the library"
)]
mod tests {
    use super::*;
    use crate::thread_files::directory_lock::LOCK_POLL;
    use cap_std::fs::Dir;
    use threadkeep_storage::directory::GrantedDirectory;

    fn threads() -> (tempfile::TempDir, Dir) {
        let temporary = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(temporary.path(), cap_std::ambient_authority()).unwrap();
        (temporary, dir)
    }

    fn grant_directory(dir: &Dir) -> GrantedDirectory {
        GrantedDirectory::new(dir.try_clone().unwrap())
    }

    fn replace(place: &Arc<DocumentDirectory>, text: &[u8]) -> Result<(), ThreadFileError> {
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
            let refused =
                DocumentDirectory::open(&grant_directory(&dir), id, MissingDirectory::Make);
            assert!(matches!(refused, Err(ThreadFileError::Id(_))), "{id:?}");
        }
        assert_eq!(dir.entries().unwrap().count(), 0);
    }

    #[test]
    fn directories_are_made_only_when_wanted() {
        let (_temporary, dir) = threads();
        assert!(
            DocumentDirectory::open(&grant_directory(&dir), "a/B/c", MissingDirectory::Leave)
                .unwrap()
                .is_none()
        );
        assert!(
            DocumentDirectory::open(&grant_directory(&dir), "a/B/c", MissingDirectory::Make)
                .unwrap()
                .is_some()
        );
        assert!(dir.is_dir("a/B/c"));
    }

    #[cfg(unix)]
    #[test]
    fn a_second_writer_waits_for_the_first() {
        let (_temporary, dir) = threads();
        let first = DocumentDirectory::open(&grant_directory(&dir), "a", MissingDirectory::Make)
            .unwrap()
            .unwrap();
        assert!(first._lock.is_some(), "directories can be locked here");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                drop(
                    DocumentDirectory::open(&grant_directory(&dir), "a", MissingDirectory::Make)
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
            DocumentDirectory::open(&grant_directory(&dir), "a", MissingDirectory::Make)
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

    fn word<T>(result: &Result<T, ThreadFileError>) -> &'static str {
        match result {
            Err(ThreadFileError::Authority(AuthorityError::Link { .. })) => "link",
            Err(ThreadFileError::Authority(AuthorityError::NotRegular { .. })) => "not-regular",
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
            DocumentDirectory::open(&grant_directory(&dir), "a", MissingDirectory::Make)
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
