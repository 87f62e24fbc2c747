//! A directory with directories in it and files that change: what documents and file tools stand
//! on, natively and under WASI.

use super::{DirectoryFile, FileDirectory};
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

/// A directory whose directories may be used, too. Symbolic links are told apart and not followed:
/// [`checked_tree`](super::checked_tree) refuses those that take the place of what was seen.
pub trait DirectoryTree: FileDirectory {
    /// Another handle of this directory.
    ///
    /// # Errors
    /// Those of the system.
    fn clone_tree(&self) -> io::Result<Box<dyn DirectoryTree>>;

    /// Details of this directory.
    ///
    /// # Errors
    /// Those of the file system.
    fn describe(&self) -> io::Result<EntryDetails>;

    /// Details of an entry; a symbolic link is not followed.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is none.
    fn details(&self, name: &str) -> io::Result<EntryDetails>;

    /// The names of at most so many entries, in any order; `None` stands for one that is no UTF-8.
    ///
    /// # Errors
    /// Those of the file system.
    fn list_some(&self, count_max: usize) -> io::Result<Vec<Option<String>>>;

    /// The path in a symbolic link.
    ///
    /// # Errors
    /// Those of the file system.
    fn read_link(&self, name: &str) -> io::Result<PathBuf>;

    /// Opens a directory inside this one.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is none.
    fn open_tree(&self, name: &str) -> io::Result<Box<dyn DirectoryTree>>;

    /// Creates a directory that other users may not read, where the system has modes.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if something of this name exists.
    fn create_tree(&self, name: &str) -> io::Result<()>;

    /// Removes a directory that is empty.
    ///
    /// # Errors
    /// Those of the file system.
    fn remove_tree(&self, name: &str) -> io::Result<()>;

    /// Opens a file; never waits for the other end of a pipe.
    ///
    /// # Errors
    /// Those of the file system.
    fn open_file(&self, name: &str, access: FileAccess) -> io::Result<Box<dyn TreeFile>>;

    /// Moves a file from one directory inside this one to another, in the place of a file there.
    ///
    /// # Errors
    /// Those of the file system.
    fn move_below(&self, from: EntryPlace<'_>, to: EntryPlace<'_>) -> io::Result<()>;

    /// Opens this directory as a file, by which it can be locked.
    ///
    /// # Errors
    /// Where the system does not allow that.
    fn open_handle(&self) -> io::Result<std::fs::File>;
}

/// An open file that may be changed at any place.
pub trait TreeFile: DirectoryFile {
    /// Details of the file that is open.
    ///
    /// # Errors
    /// Those of the file system.
    fn details(&mut self) -> io::Result<EntryDetails>;

    /// Writes at a place.
    ///
    /// # Errors
    /// Those of the file system; a part may be written.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Writes at the current end in one write of the system, of a file that is open for appending.
    /// Returns the bytes that were written.
    ///
    /// # Errors
    /// Those of the file system.
    fn append_once(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Cuts the file to this length.
    ///
    /// # Errors
    /// Those of the file system.
    fn truncate(&mut self, bytes: u64) -> io::Result<()>;
}

/// The use of a file that is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    /// It exists, and is read.
    Read,
    /// It exists, and is read and written at any place.
    Change,
    /// It is read and written at its end, and made if it is missing. Other users may not read it.
    Append,
}

/// A file in this directory, or in one directly inside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryPlace<'a> {
    /// Name of the directory; `None` for this one.
    pub directory: Option<&'a str>,
    /// Name of the file.
    pub name: &'a str,
}

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A pipe, a socket or a device.
    Special,
}

/// What a file system tells of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryDetails {
    /// Its type.
    pub entry_type: EntryType,
    /// Bytes of a file.
    pub bytes: u64,
    /// False for a file that has another name, too. Where the system does not count names, every
    /// file has one.
    pub has_one_name: bool,
    /// Device and number of the file, which identify it under any name, where the system has them.
    pub identity: Option<(u64, u64)>,
    /// The time of the last change, where the system has one.
    pub modified: Option<SystemTime>,
}

impl EntryDetails {
    /// True for a regular file.
    pub fn is_file(&self) -> bool {
        self.entry_type == EntryType::File
    }
}
