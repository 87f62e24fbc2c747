//! The record of a chain: its tip and its account. The second guard, beside the head, of all that
//! touches money.

use crate::json::record;
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
    /// Spawn number of the last child chain; it only grows. `None` in a record of an earlier build,
    /// whose children have no index entries by number: they are found by the threads that spawned
    /// them.
    pub spawned: Option<u64>,
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

    /// Id of the root of the tree that the chain belongs to; `id` is its own id. A root always has
    /// an account, so it is the last of `above`.
    pub fn tree_root<'a>(&'a self, id: &'a str) -> &'a str {
        self.above.last().map_or(id, String::as_str)
    }

    /// Spawn number of the last child chain, 0 if it has spawned none.
    pub fn last_child_number(&self) -> u64 {
        self.spawned.unwrap_or(self.children)
    }

    /// Counts one more child chain; returns its spawn number.
    pub fn add_child(&mut self) -> u64 {
        let number = self.last_child_number() + 1;
        self.children += 1;
        self.spawned = self.spawned.map(|_| number);
        number
    }
}

record!(ChainRecord {
    format,
    tip,
    parent,
    number or nothing,
    depth or nothing,
    children,
    spawned or nothing,
    forks,
    account,
    above or nothing
});
