//! Plans: what a decision wants written, all of it or nothing; and the change of a thread from which one is made.
//!
//! Invariants: every plan about a thread replaces its head at the store version that was read; an entry is appended at
//! the history's length plus one; index and due entries follow the records in the same plan.

mod money;
mod neighbour;

pub use money::Funds;
pub use neighbour::{Neighbour, Standing, is_to_be_revived, standing};

use crate::error::{self, Error};
use crate::history::{Admitted, Answer, Entry, Event, Raised, Reason, Settled, messages_of};
use crate::json::{self, Fields, ToJson};
use crate::key;
use crate::ledger::{Account, ChargeBasis, Refusal, TOKENS_PER_SECOND, UnknownBill};
use crate::limits::Limits;
use crate::runner::Mail;
use crate::settings::Pin;
use crate::thread::{Cause, ChainRecord, FORMAT, Head, ThreadRecord};
use crate::time::Instant;
use crate::{estimate, hash, id};

/// Most bytes of an entry: a stored value, with room for what stands around it.
pub const ENTRY_BYTES_MAX: usize = 1_000_000;

/// A record as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored<T> {
    /// The store's version of it: the guard.
    pub version: u64,
    /// What it holds.
    pub value: T,
}

/// The three records that decide about a thread, as one snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// What it is.
    pub thread: Stored<ThreadRecord>,
    /// Where it stands.
    pub head: Stored<Head>,
    /// Its chain and account.
    pub chain: Stored<ChainRecord>,
    /// The chains of [`ChainRecord::above`], in that order; none where a thread is loaded to be shown,
    /// or where one of them is missing or cannot be read (see [`Loaded::has_lost_account`]).
    pub above: Vec<Stored<ChainRecord>>,
    /// The thread that spawned it, if one did and its head can be read; none where a thread is
    /// loaded to be shown.
    pub parent: Option<Neighbour>,
}

impl Loaded {
    /// Key of the thread.
    pub fn key(&self) -> String {
        id::key(&self.thread.value.id)
    }

    /// Key of its chain.
    pub fn root(&self) -> String {
        id::key(&self.thread.value.chain)
    }

    /// Is an account that it draws on, or one above that, missing or unreadable? Such a thread can
    /// still be ended and recovered; nothing is admitted, and what it has spent stands in its history
    /// and in the accounts that there are.
    pub fn has_lost_account(&self) -> bool {
        self.above.len() != self.chain.value.above.len()
    }

    /// The account that it draws on.
    pub fn account(&self) -> &Account {
        let chain = &self.chain.value;
        match self.above.first() {
            Some(above) if !chain.has_account() => &above.value.account,
            _ => &chain.account,
        }
    }
}

/// What a record must be before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Anything, or nothing.
    Any,
    /// There must be none.
    Absent,
    /// It must be at this version.
    Version(u64),
}

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// A condition: the record must be at this version.
    Check {
        /// Its collection.
        collection: &'static str,
        /// Its key.
        key: String,
        /// Its version.
        version: u64,
    },
    /// Replace or create a record.
    Put {
        /// Its collection.
        collection: &'static str,
        /// Its key.
        key: String,
        /// What it must be before.
        expect: Expect,
        /// Its text.
        value: String,
    },
    /// Remove a record.
    Delete {
        /// Its collection.
        collection: &'static str,
        /// Its key.
        key: String,
    },
    /// Append an entry to a history.
    Append {
        /// Key of the thread.
        partition: String,
        /// Its version.
        at: u64,
        /// Its text.
        value: String,
    },
}

/// What is to be written, all or nothing, and what the thread then is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// In order.
    pub writes: Vec<Write>,
    /// True if it only records the truth about something that has already happened.
    pub closing: bool,
    /// The thread's record afterwards.
    pub thread: ThreadRecord,
    /// Its head afterwards.
    pub head: Head,
    /// Its chain afterwards.
    pub chain: ChainRecord,
    /// The chains above it afterwards, as [`Loaded::above`].
    pub above: Vec<ChainRecord>,
    /// The entry that it appends, if it appends one.
    pub entry: Option<Entry>,
}

/// When a decision is made, and the random name of its commit.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    /// The time.
    pub now: Instant,
    /// At least 16 hex digits.
    pub commit: &'a str,
    /// The operator's upper bounds of caps as they are now; what admits nothing needs none.
    pub ceiling: Limits,
    /// What the operator wants to be charged for an attempt whose usage nobody learns.
    pub unknown_bill: UnknownBill,
    /// What the store said when it had no room for what was decided before: now nothing more is handed out, the run
    /// stops with what has happened recorded.
    pub full: Option<&'a str>,
}

/// A change of one thread in the making.
#[derive(Debug)]
pub struct Change<'a> {
    loaded: &'a Loaded,
    moment: Moment<'a>,
    /// The record, to be changed.
    pub thread: ThreadRecord,
    /// The head, to be changed.
    pub head: Head,
    /// The chain, to be changed; its account by [`Change::on_account`].
    pub chain: ChainRecord,
    above: Vec<ChainRecord>,
    /// Does the chain draw on its account?
    draws: bool,
    /// What an account said that contradicts itself: then nothing is written.
    contradiction: Option<Refusal>,
    /// The events so far.
    pub events: Vec<Event>,
    /// The step that it answers.
    pub answers: Option<Answer>,
    /// What became of its hold.
    pub settled: Option<Settled>,
    /// The attempt that it admits.
    pub admitted: Option<Admitted>,
    /// Mail that waits and that this change may take.
    pub mail: Vec<Mail>,
    /// Events of this change that stand for messages whose records are gone.
    pub lost_mail: Vec<u32>,
    /// Calls of a host's own loop that end with it and nobody settled.
    pub charges: Vec<Settled>,
    beside: Vec<neighbour::Touched>,
    /// Writes beyond the records of the thread.
    pub extra: Vec<Write>,
    /// True if it only records the truth about something that has already happened.
    pub closing: bool,
    /// Has the provider counted the assistant's message already?
    pub counted: bool,
    sealed: bool,
}

impl<'a> Change<'a> {
    /// A change of what was loaded.
    pub fn new(loaded: &'a Loaded, moment: Moment<'a>) -> Self {
        Self {
            loaded,
            moment,
            thread: loaded.thread.value.clone(),
            head: loaded.head.value.clone(),
            chain: loaded.chain.value.clone(),
            above: loaded
                .above
                .iter()
                .map(|above| above.value.clone())
                .collect(),
            draws: loaded.head.value.status.draws(),
            contradiction: None,
            events: Vec::new(),
            answers: None,
            settled: None,
            admitted: None,
            mail: Vec::new(),
            lost_mail: Vec::new(),
            charges: Vec::new(),
            beside: Vec::new(),
            extra: Vec::new(),
            closing: false,
            counted: false,
            sealed: false,
        }
    }

    /// The same, with the mail that waits.
    pub fn with(loaded: &'a Loaded, mail: Vec<Mail>, moment: Moment<'a>) -> Self {
        Self {
            mail,
            ..Self::new(loaded, moment)
        }
    }

    /// What was loaded.
    pub fn loaded(&self) -> &'a Loaded {
        self.loaded
    }

    /// The time of the decision.
    pub fn now(&self) -> Instant {
        self.moment.now
    }

    /// The caps in force: the thread's own, and the operator's where those are lower now.
    pub fn limits(&self) -> Limits {
        self.head.limits.lowered_to(self.moment.ceiling)
    }

    /// The operator's upper bounds of caps.
    pub fn ceiling(&self) -> Limits {
        self.moment.ceiling
    }

    /// What an attempt that is admitted now is charged by, if nobody learns what it used; `None` for all that is held.
    pub fn charge_basis(&self, input: u64, output: u64, rate: Option<u64>) -> Option<ChargeBasis> {
        match self.moment.unknown_bill {
            UnknownBill::Full => None,
            UnknownBill::Estimate => Some(ChargeBasis {
                input,
                output,
                rate: rate.unwrap_or(TOKENS_PER_SECOND),
                since: self.now(),
            }),
        }
    }

    /// Why nothing more may be handed out, if the store has no room for it.
    pub fn store_full(&self) -> Option<Cause> {
        let said = error::cut(self.moment.full?, 500);
        let message = format!("{said}: free space or raise the quota, then resume");
        Some(Cause::new("limit", "store_full", message))
    }

    /// The version that the entry will have.
    pub fn version(&self) -> u64 {
        self.loaded.head.value.version + 1
    }

    /// Add an event; its index in the entry.
    pub fn push(&mut self, event: Event) -> u32 {
        self.events.push(event);
        (self.events.len() - 1) as u32
    }

    /// Count the messages of the events so far into what a provider will see. Later events must not be messages.
    pub fn seal(&mut self) {
        if self.sealed {
            return;
        }
        self.sealed = true;
        for message in messages_of(self.version(), &self.events) {
            self.head.prefix = hash::sha256(&[&self.head.prefix, &message]);
            let assistant = message.starts_with(r#"{"role":"assistant""#);
            self.head.asked = !assistant;
            if !(self.counted && assistant) {
                self.head.context = self.head.context.saturating_add(estimate::tokens(&message));
            }
        }
    }

    /// SHA-256 of the request that would be sent now.
    pub fn request_hash(&self, pin: &Pin, output: u64) -> String {
        let pinned = self.thread.pin.as_deref().unwrap_or_default();
        hash::sha256(&[
            pinned,
            &self.head.prefix,
            &pin.model.name,
            &output.to_string(),
        ])
    }

    /// The plan of a commit of the thread: records and one entry.
    pub fn into_plan(mut self, reason: Reason) -> Result<Plan, Error> {
        self.seal();
        self.tell_raised();
        self.tell_late();
        self.consistent()?;
        let entry = self.take_entry(reason);
        let text = entry.to_text();
        if text.len() > ENTRY_BYTES_MAX {
            let problem = format!(
                "makes an entry of {} bytes, the most is {ENTRY_BYTES_MAX}",
                text.len()
            );
            return Err(Error::invalid("entry", "", problem));
        }
        self.head.version = entry.version;
        self.head.hash = Entry::hash_of(&text);
        let mut plan = self.head_plan();
        plan.writes.push(Write::Append {
            partition: self_key(&plan),
            at: entry.version,
            value: text,
        });
        plan.entry = Some(entry);
        Ok(plan)
    }

    /// Caps that were lifted since the last entry, by this commit or while somebody held the thread, become an event.
    fn tell_raised(&mut self) {
        let limits = self.head.limits;
        if limits != self.thread.limits {
            self.thread.limits = limits;
            self.push(Event::Raised(Raised { limits }));
        }
    }

    /// The plan of a commit to the thread by somebody else: the head, and what was added beside it.
    pub fn into_head_plan(self) -> Result<Plan, Error> {
        self.consistent()?;
        Ok(self.head_plan())
    }

    fn head_plan(mut self) -> Plan {
        self.head.updated = self.moment.now;
        if self.head.sweep.is_some() {
            self.head.due = Some(0);
        }
        let mut writes = Vec::with_capacity(4 + self.extra.len());
        self.wake_parent();
        self.write_beside(&mut writes);
        self.write_due(&mut writes);
        self.write_indexes(&mut writes);
        let key = self.loaded.key();
        put(
            &mut writes,
            key::HEAD,
            &key,
            self.loaded.head.version,
            &self.head,
        );
        if self.chain != self.loaded.chain.value {
            put(
                &mut writes,
                key::CHAIN,
                &self.loaded.root(),
                self.loaded.chain.version,
                &self.chain,
            );
        }
        let above = self.loaded.above.iter().zip(&self.above);
        for ((stored, above), root) in above.zip(&self.chain.above) {
            if *above != stored.value {
                put(
                    &mut writes,
                    key::CHAIN,
                    &id::key(root),
                    stored.version,
                    above,
                );
            }
        }
        if self.thread != self.loaded.thread.value {
            put(
                &mut writes,
                key::THREAD,
                &key,
                self.loaded.thread.version,
                &self.thread,
            );
        }
        writes.append(&mut self.extra);
        let Self {
            thread,
            head,
            chain,
            above,
            closing,
            ..
        } = self;
        Plan {
            writes,
            closing,
            thread,
            head,
            chain,
            above,
            entry: None,
        }
    }

    /// The entry that the change is, with its events.
    fn take_entry(&mut self, reason: Reason) -> Entry {
        Entry {
            format: FORMAT,
            version: self.version(),
            reason,
            time: self.moment.now,
            run: self.head.run,
            commit: self.moment.commit.to_owned(),
            previous: self.loaded.head.value.hash.clone(),
            answers: self.answers.take(),
            settled: self.settled.take(),
            admitted: self.admitted.take(),
            charged: std::mem::take(&mut self.charges),
            events: std::mem::take(&mut self.events),
        }
    }

    /// One due entry for each thread that is created, waiting or held, or that has mail to take; never later than its
    /// true time. It stays where it is while a run goes on, so that a turn does not move it.
    fn write_due(&mut self, writes: &mut Vec<Write>) {
        let before = self.loaded.head.value.due;
        if self.head.due == before {
            return;
        }
        let key = self.loaded.key();
        if let Some(time) = before {
            writes.push(Write::Delete {
                collection: key::DUE,
                key: due_key(time, &key),
            });
        }
        if let Some(time) = self.head.due {
            writes.push(due(time, &key, &self.thread.chain));
        }
    }

    fn write_indexes(&mut self, writes: &mut Vec<Write>) {
        let key = self.loaded.key();
        let before = &self.loaded.head.value;
        if before.status == self.head.status {
            return;
        }
        let (was, now) = (before.recency, self.moment.now.millis());
        writes.push(unindex("status", before.status.as_str(), was, &key));
        writes.push(index("status", self.head.status.as_str(), now, &key));
        // In the same millisecond the entry is where it was: a commit names a key once.
        if now != was {
            writes.push(unindex(key::RECENCY, "", was, &key));
            writes.push(index(key::RECENCY, "", now, &key));
            self.head.recency = now;
        }
    }
}

fn self_key(plan: &Plan) -> String {
    id::key(&plan.thread.id)
}

fn put(
    writes: &mut Vec<Write>,
    collection: &'static str,
    key: &str,
    version: u64,
    value: &impl ToJson,
) {
    let value = json::text(value);
    writes.push(Write::Put {
        collection,
        key: key.to_owned(),
        expect: Expect::Version(version),
        value,
    });
}

/// An index entry.
pub fn index(name: &str, value: &str, millis: u64, thread: &str) -> Write {
    let key = key::index(name, value, millis, thread);
    Write::Put {
        collection: key::INDEX,
        key,
        expect: Expect::Any,
        value: String::new(),
    }
}

fn unindex(name: &str, value: &str, millis: u64, thread: &str) -> Write {
    Write::Delete {
        collection: key::INDEX,
        key: key::index(name, value, millis, thread),
    }
}

fn due_key(millis: u64, thread: &str) -> String {
    key::join(&[&key::number(millis), thread])
}

/// A due entry at a time in milliseconds.
pub fn due(millis: u64, thread: &str, chain: &str) -> Write {
    let mut value = String::new();
    Fields::new(&mut value).add("root", &id::key(chain)).end();
    Write::Put {
        collection: key::DUE,
        key: due_key(millis, thread),
        expect: Expect::Any,
        value,
    }
}
