//! Money: accounts, trees of them, and the holds that external loops make and settle.

use super::history::{check_on_path, thread_path};
use super::store::{DecisionOutcome, parse_record};
use super::{Error, ThreadService};
use crate::ports::HostPorts;
use std::cell::Cell;
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::history::{Entry, UnknownCharges};
use threadkeep_core::key;
use threadkeep_core::plan::{LoadedThread, StoredRecord};
use threadkeep_core::runner::{
    self, Attempt, CallBill, CommitDecision, HoldEstimate, HoldRequest, attempt_key,
};

/// Most entries whose charges one call adds up.
const CHARGE_ENTRIES_MAX: u32 = 100;

/// The call that a hold is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnresolvedEstimate {
    /// A call of a model: its name, tokens read, most tokens written.
    Tokens(String, u64, u64),
    /// An amount of money.
    Amount(threadkeep_core::money::NanoUsd),
}

/// The result of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HoldAdmission {
    /// The version that admitted the attempt.
    pub version: u64,
    /// The amount set aside, in nano-USD.
    pub amount: u64,
    /// Most output tokens.
    pub output: u64,
}

impl From<&Attempt> for HoldAdmission {
    fn from(attempt: &Attempt) -> Self {
        Self {
            version: attempt.version,
            amount: attempt.amount.get(),
            output: attempt.output,
        }
    }
}

impl<P: HostPorts> ThreadService<P> {
    /// Adds up the charges for calls of unknown cost in the entries after a version; returns also
    /// the start of the next page.
    pub fn charges(
        &self,
        thread: &str,
        after: u64,
    ) -> Result<(UnknownCharges, Option<u64>), Error> {
        let loaded = self.load(thread)?;
        check_on_path(&loaded, &thread_path(&loaded), "after", after)?;
        // What a thread rests on was paid by the thread that made it.
        let from = after.max(loaded.thread.value.base_length()) + 1;
        let newest = loaded.head.value.version;
        let mut charges = UnknownCharges::default();
        let mut last = newest;
        if from <= newest {
            for (version, text) in self.own_entries(&loaded, from, CHARGE_ENTRIES_MAX)? {
                charges.add_entry(&Entry::from_text(&text)?);
                last = version;
            }
        }
        Ok((charges, (last < newest).then_some(last)))
    }

    /// Sets money aside for a call.
    pub fn hold(
        &self,
        thread: &str,
        token: u64,
        name: &str,
        asked: &UnresolvedEstimate,
        deadline: threadkeep_core::time::UnixTime,
    ) -> Result<HoldAdmission, Error> {
        let estimate = self.resolve_estimate(asked)?;
        let request = HoldRequest {
            token,
            key: name,
            estimate: &estimate,
            deadline,
        };
        let known = Cell::new(HoldAdmission::default());
        let done = self.decide(thread, &|loaded, moment| {
            let seen = self.load_attempt(&attempt_key(loaded, name))?;
            let seen = seen.map(|seen| seen.value);
            if let Some(seen) = &seen {
                known.set(HoldAdmission::from(&**seen));
            }
            let moment = self.with_operator_caps(moment)?;
            Ok(runner::hold(loaded, seen.as_deref(), &request, moment)?)
        })?;
        let entry = match done {
            DecisionOutcome::Committed(plan) => plan.entry,
            DecisionOutcome::Unchanged(_) => None,
        };
        let admitted = entry.and_then(|entry| {
            let admitted = entry.admitted.as_ref()?;
            Some(HoldAdmission {
                version: entry.version,
                amount: admitted.hold.get(),
                output: admitted.output,
            })
        });
        Ok(admitted.unwrap_or(known.get()))
    }

    fn resolve_estimate(&self, asked: &UnresolvedEstimate) -> Result<HoldEstimate, Error> {
        let (name, input, output) = match asked {
            UnresolvedEstimate::Amount(amount) => return Ok(HoldEstimate::Amount(*amount)),
            UnresolvedEstimate::Tokens(name, input, output) => (name, *input, *output),
        };
        let model = self.model(name)?;
        if model.prices.is_none() {
            let problem = "has no prices: give them in .ai/config/models.yaml, or hold an amount";
            return Err(CoreError::invalid("estimate.model", name, problem).into());
        }
        Ok(HoldEstimate::Tokens {
            model: Box::new(model),
            input,
            output,
        })
    }

    fn load_attempt(&self, name: &str) -> Result<Option<StoredRecord<Attempt>>, Error> {
        let items = self.ports.get(&[(key::SEEN, name)])?;
        let item = items.first();
        item.map(|item| {
            Ok(StoredRecord::new(
                item.version,
                parse_record::<Attempt>(item)?,
            ))
        })
        .transpose()
    }

    /// Settles a call with its bill; returns the version of the thread afterwards.
    pub fn settle(&self, thread: &str, version: u64, bill: CallBill) -> Result<u64, Error> {
        let done = self.decide(thread, &|loaded, moment| {
            let known = self.load_admitted_attempt(loaded, version)?;
            let known = known.as_ref().map(|(name, known)| (name.as_str(), known));
            let tip = self.readable_tip(loaded)?;
            let links = (loaded, tip.as_ref());
            let decided: CommitDecision = runner::settle(links, known, version, bill, moment)?;
            Ok(decided)
        })?;
        Ok(match done {
            DecisionOutcome::Committed(plan) => plan.head.version,
            DecisionOutcome::Unchanged(loaded) => loaded.head.value.version,
        })
    }

    /// Loads the record of the call that a version admitted, if a host made it itself.
    fn load_admitted_attempt(
        &self,
        loaded: &LoadedThread,
        version: u64,
    ) -> Result<Option<(String, StoredRecord<Attempt>)>, Error> {
        if version == 0 || version > loaded.head.value.version {
            return Ok(None);
        }
        let entry = self.entry(loaded, version)?;
        let Some(name) = entry.and_then(|entry| entry.admitted?.key) else {
            return Ok(None);
        };
        let name = attempt_key(loaded, &name);
        Ok(self.load_attempt(&name)?.map(|attempt| (name, attempt)))
    }

    /// Loads a thread with the account that it draws on.
    pub fn account(&self, thread: &str) -> Result<LoadedThread, Error> {
        let loaded = self.load(thread)?;
        if loaded.has_lost_account() {
            let message = format!("an account above {thread} is missing or cannot be read");
            return Err(CoreError::corrupt(message).into());
        }
        Ok(loaded)
    }
}
