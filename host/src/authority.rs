//! The only file that may name an ambient path or read the environment of the process.
//!
//! All other code works beneath a [`Dir`], out of which no path leads, by `..` or a symbolic link:
//! the operating system or cap-std refuses it, not a check of text. The operator owns the project's
//! root, the tenant and its store own `.ai`, and file tools read a grant in which `.ai` does not
//! exist (`tools::files`).

mod locks;
mod private;

pub use locks::{
    HolderLock, HolderState, NATIVE_PREFIX, check_locks_dir, dead_processes, dead_processes_since,
    holder_state, live_processes, lock_file_place, mark_caught_up, remove_lock_files,
};
pub(crate) use private::{check_written_by_owner, has_one_name, private_child_dir};

pub(crate) use crate::thread_files::THREADS_PATH;
pub use threadkeep_adapters::environment::{EnvironmentSnapshot, ExpandError};
pub use threadkeep_storage::directory::AuthorityError;
pub(crate) use threadkeep_storage::directory::{open_private, without_waiting};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// The directory of a tenant inside its project.
pub const AI_DIR: &str = ".ai";

/// A project directory, held open.
#[derive(Debug)]
pub struct ProjectDir {
    dir: Dir,
}

impl ProjectDir {
    /// Opens the directory at an ambient path, following links: the operator names it.
    #[expect(clippy::disallowed_methods, reason = "here a name becomes authority")]
    pub fn open_ambient(path: &Path) -> Result<Self, AuthorityError> {
        let place = path.display().to_string();
        let dir = Dir::open_ambient_dir(path, ambient_authority())
            .map_err(|source| AuthorityError::from_io(&place, source))?;
        Ok(Self::from_dir(dir))
    }

    /// A project in a directory that an embedder already holds.
    pub fn from_dir(dir: Dir) -> Self {
        Self { dir }
    }

    /// The directory itself.
    pub fn directory(&self) -> &Dir {
        &self.dir
    }

    /// Returns the user who owns `.ai`, if that is neither the user of this process nor root: the
    /// directives and settings in it are that user's. Always `None` where files have no such owner.
    pub fn foreign_owner(&self) -> Result<Option<u32>, AuthorityError> {
        match self.ai_dir()? {
            Some(ai) => private::foreign_owner(&ai, AI_DIR),
            None => Ok(None),
        }
    }

    /// The tenant's `.ai`, if it exists. A symbolic link is refused: with it, a user who can write
    /// to the project could move the store and the directives.
    pub fn ai_dir(&self) -> Result<Option<Dir>, AuthorityError> {
        match child_dir(&self.dir, AI_DIR) {
            Ok(dir) => Ok(Some(dir)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// `.ai`, made if it is missing.
    pub fn ai_dir_or_create(&self) -> Result<Dir, AuthorityError> {
        child_dir_or_create(&self.dir, AI_DIR)
    }

    /// `.ai/threads`, made if it is missing: store, documents, lock files. Closed to others (0700).
    pub fn threads_dir_or_create(&self) -> Result<Dir, AuthorityError> {
        let threads = private_child_dir(&self.ai_dir_or_create()?, "threads");
        let threads = threads.map_err(|error| error.with_place(THREADS_PATH))?;
        private::close_to_others(&threads, THREADS_PATH)?;
        Ok(threads)
    }

    /// `.ai/threads`, if it is there.
    pub fn threads_dir(&self) -> Result<Option<Dir>, AuthorityError> {
        let Some(ai) = self.ai_dir()? else {
            return Ok(None);
        };
        match child_dir(&ai, "threads").map_err(|error| error.with_place(THREADS_PATH)) {
            Ok(dir) => Ok(Some(dir)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the directory that file tools may read: the project, or a directory in it, but nothing
    /// in `.ai`, which `tools::files` hides.
    pub fn tool_grant(&self, path: &str) -> Result<Dir, AuthorityError> {
        let leaves = || AuthorityError::Leaves {
            place: path.to_owned(),
        };
        let mut dir = self
            .dir
            .try_clone()
            .map_err(|source| AuthorityError::from_io(path, source))?;
        for part in path
            .split('/')
            .filter(|part| !part.is_empty() && *part != ".")
        {
            if part == ".." || part.eq_ignore_ascii_case(AI_DIR) || path.starts_with('/') {
                return Err(leaves());
            }
            dir = child_dir(&dir, part).map_err(|error| error.with_place(path))?;
        }
        Ok(dir)
    }
}

/// Returns true if this process may do everything.
#[cfg(unix)]
pub fn is_superuser() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the nearest directory, from the working directory up to the root of the file system,
/// that has an entry `.ai`: `.` for the working directory itself. Whether that entry is a project,
/// and whose, is judged when it is opened.
#[expect(clippy::disallowed_methods, reason = "here a name becomes authority")]
pub fn find_project_ambient() -> Option<PathBuf> {
    let here = std::fs::canonicalize(".").ok()?;
    let has_project = |dir: &&Path| std::fs::symlink_metadata(dir.join(AI_DIR)).is_ok();
    let found = here.ancestors().find(has_project)?;
    Some(match found == here {
        true => PathBuf::from("."),
        false => found.to_path_buf(),
    })
}

/// Reads a file that the operator names, such as a script of answers. Links are followed.
pub fn read_ambient(path: &Path, bytes_max: u64) -> Result<Vec<u8>, AuthorityError> {
    let place = path.display().to_string();
    read_bounded(open_ambient(path, &place)?, &place, bytes_max)
}

/// As [`read_ambient`], for a file that grants, such as a policy: refused if others can write it.
pub fn read_trusted_ambient(path: &Path, bytes_max: u64) -> Result<Vec<u8>, AuthorityError> {
    let place = path.display().to_string();
    let file = open_ambient(path, &place)?;
    let found = file.metadata();
    let found = found.map_err(|source| AuthorityError::from_io(&place, source))?;
    check_written_by_owner(&found, &place)?;
    read_bounded(file, &place, bytes_max)
}

#[expect(clippy::disallowed_methods, reason = "here a name becomes authority")]
fn open_ambient(path: &Path, place: &str) -> Result<File, AuthorityError> {
    let failed = |source| AuthorityError::from_io(place, source);
    let target = std::fs::canonicalize(path).map_err(failed)?;
    let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
        let place = place.to_owned();
        return Err(AuthorityError::NotRegular { place });
    };
    let dir = Dir::open_ambient_dir(parent, ambient_authority()).map_err(failed)?;
    open_regular(&dir, Path::new(name), place)
}

/// True if a path of the operator passes through `directory`, even by a link that leads out again:
/// a user who can write there could redirect it. True also if this cannot be determined.
pub fn passes_through_ambient(path: &Path, directory: &Path) -> bool {
    passes_through(path, directory).unwrap_or(true)
}

/// Largest number of links on the path to one file, as on Linux.
const LINKS_MAX: usize = 40;

#[expect(clippy::disallowed_methods, reason = "here a name becomes authority")]
fn passes_through(path: &Path, directory: &Path) -> io::Result<bool> {
    let directory = std::fs::canonicalize(directory)?;
    let mut at = std::fs::canonicalize(".")?;
    let mut links = 0;
    // Reversed: `pop` gives the next component.
    let parts = |path: &Path| -> Vec<PathBuf> {
        let parts = path.components().rev();
        parts.map(|part| PathBuf::from(part.as_os_str())).collect()
    };
    let mut left = parts(path);
    while let Some(part) = left.pop() {
        match part.components().next() {
            None | Some(Component::CurDir) => continue,
            Some(Component::ParentDir) => {
                at.pop();
                continue;
            }
            Some(Component::Prefix(_) | Component::RootDir) => {
                at.push(part);
                continue;
            }
            Some(Component::Normal(_)) if at.starts_with(&directory) => return Ok(true),
            Some(Component::Normal(_)) => at.push(part),
        }
        if std::fs::symlink_metadata(&at)?.is_symlink() {
            links += 1;
            if links > LINKS_MAX {
                return Ok(true);
            }
            left.extend(parts(&std::fs::read_link(&at)?));
            at.pop();
        }
    }
    Ok(false)
}

/// The directory of a file that the operator names.
#[expect(clippy::disallowed_methods, reason = "here a name becomes authority")]
pub fn open_parent_ambient(path: &Path) -> Result<Dir, AuthorityError> {
    let place = path.display().to_string();
    let failed = |source| AuthorityError::from_io(&place, source);
    let target = std::fs::canonicalize(path).map_err(failed)?;
    let Some(parent) = target.parent() else {
        return Err(AuthorityError::NotRegular { place });
    };
    Dir::open_ambient_dir(parent, ambient_authority()).map_err(failed)
}

/// Opens a directory of the operator, made with its parents if missing, for native code and for
/// temporary files of a command. Refused unless it is closed to other users (mode 0700): a user who
/// can write native code into a cache can run it here.
#[expect(clippy::disallowed_methods, reason = "here a name becomes authority")]
pub fn open_private_dir_ambient(path: &Path) -> Result<Dir, AuthorityError> {
    let place = path.display().to_string();
    let failed = |source| AuthorityError::from_io(&place, source);
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(failed)?;
    let dir = Dir::open_ambient_dir(path, ambient_authority()).map_err(failed)?;
    #[cfg(unix)]
    {
        use cap_std::fs::PermissionsExt;
        let found = dir.dir_metadata().map_err(failed)?;
        check_written_by_owner(&found, &place)?;
        if found.permissions().mode() & 0o077 != 0 {
            let problem = "others may use it: set its mode to 0700";
            return Err(failed(io::Error::other(problem)));
        }
    }
    Ok(dir)
}

/// Makes and removes a file to test if a directory is writable. `place` names it in errors.
pub fn check_writable(dir: &Dir, place: &str) -> Result<(), AuthorityError> {
    let failed = |source| AuthorityError::from_io(place, source);
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random).map_err(|error| failed(io::Error::other(error.to_string())))?;
    let name = format!(".try-{:016x}", u64::from_be_bytes(random));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    dir.open_with(&name, &options).map_err(failed)?;
    dir.remove_file(&name).map_err(failed)
}

/// Device and inode number, which identify a file under any name; `None` if there are none.
pub(crate) fn file_identity(metadata: &Metadata) -> Option<(u64, u64)> {
    #[cfg(unix)]
    {
        use cap_std::fs::MetadataExt;
        Some((metadata.dev(), metadata.ino()))
    }
    #[cfg(not(unix))]
    {
        let _ = metadata;
        None
    }
}

/// Opens a directory directly inside another; `name` is one component. A link is refused, even one
/// that takes the directory's place between check and opening.
pub(crate) fn child_dir(parent: &Dir, name: &str) -> Result<Dir, AuthorityError> {
    let failed = |source| AuthorityError::from_io(name, source);
    let seen = parent.symlink_metadata(name).map_err(failed)?;
    let place = name.to_owned();
    if seen.is_symlink() {
        return Err(AuthorityError::Link { place });
    }
    if !seen.is_dir() {
        return Err(AuthorityError::NotDirectory { place });
    }
    let dir = parent.open_dir(name).map_err(failed)?;
    let opened = dir.dir_metadata().map_err(failed)?;
    if file_identity(&seen) != file_identity(&opened) {
        return Err(AuthorityError::Replaced { place });
    }
    Ok(dir)
}

/// Opens a directory directly inside another, made if it is missing; a link is refused.
pub(crate) fn child_dir_or_create(parent: &Dir, name: &str) -> Result<Dir, AuthorityError> {
    match parent.create_dir(name) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            Err(AuthorityError::from_io(name, source))
        }
        Ok(()) | Err(_) => child_dir(parent, name),
    }
}

/// Opens a regular file below `dir` for reading. It never blocks: a pipe without a writer is
/// refused and not opened, even if it takes the file's place between the check and the opening.
/// `place` names the file in errors.
pub(crate) fn open_regular(dir: &Dir, path: &Path, place: &str) -> Result<File, AuthorityError> {
    let failed = |source| AuthorityError::from_io(place, source);
    let refused = || AuthorityError::NotRegular {
        place: place.to_owned(),
    };
    // Opening a device or a pipe can have an effect; reading its metadata has none.
    if !dir.metadata(path).map_err(failed)?.is_file() {
        return Err(refused());
    }
    let file = dir.open_with(path, &read_options()).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(refused());
    }
    Ok(file)
}

/// As [`open_regular`], for files of a tenant: a file with a second name is refused. A hard link
/// leads out of a directory unseen, so its content could belong to another user.
pub(crate) fn open_without_hard_links(
    dir: &Dir,
    path: &Path,
    place: &str,
) -> Result<File, AuthorityError> {
    let file = open_regular(dir, path, place)?;
    let opened = file.metadata();
    match opened.map_err(|source| AuthorityError::from_io(place, source))? {
        opened if has_one_name(&opened) => Ok(file),
        _ => Err(AuthorityError::HardLink {
            place: place.to_owned(),
        }),
    }
}

/// Options for reading without waiting for the other end of a pipe.
fn read_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true);
    without_waiting(options)
}

/// Options for writing an existing file, without waiting for the other end of a pipe.
fn write_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    without_waiting(options)
}

/// Reads a whole file of at most `bytes_max` bytes; not read further than that.
pub(crate) fn read_bounded(
    file: File,
    place: &str,
    bytes_max: u64,
) -> Result<Vec<u8>, AuthorityError> {
    let mut bytes = Vec::new();
    let read = file
        .take(bytes_max.saturating_add(1))
        .read_to_end(&mut bytes);
    read.map_err(|source| AuthorityError::from_io(place, source))?;
    if bytes.len() as u64 > bytes_max {
        return Err(AuthorityError::TooLarge {
            place: place.to_owned(),
            bytes_max,
        });
    }
    Ok(bytes)
}

/// Takes a snapshot of the environment of this process. Values not UTF-8 or too long are left out.
#[expect(
    clippy::disallowed_methods,
    reason = "here the environment becomes a value"
)]
pub fn environment_of_process() -> EnvironmentSnapshot {
    EnvironmentSnapshot::from_pairs(
        std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        }),
    )
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests plant files from outside the library"
)]
mod tests;
