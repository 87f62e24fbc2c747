//! The money of a change: the path of accounts that its chain draws on.
//!
//! A change has all of them loaded and writes those that it changed, each at the version that was read. A root has no
//! other account than its own, and an attempt of a child changes none but the one it draws on, unless it costs more than
//! there is.

use super::Change;
use crate::error::Error;
use crate::history::{Event, UsageCorrected};
use crate::ledger::{Account, Grant, Path, Refusal, Settled, Usage};
use crate::money::NanoUsd;
use crate::thread::{CHARGED_MAX, Charged, Late};

/// What a chain that is created draws on: its record begins with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Funds {
    /// An account of its own, or one of no meaning.
    pub account: Account,
    /// What stands in [`crate::thread::ChainRecord::above`].
    pub above: Vec<String>,
}

impl Change<'_> {
    /// The account that the chain draws on.
    pub fn account(&self) -> &Account {
        match self.above.first() {
            Some(above) if !self.chain.has_account() => &above.account,
            _ => &self.chain.account,
        }
    }

    /// What an attempt may hold: what the account has left below its limit and the operator's, and what the chain has left
    /// of its own cap beside what its loop still holds.
    pub fn room(&self) -> NanoUsd {
        self.within_cap(self.account().room(self.ceiling().spend))
    }

    /// So much, or what the chain has left of its own cap beside what its loop still holds, if that is less.
    fn within_cap(&self, room: NanoUsd) -> NanoUsd {
        let used = self.head.counters.spend;
        let used = used.saturating_add(self.head.held().amount);
        match self.limits().spend {
            Some(cap) => room.min(cap.saturating_sub(used)),
            None => room,
        }
    }

    /// What an attempt may hold while others draw on the account: half of what it has left, and all that the chain has left
    /// of its own cap.
    pub fn share(&self) -> NanoUsd {
        let account = self.account();
        let free = account.room(self.ceiling().spend);
        match account.users > 1 {
            true => self.room().min(NanoUsd::new(free.get() / 2)),
            false => self.room(),
        }
    }

    /// Could an attempt hold so much if no call were under way on the account that the chain draws on?
    pub fn fits_without_holds(&self, amount: NanoUsd) -> bool {
        let without = Account {
            held: NanoUsd::ZERO,
            ..self.account().clone()
        };
        let room = self.within_cap(without.room(self.ceiling().spend));
        without.missing() == NanoUsd::ZERO && amount <= room
    }

    /// Do something with the account that the chain draws on and those above it: all of it or nothing.
    ///
    /// # Errors
    /// What `work` refuses; [`Refusal::Integrity`] if the accounts contradict each other or were not loaded.
    pub fn on_account(
        &mut self,
        work: &mut dyn FnMut(&mut Path) -> Result<Settled, Refusal>,
    ) -> Result<Settled, Refusal> {
        if self.above.len() != self.chain.above.len() {
            return Err(Refusal::Integrity("an account above it is missing"));
        }
        self.on_accounts_left(work)
    }

    /// The same with the accounts up to the first that is missing; nothing where there is none.
    fn on_accounts_left(
        &mut self,
        work: &mut dyn FnMut(&mut Path) -> Result<Settled, Refusal>,
    ) -> Result<Settled, Refusal> {
        let own = self.chain.has_account();
        let own = own.then_some(&mut self.chain.account);
        let above = self.above.iter_mut().map(|above| &mut above.account);
        let mut accounts: Vec<&mut Account> = own.into_iter().chain(above).collect();
        if accounts.is_empty() {
            return Ok(Settled::Within);
        }
        let mut path = Path::new(accounts.iter().map(|account| (**account).clone()).collect())?;
        let done = work(&mut path)?;
        for (account, changed) in accounts.iter_mut().zip(path.into_accounts()) {
            **account = changed;
        }
        Ok(done)
    }

    /// The same for what has happened, where a refusal can only mean that records contradict each other: the change then
    /// becomes no plan. Where an account above is missing, those below it have it recorded.
    pub fn record(&mut self, work: &mut dyn FnMut(&mut Path) -> Result<Settled, Refusal>) {
        let recorded = match self.loaded.has_lost_account() {
            true => self.on_accounts_left(work),
            false => self.on_account(work),
        };
        if let Err(refusal) = recorded {
            self.contradiction.get_or_insert(refusal);
        }
    }

    /// Nothing that was recorded contradicts the accounts.
    pub(super) fn consistent(&self) -> Result<(), Error> {
        match self.contradiction {
            Some(refusal) => Err(Error::Corrupt(format!(
                "the money of {}: {refusal}",
                self.thread.chain
            ))),
            None => Ok(()),
        }
    }

    /// The chain draws on its account from now on, if it did not.
    pub fn join(&mut self) -> Result<(), Refusal> {
        if !self.draws {
            let most = self.ceiling().spend;
            self.on_account(&mut |path| path.join(most))?;
            self.draws = true;
        }
        Ok(())
    }

    /// The chain no longer draws on its account, if it did: it rests, or has ended.
    pub fn leave(&mut self) {
        if self.draws {
            self.record(&mut Path::leave);
            self.draws = false;
        }
    }

    /// Money for a chain that is created in the same commit: an account of its own with a grant from this chain's, or
    /// (`None`) this chain's account, which then has one more user.
    ///
    /// # Errors
    /// What the account refuses: a result of the call that spawns.
    pub fn fund(&mut self, grant: Option<Grant>) -> Result<Funds, Refusal> {
        let parent = self.chain.draws_on(&self.thread.chain).to_owned();
        let mut account = Account::default();
        let most = self.ceiling().spend;
        self.on_account(&mut |path| match grant {
            Some(grant) => {
                account = path.spawn(&parent, grant, most)?;
                Ok(Settled::Within)
            }
            None => path.join(most),
        })?;
        let own = self.chain.has_account().then(|| parent.clone());
        let above = own.into_iter().chain(self.chain.above.iter().cloned());
        Ok(Funds {
            account,
            above: above.collect(),
        })
    }

    /// Remember that an attempt was charged without a reported usage, so that what it really used may still be told.
    pub fn charged(&mut self, charged: Charged) {
        // The oldest makes room: what was told of it counts before it goes.
        self.tell_late();
        let kept = &mut self.head.charged;
        if kept.len() >= CHARGED_MAX {
            kept.remove(0);
        }
        kept.push(charged);
    }

    /// What was told of charged attempts since the last entry, before anything more is admitted: it replaces what they
    /// were charged, each once, whether the account is open or closed by now.
    pub(crate) fn tell_late(&mut self) {
        for at in 0..self.head.charged.len() {
            let Charged {
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
            self.record(&mut |path| path.correct(hold.amount, late.spend));
            let same_run = run == self.head.run;
            let used = &mut self.head.counters;
            used.spend = used
                .spend
                .saturating_sub(hold.amount)
                .saturating_add(late.spend);
            // Told as money, it stays the tokens that were estimated.
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
            self.push(Event::UsageCorrected(UsageCorrected {
                version,
                charged: hold.amount,
                spend: late.spend,
                usage: late.usage,
            }));
            self.head.charged[at].late = Some(Late {
                recorded: true,
                ..late
            });
        }
    }
}
