//! Plans: the writes of a decision, all of them or none; and the change of a thread from which a
//! plan is made.
//!
//! Invariants: every plan about a thread replaces its head at the store version that was read, or
//! creates it where it was absent; an entry is appended at the history's length plus one; index and
//! due entries follow the records in the same plan; a plan names a key once.

mod joined_plan;
mod loaded_thread;
mod money;
mod other_threads;
mod related_thread;
mod state;
mod tree_entries;
mod writes;

pub use joined_plan::{COMMIT_BYTES_MAX, COMMIT_OPS_MAX, PlanJoinError};
pub use loaded_thread::{LoadedThread, ParentHead, StoredRecord};
pub use money::ChainFunds;
pub use other_threads::{DueCall, due_calls, is_revival, is_to_be_resumed};
pub use related_thread::{RelatedThread, WaitStanding, is_to_be_revived, wait_standing};
pub use tree_entries::{due_write, is_indexed_as_interrupted, is_tree_entry};
pub use writes::{StoreWrite, WriteCondition, index_write};
use writes::{index_delete, push_replacement};

use crate::error::{self, Error, ErrorKind};
use crate::history::{
    AdmittedAttempt, CommitReason, Entry, Event, ProviderRole, RaisedEvent, RunEnd, SettledHold,
    StepAnswer, is_user_text, provider_messages, provider_texts_of,
};
use crate::json::JsonValue;
use crate::key;
use crate::ledger::{ChargeBasis, LedgerRefusal, TOKENS_PER_SECOND, UnknownBill};
use crate::limits::ThreadCaps;
use crate::settings::PinnedSettings;
use crate::state::{StateChange, StateEdits};
use crate::thread::{
    ChainRecord, FORMAT, Head, InboxMessage, StatusCause, ThreadRecord, ThreadStatus,
};
use crate::time::UnixTime;
use crate::{hash, id};
use std::rc::Rc;

/// Most bytes of an entry: a stored value, with room for its envelope.
pub const ENTRY_BYTES_MAX: usize = 1_000_000;

/// The entry by which it can be found out if a commit was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedCommit {
    /// The kind of the log.
    pub log: &'static str,
    /// Name of the log of that kind.
    pub partition: String,
    /// Position of the entry.
    pub position: u64,
    /// Name of the commit, which the entry holds.
    pub commit: String,
}

/// The writes of a commit, all or nothing, and the records afterwards of the thread that it is
/// about: of several, the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitPlan {
    /// The writes, in order.
    pub writes: Vec<StoreWrite>,
    /// True if the plan only records the truth about something that has already happened.
    pub closing: bool,
    /// The thread's record afterwards.
    pub thread: Rc<ThreadRecord>,
    /// Its head afterwards.
    pub head: Rc<Head>,
    /// Its chain afterwards.
    pub chain: Rc<ChainRecord>,
    /// The chains above it afterwards, as [`LoadedThread::above`].
    pub above: Vec<Rc<ChainRecord>>,
    /// The entry that it appends to the history of that thread, if it appends one.
    pub entry: Option<Rc<Entry>>,
    /// The messages that this entry adds to the conversation, as a provider is sent them.
    pub messages: Vec<String>,
    /// The place of an entry that it appends, if it appends one: it is looked for after an unknown
    /// outcome.
    pub logged: Option<LoggedCommit>,
}

/// The entry that a change appends, its place, and its write.
#[derive(Debug)]
struct PlannedEntry {
    entry: Entry,
    logged: LoggedCommit,
    append: StoreWrite,
}

/// Inputs that every decision shares: its time, the name of its commit, and the operator's
/// settings.
#[derive(Debug, Clone, Copy)]
pub struct DecisionContext<'a> {
    /// Time of the decision.
    pub now: UnixTime,
    /// Random name of the commit, at least 16 hex digits.
    pub commit: &'a str,
    /// The operator's current upper bounds of caps; a decision that admits nothing needs none.
    pub ceiling: ThreadCaps,
    /// The operator's choice of the charge for an attempt whose usage is never reported.
    pub unknown_bill: UnknownBill,
    /// Message of the store when it had no room for the decision before. If it is set, no further
    /// step is handed out: the run stops, and what has happened is recorded.
    pub store_full_message: Option<&'a str>,
}

/// Builder of the change of one thread, from which a plan is made.
#[derive(Debug)]
pub struct ThreadChange<'a> {
    loaded: &'a LoadedThread,
    moment: DecisionContext<'a>,
    /// The thread's record as changed so far: the one that was loaded, until
    /// [`ThreadChange::thread_mut`] copies it.
    pub thread: Rc<ThreadRecord>,
    /// The head as changed so far: a copy from the beginning, as nearly every change writes it.
    pub head: Box<Head>,
    /// The chain as changed so far; its account is changed by [`ThreadChange::update_accounts`].
    pub chain: Rc<ChainRecord>,
    above: Vec<Rc<ChainRecord>>,
    /// True if the chain draws on its account.
    draws: bool,
    /// Refusal of a charge that an account cannot contradict: the records are corrupt, and nothing
    /// is written.
    contradiction: Option<LedgerRefusal>,
    /// The events of the entry so far.
    pub events: Vec<Event>,
    /// The step that the entry answers.
    pub answers: Option<StepAnswer>,
    /// Settlement of the hold of that step.
    pub settled: Option<SettledHold>,
    /// The attempt that the entry admits.
    pub admitted: Option<AdmittedAttempt>,
    /// Waiting inbox messages that this change may move into the history.
    pub mail: Vec<InboxMessage>,
    /// Indexes of the events that stand for messages whose records are lost.
    pub lost_mail: Vec<u32>,
    /// Charges for calls of an external loop that ended with the change and were not settled.
    pub charges: Vec<SettledHold>,
    /// Edits of the state of the thread.
    pub edits: StateEdits,
    /// Where the run that the change begins comes from.
    pub about: Option<JsonValue<'static>>,
    related_heads: Vec<related_thread::ChangedHead>,
    /// Plan of the threads that are created in the same commit.
    created: Option<Box<CommitPlan>>,
    /// Writes beyond the records of the thread.
    pub extra: Vec<StoreWrite>,
    /// True if the change only records the truth about something that has already happened.
    pub closing: bool,
    /// True if the provider has already counted the assistant's message.
    pub counted: bool,
    /// Texts of the messages of the events, once they are counted.
    messages: Option<Vec<String>>,
}

impl<'a> ThreadChange<'a> {
    /// Creates a change of the loaded thread.
    pub fn new(loaded: &'a LoadedThread, moment: DecisionContext<'a>) -> Self {
        Self {
            loaded,
            moment,
            thread: Rc::clone(&loaded.thread.value),
            head: Box::new(Head::clone(&loaded.head.value)),
            chain: Rc::clone(&loaded.chain.value),
            above: loaded
                .above
                .iter()
                .map(|above| Rc::clone(&above.value))
                .collect(),
            draws: loaded.head.value.status.draws_on_account(),
            contradiction: None,
            events: Vec::new(),
            answers: None,
            settled: None,
            admitted: None,
            mail: Vec::new(),
            lost_mail: Vec::new(),
            charges: Vec::new(),
            edits: StateEdits::default(),
            about: None,
            related_heads: Vec::new(),
            created: None,
            extra: Vec::new(),
            closing: false,
            counted: false,
            messages: None,
        }
    }

    /// Creates a change that may also take the inbox messages `mail`.
    pub fn with_mail(
        loaded: &'a LoadedThread,
        mail: Vec<InboxMessage>,
        moment: DecisionContext<'a>,
    ) -> Self {
        Self {
            mail,
            ..Self::new(loaded, moment)
        }
    }

    /// The thread's record, to be changed.
    pub fn thread_mut(&mut self) -> &mut ThreadRecord {
        Rc::make_mut(&mut self.thread)
    }

    /// The chain, to be changed.
    pub fn chain_mut(&mut self) -> &mut ChainRecord {
        Rc::make_mut(&mut self.chain)
    }

    /// The thread as it was loaded.
    pub fn loaded_thread(&self) -> &'a LoadedThread {
        self.loaded
    }

    /// Returns true if the commit creates a thread of this id already.
    pub fn creates_thread(&self, id: &str) -> bool {
        let mut created = self.created.iter();
        created.any(|plan| plan.writes_record(key::THREAD, &id::key(id)))
    }

    /// Adds the plan of a thread that is created in the same commit.
    ///
    /// # Errors
    /// `ErrorKind::Exists` if the commit creates one of this id already, and those of
    /// [`CommitPlan::join`].
    pub fn add_created(&mut self, created: Box<CommitPlan>) -> Result<(), Error> {
        if self.creates_thread(&created.thread.id) {
            return Err(ErrorKind::Exists(created.thread.id.clone()).into());
        }
        self.created = Some(match self.created.take() {
            Some(earlier) => earlier.join(created)?,
            None => created,
        });
        Ok(())
    }

    /// The inputs that every decision shares.
    pub fn moment(&self) -> DecisionContext<'a> {
        self.moment
    }

    /// The time of the decision.
    pub fn now(&self) -> UnixTime {
        self.moment.now
    }

    /// Caps in force: the thread's own, and the operator's where those are lower now.
    pub fn limits(&self) -> ThreadCaps {
        self.head.limits.lowered_to(self.moment.ceiling)
    }

    /// The operator's upper bounds of caps.
    pub fn ceiling(&self) -> ThreadCaps {
        self.moment.ceiling
    }

    /// Returns the basis of the charge for an attempt that is admitted now, if its usage is never
    /// reported; `None` to charge the whole hold.
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

    /// Returns the cause that forbids to hand out more, if the store has no room for it.
    pub fn store_full_cause(&self) -> Option<StatusCause> {
        let said = error::cut(self.moment.store_full_message?, 500);
        let message = format!("{said}: free space or raise the quota, then resume");
        Some(StatusCause::new("limit", "store_full", message))
    }

    /// The version that the entry of this change will have.
    pub fn version(&self) -> u64 {
        self.loaded.head.value.version + 1
    }

    /// Adds an event; returns its index in the entry.
    pub fn push_event(&mut self, mut event: Event) -> u32 {
        // Forks and later links find the bytes of a blob by the chain that has them.
        for blob in event.blobs_mut() {
            blob.chain = Some(self.thread.chain.clone());
        }
        self.events.push(event);
        (self.events.len() - 1) as u32
    }

    /// Adds the messages of the events so far to the request prefix and the context estimate. Later
    /// events must not be messages.
    pub fn count_messages(&mut self) {
        if self.messages.is_some() {
            return;
        }
        if self.events.iter().any(is_user_text) {
            self.head.asked_version = Some(self.version());
        }
        // A lost message is nothing that a model can be asked.
        let mut events = (0..).zip(&self.events);
        if events.any(|(at, event)| is_user_text(event) && !self.lost_mail.contains(&at)) {
            self.head.hand_offs = 0;
        }
        let mut texts = Vec::new();
        for message in provider_texts_of(self.version(), &self.events) {
            self.head.prefix = hash::sha256(&[&self.head.prefix, &message.json]);
            let assistant = message.role == ProviderRole::Assistant;
            self.head.asked = !assistant;
            self.head
                .add_message_to_window(&message, self.counted && assistant);
            texts.push(message.json);
        }
        self.messages = Some(texts);
    }

    /// Returns the SHA-256 of the request that would be sent now.
    pub fn request_hash(&self, pin: &PinnedSettings, output: u64) -> String {
        let pinned = self.thread.pin.as_deref().unwrap_or_default();
        hash::sha256(&[
            pinned,
            &self.head.prefix,
            &pin.model.name,
            &output.to_string(),
        ])
    }

    /// Turns the change into the plan of a commit of the thread: records and one entry.
    pub fn into_plan(mut self, reason: CommitReason) -> Result<Box<CommitPlan>, Error> {
        self.count_messages();
        self.push_raised_caps();
        self.apply_reported_usage();
        self.check_consistent()?;
        let state = self.record_state()?;
        let entry = self.take_entry(reason, state);
        debug_assert_eq!(
            self.messages.as_deref(),
            Some(&provider_messages(&entry)[..])
        );
        let text = entry.to_text();
        if text.len() > ENTRY_BYTES_MAX {
            let problem = format!(
                "makes an entry of {} bytes, the most is {ENTRY_BYTES_MAX}",
                text.len()
            );
            return Err(Error::invalid("entry", "", problem));
        }
        let position = self.thread.position(entry.version);
        let position = position.ok_or_else(|| self.below_base_error())?;
        self.head.version = entry.version;
        self.head.hash = Entry::hash_of(&text);
        let logged = LoggedCommit {
            log: key::HISTORY,
            partition: self.loaded.key(),
            position,
            commit: entry.commit.clone(),
        };
        let append = StoreWrite::Append {
            log: logged.log,
            partition: logged.partition.clone(),
            at: position,
            value: text,
        };
        self.build_plan(Some(PlannedEntry {
            entry,
            logged,
            append,
        }))
    }

    /// The head is behind the base of its thread.
    fn below_base_error(&self) -> Error {
        Error::corrupt(format!(
            "the head of {} is at version {}, and its base reaches to {}",
            self.thread.id,
            self.loaded.head.value.version,
            self.thread.base_length()
        ))
    }

    /// Adds an event for caps that were lifted since the last entry, by this commit or while the
    /// thread was held.
    fn push_raised_caps(&mut self) {
        let limits = self.head.limits;
        if limits != self.thread.limits {
            self.thread_mut().limits = limits;
            self.push_event(Event::Raised(RaisedEvent { limits }));
        }
    }

    /// Turns the change into a plan without an entry: the head, and the writes that were added. For
    /// a commit that another caller makes to a thread that is held.
    pub fn into_head_plan(self) -> Result<Box<CommitPlan>, Error> {
        self.check_consistent()?;
        self.build_plan(None)
    }

    fn build_plan(mut self, appended: Option<PlannedEntry>) -> Result<Box<CommitPlan>, Error> {
        self.head.updated = self.moment.now;
        if self.head.sweep.is_some() {
            self.head.due = Some(0);
        }
        let mut writes = Vec::with_capacity(4 + self.extra.len());
        self.wake_parent();
        self.write_related_heads(&mut writes);
        self.write_due(&mut writes);
        self.write_indexes(&mut writes);
        self.write_interrupted(&mut writes);
        self.write_own_records(&mut writes);
        writes.append(&mut self.extra);
        let (entry, logged) = match appended {
            Some(appended) => {
                writes.push(appended.append);
                (Some(Rc::new(appended.entry)), Some(appended.logged))
            }
            None => (None, None),
        };
        let Self {
            thread,
            head,
            chain,
            above,
            closing,
            created,
            messages,
            ..
        } = self;
        let plan = Box::new(CommitPlan {
            writes,
            closing,
            thread,
            head: Rc::from(head),
            chain,
            above,
            entry,
            messages: messages.unwrap_or_default(),
            logged,
        });
        match created {
            Some(created) => Ok(created.join(plan)?),
            None => Ok(plan),
        }
    }

    /// Adds the writes of the thread's head, and of its chains and its record where they changed or
    /// are created.
    fn write_own_records(&self, writes: &mut Vec<StoreWrite>) {
        let key = self.loaded.key();
        push_replacement(
            writes,
            key::HEAD,
            &key,
            self.loaded.head.version,
            &*self.head,
        );
        let absent = |version: u64| version == 0;
        if self.chain != self.loaded.chain.value || absent(self.loaded.chain.version) {
            push_replacement(
                writes,
                key::CHAIN,
                &self.loaded.chain_key(),
                self.loaded.chain.version,
                &*self.chain,
            );
        }
        let above = self.loaded.above.iter().zip(&self.above);
        for ((stored, above), root) in above.zip(&self.chain.above) {
            if *above != stored.value {
                push_replacement(writes, key::CHAIN, &id::key(root), stored.version, &**above);
            }
        }
        if self.thread != self.loaded.thread.value || absent(self.loaded.thread.version) {
            push_replacement(
                writes,
                key::THREAD,
                &key,
                self.loaded.thread.version,
                &*self.thread,
            );
        }
    }

    /// Moves the events and settlements of the change into its entry.
    fn take_entry(&mut self, reason: CommitReason, state: Option<StateChange>) -> Entry {
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
            about: self.about.take(),
            ended: self.run_end(),
            state_at: match state {
                Some(_) => 0,
                None => self.head.state.map_or(0, |state| state.version),
            },
            state,
            events: std::mem::take(&mut self.events),
        }
    }

    /// Returns the end of the run, if the change ends it.
    fn run_end(&self) -> Option<RunEnd> {
        let (before, head) = (self.loaded.head.value.status, &self.head);
        let under_way = |status: ThreadStatus| match status {
            ThreadStatus::Running | ThreadStatus::Waiting | ThreadStatus::Suspended => true,
            ThreadStatus::Created
            | ThreadStatus::Idle
            | ThreadStatus::Completed
            | ThreadStatus::Error
            | ThreadStatus::Cancelled
            | ThreadStatus::Killed
            | ThreadStatus::Continued => false,
        };
        let goes_on = under_way(head.status) || head.status == ThreadStatus::Continued;
        (under_way(before) && !goes_on && head.run > 0).then(|| RunEnd {
            status: head.status,
            termination: head.cause.as_ref().map(|cause| cause.code.clone()),
            turns: head.counters.run_turns,
            tokens: head.counters.run_tokens,
            duration: head.counters.run_duration,
        })
    }

    fn write_indexes(&mut self, writes: &mut Vec<StoreWrite>) {
        let key = self.loaded.key();
        let before = &self.loaded.head.value;
        if before.status == self.head.status {
            return;
        }
        let (was, now) = (before.recency, self.moment.now.millis());
        writes.push(index_delete("status", before.status.as_str(), was, &key));
        writes.push(index_write("status", self.head.status.as_str(), now, &key));
        // In the same millisecond the key of the entry is the same, and a commit may name a key
        // only once.
        if now != was {
            writes.push(index_delete(key::RECENCY, "", was, &key));
            writes.push(index_write(key::RECENCY, "", now, &key));
            self.head.recency = now;
        }
    }
}
