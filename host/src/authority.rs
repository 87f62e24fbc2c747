//! Where authority enters: the one file that may name an ambient path or read the process's environment.
//!
//! Everything else gets a [`Dir`] and works beneath it: a path that leads out of it, by `..` or by a symbolic link, is
//! refused by the operating system or by cap-std, not by a check of text. What lies inside a directory is decided by
//! who holds it: the project's root belongs to the operator, `.ai` to the tenant and its store, and tools read a grant
//! in which `.ai` does not exist (`tools::files`).

mod locks;
mod private;

pub use locks::{
    HolderLock, Life, NATIVE_PREFIX, check_locks, dead, dead_since, life, lock_place,
    note_caught_up, sweep,
};
pub(crate) use private::{check_written_by_owner, has_one_name, open_private, private_child_dir};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, Metadata, OpenOptions};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The directory of a tenant inside its project.
pub const AI: &str = ".ai";

/// Most variables in an [`Environment`]. A shell has about a hundred; what comes after this many is left out.
pub const VARIABLES_MAX: usize = 4_096;

/// Longest value that is kept, in bytes. Keys and addresses have less than a kilobyte.
pub const VARIABLE_BYTES_MAX: usize = 32 << 10;

/// The directory of the store, as errors call it.
pub(crate) const THREADS: &str = ".ai/threads";

/// What the name of a variable ends in that the key of a provider may name: whoever writes the model table chooses where
/// its value is sent, so it may not be any variable, and its value goes only where the operator's policy binds it to.
pub const KEY_SUFFIX: &str = "_API_KEY";

/// What the name of a variable ends in that the address of a provider may begin with.
pub const ADDRESS_SUFFIX: &str = "_BASE_URL";

/// Longest text that [`Environment::expand`] makes.
pub const EXPANDED_BYTES_MAX: usize = 64 << 10;

/// Why a directory or a file cannot be had.
#[derive(Debug, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "each variant's doc and message say what its fields are"
)]
#[non_exhaustive]
pub enum AuthorityError {
    /// There is no such thing.
    #[error("{place} does not exist")]
    Missing { place: String },
    /// It is a symbolic link where none may be.
    #[error("{place} is a symbolic link; put the directory itself there")]
    Link { place: String },
    /// It is a file with a second name: nobody can say whose it is, for the other name may be anywhere.
    #[error(
        "{place} is a hard link: the file has another name, which may be outside; put a copy there"
    )]
    HardLink { place: String },
    /// A path or a link in it leads out of the directory that it must stay in.
    #[error("{place} leads out of its directory; copy what it points to")]
    Leaves { place: String },
    /// It is no directory.
    #[error("{place} is not a directory")]
    NotDirectory { place: String },
    /// It is a directory, a pipe, a socket or a device.
    #[error("{place} is not a regular file")]
    NotRegular { place: String },
    /// It was replaced between looking and opening.
    #[error("{place} was replaced while it was opened; try again")]
    Replaced { place: String },
    /// It is larger than whoever reads it allows.
    #[error("{place} is larger than {bytes_max} bytes")]
    TooLarge { place: String, bytes_max: u64 },
    /// The operating system says no.
    #[error("{place} cannot be opened")]
    Io { place: String, source: io::Error },
}

impl AuthorityError {
    /// Sort what the operating system said about `place`.
    pub(crate) fn from_io(place: &str, source: io::Error) -> Self {
        let place = place.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { place },
            io::ErrorKind::NotADirectory => Self::NotDirectory { place },
            // Only cap-std denies without a code of the operating system: the path led outside.
            io::ErrorKind::PermissionDenied if source.raw_os_error().is_none() => {
                Self::Leaves { place }
            }
            _ => Self::Io { place, source },
        }
    }

    /// The same about a place that the caller knows better.
    #[must_use]
    pub(crate) fn at(self, place: &str) -> Self {
        let place = place.to_owned();
        match self {
            Self::Missing { .. } => Self::Missing { place },
            Self::Link { .. } => Self::Link { place },
            Self::HardLink { .. } => Self::HardLink { place },
            Self::Leaves { .. } => Self::Leaves { place },
            Self::NotDirectory { .. } => Self::NotDirectory { place },
            Self::NotRegular { .. } => Self::NotRegular { place },
            Self::Replaced { .. } => Self::Replaced { place },
            Self::TooLarge { bytes_max, .. } => Self::TooLarge { place, bytes_max },
            Self::Io { source, .. } => Self::Io { place, source },
        }
    }

    /// True if there is simply nothing there.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }
}

/// A project directory that is held open.
#[derive(Debug)]
pub struct Project {
    dir: Dir,
}

impl Project {
    /// Open the directory at an ambient path, following links: it is the operator who names it.
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

    /// The tenant's `.ai`, if the project has one. A symbolic link is refused: it would let whoever can write to the
    /// project place the store and the directives somewhere else.
    pub fn ai(&self) -> Result<Option<Dir>, AuthorityError> {
        match child_dir(&self.dir, AI) {
            Ok(dir) => Ok(Some(dir)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// `.ai`, made if it is missing.
    pub fn ai_or_create(&self) -> Result<Dir, AuthorityError> {
        child_dir_or_create(&self.dir, AI)
    }

    /// `.ai/threads`, made if it is missing: the store, documents and lock files. Nobody else may
    /// read it (0700).
    pub fn threads(&self) -> Result<Dir, AuthorityError> {
        let threads = private_child_dir(&self.ai_or_create()?, "threads");
        let threads = threads.map_err(|error| error.at(THREADS))?;
        private::close_to_others(&threads, THREADS)?;
        Ok(threads)
    }

    /// `.ai/threads`, if it is there.
    pub fn threads_if_present(&self) -> Result<Option<Dir>, AuthorityError> {
        let Some(ai) = self.ai()? else {
            return Ok(None);
        };
        match child_dir(&ai, "threads").map_err(|error| error.at(THREADS)) {
            Ok(dir) => Ok(Some(dir)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What file tools may read: the project, or a directory in it. `tools::files` hides `.ai` in it, and `.ai` itself
    /// or anything below it cannot be granted.
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
            if part == ".." || part.eq_ignore_ascii_case(AI) || path.starts_with('/') {
                return Err(leaves());
            }
            dir = child_dir(&dir, part).map_err(|error| error.at(path))?;
        }
        Ok(dir)
    }
}

/// Read a file that the operator names on the command line, such as a script of answers. Links are
/// followed.
pub fn read_ambient(path: &Path, bytes_max: u64) -> Result<Vec<u8>, AuthorityError> {
    let place = path.display().to_string();
    read_bounded(open_ambient(path, &place)?, &place, bytes_max)
}

/// As [`read_ambient`], for a file that says what is allowed, such as a policy: one that others can
/// write is refused.
pub fn read_own_ambient(path: &Path, bytes_max: u64) -> Result<Vec<u8>, AuthorityError> {
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

/// True if a file that the operator names lies in a directory, or is found by a name in it, such as a link that leads out
/// again: whoever can write there could aim it at another. True also if that cannot be known.
pub fn passes_through_ambient(path: &Path, directory: &Path) -> bool {
    passes_through(path, directory).unwrap_or(true)
}

/// Most links on the way to one file, as Linux has it.
const LINKS_MAX: usize = 40;

#[expect(clippy::disallowed_methods, reason = "here a name becomes authority")]
fn passes_through(path: &Path, directory: &Path) -> io::Result<bool> {
    let directory = std::fs::canonicalize(directory)?;
    let mut at = std::fs::canonicalize(".")?;
    let mut links = 0;
    // The next one last.
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
pub fn parent_ambient(path: &Path) -> Result<Dir, AuthorityError> {
    let place = path.display().to_string();
    let failed = |source| AuthorityError::from_io(&place, source);
    let target = std::fs::canonicalize(path).map_err(failed)?;
    let Some(parent) = target.parent() else {
        return Err(AuthorityError::NotRegular { place });
    };
    Dir::open_ambient_dir(parent, ambient_authority()).map_err(failed)
}

/// A directory of the operator's own, made if it is missing, with its parents: for native code, and for what lives no
/// longer than a command. Nobody else may use it (mode 0700), or it is refused: whoever can write native code into a
/// cache can run it here.
#[expect(clippy::disallowed_methods, reason = "here a name becomes authority")]
pub fn private_dir_ambient(path: &Path) -> Result<Dir, AuthorityError> {
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

/// Try whether files can be made in a directory: one is made and removed. `place` names the directory in errors.
pub fn try_write(dir: &Dir, place: &str) -> Result<(), AuthorityError> {
    let failed = |source| AuthorityError::from_io(place, source);
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random).map_err(|error| failed(io::Error::other(error.to_string())))?;
    let name = format!(".try-{:016x}", u64::from_be_bytes(random));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    dir.open_with(&name, &options).map_err(failed)?;
    dir.remove_file(&name).map_err(failed)
}

/// What tells two directories or files apart whatever they are called: device and number. `None` where the system has
/// no such thing.
pub(crate) fn identity(metadata: &Metadata) -> Option<(u64, u64)> {
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

/// Open a directory directly inside another; `name` is one component. A link is refused, also one that takes the
/// directory's place between looking and opening.
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
    if identity(&seen) != identity(&opened) {
        return Err(AuthorityError::Replaced { place });
    }
    Ok(dir)
}

/// A directory directly inside another, made if it is missing; a link is refused.
pub(crate) fn child_dir_or_create(parent: &Dir, name: &str) -> Result<Dir, AuthorityError> {
    match parent.create_dir(name) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            Err(AuthorityError::from_io(name, source))
        }
        Ok(()) | Err(_) => child_dir(parent, name),
    }
}

/// Open a regular file below `dir` for reading. It never waits: a pipe without a writer is refused and not opened, also
/// when it takes the file's place between looking and opening. `place` names it in errors.
pub(crate) fn open_regular(dir: &Dir, path: &Path, place: &str) -> Result<File, AuthorityError> {
    let failed = |source| AuthorityError::from_io(place, source);
    let refused = || AuthorityError::NotRegular {
        place: place.to_owned(),
    };
    // Opening a device or a pipe can have an effect; looking at it has none.
    if !dir.metadata(path).map_err(failed)?.is_file() {
        return Err(refused());
    }
    let file = dir.open_with(path, &reading()).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(refused());
    }
    Ok(file)
}

/// As [`open_regular`], for files of a tenant: one with a second name is refused. A hard link leads out of a directory
/// unseen, so what is read through one could be anybody's.
pub(crate) fn open_own(dir: &Dir, path: &Path, place: &str) -> Result<File, AuthorityError> {
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
fn reading() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true);
    not_waiting(options)
}

/// Options for writing what is there, without waiting for the other end of a pipe.
fn writing() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    not_waiting(options)
}

pub(crate) fn not_waiting(mut options: OpenOptions) -> OpenOptions {
    #[cfg(unix)]
    {
        use cap_std::fs::OpenOptionsExt;
        // O_NONBLOCK, the same on every architecture that Rust's tier 1 and 2 Linux hosts with std have, save MIPS and
        // SPARC, where the look at the type before opening stands alone.
        const NONBLOCK: i32 = if cfg!(any(target_os = "linux", target_os = "android")) {
            0o4000
        } else {
            4
        };
        options.custom_flags(NONBLOCK);
    }
    options
}

/// The whole of a file that has at most `bytes_max` bytes; it is not read further than that.
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

/// A snapshot of environment variables, passed as a value. Only `${NAME}` in the address and the key of a provider is
/// expanded from it; nothing of it enters the component. Its `Debug` shows no value.
///
/// Whoever writes `models.yaml` chooses where a variable is sent, so give it only what it may send:
/// [`Environment::for_providers`] for a person's own project, [`Environment::only`] for other people's.
#[derive(Clone, Default)]
pub struct Environment {
    variables: Arc<BTreeMap<String, String>>,
}

/// Why a text cannot be expanded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "each variant's doc and message say what its fields are"
)]
#[non_exhaustive]
pub enum ExpandError {
    /// No such variable, or it may not be used here, or it is empty.
    #[error("the environment variable {name} is not set; set it, or write the value out")]
    Unset { name: String },
    /// `${` without `}`, or a name that no variable can have.
    #[error("\"${{\" must be followed by the name of an environment variable and \"}}\"")]
    Malformed,
    /// Longer than [`EXPANDED_BYTES_MAX`].
    #[error("the text is longer than {EXPANDED_BYTES_MAX} bytes when its variables are replaced")]
    TooLong,
}

impl Environment {
    /// The environment of this process, as it is now. What is not UTF-8 or too long is left out.
    #[expect(
        clippy::disallowed_methods,
        reason = "here the environment becomes a value"
    )]
    pub fn from_process() -> Self {
        Self::from_pairs(std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        }))
    }

    /// These variables; what exceeds the bounds is left out.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        let kept = pairs
            .into_iter()
            .filter(|(name, value)| is_name(name) && value.len() <= VARIABLE_BYTES_MAX);
        Self {
            variables: Arc::new(kept.take(VARIABLES_MAX).collect()),
        }
    }

    /// Only the variables with these names.
    pub fn only(&self, names: &[&str]) -> Self {
        self.filtered(|name| names.contains(&name))
    }

    /// Only what providers are reached by: names that end in [`KEY_SUFFIX`] or [`ADDRESS_SUFFIX`].
    pub fn for_providers(&self) -> Self {
        self.filtered(|name| is_key(name) || is_address(name))
    }

    fn filtered(&self, keep: impl Fn(&str) -> bool) -> Self {
        let kept = self.variables.iter().filter(|(name, _)| keep(name));
        Self {
            variables: Arc::new(
                kept.map(|(name, value)| (name.clone(), value.clone()))
                    .collect(),
            ),
        }
    }

    /// A variable that is set and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// `text` with each `${NAME}` replaced. Values are not expanded again; a `$` without `{` is itself.
    pub fn expand(&self, text: &str) -> Result<String, ExpandError> {
        let mut expanded = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (name, after) = after.split_once('}').ok_or(ExpandError::Malformed)?;
            if !is_name(name) {
                return Err(ExpandError::Malformed);
            }
            let value = self.get(name).ok_or_else(|| ExpandError::Unset {
                name: name.to_owned(),
            })?;
            expanded.push_str(before);
            expanded.push_str(value);
            if expanded.len() > EXPANDED_BYTES_MAX {
                return Err(ExpandError::TooLong);
            }
            rest = after;
        }
        expanded.push_str(rest);
        if expanded.len() > EXPANDED_BYTES_MAX {
            Err(ExpandError::TooLong)
        } else {
            Ok(expanded)
        }
    }
}

/// True if the key of a provider may name this variable.
pub fn is_key(name: &str) -> bool {
    name.ends_with(KEY_SUFFIX)
}

/// True if the address of a provider may name this variable.
pub fn is_address(name: &str) -> bool {
    name.ends_with(ADDRESS_SUFFIX)
}

impl fmt::Debug for Environment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_set()
            .entries(self.variables.keys())
            .finish()
    }
}

fn is_name(name: &str) -> bool {
    let valid = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
    !name.is_empty()
        && name.len() <= 256
        && name.bytes().all(valid)
        && !name.as_bytes()[0].is_ascii_digit()
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests plant files from outside the library"
)]
mod tests;
