//! A directory, as far as this project uses one: what a store of files, the library, documents and
//! file tools stand on, natively and under WASI.
//!
//! Names are single names of entries, never paths: an implementation refuses any other. All access
//! goes through the directory; nothing outside it is read, written or removed.

mod authority_error;
mod checked_tree;
#[cfg(target_os = "wasi")]
mod descriptor_tree;
#[cfg(feature = "cap-std")]
mod granted;
mod preopened;
mod tree;

pub use authority_error::AuthorityError;
pub use checked_tree::{
    open_checked_file, open_child_tree, open_or_create_tree, read_bounded_file,
};
#[cfg(target_os = "wasi")]
pub use descriptor_tree::DescriptorTree;
#[cfg(feature = "cap-std")]
pub use granted::{GrantedDirectory, create_private_dir, open_private, without_waiting};
pub use preopened::PreopenedDirectory;
pub use tree::{DirectoryTree, EntryDetails, EntryType, FileAccess, TreeFile, TreePlace};

use std::ffi::OsString;
use std::io::{self, Read, Seek, SeekFrom};

/// A directory that a program may use.
pub trait FileDirectory: Send + Sync {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is none.
    fn open(&self, name: &str) -> io::Result<Box<dyn DirectoryFile>>;

    /// Creates a file for writing.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if something of this name exists.
    fn create_new(&self, name: &str) -> io::Result<Box<dyn DirectoryFile>>;

    /// Gives a file a second name, in one step.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if the second name is taken: the file is not replaced.
    fn hard_link(&self, name: &str, second: &str) -> io::Result<()>;

    /// Gives a file another name, in one step; replaces what has it.
    ///
    /// # Errors
    /// Those of the file system.
    fn rename(&self, name: &str, new_name: &str) -> io::Result<()>;

    /// Removes a name of a file.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is none.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// The names of all entries, in any order. A name that is no UTF-8 is left out.
    ///
    /// # Errors
    /// Those of the file system.
    fn list(&self) -> io::Result<Vec<String>>;

    /// The metadata of an entry; a symbolic link is not followed.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is none.
    fn metadata(&self, name: &str) -> io::Result<EntryMetadata>;

    /// Makes the names of the directory durable: those that were added and removed before the call.
    ///
    /// # Errors
    /// Those of the file system: then nobody knows which of them are durable.
    fn sync(&self) -> io::Result<()>;
}

/// An open file.
pub trait DirectoryFile: Send {
    /// Reads from a place; fewer bytes than asked for mean the end of the file.
    ///
    /// # Errors
    /// Those of the file system.
    fn read_at(&mut self, offset: u64, bytes: usize) -> io::Result<Vec<u8>>;

    /// Writes at the end.
    ///
    /// # Errors
    /// Those of the file system; a part may be written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Bytes of the file.
    ///
    /// # Errors
    /// Those of the file system.
    fn size(&mut self) -> io::Result<u64>;

    /// Makes the content durable.
    ///
    /// # Errors
    /// Those of the file system.
    fn sync(&mut self) -> io::Result<()>;
}

/// Metadata of an entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryMetadata {
    /// True for a regular file, and for nothing else.
    pub is_file: bool,
    /// True for a directory.
    pub is_directory: bool,
    /// Bytes of a file.
    pub bytes: u64,
}

/// Refuses a pipe or a device: opening one may wait for its other end for ever.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`].
pub fn check_no_pipe(details: &EntryDetails) -> io::Result<()> {
    match details.entry_type {
        EntryType::Special => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is a pipe, a socket or a device",
        )),
        EntryType::File | EntryType::Directory | EntryType::Link => Ok(()),
    }
}

/// Refuses a name that is not the name of one entry.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`].
pub fn check_entry_name(name: &str) -> io::Result<()> {
    let special = name.is_empty() || name == "." || name == "..";
    if special || name.contains(['/', '\\', '\0']) {
        let message = format!("{name:?} is not the name of an entry of a directory");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(())
}

/// Reads up to `bytes` from a place of a file that implements the traits of std.
fn read_part(mut file: impl Read + Seek, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(offset))?;
    let mut content = Vec::with_capacity(bytes.min(1 << 20));
    file.take(bytes as u64).read_to_end(&mut content)?;
    Ok(content)
}

/// Collects the names of entries that are UTF-8.
fn collect_names(names: impl Iterator<Item = io::Result<OsString>>) -> io::Result<Vec<String>> {
    let names = names.filter_map(|name| name.map(|name| name.into_string().ok()).transpose());
    names.collect()
}

/// Collects the names of at most so many entries.
fn collect_some_names(
    names: impl Iterator<Item = io::Result<OsString>>,
    count_max: usize,
) -> io::Result<Vec<Option<String>>> {
    let names = names.take(count_max);
    names.map(|name| Ok(name?.into_string().ok())).collect()
}

impl EntryMetadata {
    fn from_details(details: &EntryDetails) -> Self {
        Self {
            is_file: details.is_file(),
            is_directory: details.entry_type == EntryType::Directory,
            bytes: details.bytes,
        }
    }
}

/// Makes the details of the metadata of std or of cap-std, which have the same methods and no
/// common trait; the extension of unix must be in scope. `$modified` is the time of the last
/// change.
macro_rules! entry_details {
    ($found:expr, $modified:expr) => {{
        let (found, modified) = ($found, $modified);
        let kind = found.file_type();
        #[cfg(unix)]
        let (names, identity) = (found.nlink(), Some((found.dev(), found.ino())));
        #[cfg(not(unix))]
        let (names, identity) = (1_u64, None);
        EntryDetails {
            entry_type: if kind.is_symlink() {
                EntryType::Link
            } else if kind.is_dir() {
                EntryType::Directory
            } else if kind.is_file() {
                EntryType::File
            } else {
                EntryType::Special
            },
            bytes: found.len(),
            has_one_name: !kind.is_file() || names <= 1,
            identity,
            modified,
        }
    }};
}
use entry_details;
