//! The record of a chain: its tip and its account. The second guard, beside the head, of all that
//! touches money.

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
    /// Spawn number of the chain within its parent, from 1; 0 for a root.
    pub number: u64,
    /// Number of chains above it.
    pub depth: u64,
    /// Number of child chains that it has spawned.
    pub children: u64,
    /// Number of forks that refer to it.
    pub forks: u64,
    /// The budget account; meaningless if the chain draws on the account of another chain.
    pub account: Account,
    /// Ids of the chains whose accounts lie above, from the nearest to the root's; fixed at
    /// creation, empty for a root. So a child is loaded with all of these accounts in one further
    /// read, as one snapshot, and a root in a single read.
    pub above: Vec<String>,
}

impl ChainRecord {
    /// Returns true if it has an account of its own. If not, it draws on the account of the first
    /// chain of `above`.
    pub fn has_account(&self) -> bool {
        self.above.is_empty() || self.account.parent.is_some()
    }

    /// Id of the chain whose account it draws on; `id` is its own id.
    pub fn draws_on<'a>(&'a self, id: &'a str) -> &'a str {
        match self.above.first() {
            Some(above) if !self.has_account() => above,
            _ => id,
        }
    }
}

record!(ChainRecord {
    format,
    tip,
    parent,
    number or nothing,
    depth or nothing,
    children,
    forks,
    account,
    above or nothing
});
