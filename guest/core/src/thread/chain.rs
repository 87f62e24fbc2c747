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
    /// Its number among the chains that its parent has spawned, from 1; 0 for a root.
    pub number: u64,
    /// Chains above it.
    pub depth: u64,
    /// Child chains that were spawned.
    pub children: u64,
    /// Forks that refer to it.
    pub forks: u64,
    /// What it may spend; of no meaning if it draws on the account of another chain.
    pub account: Account,
    /// Ids of the chains whose accounts lie above, from the nearest to the root's: fixed when it is created. A root has
    /// none.
    pub above: Vec<String>,
}

impl ChainRecord {
    /// Has it an account of its own? If not it draws on the account of the first chain of `above`.
    pub fn has_account(&self) -> bool {
        self.above.is_empty() || self.account.parent.is_some()
    }

    /// Id of the chain whose account it draws on; `id` is its own.
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
