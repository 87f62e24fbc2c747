//! The times at which the directory of a store last changed: no file in it is replaced without
//! that.

use cap_std::fs::Dir;
use std::time::{Duration, SystemTime};

/// The age that the times of a directory must have before they are remembered: a change within the
/// same tick of the kernel's clock, at most 10 ms, leaves them as they were.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

/// The times of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DirectoryTimes {
    /// The last change of a name in it.
    names: SystemTime,
    /// The last change of the directory itself, which nobody can set.
    itself: SystemTime,
}

impl DirectoryTimes {
    /// Reads them; `None` if they cannot be read or are before 1970.
    #[cfg(target_os = "linux")]
    pub(super) fn read(dir: &Dir) -> Option<Self> {
        let found = rustix::fs::fstat(dir).ok()?;
        let time = |seconds: i64, nanos: u64| {
            let since = Duration::new(seconds.try_into().ok()?, nanos.try_into().ok()?);
            SystemTime::UNIX_EPOCH.checked_add(since)
        };
        Some(Self {
            names: time(found.st_mtime, found.st_mtime_nsec)?,
            itself: time(found.st_ctime, found.st_ctime_nsec)?,
        })
    }

    /// Elsewhere they are not relied on.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn read(_dir: &Dir) -> Option<Self> {
        None
    }

    /// True if no change that is still to come can leave these times as they are.
    pub(super) fn are_settled(&self, now: SystemTime) -> bool {
        let is_old = |time| {
            now.duration_since(time)
                .is_ok_and(|age| age >= SETTLED_AFTER)
        };
        is_old(self.names) && is_old(self.itself)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_directory_are_believed_only_once_they_are_old() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let (old, young) = (now - SETTLED_AFTER, now - SETTLED_AFTER / 2);
        for (names, itself, settled) in [
            (old, old, true),
            (young, old, false),
            (old, young, false),
            // The clock was set back.
            (now + SETTLED_AFTER, old, false),
        ] {
            let times = DirectoryTimes { names, itself };
            assert_eq!(times.are_settled(now), settled, "{times:?}");
        }
    }
}
