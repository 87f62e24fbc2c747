//! The project's directory as file tools see it: handles that can be read and not written.

use crate::project_files::ROOT;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::SystemTime;
use threadkeep_storage::directory::{
    DirectoryFile, DirectoryTree, EntryDetails, EntryMetadata, EntryType, FileAccess,
    FileDirectory, TreeFile, TreePlace, check_entry_name,
};
use wasip2::filesystem::preopens::get_directories;
use wasip2::filesystem::types::{
    Descriptor, DescriptorFlags, DescriptorStat, DescriptorType, ErrorCode, MetadataHashValue,
    OpenFlags, PathFlags,
};

/// A directory whose files can be read. Links are told apart and not followed.
#[derive(Debug)]
pub struct ReadOnlyTree {
    directory: Descriptor,
}

impl ReadOnlyTree {
    /// The project's directory; `None` if the host grants none.
    pub fn root() -> Option<Self> {
        let mut granted = get_directories().into_iter();
        let (directory, _) = granted.find(|(_, path)| path == ROOT)?;
        Some(Self { directory })
    }

    fn open_entry(&self, name: &str, flags: OpenFlags) -> io::Result<Descriptor> {
        self.directory
            .open_at(PathFlags::empty(), name, flags, DescriptorFlags::READ)
            .map_err(to_io_error)
    }

    fn names(&self, count_max: usize) -> io::Result<Vec<Option<String>>> {
        let entries = self.directory.read_directory().map_err(to_io_error)?;
        let mut names = Vec::new();
        while names.len() < count_max {
            match entries.read_directory_entry() {
                Ok(Some(entry)) => names.push(Some(entry.name)),
                Ok(None) => break,
                Err(ErrorCode::IllegalByteSequence) => names.push(None),
                Err(code) => return Err(to_io_error(code)),
            }
        }
        Ok(names)
    }
}

impl FileDirectory for ReadOnlyTree {
    fn open(&self, name: &str) -> io::Result<Box<dyn DirectoryFile>> {
        check_entry_name(name)?;
        let file = self.open_entry(name, OpenFlags::empty())?;
        Ok(Box::new(ReadOnlyFile { file }))
    }

    fn create_new(&self, _: &str) -> io::Result<Box<dyn DirectoryFile>> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn hard_link(&self, _: &str, _: &str) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let names = self.names(usize::MAX)?;
        Ok(names.into_iter().flatten().collect())
    }

    fn metadata(&self, name: &str) -> io::Result<EntryMetadata> {
        let details = DirectoryTree::details(self, name)?;
        Ok(EntryMetadata {
            is_file: details.is_file(),
            is_directory: details.entry_type == EntryType::Directory,
            bytes: details.bytes,
        })
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl DirectoryTree for ReadOnlyTree {
    fn clone_tree(&self) -> io::Result<Box<dyn DirectoryTree>> {
        let directory = self.open_entry(".", OpenFlags::DIRECTORY)?;
        Ok(Box::new(Self { directory }))
    }

    fn describe(&self) -> io::Result<EntryDetails> {
        describe(&self.directory)
    }

    fn details(&self, name: &str) -> io::Result<EntryDetails> {
        check_entry_name(name)?;
        let unfollowed = PathFlags::empty();
        let stat = self.directory.stat_at(unfollowed, name);
        let hash = self.directory.metadata_hash_at(unfollowed, name);
        Ok(details_of(
            &stat.map_err(to_io_error)?,
            &hash.map_err(to_io_error)?,
        ))
    }

    fn list_some(&self, count_max: usize) -> io::Result<Vec<Option<String>>> {
        self.names(count_max)
    }

    fn read_link(&self, name: &str) -> io::Result<PathBuf> {
        check_entry_name(name)?;
        let target = self.directory.readlink_at(name).map_err(to_io_error)?;
        Ok(PathBuf::from(target))
    }

    fn open_tree(&self, name: &str) -> io::Result<Box<dyn DirectoryTree>> {
        check_entry_name(name)?;
        let directory = self.open_entry(name, OpenFlags::DIRECTORY)?;
        Ok(Box::new(Self { directory }))
    }

    fn create_tree(&self, _: &str) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn remove_tree(&self, _: &str) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn open_file(&self, name: &str, access: FileAccess) -> io::Result<Box<dyn TreeFile>> {
        check_entry_name(name)?;
        match access {
            FileAccess::Read => {
                let file = self.open_entry(name, OpenFlags::empty())?;
                Ok(Box::new(ReadOnlyFile { file }))
            }
            FileAccess::Change | FileAccess::Append => Err(ErrorKind::ReadOnlyFilesystem.into()),
        }
    }

    fn move_below(&self, _: TreePlace<'_>, _: TreePlace<'_>) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn open_handle(&self) -> io::Result<File> {
        Err(ErrorKind::Unsupported.into())
    }
}

/// A file that is open for reading.
struct ReadOnlyFile {
    file: Descriptor,
}

impl DirectoryFile for ReadOnlyFile {
    fn read_at(&mut self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let mut content: Vec<u8> = Vec::new();
        while content.len() < bytes {
            let (left, at) = (bytes - content.len(), offset + content.len() as u64);
            let (more, ended) = self.file.read(left as u64, at).map_err(to_io_error)?;
            let empty = more.is_empty();
            content.extend(more);
            if ended || empty {
                break;
            }
        }
        Ok(content)
    }

    fn append(&mut self, _: &[u8]) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn size(&mut self) -> io::Result<u64> {
        Ok(self.file.stat().map_err(to_io_error)?.size)
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TreeFile for ReadOnlyFile {
    fn details(&mut self) -> io::Result<EntryDetails> {
        describe(&self.file)
    }

    fn write_at(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn append_once(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn truncate(&mut self, _: u64) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }
}

fn describe(handle: &Descriptor) -> io::Result<EntryDetails> {
    let stat = handle.stat().map_err(to_io_error)?;
    let hash = handle.metadata_hash().map_err(to_io_error)?;
    Ok(details_of(&stat, &hash))
}

fn details_of(stat: &DescriptorStat, hash: &MetadataHashValue) -> EntryDetails {
    let entry_type = match stat.type_ {
        DescriptorType::RegularFile => EntryType::File,
        DescriptorType::Directory => EntryType::Directory,
        DescriptorType::SymbolicLink => EntryType::Link,
        _ => EntryType::Special,
    };
    let modified = stat.data_modification_timestamp.and_then(|time| {
        let since = std::time::Duration::new(time.seconds, time.nanoseconds);
        SystemTime::UNIX_EPOCH.checked_add(since)
    });
    EntryDetails {
        entry_type,
        bytes: stat.size,
        has_one_name: stat.link_count <= 1,
        identity: Some((hash.upper, hash.lower)),
        modified,
    }
}

/// Names an error as std does. One that denies has no code of the system: it is the host that keeps
/// a path inside what it has granted.
fn to_io_error(code: ErrorCode) -> io::Error {
    match code {
        ErrorCode::NoEntry => ErrorKind::NotFound.into(),
        ErrorCode::NotDirectory => ErrorKind::NotADirectory.into(),
        ErrorCode::NotPermitted => ErrorKind::PermissionDenied.into(),
        code => io::Error::other(code.name()),
    }
}
