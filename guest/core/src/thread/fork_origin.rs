//! Where a fork comes from.

use crate::json::record;

/// The place at which a fork began. Its base names the entries; this names the thread that was
/// asked for, and the chain that counts the fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkOrigin {
    /// Id of the thread that was forked.
    pub thread: String,
    /// Id of the chain of that thread.
    pub chain: String,
    /// The version on its path.
    pub version: u64,
}

record!(ForkOrigin {
    thread,
    chain,
    version
});
