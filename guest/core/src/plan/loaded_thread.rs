//! The records of a thread as they were read.

use crate::error::{Error, ErrorKind};
use crate::id;
use crate::ledger::Account;
use crate::thread::{ChainRecord, FORMAT, Head, StateRecord, ThreadRecord};
use std::rc::Rc;

/// A record as it was read. All holders share one value; [`StoredRecord::value_mut`] copies it
/// before a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord<T> {
    /// The store's version of it: the guard; 0 where there is none yet, and a plan creates it.
    pub version: u64,
    /// Content of the record.
    pub value: Rc<T>,
}

impl<T> StoredRecord<T> {
    /// A record at this version of the store.
    pub fn new(version: u64, value: impl Into<Rc<T>>) -> Self {
        let value = value.into();
        Self { version, value }
    }

    /// A record that is to be created.
    pub fn absent(value: impl Into<Rc<T>>) -> Self {
        Self::new(0, value)
    }
}

impl<T: Clone> StoredRecord<T> {
    /// The record, to be changed for this holder alone.
    pub fn value_mut(&mut self) -> &mut T {
        Rc::make_mut(&mut self.value)
    }
}

/// The thread that spawned another: the tip of the chain above. Its head is parsed only where the
/// other has stopped, because a turn of a child changes nothing there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentHead {
    /// Its id.
    pub id: String,
    /// Id of its chain.
    pub chain: String,
    /// The store's version of its head.
    pub version: u64,
    /// Text of its head.
    pub text: String,
}

/// The three records that decide about a thread, read as one snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedThread {
    /// Definition of the thread.
    pub thread: StoredRecord<ThreadRecord>,
    /// State of the thread.
    pub head: StoredRecord<Head>,
    /// Its chain and account.
    pub chain: StoredRecord<ChainRecord>,
    /// The chains of [`ChainRecord::above`], in that order; empty where a thread is loaded to be
    /// shown, or where one of them is missing or cannot be read (see
    /// [`LoadedThread::has_lost_account`]). One of a newer format is among them.
    pub above: Vec<StoredRecord<ChainRecord>>,
    /// The thread that spawned it, if one did and its head was read; `None` where a thread is
    /// loaded to be shown.
    pub parent: Option<ParentHead>,
    /// Its state document, where the decision needs it and it has one.
    pub state: Option<StoredRecord<StateRecord>>,
}

impl LoadedThread {
    /// Key of the thread's records.
    pub fn key(&self) -> String {
        id::key(&self.thread.value.id)
    }

    /// Key of the records of its chain.
    pub fn chain_key(&self) -> String {
        id::key(&self.thread.value.chain)
    }

    /// Key of the tip of its chain.
    pub fn tip_key(&self) -> String {
        id::key(&self.chain.value.tip)
    }

    /// Returns true if it is the tip of its chain: it was not continued.
    pub fn is_tip(&self) -> bool {
        self.tip_key() == self.key()
    }

    /// Refuses to write where a newer program has written: the fields that this one does not know
    /// would be lost. An entry of a newer format has a head of that format. Below an account of a
    /// newer format nothing is written either: what the thread spends, and that it has ended, could
    /// not be recorded there, and nobody would make up for it. So the thread stays as it is, and is
    /// due, until a program that knows the format goes on with it.
    ///
    /// # Errors
    /// `ErrorKind::NewerFormat` with the first such record.
    pub fn check_formats(&self) -> Result<(), Error> {
        let thread = &self.thread.value;
        let own = [
            (&thread.id, "thread", thread.format),
            (&thread.id, "head", self.head.value.format),
            (&thread.chain, "chain", self.chain.value.format),
        ];
        let above = self.above.iter().zip(&self.chain.value.above);
        let above = above.map(|(chain, root)| (root, "chain", chain.value.format));
        let mut all = own.into_iter().chain(above);
        match all.find(|(.., format)| *format > FORMAT) {
            None => Ok(()),
            Some((thread, record, format)) => Err(ErrorKind::NewerFormat {
                thread: thread.clone(),
                record,
                format,
            }
            .into()),
        }
    }

    /// Returns true if an account that it draws on, or one above that, is missing or unreadable.
    /// Such a thread can still be ended and recovered; nothing is admitted, and its spending is
    /// recorded in its history and in the accounts that remain.
    pub fn has_lost_account(&self) -> bool {
        self.above.len() != self.chain.value.above.len()
    }

    /// The account that the chain draws on.
    pub fn account(&self) -> &Account {
        let chain = &self.chain.value;
        match self.above.first() {
            Some(above) if !chain.has_account() => &above.value.account,
            _ => &chain.account,
        }
    }
}
