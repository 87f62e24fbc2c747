//! Path of accounts: an account and those above it, and the money that moves between them.
//!
//! A path begins with the account that a chain draws on and ends with the root's. An open account
//! is a user of the one above it, so the closed accounts of a path are its beginning:
//! `closed, closed, open, open`. An operation that refuses may have changed some of the accounts
//! already: a path is a copy, and its caller ([`crate::plan::ThreadChange`]) throws it away then.
//!
//! Of every account but a root in debt `spent + held + reserved <= limit` holds before and after
//! each operation. A child account's `limit - reported` is reserved in its parent while it is open;
//! the amount it has `reported` is in its parent's `spent`.

use super::LedgerRefusal;
use super::account::{ALLOCATED_MAX, Account, checked_sum, sub_or_corrupt};
use crate::money::NanoUsd;

/// Most accounts of a path: a commit that closes or opens all of them replaces as many records, and
/// each chain under them names them all. A deeper chain is refused an account of its own, and may
/// draw on its parent's.
pub const ACCOUNTS_MAX: usize = 32;

/// The accounts of a path, from the one in use to the root's. Each is in a chain record; the caller
/// that commits them writes those that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountPath {
    accounts: Vec<Account>,
}

/// Effect of a cost on the limits of a path, beside being spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OverrunOutcome {
    /// The account had room for it.
    #[default]
    Within,
    /// The account exceeded its limit by this amount, which was taken from the accounts above.
    Overrun(NanoUsd),
    /// No account had enough: the root owes this amount and admits nothing until its limit is
    /// raised.
    Debt(NanoUsd),
}

/// Amount that a new account gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReserveGrant {
    /// All of it or none.
    Exactly(NanoUsd),
    /// This amount, or the rest that is left if that is less.
    AtMost(NanoUsd),
}

impl AccountPath {
    /// Creates a path; `accounts` goes from the account in use to the root's and holds at least
    /// one.
    ///
    /// # Errors
    /// [`LedgerRefusal::Integrity`] if it is empty, or an account is open below a closed one.
    pub fn new(accounts: Vec<Account>) -> Result<Self, LedgerRefusal> {
        if accounts.is_empty() {
            return Err(LedgerRefusal::Integrity("there is no account"));
        }
        let gap = accounts
            .windows(2)
            .any(|pair| matches!(pair, [below, above] if below.is_open() && !above.is_open()));
        match gap {
            true => Err(LedgerRefusal::Integrity(
                "an account is open below a closed one",
            )),
            false => Ok(Self { accounts }),
        }
    }

    /// The accounts, from the one in use to the root's.
    pub fn accounts(&self) -> &[Account] {
        &self.accounts
    }

    /// Returns the accounts by value, in the same order.
    pub fn into_accounts(self) -> Vec<Account> {
        self.accounts
    }

    /// The account in use.
    pub fn active_account(&self) -> &Account {
        &self.accounts[0]
    }

    /// Sets `amount` aside for an attempt, if there is room for it below the limit and below
    /// `most`.
    pub fn hold(
        &mut self,
        amount: NanoUsd,
        most: Option<NanoUsd>,
    ) -> Result<OverrunOutcome, LedgerRefusal> {
        self.accounts[0].hold(amount, most)?;
        Ok(OverrunOutcome::Within)
    }

    /// Gives a hold back because nothing was sent.
    pub fn release(&mut self, hold: NanoUsd) -> Result<OverrunOutcome, LedgerRefusal> {
        self.accounts[0].release(hold)?;
        Ok(OverrunOutcome::Within)
    }

    /// Replaces a hold by its real cost: all of it, the part that was reported before a stream
    /// broke, or the hold itself where the cost is unknown. A cost is never dropped: where the room
    /// is short, the limit of the account and the reserve above it are raised, upwards until an
    /// account has room; at the root the rest is debt.
    pub fn settle(
        &mut self,
        hold: NanoUsd,
        actual: NanoUsd,
    ) -> Result<OverrunOutcome, LedgerRefusal> {
        self.accounts[0].release(hold)?;
        self.accounts[0].replace_charge(NanoUsd::ZERO, actual)?;
        self.propagate_overrun(0)
    }

    /// Replaces a charge by the real cost, however late, also after the account has closed. Each
    /// closed account on the way then spends and reports the difference, and the first open one
    /// spends it. The caller makes sure that a charge is corrected once. A cost that was never held
    /// replaces a charge of nothing.
    pub fn correct_charge(
        &mut self,
        charged: NanoUsd,
        actual: NanoUsd,
    ) -> Result<OverrunOutcome, LedgerRefusal> {
        let root = self.accounts.len() - 1;
        let open = self.accounts.iter().position(Account::is_open);
        let first = open.unwrap_or(root);
        for account in &mut self.accounts[..first] {
            account.replace_charge(charged, actual)?;
            account.reported = account.spent;
            // Below that limit the account could not be opened again.
            account.limit = account.limit.map(|limit| limit.max(account.spent));
        }
        self.accounts[first].replace_charge(charged, actual)?;
        self.propagate_overrun(first)
    }

    /// Creates an account under the one in use, for a chain that is being created: its limit is
    /// reserved here. `parent` is the id of the chain that has the account in use. The amount
    /// allocated there stays below `most`, the operator's bound.
    pub fn reserve_child_account(
        &mut self,
        parent: &str,
        grant: ReserveGrant,
        most: Option<NanoUsd>,
    ) -> Result<Account, LedgerRefusal> {
        if self.accounts.len() >= ACCOUNTS_MAX {
            return Err(LedgerRefusal::TooDeep(ACCOUNTS_MAX));
        }
        let amount = match grant {
            ReserveGrant::Exactly(amount) => amount,
            ReserveGrant::AtMost(amount) => amount.min(self.active_account().room(most)),
        };
        self.accounts[0].reserve(amount, most)?;
        self.accounts[0].add_user()?;
        Ok(Account {
            parent: Some(parent.to_owned()),
            ..Account::new_root(Some(amount))
        })
    }

    /// Adds a chain that draws on the account in use, for the first time or again. Closed accounts
    /// on the way are opened from the top down: each reserves the part of its limit that it has not
    /// reported. If one lacks room, all of it is refused with the amount available below the limit
    /// and below `most`.
    pub fn start_drawing(
        &mut self,
        most: Option<NanoUsd>,
    ) -> Result<OverrunOutcome, LedgerRefusal> {
        for place in (0..self.accounts.len() - 1).rev() {
            if self.accounts[place].is_open() {
                continue;
            }
            let claim = self.accounts[place].parent_reserve()?;
            let above = &mut self.accounts[place + 1];
            above.add_user()?;
            above.reserve(claim, most)?;
        }
        if self.active_account().frozen {
            return Err(LedgerRefusal::Frozen);
        }
        self.accounts[0].add_user()?;
        Ok(OverrunOutcome::Within)
    }

    /// Removes a chain that draws on the account in use. With its last user an account closes: it
    /// gives back its reserve and reports its spending to the account above, and so upwards.
    pub fn stop_drawing(&mut self) -> Result<OverrunOutcome, LedgerRefusal> {
        for place in 0..self.accounts.len() {
            let account = &mut self.accounts[place];
            let none = LedgerRefusal::Integrity("nobody draws on an account that somebody leaves");
            account.users = account.users.checked_sub(1).ok_or(none)?;
            if account.is_open() {
                break;
            }
            if account.held.saturating_add(account.reserved) > NanoUsd::ZERO {
                return Err(LedgerRefusal::Integrity(
                    "an account closes with money set aside",
                ));
            }
            if place + 1 < self.accounts.len() {
                self.report_to_parent(place)?;
            }
        }
        Ok(OverrunOutcome::Within)
    }

    /// Reports the account's spending to the account above, and gives back the reserve.
    fn report_to_parent(&mut self, place: usize) -> Result<(), LedgerRefusal> {
        let below = &mut self.accounts[place];
        let (claim, reported, spent) = (below.parent_reserve()?, below.reported, below.spent);
        below.reported = spent;
        let above = &mut self.accounts[place + 1];
        let problem = "less is reserved than an account claims";
        above.reserved = sub_or_corrupt(above.reserved, claim, problem)?;
        // The account may have reported more than it has spent: a charge from before it was opened
        // again may have been corrected since.
        above.replace_charge(reported, spent)
    }

    /// Sets the limit of the account in use: a root's always, another's only if it was lower. The
    /// money comes from the account above; `through` raises each of those that lack room as well,
    /// up to the root's. No limit is raised above `most`, the operator's.
    pub fn raise_limit(
        &mut self,
        limit: NanoUsd,
        through: bool,
        most: Option<NanoUsd>,
    ) -> Result<OverrunOutcome, LedgerRefusal> {
        if limit > ALLOCATED_MAX {
            return Err(LedgerRefusal::Overflow);
        }
        if self.accounts.len() == 1 {
            self.accounts[0].limit = Some(limit);
            return self.check_ceiling(0, most);
        }
        let now = self.active_account().limit.unwrap_or(limit);
        let mut wanted = limit.saturating_sub(now);
        for place in 0..self.accounts.len() {
            if wanted == NanoUsd::ZERO {
                break;
            }
            let open = self.accounts[place].is_open();
            self.accounts[place].raise_limit(wanted)?;
            self.check_ceiling(place, most)?;
            // A closed account reserves when it opens.
            let Some(above) = self.accounts.get_mut(place + 1).filter(|_| open) else {
                break;
            };
            if above.frozen {
                return Err(LedgerRefusal::Frozen);
            }
            let room = above.room(most);
            above.reserved = checked_sum(above.reserved, wanted)?;
            if wanted > room && !through {
                return Err(LedgerRefusal::Short { need: wanted, room });
            }
            if above.allocated_amount() > ALLOCATED_MAX {
                return Err(LedgerRefusal::Overflow);
            }
            wanted = wanted.saturating_sub(room);
        }
        Ok(OverrunOutcome::Within)
    }

    /// Freezes the account in use: it admits nothing more.
    pub fn freeze(&mut self) -> Result<OverrunOutcome, LedgerRefusal> {
        self.accounts[0].frozen = true;
        Ok(OverrunOutcome::Within)
    }

    /// Lets the account in use admit again: its thread, which was ended, goes on.
    pub fn thaw(&mut self) -> Result<OverrunOutcome, LedgerRefusal> {
        self.accounts[0].frozen = false;
        Ok(OverrunOutcome::Within)
    }

    fn check_ceiling(
        &self,
        place: usize,
        most: Option<NanoUsd>,
    ) -> Result<OverrunOutcome, LedgerRefusal> {
        match (self.accounts[place].limit, most) {
            (Some(asked), Some(most)) if asked > most => {
                Err(LedgerRefusal::AbovePolicy { asked, most })
            }
            _ => Ok(OverrunOutcome::Within),
        }
    }

    /// Raises limits from `at` upwards until no account has allocated more than its limit.
    fn propagate_overrun(&mut self, at: usize) -> Result<OverrunOutcome, LedgerRefusal> {
        let first = self.accounts[at].deficit();
        let root = self.accounts.len() - 1;
        for place in at..root {
            let missing = self.accounts[place].deficit();
            if missing == NanoUsd::ZERO {
                break;
            }
            self.accounts[place].raise_limit(missing)?;
            let above = &mut self.accounts[place + 1];
            above.reserved = above.reserved.saturating_add(missing);
        }
        Ok(match (first, self.accounts[root].deficit()) {
            (NanoUsd::ZERO, _) => OverrunOutcome::Within,
            (first, NanoUsd::ZERO) => OverrunOutcome::Overrun(first),
            (_, debt) => OverrunOutcome::Debt(debt),
        })
    }
}
