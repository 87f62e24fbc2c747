//! Path of accounts: an account and those above it, and the money that moves between them.
//!
//! A path begins with the account that a chain draws on and ends with the root's. An open account
//! is a user of the one above it, so the closed accounts of a path are its beginning:
//! `closed, closed, open, open`. An operation that refuses may have changed some of the accounts
//! already: a path is a copy, and its caller ([`crate::plan::Change`]) throws it away then.
//!
//! Of every account but a root in debt `spent + held + reserved <= limit` holds before and after
//! each operation. A child account's `limit - reported` is reserved in its parent while it is open;
//! the amount it has `reported` is in its parent's `spent`.

use super::Refusal;
use super::account::{Account, TAKEN_MAX, rest, sum};
use crate::money::NanoUsd;

/// Most accounts of a path: a commit that closes or opens all of them replaces as many records, and
/// each chain under them names them all. A deeper chain is refused an account of its own, and may
/// draw on its parent's.
pub const ACCOUNTS_MAX: usize = 32;

/// The accounts of a path, from the one in use to the root's. Each is in a chain record; the caller
/// that commits them writes those that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    accounts: Vec<Account>,
}

/// Effect of a cost on the limits of a path, beside being spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Settled {
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
pub enum Grant {
    /// All of it or none.
    Exactly(NanoUsd),
    /// This amount, or the rest that is left if that is less.
    AtMost(NanoUsd),
}

impl Path {
    /// Creates a path; `accounts` goes from the account in use to the root's and holds at least
    /// one.
    ///
    /// # Errors
    /// [`Refusal::Integrity`] if it is empty, or an account is open below a closed one.
    pub fn new(accounts: Vec<Account>) -> Result<Self, Refusal> {
        if accounts.is_empty() {
            return Err(Refusal::Integrity("there is no account"));
        }
        let gap = accounts
            .windows(2)
            .any(|pair| matches!(pair, [below, above] if below.is_open() && !above.is_open()));
        match gap {
            true => Err(Refusal::Integrity("an account is open below a closed one")),
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
    pub fn own(&self) -> &Account {
        &self.accounts[0]
    }

    /// Sets `amount` aside for an attempt, if there is room for it below the limit and below
    /// `most`.
    pub fn hold(&mut self, amount: NanoUsd, most: Option<NanoUsd>) -> Result<Settled, Refusal> {
        self.accounts[0].hold(amount, most)?;
        Ok(Settled::Within)
    }

    /// Gives a hold back because nothing was sent.
    pub fn release(&mut self, hold: NanoUsd) -> Result<Settled, Refusal> {
        self.accounts[0].release(hold)?;
        Ok(Settled::Within)
    }

    /// Replaces a hold by its real cost: all of it, the part that was reported before a stream
    /// broke, or the hold itself where the cost is unknown. A cost is never dropped: where the room
    /// is short, the limit of the account and the reserve above it are raised, upwards until an
    /// account has room; at the root the rest is debt.
    pub fn settle(&mut self, hold: NanoUsd, actual: NanoUsd) -> Result<Settled, Refusal> {
        self.accounts[0].release(hold)?;
        self.accounts[0].respend(NanoUsd::ZERO, actual)?;
        self.cover(0)
    }

    /// Replaces a charge by the real cost, however late, also after the account has closed. Each
    /// closed account on the way then spends and reports the difference, and the first open one
    /// spends it. The caller makes sure that a charge is corrected once. A cost that was never held
    /// replaces a charge of nothing.
    pub fn correct(&mut self, charged: NanoUsd, actual: NanoUsd) -> Result<Settled, Refusal> {
        let root = self.accounts.len() - 1;
        let open = self.accounts.iter().position(Account::is_open);
        let first = open.unwrap_or(root);
        for account in &mut self.accounts[..first] {
            account.respend(charged, actual)?;
            account.reported = account.spent;
            // Below that limit the account could not be opened again.
            account.limit = account.limit.map(|limit| limit.max(account.spent));
        }
        self.accounts[first].respend(charged, actual)?;
        self.cover(first)
    }

    /// Creates an account under the one in use, for a chain that is being created: its limit is
    /// reserved here. `parent` is the id of the chain that has the account in use. The amount
    /// allocated there stays below `most`, the operator's bound.
    pub fn spawn(
        &mut self,
        parent: &str,
        grant: Grant,
        most: Option<NanoUsd>,
    ) -> Result<Account, Refusal> {
        if self.accounts.len() >= ACCOUNTS_MAX {
            return Err(Refusal::Deep(ACCOUNTS_MAX));
        }
        let amount = match grant {
            Grant::Exactly(amount) => amount,
            Grant::AtMost(amount) => amount.min(self.own().room(most)),
        };
        self.accounts[0].reserve(amount, most)?;
        self.accounts[0].join()?;
        Ok(Account {
            parent: Some(parent.to_owned()),
            ..Account::root(Some(amount))
        })
    }

    /// Adds a chain that draws on the account in use, for the first time or again. Closed accounts
    /// on the way are opened from the top down: each reserves the part of its limit that it has not
    /// reported. If one lacks room, all of it is refused with the amount available below the limit
    /// and below `most`.
    pub fn join(&mut self, most: Option<NanoUsd>) -> Result<Settled, Refusal> {
        for place in (0..self.accounts.len() - 1).rev() {
            if self.accounts[place].is_open() {
                continue;
            }
            let claim = self.accounts[place].claim()?;
            let above = &mut self.accounts[place + 1];
            above.join()?;
            above.reserve(claim, most)?;
        }
        if self.own().frozen {
            return Err(Refusal::Frozen);
        }
        self.accounts[0].join()?;
        Ok(Settled::Within)
    }

    /// Removes a chain that draws on the account in use. With its last user an account closes: it
    /// gives back its reserve and reports its spending to the account above, and so upwards.
    pub fn leave(&mut self) -> Result<Settled, Refusal> {
        for place in 0..self.accounts.len() {
            let account = &mut self.accounts[place];
            let none = Refusal::Integrity("nobody draws on an account that somebody leaves");
            account.users = account.users.checked_sub(1).ok_or(none)?;
            if account.is_open() {
                break;
            }
            if account.held.saturating_add(account.reserved) > NanoUsd::ZERO {
                return Err(Refusal::Integrity("an account closes with money set aside"));
            }
            if place + 1 < self.accounts.len() {
                self.report(place)?;
            }
        }
        Ok(Settled::Within)
    }

    /// Reports the account's spending to the account above, and gives back the reserve.
    fn report(&mut self, place: usize) -> Result<(), Refusal> {
        let below = &mut self.accounts[place];
        let (claim, reported, spent) = (below.claim()?, below.reported, below.spent);
        below.reported = spent;
        let above = &mut self.accounts[place + 1];
        let problem = "less is reserved than an account claims";
        above.reserved = rest(above.reserved, claim, problem)?;
        // The account may have reported more than it has spent: a charge from before it was opened
        // again may have been corrected since.
        above.respend(reported, spent)
    }

    /// Sets the limit of the account in use: a root's always, another's only if it was lower. The
    /// money comes from the account above; `through` raises each of those that lack room as well,
    /// up to the root's. No limit is raised above `most`, the operator's.
    pub fn raise(
        &mut self,
        limit: NanoUsd,
        through: bool,
        most: Option<NanoUsd>,
    ) -> Result<Settled, Refusal> {
        if limit > TAKEN_MAX {
            return Err(Refusal::Overflow);
        }
        if self.accounts.len() == 1 {
            self.accounts[0].limit = Some(limit);
            return self.within(0, most);
        }
        let now = self.own().limit.unwrap_or(limit);
        let mut wanted = limit.saturating_sub(now);
        for place in 0..self.accounts.len() {
            if wanted == NanoUsd::ZERO {
                break;
            }
            let open = self.accounts[place].is_open();
            self.accounts[place].grow(wanted)?;
            self.within(place, most)?;
            // A closed account reserves when it opens.
            let Some(above) = self.accounts.get_mut(place + 1).filter(|_| open) else {
                break;
            };
            if above.frozen {
                return Err(Refusal::Frozen);
            }
            let room = above.room(most);
            above.reserved = sum(above.reserved, wanted)?;
            if wanted > room && !through {
                return Err(Refusal::Short { need: wanted, room });
            }
            if above.taken() > TAKEN_MAX {
                return Err(Refusal::Overflow);
            }
            wanted = wanted.saturating_sub(room);
        }
        Ok(Settled::Within)
    }

    /// Freezes the account in use: it admits nothing more.
    pub fn freeze(&mut self) -> Result<Settled, Refusal> {
        self.accounts[0].frozen = true;
        Ok(Settled::Within)
    }

    fn within(&self, place: usize, most: Option<NanoUsd>) -> Result<Settled, Refusal> {
        match (self.accounts[place].limit, most) {
            (Some(asked), Some(most)) if asked > most => Err(Refusal::Above { asked, most }),
            _ => Ok(Settled::Within),
        }
    }

    /// Raises limits from `at` upwards until no account has allocated more than its limit.
    fn cover(&mut self, at: usize) -> Result<Settled, Refusal> {
        let first = self.accounts[at].missing();
        let root = self.accounts.len() - 1;
        for place in at..root {
            let missing = self.accounts[place].missing();
            if missing == NanoUsd::ZERO {
                break;
            }
            self.accounts[place].grow(missing)?;
            let above = &mut self.accounts[place + 1];
            above.reserved = above.reserved.saturating_add(missing);
        }
        Ok(match (first, self.accounts[root].missing()) {
            (NanoUsd::ZERO, _) => Settled::Within,
            (first, NanoUsd::ZERO) => Settled::Overrun(first),
            (_, debt) => Settled::Debt(debt),
        })
    }
}
