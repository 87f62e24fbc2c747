//! Money: accounts, trees of them, and the holds that external loops make and settle.

use super::history::{check_on_path, thread_path};
use super::store::{DecisionOutcome, parse_record};
use super::{Error, ThreadService};
use crate::ports::HostPorts;
use std::cell::Cell;
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::history::{Entry, UnknownCharges};
use threadkeep_core::plan::{LoadedThread, StoredRecord};
use threadkeep_core::runner::{
    self, Attempt, CallBill, CommitDecision, HoldEstimate, HoldRequest, attempt_key,
};
use threadkeep_core::{id, key};

/// Most threads of one page of a tree. Each needs two look-ups: for a child and for a sibling.
pub const TREE_THREADS_MAX: usize = 50;

/// Most entries whose charges one call adds up.
const CHARGE_ENTRIES_MAX: u32 = 100;

/// Most levels of a tree that a cursor may go down. Each level is a read of the store.
const TREE_DEPTH_MAX: usize = 1_000;

/// Threads of a page of a tree with their depths, and the start of the next page.
pub type BranchPage = (Vec<(LoadedThread, u32)>, Option<String>);

/// A page of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreePage {
    /// Threads with their depths.
    pub branches: Vec<(LoadedThread, u32)>,
    /// Threads of the page whose records are missing or cannot be read: name and problem.
    pub unreadable: Vec<(String, String)>,
    /// Start of the next page.
    pub cursor: Option<String>,
}

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
                known.set(HoldAdmission::from(seen));
            }
            let moment = self.with_operator_caps(moment)?;
            Ok(runner::hold(loaded, seen.as_ref(), &request, moment)?)
        })?;
        let entry = match done {
            DecisionOutcome::Committed(plan) => plan.entry,
            DecisionOutcome::Unchanged(_) => None,
        };
        let admitted = entry.and_then(|entry| {
            let admitted = entry.admitted?;
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
            Ok(StoredRecord {
                version: item.version,
                value: parse_record(item)?,
            })
        })
        .transpose()
    }

    /// Settles a call with its bill; returns the version of the thread afterwards.
    pub fn settle(&self, thread: &str, version: u64, bill: CallBill) -> Result<u64, Error> {
        let done = self.decide(thread, &|loaded, moment| {
            let known = self.load_admitted_attempt(loaded, version)?;
            let known = known.as_ref().map(|(name, known)| (name.as_str(), known));
            let decided: CommitDecision = runner::settle(loaded, known, version, bill, moment)?;
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
            return Err(CoreError::Corrupt(message).into());
        }
        Ok(loaded)
    }

    /// Reads a page of a thread and all that it spawned, each after its spawner, with its depth.
    /// Threads that cannot be read are left out. The second value is the start of the next page.
    pub fn tree(&self, thread: &str, cursor: Option<&str>) -> Result<BranchPage, Error> {
        let page = self.tree_page(thread, cursor)?;
        Ok((page.branches, page.cursor))
    }

    /// Reads the same page, with the threads that cannot be read.
    pub fn tree_page(&self, thread: &str, cursor: Option<&str>) -> Result<TreePage, Error> {
        let top = self.top_key(thread)?;
        let mut path: Vec<String> = match cursor {
            None => vec![top.clone()],
            Some(cursor) => cursor.split('\n').map(str::to_owned).collect(),
        };
        if path.first() != Some(&top) || path.len() > TREE_DEPTH_MAX {
            let cursor = cursor.unwrap_or_default();
            return Err(CoreError::invalid("cursor", cursor, "is not one of this tree").into());
        }
        let (mut keys, mut depths) = (Vec::new(), Vec::new());
        let mut found = cursor.is_none() || self.advance_tree_path(&mut path)?;
        while found && keys.len() < TREE_THREADS_MAX {
            keys.extend(path.last().map(|last| key::last_part(last)));
            depths.push((path.len() - 1) as u32);
            if keys.len() == TREE_THREADS_MAX {
                break;
            }
            found = self.advance_tree_path(&mut path)?;
        }
        let cursor = found.then(|| path.join("\n"));
        let many = self.load_many(&keys)?;
        let depth = |loaded: &LoadedThread| {
            let at = keys.iter().position(|key| *key == loaded.key());
            at.map_or(0, |at| depths[at])
        };
        let branches = many.threads.into_iter().map(|loaded| {
            let depth = depth(&loaded);
            (loaded, depth)
        });
        Ok(TreePage {
            branches: branches.collect(),
            unreadable: many.unreadable,
            cursor,
        })
    }

    /// Returns the key of a tree's top. One that cannot be read is a thread of the tree like any
    /// other; one of which no record is left is there as long as the index names a child of it.
    fn top_key(&self, thread: &str) -> Result<String, Error> {
        let top = id::key(thread);
        match self.load(thread) {
            Ok(_) => Ok(top),
            Err(missing @ Error::Core(CoreError::NotFound { .. }))
                if !self.advance_tree_path(&mut vec![top.clone()])? =>
            {
                Err(missing)
            }
            Err(error) => error.into_damage_message().map(|_| top),
        }
    }

    /// Advances a path to the next thread of a tree; returns false at the end. Each part of the
    /// path is the end of an index entry's key, which ends with the thread's key. The next thread
    /// is the first child, or else the next sibling of the thread or of one above it.
    fn advance_tree_path(&self, path: &mut Vec<String>) -> Result<bool, Error> {
        let mut after = String::new();
        while let Some(parent) = path.last() {
            let parent = key::index_value(&key::last_part(parent));
            let (start, end) = key::prefix_range(&["parent", &parent]);
            let from = match after.is_empty() {
                true => start.clone(),
                false => format!("{start}{after}\0"),
            };
            let page = self.scan_names(key::INDEX, (&from, &end), 1, false)?;
            if let Some(name) = page.names.first() {
                path.push(name[start.len()..].to_owned());
                return Ok(true);
            }
            after = path.pop().unwrap_or_default();
        }
        Ok(false)
    }
}
