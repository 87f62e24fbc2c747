//! A directory of the project, held by its handle: no path leads out of it, by `..` or a link,
//! because the host resolves paths below the handle.

use threadkeep_adapters::library::{
    DirectoryEntry, DirectoryListing, EntryKind, LibraryError, LibraryFiles,
};
use wasip2::filesystem::preopens::get_directories;
use wasip2::filesystem::types::{
    Descriptor, DescriptorFlags, DescriptorType, DirectoryEntryStream, ErrorCode, OpenFlags,
    PathFlags,
};

/// The path under which the project is granted.
pub const ROOT: &str = "/";

/// Most bytes of one read.
const READ_BYTES: u64 = 64 << 10;

/// A directory that was granted, or one inside it.
#[derive(Debug)]
pub struct ProjectFiles {
    directory: Descriptor,
}

impl ProjectFiles {
    /// The project's directory; `None` if the host grants none as [`ROOT`].
    pub fn root() -> Option<Self> {
        let granted = get_directories().into_iter();
        let mut roots = granted.filter(|(_, path)| path == ROOT);
        let (directory, _) = roots.next()?;
        Some(Self { directory })
    }

    fn open_entry(&self, path: &str, flags: OpenFlags) -> Result<Descriptor, ErrorCode> {
        let reading = DescriptorFlags::READ;
        self.directory
            .open_at(PathFlags::SYMLINK_FOLLOW, path, flags, reading)
    }

    fn read_file(&self, path: &str, bytes_max: u64) -> Result<Vec<u8>, FileRefusal> {
        // Opening a pipe may wait for its other end; reading its metadata does not.
        let seen = self.directory.stat_at(PathFlags::SYMLINK_FOLLOW, path)?;
        if seen.type_ != DescriptorType::RegularFile {
            return Err(FileRefusal::NotRegular);
        }
        let file = self.open_entry(path, OpenFlags::empty())?;
        let opened = file.stat()?;
        if opened.type_ != DescriptorType::RegularFile {
            return Err(FileRefusal::NotRegular);
        }
        if opened.link_count > 1 {
            return Err(FileRefusal::HardLink);
        }
        let mut bytes = Vec::new();
        loop {
            let (more, ended) = file.read(READ_BYTES, bytes.len() as u64)?;
            bytes.extend_from_slice(&more);
            if bytes.len() as u64 > bytes_max {
                return Err(FileRefusal::TooLarge(bytes_max));
            }
            if ended || more.is_empty() {
                return Ok(bytes);
            }
        }
    }
}

impl LibraryFiles for ProjectFiles {
    fn open_directory(
        &self,
        name: &str,
        place: &str,
    ) -> Result<Option<Box<dyn LibraryFiles>>, LibraryError> {
        let open = || {
            let seen = self.directory.stat_at(PathFlags::empty(), name)?;
            match seen.type_ {
                DescriptorType::Directory => {}
                DescriptorType::SymbolicLink => return Err(FileRefusal::Link),
                _ => return Err(FileRefusal::NotDirectory),
            }
            let reading = DescriptorFlags::READ;
            let opened =
                self.directory
                    .open_at(PathFlags::empty(), name, OpenFlags::DIRECTORY, reading)?;
            Ok(opened)
        };
        let opened = none_if_missing(place, open())?;
        Ok(opened.map(|directory| Box::new(Self { directory }) as Box<dyn LibraryFiles>))
    }

    fn read(
        &self,
        path: &str,
        place: &str,
        bytes_max: u64,
    ) -> Result<Option<Vec<u8>>, LibraryError> {
        none_if_missing(place, self.read_file(path, bytes_max))
    }

    fn list(&self, path: &str, place: &str) -> Result<Option<DirectoryListing>, LibraryError> {
        let open = || {
            let directory = self.open_entry(path, OpenFlags::DIRECTORY)?;
            let entries = directory.read_directory()?;
            Ok(OpenListing {
                entries,
                _directory: directory,
                place: place.to_owned(),
            })
        };
        match open() {
            Ok(listing) => Ok(Some(Box::new(listing))),
            Err(ErrorCode::NotDirectory | ErrorCode::NoEntry) => Ok(None),
            Err(error) => none_if_missing(place, Err(error.into())),
        }
    }

    fn is_file(&self, path: &str) -> bool {
        let found = self.directory.stat_at(PathFlags::SYMLINK_FOLLOW, path);
        found.is_ok_and(|found| found.type_ == DescriptorType::RegularFile)
    }
}

/// The entries of a directory that is being read. Fields are dropped in this order.
struct OpenListing {
    entries: DirectoryEntryStream,
    _directory: Descriptor,
    place: String,
}

impl Iterator for OpenListing {
    type Item = Result<DirectoryEntry, LibraryError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.entries.read_directory_entry() {
            Ok(entry) => entry.map(|entry| {
                let kind = match entry.type_ {
                    DescriptorType::Directory => EntryKind::Directory,
                    _ => EntryKind::Other,
                };
                Ok(DirectoryEntry {
                    name: Some(entry.name),
                    kind,
                })
            }),
            Err(ErrorCode::IllegalByteSequence) => Some(Ok(DirectoryEntry {
                name: None,
                kind: EntryKind::Other,
            })),
            Err(error) => Some(Err(to_library_error(&self.place, error.into()))),
        }
    }
}

/// The reason why a file or directory is not read.
#[derive(Debug)]
enum FileRefusal {
    Link,
    HardLink,
    NotDirectory,
    NotRegular,
    TooLarge(u64),
    System(ErrorCode),
}

impl From<ErrorCode> for FileRefusal {
    fn from(code: ErrorCode) -> Self {
        Self::System(code)
    }
}

fn none_if_missing<T>(
    place: &str,
    result: Result<T, FileRefusal>,
) -> Result<Option<T>, LibraryError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(FileRefusal::System(ErrorCode::NoEntry)) => Ok(None),
        Err(refusal) => Err(to_library_error(place, refusal)),
    }
}

fn to_library_error(place: &str, refusal: FileRefusal) -> LibraryError {
    let problem = match refusal {
        FileRefusal::Link => {
            "is a symbolic link; put the file or directory itself there".to_owned()
        }
        FileRefusal::HardLink => {
            "is a hard link: the file has another name, which may be outside; \
                                  put a copy there"
                .to_owned()
        }
        FileRefusal::NotDirectory | FileRefusal::System(ErrorCode::NotDirectory) => {
            "is not a directory".to_owned()
        }
        FileRefusal::NotRegular => "is not a regular file".to_owned(),
        FileRefusal::TooLarge(bytes_max) => format!("is larger than {bytes_max} bytes"),
        FileRefusal::System(ErrorCode::NotPermitted) => {
            "leads out of its directory; copy what it points to".to_owned()
        }
        FileRefusal::System(code) => {
            let message = format!("{place}: {}", code.name());
            return LibraryError::Unavailable { message };
        }
    };
    LibraryError::invalid(place, "", problem)
}
