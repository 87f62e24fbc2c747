//! The money of a change: the path of accounts that its chain draws on.
//!
//! A change has all of them loaded and writes those that it changed, each at the version that was
//! read. A root has no account but its own. An attempt of a child changes only the account that it
//! draws on, unless the attempt costs more than there is.

use super::ThreadChange;
use crate::error::Error;
use crate::history::{Event, UsageCorrected};
use crate::ledger::{Account, AccountPath, LedgerRefusal, OverrunOutcome, ReserveGrant, Usage};
use crate::money::NanoUsd;
use crate::thread::{CHARGED_MAX, ChargedAttempt, ReportedUsage};
use std::rc::Rc;

/// The account of a chain that is created, and the chains above it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainFunds {
    /// Its own account, or an empty one if it draws on the account of another chain.
    pub account: Account,
    /// Value of [`crate::thread::ChainRecord::above`].
    pub above: Vec<String>,
}

impl ThreadChange<'_> {
    /// The account that the chain draws on.
    pub fn account(&self) -> &Account {
        match self.above.first() {
            Some(above) if !self.chain.has_account() => &above.account,
            _ => &self.chain.account,
        }
    }

    /// Returns the amount that an attempt may hold: the rest of the account below its limit and the
    /// operator's, and at most the rest of the chain's own cap, less the calls that its external
    /// loop holds.
    pub fn attempt_room(&self) -> NanoUsd {
        self.limit_to_cap(self.account().room(self.ceiling().spend))
    }

    /// Lowers `room` to the rest of the chain's own cap, less the calls that its external loop
    /// holds.
    fn limit_to_cap(&self, room: NanoUsd) -> NanoUsd {
        let used = self.head.spend_under_cap();
        let used = used.saturating_add(self.head.held_totals().amount);
        match self.limits().spend {
            Some(cap) => room.min(cap.saturating_sub(used)),
            None => room,
        }
    }

    /// Returns the amount that an attempt may hold while other chains draw on the account: half of
    /// the rest of the account, and at most the rest of the chain's own cap.
    pub fn attempt_share(&self) -> NanoUsd {
        let account = self.account();
        let free = account.room(self.ceiling().spend);
        match account.users > 1 {
            true => self.attempt_room().min(NanoUsd::new(free.get() / 2)),
            false => self.attempt_room(),
        }
    }

    /// Returns true if an attempt could hold `amount` if no call were under way on the account that
    /// the chain draws on.
    pub fn fits_without_holds(&self, amount: NanoUsd) -> bool {
        let without = Account {
            held: NanoUsd::ZERO,
            ..self.account().clone()
        };
        let room = self.limit_to_cap(without.room(self.ceiling().spend));
        without.deficit() == NanoUsd::ZERO && amount <= room
    }

    /// Runs `work` on the account that the chain draws on and those above it, all or nothing.
    ///
    /// # Errors
    /// The refusal of `work`; [`LedgerRefusal::Integrity`] if the accounts contradict each other or
    /// were not loaded.
    pub fn update_accounts(
        &mut self,
        work: &mut dyn FnMut(&mut AccountPath) -> Result<OverrunOutcome, LedgerRefusal>,
    ) -> Result<OverrunOutcome, LedgerRefusal> {
        if self.above.len() != self.chain.above.len() {
            return Err(LedgerRefusal::Integrity("an account above it is missing"));
        }
        self.update_remaining_accounts(work)
    }

    /// Runs `work` on the accounts below the first that is missing, all or nothing; does nothing
    /// where there is none.
    fn update_remaining_accounts(
        &mut self,
        work: &mut dyn FnMut(&mut AccountPath) -> Result<OverrunOutcome, LedgerRefusal>,
    ) -> Result<OverrunOutcome, LedgerRefusal> {
        let own = self.chain.has_account();
        let own = own.then(|| &mut Rc::make_mut(&mut self.chain).account);
        let above = self.above.iter_mut();
        let above = above.map(|above| &mut Rc::make_mut(above).account);
        let mut accounts: Vec<&mut Account> = own.into_iter().chain(above).collect();
        if accounts.is_empty() {
            return Ok(OverrunOutcome::Within);
        }
        let mut path =
            AccountPath::new(accounts.iter().map(|account| (**account).clone()).collect())?;
        let done = work(&mut path)?;
        for (account, changed) in accounts.iter_mut().zip(path.into_accounts()) {
            **account = changed;
        }
        Ok(done)
    }

    /// Records money that has already moved: there a refusal can only mean that records contradict
    /// each other, and the change then becomes no plan. Where an account above is missing, those
    /// below it record it.
    pub fn apply_settled(
        &mut self,
        work: &mut dyn FnMut(&mut AccountPath) -> Result<OverrunOutcome, LedgerRefusal>,
    ) {
        let recorded = match self.loaded.has_lost_account() {
            true => self.update_remaining_accounts(work),
            false => self.update_accounts(work),
        };
        if let Err(refusal) = recorded {
            self.contradiction.get_or_insert(refusal);
        }
    }

    /// Checks that no recorded movement contradicted the accounts.
    pub(super) fn check_consistent(&self) -> Result<(), Error> {
        match self.contradiction {
            Some(refusal) => Err(Error::corrupt(format!(
                "the money of {}: {refusal}",
                self.thread.chain
            ))),
            None => Ok(()),
        }
    }

    /// Makes the chain draw on its account, if it did not.
    pub fn start_drawing(&mut self) -> Result<(), LedgerRefusal> {
        if !self.draws {
            let most = self.ceiling().spend;
            self.update_accounts(&mut |path| path.start_drawing(most))?;
            self.draws = true;
        }
        Ok(())
    }

    /// Ends that the chain draws on its account, if it did: it is idle or has ended.
    pub fn stop_drawing(&mut self) {
        if self.draws {
            self.apply_settled(&mut AccountPath::stop_drawing);
            self.draws = false;
        }
    }

    /// Provides money for a chain that is created in the same commit: an account of its own with a
    /// grant from this chain's, or (`None`) this chain's account, which then has one more user.
    ///
    /// # Errors
    /// The refusal of the account; it becomes a result of the call that spawns.
    pub fn fund_child(&mut self, grant: Option<ReserveGrant>) -> Result<ChainFunds, LedgerRefusal> {
        let parent = self.chain.draws_on(&self.thread.chain).to_owned();
        let mut account = Account::default();
        let most = self.ceiling().spend;
        self.update_accounts(&mut |path| match grant {
            Some(grant) => {
                account = path.reserve_child_account(&parent, grant, most)?;
                Ok(OverrunOutcome::Within)
            }
            None => path.start_drawing(most),
        })?;
        let own = self.chain.has_account().then(|| parent.clone());
        let above = own.into_iter().chain(self.chain.above.iter().cloned());
        Ok(ChainFunds {
            account,
            above: above.collect(),
        })
    }

    /// Remembers an attempt that was charged without a reported usage, so that its real usage may
    /// still be reported.
    pub fn remember_charge(&mut self, charged: ChargedAttempt) {
        // The oldest attempt is dropped: a usage that was reported for it is applied first.
        self.apply_reported_usage();
        let kept = &mut self.head.charged;
        if kept.len() >= CHARGED_MAX {
            kept.remove(0);
        }
        kept.push(charged);
    }

    /// Applies the real usage that was reported for charged attempts since the last entry, before
    /// anything more is admitted. It replaces each charge once, whether the account is open or
    /// closed by now.
    pub(crate) fn apply_reported_usage(&mut self) {
        for at in 0..self.head.charged.len() {
            let ChargedAttempt {
                version,
                hold,
                run,
                tokens,
                estimated,
                unpriced: _,
                late,
            } = self.head.charged[at].clone();
            let Some(late) = late.filter(|late| !late.recorded) else {
                continue;
            };
            self.apply_settled(&mut |path| path.correct_charge(hold.amount, late.spend));
            let same_run = run == self.head.run;
            let used = &mut self.head.counters;
            used.spend = used
                .spend
                .saturating_sub(hold.amount)
                .saturating_add(late.spend);
            // A report of money alone leaves the tokens as they were estimated.
            if late.usage != Usage::default() {
                let counted = used.usage.minus(estimated.unwrap_or_default());
                used.usage = counted.plus(late.usage);
            }
            if same_run {
                let now = match late.money {
                    true => tokens,
                    false => late.usage.total(),
                };
                let without = used.run_tokens.saturating_sub(tokens);
                used.run_tokens = without.saturating_add(now);
            }
            self.push_event(Event::UsageCorrected(UsageCorrected {
                version,
                charged: hold.amount,
                spend: late.spend,
                usage: late.usage,
            }));
            self.head.charged[at].late = Some(ReportedUsage {
                recorded: true,
                ..late
            });
        }
    }
}
