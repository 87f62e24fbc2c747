//! A directory that lives no longer than a command: for the project of `demo`, or the copy of a
//! store.

use super::fault;
use super::session::CommandSession;
use cap_std::fs::Dir;
use std::path::{Path, PathBuf};
use threadkeep::authority;
use threadkeep_cli::exit::CommandFault;
use threadkeep_cli::screen::OutputScreen;

/// A directory that lives no longer than a command. Dropping it removes it.
pub struct TemporaryDirectory {
    dir: Option<Dir>,
    path: PathBuf,
}

impl TemporaryDirectory {
    /// Creates one in the directory that `TMPDIR` names. `what` becomes a part of its name.
    pub fn create(session: &CommandSession, what: &str) -> Result<Self, CommandFault> {
        let mut bytes = [0_u8; 8];
        getrandom::fill(&mut bytes).map_err(|error| {
            CommandFault::new(
                "random",
                format!("the system has no random numbers: {error}"),
            )
        })?;
        let environment = session.environment();
        let base = ["TMPDIR", "TEMP"]
            .into_iter()
            .find_map(|name| environment.get(name));
        let name = format!("threadkeep-{what}-{:016x}", u64::from_be_bytes(bytes));
        let path = Path::new(base.unwrap_or("/tmp")).join(name);
        let dir = authority::open_private_dir_ambient(&path).map_err(|error| {
            fault::from_authority(&error).with_hint("set TMPDIR to a directory that can be written")
        })?;
        Ok(Self {
            dir: Some(dir),
            path,
        })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory.
    pub fn dir(&self) -> Result<&Dir, CommandFault> {
        self.dir
            .as_ref()
            .ok_or_else(|| CommandFault::new("io", "the temporary directory is gone"))
    }

    /// Opens another handle of it.
    pub fn clone_dir(&self) -> Result<Dir, CommandFault> {
        self.dir()?
            .try_clone()
            .map_err(|error| self.io_fault(&error))
    }

    /// Writes a file below it.
    pub fn write(&self, path: &str, text: &str) -> Result<(), CommandFault> {
        let dir = self.dir()?;
        let written = match Path::new(path).parent() {
            Some(parent) => dir
                .create_dir_all(parent)
                .and_then(|()| dir.write(path, text)),
            None => dir.write(path, text),
        };
        written.map_err(|error| self.io_fault(&error))
    }

    /// Converts an error of the operating system about it.
    pub fn io_fault(&self, error: &std::io::Error) -> CommandFault {
        CommandFault::new("io", format!("{}: {error}", self.path.display()))
            .with_hint("set TMPDIR to a directory that can be written")
    }

    /// Removes it, and warns if that fails.
    pub fn remove(mut self, screen: &mut OutputScreen) {
        if let Some(Err(error)) = self.dir.take().map(remove_all) {
            screen.warn(&format!("{} stays: {error}", self.path.display()));
        }
    }
}

/// Most attempts to remove a directory while another thread removes files in it.
const REMOVALS_MAX: u32 = 20;

/// Removes a directory with everything in it. The store may still be closing on another thread, so
/// a file may disappear between listing and removing: then the directory is listed again.
fn remove_all(dir: Dir) -> std::io::Result<()> {
    for _ in 0..REMOVALS_MAX {
        match dir.try_clone()?.remove_open_dir_all() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            answer => return answer,
        }
    }
    dir.remove_open_dir_all()
}

impl Drop for TemporaryDirectory {
    /// Removes it after a fault. If that fails it stays, in the system's directory for temporary
    /// files.
    fn drop(&mut self) {
        if let Some(dir) = self.dir.take() {
            let _ = remove_all(dir);
        }
    }
}
