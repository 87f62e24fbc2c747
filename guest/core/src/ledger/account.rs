//! One account: the amounts spent, held and reserved of its limit.
//!
//! Movements between an account and the one above it are in [`super::path`].

use super::LedgerRefusal;
use crate::json::record;
use crate::money::NanoUsd;

/// Most that admissions may allocate of any account, with a limit or without one: half of the range
/// of the number type. Only a cost that has already happened and must be recorded goes beyond it,
/// one bill of at most [`NanoUsd::BILL_MAX`] at a time: 9,223 of the largest fit above it. So no
/// sum ever saturates; an account whose sum did could never be closed again.
pub const ALLOCATED_MAX: NanoUsd = NanoUsd::new(1 << 63);

/// One budget account, stored in the chain record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Account {
    /// Id of the chain whose account it reserves from.
    pub parent: Option<String>,
    /// `None` is unlimited.
    pub limit: Option<NanoUsd>,
    /// Settled or charged, and what closed accounts under it have reported.
    pub spent: NanoUsd,
    /// Set aside for attempts under way.
    pub held: NanoUsd,
    /// Set aside for open accounts under it: the sum of their `limit - reported`.
    pub reserved: NanoUsd,
    /// The part of `spent` that is already reported to the parent account.
    pub reported: NanoUsd,
    /// Number of chains that draw on it and of open accounts under it. The account is open while
    /// there are any.
    pub users: u32,
    /// True if nothing more is admitted.
    pub frozen: bool,
}

record!(Account {
    parent,
    limit,
    spent,
    held,
    reserved,
    reported,
    users,
    frozen
});

impl Account {
    /// Creates a root account with this limit, on which one chain draws.
    pub fn new_root(limit: Option<NanoUsd>) -> Self {
        Self {
            limit,
            users: 1,
            ..Self::default()
        }
    }

    /// Returns true if a chain draws on it or an account under it is open.
    pub fn is_open(&self) -> bool {
        self.users > 0
    }

    /// Sum of the money that is spent, held and reserved. Only a record that this program did not
    /// write reaches the largest amount, at which it stops.
    pub(super) fn allocated_amount(&self) -> NanoUsd {
        self.spent
            .saturating_add(self.held)
            .saturating_add(self.reserved)
    }

    /// Amount left for holds and reserves: below its limit, and below `most` if that is lower;
    /// below [`ALLOCATED_MAX`] if there is neither.
    pub fn room(&self, most: Option<NanoUsd>) -> NanoUsd {
        let limits = self.limit.into_iter().chain(most);
        limits
            .fold(ALLOCATED_MAX, NanoUsd::min)
            .saturating_sub(self.allocated_amount())
    }

    /// Amount allocated above its limit. For a root this is a debt; every other account has none.
    pub fn deficit(&self) -> NanoUsd {
        self.limit.map_or(NanoUsd::ZERO, |limit| {
            self.allocated_amount().saturating_sub(limit)
        })
    }

    /// Checks that the account is open, not frozen, without debt, and has room for `amount`.
    pub(super) fn check_admission(
        &self,
        amount: NanoUsd,
        most: Option<NanoUsd>,
    ) -> Result<(), LedgerRefusal> {
        if self.frozen {
            return Err(LedgerRefusal::Frozen);
        }
        if !self.is_open() {
            return Err(LedgerRefusal::Closed);
        }
        match (self.deficit(), self.room(most)) {
            (debt, _) if debt > NanoUsd::ZERO => Err(LedgerRefusal::Debt(debt)),
            (_, room) if amount > room => Err(LedgerRefusal::Short { need: amount, room }),
            _ => Ok(()),
        }
    }

    /// Sets `amount` aside for an attempt.
    pub(super) fn hold(
        &mut self,
        amount: NanoUsd,
        most: Option<NanoUsd>,
    ) -> Result<(), LedgerRefusal> {
        self.check_admission(amount, most)?;
        self.held = checked_sum(self.held, amount)?;
        Ok(())
    }

    /// Gives a hold back.
    pub(super) fn release(&mut self, hold: NanoUsd) -> Result<(), LedgerRefusal> {
        self.held = sub_or_corrupt(self.held, hold, "less is held than is given back")?;
        Ok(())
    }

    /// Sets `amount` aside for an account under it.
    pub(super) fn reserve(
        &mut self,
        amount: NanoUsd,
        most: Option<NanoUsd>,
    ) -> Result<(), LedgerRefusal> {
        self.check_admission(amount, most)?;
        self.reserved = checked_sum(self.reserved, amount)?;
        Ok(())
    }

    /// Replaces an amount that was spent before by the amount `now`. A bill beyond the largest
    /// amount is recorded as the largest amount, not lost.
    pub(super) fn replace_charge(
        &mut self,
        before: NanoUsd,
        now: NanoUsd,
    ) -> Result<(), LedgerRefusal> {
        let without = sub_or_corrupt(self.spent, before, "less is spent than was charged")?;
        self.spent = without.saturating_add(now);
        Ok(())
    }

    /// Raises its limit; an account without a limit stays without.
    pub(super) fn raise_limit(&mut self, amount: NanoUsd) -> Result<(), LedgerRefusal> {
        self.limit = self
            .limit
            .map(|limit| checked_sum(limit, amount))
            .transpose()?;
        Ok(())
    }

    /// Adds a user: a chain, or an account under it.
    pub(super) fn add_user(&mut self) -> Result<(), LedgerRefusal> {
        self.users = self.users.checked_add(1).ok_or(LedgerRefusal::Overflow)?;
        Ok(())
    }

    /// Amount reserved for it in its parent while it is open: its limit less what it has reported.
    pub(super) fn parent_reserve(&self) -> Result<NanoUsd, LedgerRefusal> {
        let none = LedgerRefusal::Integrity("an account below another has no limit");
        let limit = self.limit.ok_or(none)?;
        sub_or_corrupt(limit, self.reported, "more is reported than its limit")
    }
}

/// Adds two amounts.
pub(super) fn checked_sum(one: NanoUsd, other: NanoUsd) -> Result<NanoUsd, LedgerRefusal> {
    one.checked_add(other).ok_or(LedgerRefusal::Overflow)
}

/// Subtracts `part` from `whole`; reports `problem` if `part` is larger.
pub(super) fn sub_or_corrupt(
    whole: NanoUsd,
    part: NanoUsd,
    problem: &'static str,
) -> Result<NanoUsd, LedgerRefusal> {
    whole
        .checked_sub(part)
        .ok_or(LedgerRefusal::Integrity(problem))
}
