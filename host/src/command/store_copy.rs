//! Copies a store that cannot be read in its own directory.
//!
//! A backup that holds `registry.db` and its log `registry.db-wal`, but not the shared memory of
//! its processes (`registry.db-shm`), can be read only where SQLite can create that memory. In a
//! directory that cannot be written, both files are copied to a temporary directory and read there.

use super::session::CommandSession;
use super::temporary::TemporaryDirectory;
use cap_std::fs::{Dir, Metadata};
use std::io;
use threadkeep::project::SQLITE_STORE;
use threadkeep_cli::exit::CommandFault;

/// Suffixes that SQLite adds to a store's name for its log and its shared memory.
const LOG_SUFFIX: &str = "-wal";
const MEMORY_SUFFIX: &str = "-shm";

/// Most attempts to copy the files while another process writes them.
const COPIES_MAX: u32 = 3;

/// Returns true if a store has a log that is not empty and no shared memory: then no process has it
/// open, and reading it needs a directory that can be written.
pub fn is_needed(threads: &Dir) -> bool {
    let log = threads.symlink_metadata(format!("{SQLITE_STORE}{LOG_SUFFIX}"));
    let has_log = log.is_ok_and(|found| found.is_file() && found.len() > 0);
    let memory = threads.symlink_metadata(format!("{SQLITE_STORE}{MEMORY_SUFFIX}"));
    has_log && matches!(memory, Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// Copies a store and its log.
pub fn copy_store(
    session: &CommandSession,
    threads: &Dir,
) -> Result<TemporaryDirectory, CommandFault> {
    let copy = TemporaryDirectory::create(session, "store")?;
    let to = copy.dir()?;
    for _ in 0..COPIES_MAX {
        let before = read_change_marks(threads).map_err(|error| copy_fault(&error))?;
        for name in file_names() {
            // A link leads elsewhere; the metadata is that of the file that was copied.
            threads
                .copy(&name, to, &name)
                .map_err(|error| copy.io_fault(&error))?;
        }
        if before == read_change_marks(threads).map_err(|error| copy_fault(&error))? {
            return Ok(copy);
        }
    }
    let message = format!(".ai/threads/{SQLITE_STORE} changes while it is copied");
    Err(CommandFault::new("store", message).with_hint("try again when nobody writes it"))
}

fn file_names() -> [String; 2] {
    [
        SQLITE_STORE.to_owned(),
        format!("{SQLITE_STORE}{LOG_SUFFIX}"),
    ]
}

/// Reads size and time of each file, so that a change during the copy is noticed. Refuses anything
/// but an ordinary file.
fn read_change_marks(threads: &Dir) -> io::Result<Vec<(u64, Option<cap_std::time::SystemTime>)>> {
    let mark = |found: Metadata| match found.is_file() {
        true => Ok((found.len(), found.modified().ok())),
        false => Err(io::Error::other("it is a link, a directory or a device")),
    };
    let found = file_names().map(|name| threads.symlink_metadata(name).and_then(mark));
    found.into_iter().collect()
}

fn copy_fault(error: &io::Error) -> CommandFault {
    let message = format!("the store .ai/threads/{SQLITE_STORE} cannot be copied: {error}");
    CommandFault::new("store", message).with_hint("`threadkeep doctor` says more")
}

/// Builds the notice that a store is read from a copy.
pub fn notice(copy: &TemporaryDirectory) -> String {
    format!(
        "the store has a log beside it and may not be written: it is read from a copy in {}",
        copy.path().display()
    )
}
