//! How much one call looks at, and whether it must end.
//!
//! Everything that costs a look at the disk counts, also what is then not shown: a directory of
//! links that lead nowhere is as much work as one of files.

use super::Stop;

/// Most directory entries that one call looks at, in all directories together: some seconds of
/// work.
pub(super) const LOOKED_MAX: usize = 20_000;

/// Most links that one call follows to see whether they lead somewhere. Each may lead over forty
/// others, and more lines than this no listing has.
pub(super) const FOLLOWED_MAX: usize = 1_000;

/// What a call has looked at so far.
#[derive(Debug)]
pub(super) struct CallWork<'a> {
    stop: &'a Stop,
    looked: usize,
    looked_max: usize,
    followed: usize,
    /// Something was left out because a bound was reached.
    spent: bool,
}

impl<'a> CallWork<'a> {
    /// A call that has looked at nothing.
    pub(super) fn new(stop: &'a Stop, looked_max: usize) -> Self {
        Self {
            stop,
            looked: 0,
            looked_max,
            followed: 0,
            spent: false,
        }
    }

    /// Counts an entry of a directory. Returns false if it is one too many, or the call is to end.
    pub(super) fn look(&mut self) -> bool {
        self.looked += 1;
        self.spent |= self.looked > self.looked_max;
        !self.spent && !self.stop.is_set()
    }

    /// Counts a link that is to be followed. Returns false if it is one too many.
    pub(super) fn follow(&mut self) -> bool {
        self.followed += 1;
        self.followed <= FOLLOWED_MAX
    }

    /// Returns true once something was left out because the call had looked at enough.
    pub(super) fn is_spent(&self) -> bool {
        self.spent
    }

    /// Returns true if nobody waits for the answer any more.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_set()
    }
}
