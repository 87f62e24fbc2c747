//! The bound on the work of one call, and the check whether it must end.
//!
//! Every entry that costs a disk access counts, even if it is then left out: a directory of broken
//! links is as much work as one of files.

use super::StopFlag;

/// Most directory entries that one call looks at, in all directories together: some seconds of
/// work.
pub(super) const LOOKED_MAX: usize = 20_000;

/// Most links that one call follows to find out if they can be opened. Each may lead over forty
/// others, and no listing has more lines than this.
pub const FOLLOWED_LINKS_MAX: usize = 1_000;

/// The work of a call so far.
#[derive(Debug)]
pub(super) struct CallWork<'a> {
    stop: &'a StopFlag,
    looked: usize,
    looked_max: usize,
    followed: usize,
    /// True if entries were left out because a bound was reached.
    spent: bool,
}

impl<'a> CallWork<'a> {
    /// Makes the count of a call that has not begun.
    pub(super) fn new(stop: &'a StopFlag, looked_max: usize) -> Self {
        Self {
            stop,
            looked: 0,
            looked_max,
            followed: 0,
            spent: false,
        }
    }

    /// Counts an entry of a directory. Returns false if the bound is reached or the call is to end.
    pub(super) fn count_entry(&mut self) -> bool {
        self.looked += 1;
        self.spent |= self.looked > self.looked_max;
        !self.spent && !self.stop.is_set()
    }

    /// Counts a link that is to be followed. Returns false if the bound is reached.
    pub(super) fn count_link(&mut self) -> bool {
        self.followed += 1;
        self.followed <= FOLLOWED_LINKS_MAX
    }

    /// Returns true once entries were left out because the bound was reached.
    pub(super) fn is_spent(&self) -> bool {
        self.spent
    }

    /// Returns true if the caller no longer waits for the answer.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_set()
    }
}
