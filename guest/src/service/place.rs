//! The place of a thread: the chains and the parent that are loaded with it. An instance remembers
//! the places of the threads that it loaded last, so that a link or a child is loaded in one read,
//! as a root is.
//!
//! No place is believed: each load compares it with the records that it has read, and reads once
//! more where they differ. All but the parent's tip never changes. One thing is believed without a
//! read: that a thread is the root of a tree whose chains have index entries. It never changes
//! while the thread is there. So under a known root whose records are gone or unreadable since,
//! `ready` of a warm instance answers what the indexes tell, and no error.

use super::ThreadService;
use super::remembered_records::parse_once;
use super::store::find_item;
use crate::ports::{HostPorts, StoredItem};
use std::rc::Rc;
use threadkeep_core::ledger::ACCOUNTS_MAX;
use threadkeep_core::plan::{ParentHead, StoredRecord};
use threadkeep_core::thread::{ChainRecord, ThreadRecord};
use threadkeep_core::{id, key};

/// Most places that a warm instance keeps: as many as the runs of one tree that a driver performs
/// at once.
const PLACES_MAX: usize = 64;

/// The records around a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadPlace {
    /// Key of the root of its chain.
    pub root: String,
    /// Keys of the chains whose accounts lie above its own, from the nearest.
    pub above: Vec<String>,
    /// Key of the root of the chain that spawned its own.
    pub parent: Option<String>,
    /// Id of the tip of that chain, which is told when the thread stops.
    pub parent_tip: Option<String>,
}

/// A place that an instance remembers.
#[derive(Debug, Clone)]
pub struct KnownPlace {
    /// Key of the thread.
    thread: String,
    /// Its place.
    place: Rc<ThreadPlace>,
    /// True if the children of its chain have index entries by number.
    indexed: bool,
}

impl ThreadPlace {
    /// Returns the place of a thread of which nothing is known: that of a root.
    pub fn of_root(root: &str) -> Self {
        Self {
            root: root.to_owned(),
            above: Vec::new(),
            parent: None,
            parent_tip: None,
        }
    }

    /// Returns the keys of the records that are read with those of a thread: the chains above, the
    /// chain that spawned its own, and the head of that chain's tip.
    pub fn related_keys(&self, thread: &str) -> Vec<(&'static str, String)> {
        let above = self.above.iter().chain(&self.parent).cloned();
        let chains = above.map(|root| (key::CHAIN, root));
        let tip = self.parent_tip.as_ref();
        let tip = tip.map(|tip| (key::HEAD, id::key(tip)));
        let mut keys: Vec<(&str, String)> = Vec::new();
        for related in chains.chain(tip) {
            let own = match related.0 {
                key::CHAIN => related.1 == self.root,
                _ => related.1 == thread,
            };
            if !own && !keys.contains(&related) {
                keys.push(related);
            }
        }
        keys
    }
}

/// Returns the keys of the chains above one; none if the list cannot be one that was written.
pub fn keys_above(chain: &ChainRecord) -> Vec<String> {
    let above = &chain.above;
    let valid =
        above.len() <= ACCOUNTS_MAX && above.iter().all(|id| id::check_id("above", id).is_ok());
    let above = above.iter().filter(|_| valid);
    above.map(|id| id::key(id)).collect()
}

/// Returns the tip of the chain that spawned another, if its head was read.
#[inline(never)]
pub fn find_parent(
    items: &[StoredItem],
    place: &ThreadPlace,
    chain: &ChainRecord,
) -> Option<ParentHead> {
    let (tip, of) = (place.parent_tip.as_ref()?, chain.parent.as_ref()?);
    let item = find_item(items, key::HEAD, &id::key(tip))?;
    Some(ParentHead {
        id: tip.clone(),
        chain: of.clone(),
        version: item.version,
        text: item.value.clone(),
    })
}

impl<P: HostPorts> ThreadService<P> {
    /// Returns the place that these records name. The tip of the chain above is the one that its
    /// record among the items names, or else the thread that spawned this one.
    pub fn place_named_by(
        &self,
        thread: &ThreadRecord,
        chain: &ChainRecord,
        items: &[StoredItem],
    ) -> ThreadPlace {
        let valid = |id: &String| id::check_id("id", id).is_ok();
        let parent = chain.parent.as_ref().filter(|parent| valid(parent));
        let parent = parent.map(|parent| id::key(parent));
        let parent_tip = parent.as_ref().and_then(|root| {
            let tip = self.chain_above(items, root);
            let tip = tip.map(|found| found.value.tip.clone()).filter(valid);
            tip.or_else(|| thread.parent.clone().filter(valid))
        });
        ThreadPlace {
            root: id::key(&thread.chain),
            above: keys_above(chain),
            parent,
            parent_tip,
        }
    }

    /// Returns the chains above another, from the nearest up to the first that is missing or cannot
    /// be read.
    #[inline(never)]
    pub fn accounts_above(
        &self,
        items: &[StoredItem],
        chain: &ChainRecord,
    ) -> Vec<StoredRecord<ChainRecord>> {
        let above = chain.above.iter();
        let found = above.map_while(|root| self.chain_above(items, &id::key(root)));
        found.collect()
    }

    /// Returns the chain under this key among the items, if it is there and can be read.
    fn chain_above(&self, items: &[StoredItem], root: &str) -> Option<StoredRecord<ChainRecord>> {
        let item = find_item(items, key::CHAIN, root)?;
        let chain = parse_once(&self.remembered.chains, item).ok()?;
        Some(StoredRecord::new(item.version, chain))
    }

    /// Returns the place of a thread, if it is remembered.
    pub fn known_place(&self, thread: &str) -> Option<Rc<ThreadPlace>> {
        let places = self.places.borrow();
        let known = places.iter().find(|known| known.thread == thread);
        known.map(|known| Rc::clone(&known.place))
    }

    /// Returns true if the thread is known as the root of a tree whose chains have index entries.
    /// What deletes a thread must forget its place.
    pub fn is_known_tree(&self, thread: &str) -> bool {
        let places = self.places.borrow();
        places.iter().any(|known| {
            let place = &known.place;
            known.indexed
                && known.thread == thread
                && place.root == thread
                && place.parent.is_none()
        })
    }

    /// Remembers the place of a thread that was loaded.
    pub fn remember_place(
        &self,
        thread: &str,
        place: Rc<ThreadPlace>,
        chain: &StoredRecord<ChainRecord>,
    ) {
        let mut places = self.places.borrow_mut();
        places.retain(|known| known.thread != thread);
        if places.len() >= PLACES_MAX {
            places.remove(0);
        }
        places.push(KnownPlace {
            thread: thread.to_owned(),
            place,
            indexed: chain.value.spawned.is_some(),
        });
    }
}
