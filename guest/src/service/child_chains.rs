//! Children by chain: each child is looked up by the chain that spawned it and loaded as the tip of
//! its own chain, so it does not matter which of the two was continued since.
//!
//! The index of children by number has an entry for every chain that this build has spawned. A
//! chain record of an earlier build has no last spawn number; its children are found in the index
//! of parents, by the thread that spawned them.

use super::chain::{broken, check_link};
use super::store::{CONTENTION, DECISION_TRIES_MAX, find_record};
use super::{Error, ThreadService};
use crate::ports::{HostPorts, NOT_A_CHILD, RecordDamage, StorageError};
use threadkeep_core::error::{CHAIN_BROKEN, Error as CoreError};
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::runner::{ChildSnapshot, WaitRequest};
use threadkeep_core::settings::{WAIT_MILLIS_DEFAULT, WaitCall};
use threadkeep_core::thread::{ChainRecord, WAIT_MAX};
use threadkeep_core::{id, key};

/// Index entries of one page, and most pages, that are searched for one child.
pub(super) const INDEX_PAGE_ENTRIES: u32 = 500;
const INDEX_PAGES_MAX: usize = 10;

/// The name of an index and the value under which it has the children of a chain.
pub type ChildIndex = (&'static str, String);

/// Returns the index that has the children of a chain.
pub fn child_index(loaded: &LoadedThread) -> ChildIndex {
    match loaded.chain.value.spawned {
        Some(_) => (key::CHILD, loaded.chain_key()),
        None => ("parent", loaded.key()),
    }
}

/// Returns the range of the entries that an index of children has under a value.
pub fn child_range((name, value): &ChildIndex) -> (String, String) {
    key::prefix_range(&[name, &key::index_value(value)])
}

impl<P: HostPorts> ThreadService<P> {
    /// Loads the tips of chains, for display. Each key is that of a chain's root, or of another
    /// link of it. The result has one element for each key, in order: the tip, or what is wrong
    /// with its records. Chains of one link need one read, the tips of others one more.
    pub fn load_tips(
        &self,
        keys: &[String],
    ) -> Result<Vec<Result<LoadedThread, RecordDamage>>, Error> {
        let mut firsts = self.load_many(keys)?;
        let mut found: Vec<Result<LoadedThread, RecordDamage>> = Vec::with_capacity(keys.len());
        let mut tips = Vec::new();
        for key in keys {
            let at = firsts.threads.iter().position(|first| first.key() == *key);
            let first = at.map(|at| firsts.threads.remove(at));
            let name = id::printable_id(key);
            let why = firsts.unreadable.iter().find(|(other, _)| *other == name);
            let why = why.map(|(_, why)| why.clone());
            let why = why.unwrap_or_else(|| RecordDamage::contradiction("it was not read"));
            match &first {
                Some(first) if first.tip_key() != *key => tips.push(first.tip_key()),
                // The root may be lost, and the chain go on.
                None => tips.extend(self.tip_of_lost_root(key)?),
                Some(_) => {}
            }
            found.push(first.ok_or(why));
        }
        if tips.is_empty() {
            return Ok(found);
        }
        let others = self.load_many(&tips)?;
        for (key, found) in keys.iter().zip(&mut found) {
            let root = found
                .as_ref()
                .map_or_else(|_| key.clone(), LoadedThread::chain_key);
            let of_chain = |tip: &&LoadedThread| tip.chain_key() == root && tip.is_tip();
            if let Some(tip) = others.threads.iter().find(of_chain) {
                *found = Ok(tip.clone());
            } else if let Ok(first) = found
                && !first.is_tip()
            {
                // It may have been continued between the reads.
                *found = match self.load_tip(first.clone()) {
                    Ok(tip) => Ok(tip),
                    Err(error) => Err(error.into_damage()?),
                };
            }
        }
        Ok(found)
    }

    /// Loads the tips of chains that an index has as children under this value, as
    /// [`Self::load_tips`] does. A thread that says itself that it is nobody's child, or another's,
    /// is refused with the code [`NOT_A_CHILD`]: an entry of the index alone gives no power over
    /// it.
    pub fn load_children(
        &self,
        value: &str,
        keys: &[String],
    ) -> Result<Vec<Result<LoadedThread, RecordDamage>>, Error> {
        let is_child = |tip: &LoadedThread| {
            let parents = [&tip.chain.value.parent, &tip.thread.value.parent];
            let mut parents = parents.into_iter().flatten();
            parents.any(|parent| id::key(parent) == value)
        };
        let tips = self.load_tips(keys)?.into_iter();
        let own = tips.map(|tip| match tip {
            Ok(tip) if !is_child(&tip) => Err(RecordDamage {
                code: NOT_A_CHILD.to_owned(),
                message: format!("the index has it as a child of {value}, and it is not"),
            }),
            tip => tip,
        });
        Ok(own.collect())
    }

    /// Returns the tip of the chain under this key, if it is another link than its root.
    fn tip_of_lost_root(&self, root: &str) -> Result<Option<String>, Error> {
        if id::check_id("thread", root).is_err() {
            return Ok(None);
        }
        let items = self.get_readable(&[(key::CHAIN, root)])?;
        let chain = find_record::<ChainRecord>(&items, key::CHAIN, root);
        let tip = chain.ok().flatten().map(|chain| id::key(&chain.value.tip));
        Ok(tip.filter(|tip| tip != root))
    }

    /// Returns the tip of a thread's chain: the thread itself, unless it was continued, which may
    /// happen between the reads, too.
    ///
    /// # Errors
    /// `CoreErrorKind::BrokenChain` if the tip is missing, is of another chain, or is not its last.
    pub fn load_tip(&self, mut loaded: LoadedThread) -> Result<LoadedThread, Error> {
        let root = loaded.chain_key();
        for _ in 0..DECISION_TRIES_MAX {
            if loaded.is_tip() {
                check_link(&loaded)?;
                return Ok(loaded);
            }
            let tip = loaded.chain.value.tip.clone();
            loaded = self.load_link(&tip)?;
            if loaded.chain_key() != root {
                let problem = "is the tip of a chain, and is of another";
                return Err(broken(CHAIN_BROKEN, &tip, problem));
            }
        }
        let message = format!("the chain {root} kept growing: repeat the call");
        Err(StorageError::Unavailable(CONTENTION.into(), message).into())
    }

    /// Returns the tip of the chain of a thread that was continued; `None` for a tip, and where the
    /// tip is damaged: what is known of the thread is recorded without it.
    pub fn readable_tip(&self, loaded: &LoadedThread) -> Result<Option<LoadedThread>, Error> {
        if loaded.is_tip() {
            return Ok(None);
        }
        match self.load_tip(loaded.clone()) {
            Err(error) if error.is_damage() => Ok(None),
            tip => tip.map(Some),
        }
    }

    /// Returns the keys of the newest children, oldest first.
    fn newest_children(&self, loaded: &LoadedThread) -> Result<Vec<String>, Error> {
        let (start, end) = child_range(&child_index(loaded));
        let most = WAIT_MAX as u32;
        let page = self.scan_names(key::INDEX, (&start, &end), most, true)?;
        let mut children = page.keys();
        children.reverse();
        Ok(children)
    }

    /// Loads the children that a call waits for, in their current state. It must be called after
    /// the head of the waiting thread was read: a child that ends replaces that head, so a decision
    /// with older children conflicts. A child that cannot be read is among them, and ends the wait
    /// for it as unreadable. `known` says that the threads were found to be children before.
    pub(super) fn load_waiting(
        &self,
        loaded: &LoadedThread,
        waits: &WaitCall,
        known: bool,
    ) -> Result<WaitRequest, Error> {
        let all = match waits.threads.is_empty() {
            true => self.newest_children(loaded)?,
            false => Vec::new(),
        };
        for thread in &waits.threads {
            id::check_id("threads", thread)?;
        }
        let known = known || !all.is_empty();
        let threads = if all.is_empty() { &waits.threads } else { &all };
        let keys: Vec<String> = threads.iter().map(|thread| id::key(thread)).collect();
        let mut children: Vec<ChildSnapshot> = Vec::with_capacity(keys.len());
        for ((thread, key), tip) in threads.iter().zip(&keys).zip(self.load_tips(&keys)?) {
            let own = |tip: &LoadedThread| {
                tip.chain.value.parent.as_ref() == Some(&loaded.thread.value.chain)
            };
            let child = match &tip {
                // No driver of this version goes on with it, and it cannot wake its parent.
                Ok(tip) if own(tip) && tip.check_formats().is_err() => {
                    ChildSnapshot::unreadable(&id::printable_id(thread))
                }
                Ok(tip) if own(tip) => {
                    ChildSnapshot::new(&tip.thread.value, &tip.head.value, &tip.chain.value)
                }
                Err(_) if known || self.is_indexed_child(loaded, key)? => {
                    ChildSnapshot::unreadable(&id::printable_id(thread))
                }
                _ => return Err(child_not_found(thread)),
            };
            // Two links of one chain are one child.
            if !children.iter().any(|other| other.id() == child.id()) {
                let place = match waits.threads.is_empty() {
                    // Children of one reply were made in the same millisecond.
                    true => children.partition_point(|other| other.number <= child.number),
                    false => children.len(),
                };
                children.insert(place, child);
            }
        }
        Ok(WaitRequest {
            any: waits.any,
            timeout: match waits.timeout {
                Some(timeout) => timeout,
                None => self.wait_millis(loaded)?,
            },
            all: waits.threads.is_empty(),
            children,
        })
    }

    /// Returns the time that a wait of this thread takes which names no timeout, in milliseconds;
    /// the default where it has no pin that can be read.
    fn wait_millis(&self, loaded: &LoadedThread) -> Result<u64, Error> {
        match self.pin_if_any(loaded) {
            Ok(Some(pin)) => Ok(pin.wait_millis()),
            Ok(None) => Ok(WAIT_MILLIS_DEFAULT),
            Err(error) => error.into_damage().map(|_| WAIT_MILLIS_DEFAULT),
        }
    }

    /// Returns true if an index names a thread as a child of another. It is used where the child's
    /// own records cannot tell.
    fn is_indexed_child(&self, loaded: &LoadedThread, child: &str) -> Result<bool, Error> {
        let own = child_index(loaded);
        let spawned_by = ("parent", loaded.key());
        let other = Some(spawned_by).filter(|other| *other != own);
        for index in [own].into_iter().chain(other) {
            let (start, end) = child_range(&index);
            let mut from = Some(start);
            for _ in 0..INDEX_PAGES_MAX {
                let Some(start) = from.take() else { break };
                let page =
                    self.scan_names(key::INDEX, (&start, &end), INDEX_PAGE_ENTRIES, false)?;
                if page.keys().iter().any(|key| key == child) {
                    return Ok(true);
                }
                from = page.cursor;
            }
        }
        Ok(false)
    }
}

fn child_not_found(thread: &str) -> Error {
    CoreError::not_found("child thread", thread, None).into()
}
