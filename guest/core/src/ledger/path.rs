//! An account and those above it: what moves between them.
//!
//! A path begins with the account that a chain draws on and ends with the root's. An open account is a user of the one
//! above it, so what is closed on a path is its beginning: `closed, closed, open, open`. An operation that refuses may have
//! changed some of them already: a path is a copy, and who works on it ([`crate::plan::Change`]) throws it away then.
//!
//! Of every account but a root in debt `spent + held + reserved <= limit` holds before and after each operation. A child
//! account's `limit - reported` is reserved in its parent while it is open; what it has `reported` is in its parent's
//! `spent`.

use super::Refusal;
use super::account::{Account, TAKEN_MAX, rest, sum};
use crate::money::NanoUsd;

/// Most accounts of a path: a commit that closes or opens all of them replaces as many records, and each chain under
/// them names them all. A deeper chain is refused an account of its own, and may draw on its parent's.
pub const ACCOUNTS_MAX: usize = 32;

/// The accounts of a path, from the one in use to the root's. Each is in a chain record; whoever commits them writes those
/// that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    accounts: Vec<Account>,
}

/// What a cost did to the accounts, beside being spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Settled {
    /// There was room for it.
    #[default]
    Within,
    /// So much was taken from the accounts above.
    Overrun(NanoUsd),
    /// Nobody had so much: the root owes it, and admits nothing until it is raised.
    Debt(NanoUsd),
}

/// How much a new account gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// All of it or none.
    Exactly(NanoUsd),
    /// What is left, if it is less.
    AtMost(NanoUsd),
}

impl Path {
    /// A path; `accounts` goes from the account in use to the root's and holds at least one.
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

    /// From the account in use to the root's.
    pub fn accounts(&self) -> &[Account] {
        &self.accounts
    }

    /// The same, given away.
    pub fn into_accounts(self) -> Vec<Account> {
        self.accounts
    }

    /// The account in use.
    pub fn own(&self) -> &Account {
        &self.accounts[0]
    }

    /// Set `amount` aside for an attempt, if there is room for it below the limit and below `most`.
    pub fn hold(&mut self, amount: NanoUsd, most: Option<NanoUsd>) -> Result<Settled, Refusal> {
        self.accounts[0].hold(amount, most)?;
        Ok(Settled::Within)
    }

    /// Give a hold back: nothing was sent.
    pub fn release(&mut self, hold: NanoUsd) -> Result<Settled, Refusal> {
        self.accounts[0].release(hold)?;
        Ok(Settled::Within)
    }

    /// Replace a hold by what it really cost: all of it, what was reported before a stream broke, or the hold itself
    /// where nobody knows. A cost is never dropped: what there is no room for raises the limit of the account and the
    /// reserve above it, upwards until an account has room; at the root it is debt.
    pub fn settle(&mut self, hold: NanoUsd, actual: NanoUsd) -> Result<Settled, Refusal> {
        self.accounts[0].release(hold)?;
        self.accounts[0].respend(NanoUsd::ZERO, actual)?;
        self.cover(0)
    }

    /// Replace a charge by what it really was, however late: also after the account has closed. The difference is then
    /// spent and reported by each closed account on the way, and spent by the first open one. Whoever calls sees to it
    /// that a charge is corrected once. A cost that was never held replaces a charge of nothing.
    pub fn correct(&mut self, charged: NanoUsd, actual: NanoUsd) -> Result<Settled, Refusal> {
        let root = self.accounts.len() - 1;
        let open = self.accounts.iter().position(Account::is_open);
        let first = open.unwrap_or(root);
        for account in &mut self.accounts[..first] {
            account.respend(charged, actual)?;
            account.reported = account.spent;
            // It could not be opened again with less than it has spent.
            account.limit = account.limit.map(|limit| limit.max(account.spent));
        }
        self.accounts[first].respend(charged, actual)?;
        self.cover(first)
    }

    /// An account under the one in use, for a chain that is being created: its limit is reserved here. `parent` is the id
    /// of the chain that has the account in use. What is taken of that stays below `most`, the operator's bound.
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

    /// A chain begins to draw on it, for the first time or again. What is closed on the way is opened, from the top down:
    /// each reserves what it has not reported, or all of it is refused with what is available below the limit and below
    /// `most`.
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

    /// A chain no longer draws on it. With the last user an account closes: it gives back what is reserved for it and
    /// reports what it has spent, and so upwards.
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

    /// Tell the account above what was spent, and give back the reserve.
    fn report(&mut self, place: usize) -> Result<(), Refusal> {
        let below = &mut self.accounts[place];
        let (claim, reported, spent) = (below.claim()?, below.reported, below.spent);
        below.reported = spent;
        let above = &mut self.accounts[place + 1];
        let problem = "less is reserved than an account claims";
        above.reserved = rest(above.reserved, claim, problem)?;
        // It may have reported more: a charge from before it was opened again has been corrected since.
        above.respend(reported, spent)
    }

    /// Let the account in use have this limit: a root's whatever it was, another's if it was lower. The money comes from
    /// the account above; `through` raises each of those that lack room as well, up to the root's. No limit is raised
    /// above `most`, the operator's.
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
            // What is closed reserves when it opens.
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

    /// Admit nothing more on the account in use.
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

    /// Raise limits from `at` upwards until nobody has taken more than he may.
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
