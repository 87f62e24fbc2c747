//! The account of a chain: what is spent, held and reserved of its limit.
//!
//! Invariant: `spent + held + reserved <= limit`, except at a root that is in debt. A hold is settled, released or
//! charged exactly once; the head of the thread that made it says which are open.

use crate::json::record::record;
use crate::money::Nanos;

/// One budget account, stored in the chain record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Account {
    /// The account it reserves from.
    pub parent: Option<String>,
    /// `None` is unlimited.
    pub limit: Option<Nanos>,
    /// Settled or charged.
    pub spent: Nanos,
    /// Set aside for attempts under way.
    pub held: Nanos,
    /// Set aside for child chains.
    pub reserved: Nanos,
    /// What the parent has been told of `spent`.
    pub reported: Nanos,
    /// Chains and accounts that still draw on it.
    pub users: u32,
    /// Nothing more is admitted.
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

/// Money is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// What the attempt would hold.
    pub need: Nanos,
    /// What is left.
    pub room: Nanos,
}

impl Account {
    /// A root account with a limit and one user.
    pub fn root(limit: Option<Nanos>) -> Self {
        Self {
            limit,
            users: 1,
            ..Self::default()
        }
    }

    /// What is left for holds and reserves; the largest amount if there is no limit.
    pub fn room(&self) -> Nanos {
        let taken = self
            .spent
            .saturating_add(self.held)
            .saturating_add(self.reserved);
        self.limit
            .map_or(Nanos::new(u64::MAX), |limit| limit.saturating_sub(taken))
    }

    /// Set `amount` aside for an attempt, or say what is short. Nothing changes on refusal.
    pub fn hold(&mut self, amount: Nanos) -> Result<(), Shortage> {
        let short = Shortage {
            need: amount,
            room: self.room(),
        };
        if amount > short.room {
            return Err(short);
        }
        self.held = self.held.checked_add(amount).ok_or(short)?;
        Ok(())
    }

    /// Replace a hold by what it really cost. An overrun is never dropped: at a root it is debt, which leaves no room.
    pub fn settle(&mut self, hold: Nanos, actual: Nanos) {
        self.held = self.held.saturating_sub(hold);
        self.spent = self.spent.saturating_add(actual);
    }

    /// Give a hold back: nothing was sent.
    pub fn release(&mut self, hold: Nanos) {
        self.held = self.held.saturating_sub(hold);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_within_the_limit_and_settles() {
        let mut account = Account::root(Some(Nanos::new(100)));
        account.hold(Nanos::new(70)).unwrap();
        let short = account.hold(Nanos::new(31)).unwrap_err();
        assert_eq!((short.need.get(), short.room.get()), (31, 30));
        account.settle(Nanos::new(70), Nanos::new(40));
        assert_eq!(
            (
                account.spent.get(),
                account.held.get(),
                account.room().get()
            ),
            (40, 0, 60)
        );
        account.hold(Nanos::new(60)).unwrap();
        account.release(Nanos::new(60));
        assert_eq!(account.room().get(), 60);
    }

    #[test]
    fn an_overrun_is_debt_and_blocks() {
        let mut account = Account::root(Some(Nanos::new(100)));
        account.hold(Nanos::new(100)).unwrap();
        account.settle(Nanos::new(100), Nanos::new(150));
        assert_eq!(account.room(), Nanos::ZERO);
        assert!(account.hold(Nanos::new(1)).is_err());
        assert_eq!(account.spent.get(), 150);
    }

    #[test]
    fn no_limit_is_unlimited_and_zero_is_zero() {
        assert!(Account::root(None).hold(Nanos::new(u64::MAX)).is_ok());
        assert!(
            Account::root(Some(Nanos::ZERO))
                .hold(Nanos::new(1))
                .is_err()
        );
        assert!(Account::root(Some(Nanos::ZERO)).hold(Nanos::ZERO).is_ok());
    }
}
