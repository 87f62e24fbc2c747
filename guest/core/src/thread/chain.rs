//! The record of a chain: its tip and its account. The second guard, beside the head, of all that touches money.

use crate::json::record::record;
use crate::ledger::Account;

/// Stored under the key of the chain's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainRecord {
    /// [`super::FORMAT`].
    pub format: u32,
    /// Id of the last link.
    pub tip: String,
    /// Root of the chain that spawned it.
    pub parent: Option<String>,
    /// Child chains that were spawned.
    pub children: u64,
    /// Forks that refer to it.
    pub forks: u64,
    /// What it may spend.
    pub account: Account,
}

record!(ChainRecord {
    format,
    tip,
    parent,
    children,
    forks,
    account
});
