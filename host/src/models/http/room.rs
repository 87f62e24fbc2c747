//! What one reply may take, whichever wire it comes by, and how its calls are completed.

use super::classify::Fault;
use crate::models::{BLOCKS_MAX, REPLY_BYTES_MAX};

/// What has been taken of it.
#[derive(Debug, Default)]
pub(in crate::models) struct Room {
    bytes: usize,
    blocks: usize,
}

impl Room {
    /// Take so many bytes more.
    pub fn bytes(&mut self, more: usize) -> Result<(), Fault> {
        self.bytes += more;
        if self.bytes > REPLY_BYTES_MAX {
            Err(Fault::TooLarge)
        } else {
            Ok(())
        }
    }

    /// Take one block more.
    pub fn block(&mut self) -> Result<(), Fault> {
        self.blocks += 1;
        if self.blocks > BLOCKS_MAX {
            Err(Fault::TooLarge)
        } else {
            Ok(())
        }
    }

    /// Bytes so far.
    pub fn taken(&self) -> usize {
        self.bytes
    }
}

/// The arguments of a call that is whole: an empty object for none, as many providers send nothing
/// for a tool that takes nothing. In a reply that was `cut`, none may as well be the beginning of
/// some: they stay no JSON, so that the call is never run.
pub(in crate::models) fn call_arguments(written: String, cut: bool) -> String {
    if written.trim().is_empty() && !cut {
        "{}".to_owned()
    } else {
        written
    }
}
