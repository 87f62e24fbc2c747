//! The files of a store on systems other than Linux, which have no path through a held directory.
//!
//! SQLite is given the path that the directory has when the store is opened. So what Linux promises
//! by its kernel is here only checked: the files are looked at before each connection, and their
//! numbers before each call where the system has them. A user who can rename the project's
//! directory while a store is open may lead SQLite elsewhere; the project must belong to its
//! operator alone. File systems of networks are not told apart. README.md says so, too.

use super::super::StorageError;
use super::super::check::other_error;
use super::files::FileNumber;
use cap_std::fs::Dir;
use std::ffi::CString;
use std::io;

/// The path of a file of the store, by the present path of its directory.
pub(super) fn path(dir: &Dir, name: &str) -> Result<CString, StorageError> {
    let mut path = system::directory_path(dir).map_err(|error| {
        let message = format!("the path of the store's directory cannot be had: {error}");
        other_error("no-path", message)
    })?;
    path.push(system::SEPARATOR);
    path.extend(name.bytes());
    CString::new(path).map_err(|_| other_error("bad-name", "a name with a NUL"))
}

/// Nothing is known about file systems here.
pub(super) fn check_file_system(_dir: &Dir) -> Result<(), StorageError> {
    Ok(())
}

pub(super) use system::{close_to_others, is_writable, make_private, number, open_no_follow};

#[cfg(unix)]
mod system {
    use super::*;
    use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, accessat, chmodat, openat, statat};
    use rustix::io::Errno;

    pub(super) const SEPARATOR: u8 = b'/';

    /// Read and written by its owner alone.
    const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

    #[cfg(target_vendor = "apple")]
    pub(super) fn directory_path(dir: &Dir) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::getpath(dir)?.into_bytes())
    }

    #[cfg(not(target_vendor = "apple"))]
    pub(super) fn directory_path(_: &Dir) -> io::Result<Vec<u8>> {
        let problem = "this system does not tell the path of an open directory: use --store files";
        Err(io::Error::new(io::ErrorKind::Unsupported, problem))
    }

    pub fn is_writable(dir: &Dir) -> bool {
        accessat(dir, ".", Access::WRITE_OK, AtFlags::EACCESS).is_ok()
    }

    /// Called before each call of the store, so it is a single system call.
    pub fn number(dir: &Dir, name: &str) -> io::Result<Option<FileNumber>> {
        match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            // Their widths and signs differ between systems: they are only compared.
            Ok(found) => Ok(Some((found.st_dev as u64, found.st_ino as u64))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens without waiting for the other end of a pipe and without following a link. A new file
    /// is private.
    pub fn open_no_follow(dir: &Dir, name: &str) -> io::Result<std::fs::File> {
        make_private(dir, name)?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(dir, name, flags, PRIVATE)?.into())
    }

    /// Takes away what others may do with an ordinary file of this user that has one name. The file
    /// is named, not opened: closing it would release SQLite's locks.
    pub fn close_to_others(dir: &Dir, name: &str) -> io::Result<()> {
        let found = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            // It belonged to a connection that has ended.
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let mode = Mode::from_raw_mode(found.st_mode);
        let own = found.st_uid == rustix::process::geteuid().as_raw();
        let ordinary = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        let open = mode.intersects(Mode::RWXG | Mode::RWXO);
        if !own || !ordinary || !open || !mode.contains(Mode::WUSR) || found.st_nlink != 1 {
            return Ok(());
        }
        match chmodat(dir, name, PRIVATE, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(()) | Err(Errno::NOENT | Errno::ROFS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes an empty file if there is none, whatever the umask of the process is. One that is there
    /// is not opened, as [`close_to_others`] says.
    pub fn make_private(dir: &Dir, name: &str) -> io::Result<()> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match openat(dir, name, flags, PRIVATE) {
            Ok(_) => Ok(chmodat(dir, name, PRIVATE, AtFlags::SYMLINK_NOFOLLOW)?),
            Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(not(unix))]
mod system {
    use super::*;

    pub(super) const SEPARATOR: u8 = b'\\';

    pub(super) fn directory_path(dir: &Dir) -> io::Result<Vec<u8>> {
        let path = super::super::vfs::directory_path(dir)?;
        Ok(path.into_bytes())
    }

    pub fn is_writable(_: &Dir) -> bool {
        true
    }

    /// The system's numbers of files are not read: a replaced file is not found out.
    pub fn number(_: &Dir, _: &str) -> io::Result<Option<FileNumber>> {
        Ok(None)
    }

    /// Files have the rights of their directory.
    pub fn make_private(_: &Dir, _: &str) -> io::Result<()> {
        Ok(())
    }

    /// Files have the rights of their directory.
    pub fn close_to_others(_: &Dir, _: &str) -> io::Result<()> {
        Ok(())
    }

    pub fn open_no_follow(dir: &Dir, name: &str) -> io::Result<std::fs::File> {
        let mut options = cap_std::fs::OpenOptions::new();
        options.read(true).write(true).create(true);
        let file = dir.open_with(name, &options)?;
        Ok(file.into_std())
    }
}
