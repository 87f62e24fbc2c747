//! Files that other users may not read or write, and checks that other users cannot have written a
//! file.
//!
//! A file or directory made here has its mode from the first moment, and the umask of the process
//! takes nothing from it afterwards. Nothing is checked where the system has no modes.

use super::{AuthorityError, child_dir};
use cap_std::fs::{Dir, Metadata};
use std::io;
use threadkeep_storage::directory::create_private_dir;

/// Mode of a directory.
#[cfg(unix)]
const DIRECTORY_MODE: u32 = 0o700;
/// All mode bits of group and others.
#[cfg(unix)]
const OTHERS_MODE_BITS: u32 = 0o077;
/// The mode bits that let others write.
#[cfg(unix)]
const OTHERS_WRITE_BITS: u32 = 0o022;

/// Opens a directory directly inside another, made private if it is missing; a link is refused.
pub(crate) fn private_child_dir(parent: &Dir, name: &str) -> Result<Dir, AuthorityError> {
    let failed = |source| AuthorityError::from_io(name, source);
    match create_private_dir(parent, name) {
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => child_dir(parent, name),
        Err(source) => Err(failed(source)),
        Ok(()) => child_dir(parent, name),
    }
}

/// Removes the permissions of others from a directory of this user: earlier versions made it with
/// the mode of the umask. A directory of another user, or on a read-only file system, stays as it
/// is.
pub(crate) fn close_to_others(dir: &Dir, place: &str) -> Result<(), AuthorityError> {
    #[cfg(unix)]
    {
        use cap_std::fs::PermissionsExt;
        let failed = |source| AuthorityError::from_io(place, source);
        let found = dir.dir_metadata().map_err(failed)?;
        let mode = found.permissions().mode();
        if mode & OTHERS_MODE_BITS == 0 || !is_owned_by_user(&found) {
            return Ok(());
        }
        match set_mode(dir, mode & DIRECTORY_MODE) {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(()),
            done => done.map_err(failed),
        }
    }
    #[cfg(not(unix))]
    {
        let _ = (dir, place);
        Ok(())
    }
}

/// Returns the owner of a directory, if that is neither the user of this process nor root, who can
/// do everything anyway.
pub(crate) fn foreign_owner(dir: &Dir, place: &str) -> Result<Option<u32>, AuthorityError> {
    #[cfg(unix)]
    {
        use cap_std::fs::MetadataExt;
        let found = dir.dir_metadata();
        let found = found.map_err(|source| AuthorityError::from_io(place, source))?;
        let is_trusted = is_owned_by_user(&found) || found.uid() == 0;
        Ok((!is_trusted).then(|| found.uid()))
    }
    #[cfg(not(unix))]
    {
        let _ = (dir, place);
        Ok(None)
    }
}

/// Refuses an operator's file that others can write: its owner is neither this user nor root, or
/// its mode lets others write.
pub(crate) fn check_written_by_owner(found: &Metadata, place: &str) -> Result<(), AuthorityError> {
    #[cfg(unix)]
    {
        use cap_std::fs::{MetadataExt, PermissionsExt};
        let refused = |problem: &str| {
            let source = io::Error::other(problem.to_owned());
            Err(AuthorityError::from_io(place, source))
        };
        if found.permissions().mode() & OTHERS_WRITE_BITS != 0 {
            return refused("others may write it: set its mode to 0600");
        }
        if !is_owned_by_user(found) && found.uid() != 0 {
            return refused("it belongs to another user, who may write it: make it your own");
        }
    }
    #[cfg(not(unix))]
    let _ = (found, place);
    Ok(())
}

/// False for a file with more than one name. Where the system does not count names, every file has
/// one.
pub(crate) fn has_one_name(metadata: &Metadata) -> bool {
    #[cfg(unix)]
    {
        use cap_std::fs::MetadataExt;
        metadata.is_dir() || metadata.nlink() <= 1
    }
    #[cfg(not(unix))]
    {
        let _ = metadata;
        true
    }
}

#[cfg(unix)]
fn is_owned_by_user(found: &Metadata) -> bool {
    use cap_std::fs::MetadataExt;
    found.uid() == rustix::process::geteuid().as_raw()
}

#[cfg(unix)]
fn set_mode(dir: &Dir, mode: u32) -> io::Result<()> {
    use cap_std::fs::PermissionsExt;
    // By the held handle, whatever the directory's name is now.
    dir.set_permissions(".", cap_std::fs::Permissions::from_mode(mode))
}
