//! The bound on the size of one reply, on either wire, and the completion of its calls.

use super::classify::ExchangeFault;
use crate::models::{BLOCKS_MAX, REPLY_BYTES_MAX};

/// The size of a reply so far.
#[derive(Debug, Default)]
pub(in crate::models) struct ReplySize {
    bytes: usize,
    blocks: usize,
}

impl ReplySize {
    /// Adds bytes.
    pub fn add_bytes(&mut self, more: usize) -> Result<(), ExchangeFault> {
        self.bytes += more;
        if self.bytes > REPLY_BYTES_MAX {
            Err(ExchangeFault::TooLarge)
        } else {
            Ok(())
        }
    }

    /// Adds a block.
    pub fn add_block(&mut self) -> Result<(), ExchangeFault> {
        self.blocks += 1;
        if self.blocks > BLOCKS_MAX {
            Err(ExchangeFault::TooLarge)
        } else {
            Ok(())
        }
    }

    /// Returns the bytes so far.
    pub fn byte_count(&self) -> usize {
        self.bytes
    }
}

/// Returns the arguments of a call: an empty object for none, as many providers send nothing for a
/// tool without parameters. In a reply that was `cut`, missing arguments may be the beginning of
/// some; they stay invalid JSON, so that the call is never run.
pub(in crate::models) fn call_arguments(written: String, cut: bool) -> String {
    if written.trim().is_empty() && !cut {
        "{}".to_owned()
    } else {
        written
    }
}
