//! A directory that a WASI host has granted, held by its descriptor: the host lets no path leave
//! it, by `..` or a link. Unlike a path of std it tells files apart and counts their names.

use super::{
    DirectoryFile, DirectoryTree, EntryDetails, EntryMetadata, EntryType, FileAccess,
    FileDirectory, TreeFile, TreePlace, check_entry_name, check_no_pipe,
};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use wasip2::filesystem::preopens::get_directories;
use wasip2::filesystem::types::{
    Descriptor, DescriptorFlags, DescriptorStat, DescriptorType, ErrorCode, MetadataHashValue,
    OpenFlags, PathFlags, filesystem_error_code,
};
use wasip2::io::streams::StreamError;

/// Bytes that one call of the host writes: it copies them.
const WRITE_BYTES: usize = 256 << 10;

/// The code by which std under WASI knows that the system denies access (`EACCES`).
const ACCESS_DENIED: i32 = 2;

/// A directory of a WASI host. No link is followed.
#[derive(Debug)]
pub struct DescriptorTree {
    directory: Descriptor,
    is_writable: bool,
}

impl DescriptorTree {
    /// The directory that the host grants under this path, to be read alone; `None` if it grants
    /// none.
    pub fn read_only(path: &str) -> Option<Self> {
        Self::open_granted(path, false)
    }

    /// As [`DescriptorTree::read_only`], to be changed as far as the host allows it.
    pub fn writable(path: &str) -> Option<Self> {
        Self::open_granted(path, true)
    }

    fn open_granted(path: &str, is_writable: bool) -> Option<Self> {
        let mut granted = get_directories().into_iter();
        let (directory, _) = granted.find(|(_, place)| place == path)?;
        Some(Self {
            directory,
            is_writable,
        })
    }

    fn check_writable(&self) -> io::Result<()> {
        match self.is_writable {
            true => Ok(()),
            false => Err(ErrorKind::ReadOnlyFilesystem.into()),
        }
    }

    fn open_entry(&self, name: &str, flags: OpenFlags, writes: bool) -> io::Result<Descriptor> {
        let access = match writes {
            true => DescriptorFlags::READ | DescriptorFlags::WRITE,
            false => DescriptorFlags::READ,
        };
        let opened = self
            .directory
            .open_at(PathFlags::empty(), name, flags, access);
        opened.map_err(to_io_error)
    }

    /// The details of an entry without its identity, which costs a call of the host.
    fn stat_entry(&self, name: &str) -> io::Result<EntryDetails> {
        check_entry_name(name)?;
        let stat = self.directory.stat_at(PathFlags::empty(), name);
        Ok(details_of(&stat.map_err(to_io_error)?, None))
    }

    fn open_directory(&self, name: &str) -> io::Result<Self> {
        Ok(Self {
            directory: self.open_entry(name, OpenFlags::DIRECTORY, false)?,
            is_writable: self.is_writable,
        })
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

    /// The directory of a place, held while a file is moved.
    fn directory_of(&self, place: TreePlace<'_>) -> io::Result<Self> {
        check_entry_name(place.name)?;
        let name = place.directory.unwrap_or(".");
        if place.directory.is_some() {
            check_entry_name(name)?;
        }
        self.open_directory(name)
    }
}

impl FileDirectory for DescriptorTree {
    fn open(&self, name: &str) -> io::Result<Box<dyn DirectoryFile>> {
        check_no_pipe(&self.stat_entry(name)?)?;
        let file = self.open_entry(name, OpenFlags::empty(), false)?;
        Ok(Box::new(DescriptorFile { file, end: None }))
    }

    fn create_new(&self, name: &str) -> io::Result<Box<dyn DirectoryFile>> {
        self.check_writable()?;
        check_entry_name(name)?;
        let file = self.open_entry(name, OpenFlags::CREATE | OpenFlags::EXCLUSIVE, true)?;
        let end = Some(0);
        Ok(Box::new(DescriptorFile { file, end }))
    }

    fn hard_link(&self, name: &str, second: &str) -> io::Result<()> {
        self.check_writable()?;
        check_entry_name(name)?;
        check_entry_name(second)?;
        let unfollowed = PathFlags::empty();
        let linked = self
            .directory
            .link_at(unfollowed, name, &self.directory, second);
        linked.map_err(to_io_error)
    }

    fn rename(&self, name: &str, new_name: &str) -> io::Result<()> {
        self.check_writable()?;
        check_entry_name(name)?;
        check_entry_name(new_name)?;
        let renamed = self.directory.rename_at(name, &self.directory, new_name);
        renamed.map_err(to_io_error)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.check_writable()?;
        check_entry_name(name)?;
        self.directory.unlink_file_at(name).map_err(to_io_error)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let names = self.names(usize::MAX)?;
        Ok(names.into_iter().flatten().collect())
    }

    fn metadata(&self, name: &str) -> io::Result<EntryMetadata> {
        Ok(EntryMetadata::from_details(&self.stat_entry(name)?))
    }

    fn sync(&self) -> io::Result<()> {
        self.check_writable()?;
        self.directory.sync().map_err(to_io_error)
    }
}

impl DirectoryTree for DescriptorTree {
    fn clone_tree(&self) -> io::Result<Box<dyn DirectoryTree>> {
        Ok(Box::new(self.open_directory(".")?))
    }

    fn describe(&self) -> io::Result<EntryDetails> {
        describe(&self.directory)
    }

    fn details(&self, name: &str) -> io::Result<EntryDetails> {
        check_entry_name(name)?;
        let unfollowed = PathFlags::empty();
        let stat = self.directory.stat_at(unfollowed, name);
        let hash = self.directory.metadata_hash_at(unfollowed, name);
        let (stat, hash) = (stat.map_err(to_io_error)?, hash.map_err(to_io_error)?);
        Ok(details_of(&stat, Some(&hash)))
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
        Ok(Box::new(self.open_directory(name)?))
    }

    fn create_tree(&self, name: &str) -> io::Result<()> {
        self.check_writable()?;
        check_entry_name(name)?;
        self.directory
            .create_directory_at(name)
            .map_err(to_io_error)
    }

    fn remove_tree(&self, name: &str) -> io::Result<()> {
        self.check_writable()?;
        check_entry_name(name)?;
        self.directory
            .remove_directory_at(name)
            .map_err(to_io_error)
    }

    fn open_file(&self, name: &str, access: FileAccess) -> io::Result<Box<dyn TreeFile>> {
        check_entry_name(name)?;
        let file = match access {
            FileAccess::Read => self.open_entry(name, OpenFlags::empty(), false)?,
            FileAccess::Change => {
                self.check_writable()?;
                self.open_entry(name, OpenFlags::empty(), true)?
            }
            FileAccess::Append => {
                self.check_writable()?;
                self.open_entry(name, OpenFlags::CREATE, true)?
            }
        };
        Ok(Box::new(DescriptorFile { file, end: None }))
    }

    fn move_below(&self, from: TreePlace<'_>, to: TreePlace<'_>) -> io::Result<()> {
        self.check_writable()?;
        let (source, target) = (self.directory_of(from)?, self.directory_of(to)?);
        let moved = source
            .directory
            .rename_at(from.name, &target.directory, to.name);
        moved.map_err(to_io_error)
    }

    /// WASI locks nothing.
    fn open_handle(&self) -> io::Result<File> {
        Err(ErrorKind::Unsupported.into())
    }
}

/// An open file of a WASI host.
struct DescriptorFile {
    file: Descriptor,
    /// Bytes of a file that was made here, and that nobody else writes: its size need not be asked
    /// for.
    end: Option<u64>,
}

impl DirectoryFile for DescriptorFile {
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

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let end = match self.end {
            Some(end) => end,
            None => self.size()?,
        };
        self.write_at(end, bytes)?;
        self.end = self.end.map(|end| end + bytes.len() as u64);
        Ok(())
    }

    fn size(&mut self) -> io::Result<u64> {
        Ok(self.file.stat().map_err(to_io_error)?.size)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync().map_err(to_io_error)
    }
}

impl TreeFile for DescriptorFile {
    fn details(&mut self) -> io::Result<EntryDetails> {
        describe(&self.file)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (mut at, mut left) = (offset, bytes);
        while !left.is_empty() {
            let part = &left[..left.len().min(WRITE_BYTES)];
            let written = self.file.write(part, at).map_err(to_io_error)?;
            let count = usize::try_from(written).unwrap_or(usize::MAX);
            if count == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
            at += written;
            left = left.get(count..).unwrap_or_default();
        }
        Ok(())
    }

    fn append_once(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stream = self.file.append_via_stream().map_err(to_io_error)?;
        let room = loop {
            match stream.check_write().map_err(to_stream_error)? {
                0 => stream.subscribe().block(),
                room => break usize::try_from(room).unwrap_or(usize::MAX),
            }
        };
        let count = bytes.len().min(room);
        let written = stream.write(&bytes[..count]);
        written.map_err(to_stream_error)?;
        stream.blocking_flush().map_err(to_stream_error)?;
        Ok(count)
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.file.set_size(bytes).map_err(to_io_error)
    }
}

fn describe(handle: &Descriptor) -> io::Result<EntryDetails> {
    let stat = handle.stat().map_err(to_io_error)?;
    let hash = handle.metadata_hash().map_err(to_io_error)?;
    Ok(details_of(&stat, Some(&hash)))
}

fn details_of(stat: &DescriptorStat, hash: Option<&MetadataHashValue>) -> EntryDetails {
    let entry_type = match stat.type_ {
        DescriptorType::RegularFile => EntryType::File,
        DescriptorType::Directory => EntryType::Directory,
        DescriptorType::SymbolicLink => EntryType::Link,
        _ => EntryType::Special,
    };
    let modified = stat.data_modification_timestamp.and_then(|time| {
        let since = Duration::new(time.seconds, time.nanoseconds);
        SystemTime::UNIX_EPOCH.checked_add(since)
    });
    EntryDetails {
        entry_type,
        bytes: stat.size,
        has_one_name: entry_type != EntryType::File || stat.link_count <= 1,
        identity: hash.map(|hash| (hash.upper, hash.lower)),
        modified,
    }
}

/// Names an error as std does. One that denies has no code of the system if it is the host that
/// keeps a path inside what it has granted.
fn to_io_error(code: ErrorCode) -> io::Error {
    match code {
        ErrorCode::NoEntry => ErrorKind::NotFound.into(),
        ErrorCode::Exist => ErrorKind::AlreadyExists.into(),
        ErrorCode::NotDirectory => ErrorKind::NotADirectory.into(),
        ErrorCode::NotEmpty => ErrorKind::DirectoryNotEmpty.into(),
        ErrorCode::NotPermitted => ErrorKind::PermissionDenied.into(),
        ErrorCode::Access => io::Error::from_raw_os_error(ACCESS_DENIED),
        ErrorCode::Unsupported => ErrorKind::Unsupported.into(),
        ErrorCode::ReadOnly => ErrorKind::ReadOnlyFilesystem.into(),
        ErrorCode::InsufficientSpace => ErrorKind::StorageFull.into(),
        ErrorCode::Quota => ErrorKind::QuotaExceeded.into(),
        code => io::Error::other(code.name()),
    }
}

fn to_stream_error(error: StreamError) -> io::Error {
    match error {
        StreamError::Closed => ErrorKind::BrokenPipe.into(),
        StreamError::LastOperationFailed(problem) => match filesystem_error_code(&problem) {
            Some(code) => to_io_error(code),
            None => io::Error::other(problem.to_debug_string()),
        },
    }
}
