//! The lock of a thread's directory, which keeps its documents to one writer at a time.

use super::ThreadFileError;
use std::time::{Duration, Instant};
use threadkeep_storage::directory::DirectoryTree;

/// Longest wait for another process that writes the same documents. A refresh takes milliseconds, a
/// rebuild of a long history seconds.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);
/// Interval between attempts to take the lock.
pub(super) const LOCK_POLL: Duration = Duration::from_millis(5);

/// Locks the directory itself, so that no lock file lies beside the documents; returns none where
/// it cannot be locked.
pub(super) fn lock_directory(
    dir: &dyn DirectoryTree,
    id: &str,
) -> Result<Option<std::fs::File>, ThreadFileError> {
    let Ok(file) = dir.open_handle() else {
        return Ok(None);
    };
    let since = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(std::fs::TryLockError::Error(_)) => return Ok(None),
            Err(std::fs::TryLockError::WouldBlock) if since.elapsed() > LOCK_WAIT_MAX => {
                return Err(ThreadFileError::Busy(id.to_owned()));
            }
            Err(std::fs::TryLockError::WouldBlock) => std::thread::sleep(LOCK_POLL),
        }
    }
}
