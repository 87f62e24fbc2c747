//! Directories and files that are opened only if they are what they seem: no link, no pipe, no file
//! with a second name, and nothing that took their place between the check and the opening.

use super::{AuthorityError, DirectoryTree, EntryType, FileAccess, TreeFile};
use std::io;

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

/// Opens a directory directly inside another; a link is refused, even one that takes the directory's
/// place meanwhile.
///
/// # Errors
/// [`AuthorityError`], which names the directory by `name`.
pub fn open_child_tree(
    parent: &dyn DirectoryTree,
    name: &str,
) -> Result<Box<dyn DirectoryTree>, AuthorityError> {
    let failed = |source| AuthorityError::from_io(name, source);
    let place = name.to_owned();
    let seen = parent.details(name).map_err(failed)?;
    match seen.entry_type {
        EntryType::Directory => {}
        EntryType::Link => return Err(AuthorityError::Link { place }),
        EntryType::File | EntryType::Special => return Err(AuthorityError::NotDirectory { place }),
    }
    let opened = parent.open_tree(name).map_err(failed)?;
    match opened.describe().map_err(failed)?.identity == seen.identity {
        true => Ok(opened),
        false => Err(AuthorityError::Replaced { place }),
    }
}

/// As [`open_child_tree`]; makes a missing directory, for its owner alone.
///
/// # Errors
/// As [`open_child_tree`].
pub fn open_or_create_tree(
    parent: &dyn DirectoryTree,
    name: &str,
) -> Result<Box<dyn DirectoryTree>, AuthorityError> {
    match parent.create_tree(name) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            Err(AuthorityError::from_io(name, source))
        }
        Ok(()) | Err(_) => open_child_tree(parent, name),
    }
}

/// Opens a regular file that has one name. `place` names it in errors.
///
/// # Errors
/// [`AuthorityError`].
pub fn open_checked_file(
    dir: &dyn DirectoryTree,
    name: &str,
    access: FileAccess,
    place: &str,
) -> Result<Box<dyn TreeFile>, AuthorityError> {
    let failed = |source| AuthorityError::from_io(place, source);
    let shown = || place.to_owned();
    let check = |seen: super::EntryDetails| match seen.entry_type {
        EntryType::Link => Err(AuthorityError::Link { place: shown() }),
        EntryType::Directory | EntryType::Special => {
            Err(AuthorityError::NotRegular { place: shown() })
        }
        EntryType::File if !seen.has_one_name => Err(AuthorityError::HardLink { place: shown() }),
        EntryType::File => Ok(seen.identity),
    };
    // Opening a device or a pipe can have an effect; reading its metadata has none.
    let seen = match (dir.details(name), access) {
        (Err(error), FileAccess::Append) if error.kind() == io::ErrorKind::NotFound => None,
        (seen, _) => Some(check(seen.map_err(failed)?)?),
    };
    let mut file = dir.open_file(name, access).map_err(failed)?;
    let opened = check(file.details().map_err(failed)?)?;
    // A file that was made is looked for again.
    let seen = match seen {
        Some(seen) => seen,
        None => check(dir.details(name).map_err(failed)?)?,
    };
    match seen == opened {
        true => Ok(file),
        false => Err(AuthorityError::Replaced { place: shown() }),
    }
}

/// Reads a whole file of at most `bytes_max` bytes; not read further than that.
///
/// # Errors
/// [`AuthorityError::TooLarge`], and those of the file.
pub fn read_bounded_file(
    file: &mut dyn TreeFile,
    place: &str,
    bytes_max: u64,
) -> Result<Vec<u8>, AuthorityError> {
    let mut bytes: Vec<u8> = Vec::new();
    loop {
        let part = file.read_at(bytes.len() as u64, READ_BYTES);
        let part = part.map_err(|source| AuthorityError::from_io(place, source))?;
        if part.is_empty() {
            return Ok(bytes);
        }
        bytes.extend(part);
        if bytes.len() as u64 > bytes_max {
            let place = place.to_owned();
            return Err(AuthorityError::TooLarge { place, bytes_max });
        }
    }
}
