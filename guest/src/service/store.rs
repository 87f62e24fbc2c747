//! Loads records by id and entries by version, and commits plans.

use super::place::{ThreadPlace, find_parent};
use super::registry::loaded_from_plan;
use super::remembered_records::find_once;
use super::{Error, ErrorKind, ThreadService};
use crate::ports::{HostPorts, RecordDamage, StorageError, StoredItem};
use std::rc::Rc;
use threadkeep_core::error::{Error as CoreError, ErrorKind as CoreErrorKind};
use threadkeep_core::history::Entry;
use threadkeep_core::json::{self, FromJson, JsonError};
use threadkeep_core::ledger::UnknownBill;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::ordered_names::OrderedNames;
use threadkeep_core::plan::{CommitPlan, DecisionContext, LoadedThread, StoredRecord};
use threadkeep_core::runner::CommitDecision;
use threadkeep_core::thread::{ChainRecord, Head, ThreadRecord, find_contradiction};
use threadkeep_core::{id, key};

/// Most times that a conflicting decision is made before the caller gets `unavailable`.
pub const DECISION_TRIES_MAX: u32 = 3;
/// Code of `unavailable` if other writers were faster each time. One writer always succeeds, so the
/// same call, repeated after a while, succeeds too.
pub const CONTENTION: &str = "contention";
/// Most reads of [`ThreadService::load`]: the thread; its chain if that has another key; the chains
/// above it; the tip of the chain that spawned it, and that tip's successors.
const LOAD_READS_MAX: u32 = 6;
/// Most tries of a commit whose outcome is unknown.
const UNKNOWN_OUTCOME_TRIES_MAX: u32 = 3;
/// Longest cursor, in bytes. A cursor is a key of the store.
const CURSOR_BYTES_MAX: usize = 512;
/// Ids that are compared to find the nearest one to an id that does not exist.
const NEAREST_IDS_MAX: u32 = 200;

/// Threads that were loaded together.
#[derive(Debug, Default)]
pub struct LoadedPage {
    /// Threads that could be read.
    pub threads: Vec<LoadedThread>,
    /// Threads that could not, by their keys.
    pub unreadable: Vec<(String, RecordDamage)>,
}

/// The outcome of a decision on a thread.
#[derive(Debug)]
pub enum DecisionOutcome {
    /// The plan was committed.
    Committed(Box<CommitPlan>),
    /// There was nothing to do: the thread as it was loaded.
    Unchanged(Box<LoadedThread>),
}

impl DecisionOutcome {
    /// Returns the thread as it is now.
    pub fn into_loaded(self) -> LoadedThread {
        match self {
            Self::Committed(plan) => loaded_from_plan(*plan),
            Self::Unchanged(loaded) => *loaded,
        }
    }
}

/// A page of entries whose names hold all their data: those of an index, and due entries.
#[derive(Debug, Default)]
pub struct NamePage {
    /// The names, in order, also of entries that the store cannot read.
    pub names: Vec<String>,
    /// The threads of the entries that the store cannot read, by their names.
    pub damaged: Vec<(String, RecordDamage)>,
    /// Start of the next page.
    pub cursor: Option<String>,
}

impl NamePage {
    /// Returns the keys of the threads, which the names end with.
    pub fn keys(&self) -> Vec<String> {
        self.names.iter().map(|name| key::last_part(name)).collect()
    }
}

/// Parses a stored text as a record.
pub fn parse_record<T: FromJson>(item: &StoredItem) -> Result<T, Error> {
    json::read(&item.value).map_err(|e| unreadable_record(item, &e))
}

/// Returns the error of a record that cannot be parsed. Out of line, because each type of record
/// has a parser of its own.
#[inline(never)]
fn unreadable_record(item: &StoredItem, problem: &JsonError) -> Error {
    let message = format!(
        "the record {} {:?} cannot be read: {problem}",
        item.collection, item.name
    );
    CoreError::corrupt(message).into()
}

/// Refuses a cursor that no page of this range has returned.
pub fn check_cursor(cursor: Option<&str>, start: &str, end: &str) -> Result<(), Error> {
    match cursor {
        Some(cursor) if cursor < start || cursor > end || cursor.len() > CURSOR_BYTES_MAX => {
            Err(CoreError::invalid("cursor", cursor, "is not one of this list").into())
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns the record of this collection and name among the items, if it is there.
#[inline(never)]
pub fn find_record<T: FromJson>(
    items: &[StoredItem],
    collection: &str,
    name: &str,
) -> Result<Option<StoredRecord<T>>, Error> {
    find_item(items, collection, name)
        .map(|item| Ok(StoredRecord::new(item.version, parse_record::<T>(item)?)))
        .transpose()
}

/// Returns the item of this collection and name, if it is there.
pub fn find_item<'a>(
    items: &'a [StoredItem],
    collection: &str,
    name: &str,
) -> Option<&'a StoredItem> {
    items
        .iter()
        .find(|item| item.collection == collection && item.name == name)
}

/// Returns the thread record under this key. A record of another thread, or with an invalid chain
/// id, is an error.
#[inline(never)]
pub(super) fn find_thread_record(
    items: &[StoredItem],
    key: &str,
) -> Result<Option<StoredRecord<ThreadRecord>>, Error> {
    check_thread_record(find_record(items, key::THREAD, key)?, key)
}

/// Refuses the record under this key if it is of another thread, or contradicts itself.
fn check_thread_record(
    record: Option<StoredRecord<ThreadRecord>>,
    key: &str,
) -> Result<Option<StoredRecord<ThreadRecord>>, Error> {
    match record {
        Some(record) if id::key(&record.value.id) != key => {
            let other = id::printable_id(&record.value.id);
            Err(corrupt_record(
                key,
                &format!("is of another thread, {other:?}"),
            ))
        }
        Some(record) if id::check_id("chain", &record.value.chain).is_err() => {
            let other = id::printable_id(&record.value.chain);
            Err(corrupt_record(
                key,
                &format!("names a chain that is no id, {other:?}"),
            ))
        }
        Some(record) => match record.value.find_base_contradiction() {
            Some(problem) => Err(corrupt_record(key, &format!("has a base that {problem}"))),
            None => Ok(Some(record)),
        },
        None => Ok(None),
    }
}

/// Refuses records that contradict themselves.
fn check_records(thread: &ThreadRecord, head: &Head, chain: &ChainRecord) -> Result<(), Error> {
    match find_contradiction(thread, head, chain) {
        Some(problem) => Err(corrupt_record(&id::key(&thread.id), &problem)),
        None => Ok(()),
    }
}

fn corrupt_record(key: &str, what: &str) -> Error {
    CoreError::corrupt(format!("the record of the thread {key} {what}")).into()
}

/// Returns the collection and key of the chain records under these roots.
fn chain_pairs(roots: &OrderedNames) -> impl Iterator<Item = (&'static str, &str)> {
    let roots = roots.as_slice().iter();
    roots.map(|root| (key::CHAIN, root.as_str()))
}

fn not_found(thread: &str, nearest: Option<String>) -> Error {
    CoreError::not_found("thread", thread, nearest).into()
}

impl<P: HostPorts> ThreadService<P> {
    /// Loads the records of a thread, with the chains whose accounts lie above its own and the head
    /// of the parent that is told when it stops, as one snapshot. A root needs one read, and so
    /// does a thread whose place the instance knows. A parent or an account above that is missing
    /// or cannot be read is left out, so that its thread can still be loaded.
    pub fn load(&self, thread: &str) -> Result<LoadedThread, Error> {
        id::check_id("thread", thread)?;
        let own = id::key(thread);
        let place = self.known_place(&own);
        let mut place = place.unwrap_or_else(|| Rc::new(ThreadPlace::of_root(&own)));
        for _ in 0..LOAD_READS_MAX {
            let related = place.related_keys(&own);
            let related: Vec<(&str, &str)> = related
                .iter()
                .map(|(collection, key)| (*collection, key.as_str()))
                .collect();
            let records = [
                (key::THREAD, own.as_str()),
                (key::HEAD, own.as_str()),
                (key::CHAIN, place.root.as_str()),
            ];
            let items = self.read_with_related(&records, &related)?;
            let known = &self.remembered;
            let record = find_once(&known.threads, &items, key::THREAD, &own)?;
            let record = check_thread_record(record, &own)?;
            let head = find_once(&known.heads, &items, key::HEAD, &own)?;
            let (record, head) = match (record, head) {
                (Some(record), Some(head)) => (record, head),
                (None, None) => return Err(self.missing_thread(thread)),
                (None, Some(_)) => return Err(corrupt_record(&own, "is missing")),
                (Some(_), None) => {
                    return Err(corrupt_record(&own, "is there and its head is missing"));
                }
            };
            let root = id::key(&record.value.chain);
            let chain = find_once(&known.chains, &items, key::CHAIN, &root)?;
            let Some(chain) = chain else {
                if root == place.root {
                    let message = format!("the chain record of {thread} is missing");
                    return Err(CoreError::corrupt(message).into());
                }
                place = Rc::new(ThreadPlace::of_root(&root));
                continue;
            };
            check_records(&record.value, &head.value, &chain.value)?;
            let named = self.place_named_by(&record.value, &chain.value, &items);
            if named == *place {
                let parent = find_parent(&items, &place, &chain.value);
                self.remember_place(&own, place, &chain);
                return Ok(LoadedThread {
                    parent,
                    above: self.accounts_above(&items, &chain.value),
                    thread: record,
                    head,
                    chain,
                    state: None,
                });
            }
            place = Rc::new(named);
        }
        let message = format!("the links above {thread} kept changing: repeat the call");
        Err(StorageError::Unavailable(CONTENTION.into(), message).into())
    }

    /// Reads the records of a thread in one read with those of related threads. One that cannot be
    /// read is left out.
    fn read_with_related(
        &self,
        own: &[(&str, &str)],
        related: &[(&str, &str)],
    ) -> Result<Vec<StoredItem>, Error> {
        match self.ports.get(&[own, related].concat()) {
            Err(StorageError::Corrupt(..) | StorageError::TooLarge(..)) => {}
            done => return Ok(done?),
        }
        let mut items = self.ports.get(own)?;
        items.extend(self.get_readable(related)?);
        Ok(items)
    }

    /// Reads those of the records that exist and that the store can read.
    pub fn get_readable(&self, keys: &[(&str, &str)]) -> Result<Vec<StoredItem>, Error> {
        let mut items = Vec::new();
        self.read_possible(keys, &mut items)?;
        Ok(items)
    }

    /// Reads those of the records that exist and that the store can read: in one read, or in halves
    /// where one of them cannot be read or all together are too large. Returns true if none had to
    /// be left out.
    fn read_possible(
        &self,
        keys: &[(&str, &str)],
        items: &mut Vec<StoredItem>,
    ) -> Result<bool, Error> {
        if keys.is_empty() {
            return Ok(true);
        }
        match self.ports.get(keys) {
            Ok(found) => {
                items.extend(found);
                Ok(true)
            }
            Err(StorageError::Corrupt(..) | StorageError::TooLarge(..)) => {
                let (first, second) = keys.split_at(keys.len() / 2);
                if first.is_empty() {
                    return Ok(false);
                }
                let whole = self.read_possible(first, items)?;
                Ok(self.read_possible(second, items)? && whole)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Loads the threads of a list of keys, in order, for display: without the chains above.
    /// Threads that are missing or cannot be read are listed apart, so that the others can still be
    /// loaded. Roots need one read, and links that are no roots one more.
    pub fn load_many(&self, keys: &[String]) -> Result<LoadedPage, Error> {
        let valid = keys
            .iter()
            .filter(|key| id::check_id("thread", key).is_ok());
        let valid: Vec<&String> = valid.collect();
        let root = |key: &&String| {
            self.known_place(key)
                .map_or_else(|| (*key).clone(), |place| place.root.clone())
        };
        let roots = OrderedNames::new(valid.iter().map(root).collect());
        let threads = valid.iter().flat_map(|key| {
            // A thread that ends between two reads has its result by the second.
            [key::HEAD, key::THREAD].map(|collection| (collection, key.as_str()))
        });
        let chains = chain_pairs(&roots);
        let pairs: Vec<(&str, &str)> = threads.chain(chains).collect();
        let mut items = Vec::new();
        let mut whole = self.read_possible(&pairs, &mut items)?;
        let others = valid.iter().filter_map(|key| {
            let thread = find_thread_record(&items, key).ok()??;
            Some(id::key(&thread.value.chain)).filter(|root| !roots.contains(root))
        });
        let others = OrderedNames::new(others.collect());
        let pairs: Vec<(&str, &str)> = chain_pairs(&others).collect();
        whole &= self.read_possible(&pairs, &mut items)?;
        let mut many = LoadedPage::default();
        for key in keys {
            if id::check_id("thread", key).is_err() {
                let why = RecordDamage::contradiction("an index entry names it, and it is no id");
                many.unreadable.push((id::printable_id(key), why));
                continue;
            }
            match self.loaded_from_items(key, &items, whole) {
                Ok(loaded) => many.threads.push(loaded),
                Err(error) => many.unreadable.push((key.clone(), error.into_damage()?)),
            }
        }
        Ok(many)
    }

    /// Returns the thread of a key from items that were read for several threads; `whole` says that
    /// all that were asked for could be read.
    fn loaded_from_items(
        &self,
        key: &str,
        items: &[StoredItem],
        whole: bool,
    ) -> Result<LoadedThread, Error> {
        let thread = find_thread_record(items, key)?;
        let head = find_record(items, key::HEAD, key)?;
        if whole && thread.is_none() && head.is_none() {
            // Nobody asked for it by name, so the nearest to it is not looked for.
            return Err(not_found(key, None));
        }
        let root = thread.as_ref().map(|thread| id::key(&thread.value.chain));
        let chain = root.map(|root| find_record(items, key::CHAIN, &root));
        match (thread, head, chain.transpose()?.flatten()) {
            (Some(thread), Some(head), Some(chain)) => {
                let sound = check_records(&thread.value, &head.value, &chain.value);
                sound.map(|()| LoadedThread {
                    thread,
                    head,
                    chain,
                    above: Vec::new(),
                    parent: None,
                    state: None,
                })
            }
            // The single load names the record that is missing.
            _ => self.load(key),
        }
    }

    /// Reads a page of the names of a collection whose entries carry all data in their names. An
    /// entry that the store cannot read does not take the others away: its name is known.
    pub fn scan_names(
        &self,
        collection: &str,
        (start, end): (&str, &str),
        limit: u32,
        reverse: bool,
    ) -> Result<NamePage, Error> {
        let page = self.ports.scan(collection, start, end, limit, reverse)?;
        let mut names: Vec<String> = page.items.into_iter().map(|item| item.name).collect();
        let mut damaged = Vec::new();
        for (name, why) in page.damaged {
            damaged.push((id::printable_id(&key::last_part(&name)), why));
            // One that nobody can read names no thread.
            names.extend(Some(name).filter(|name| !name.is_empty()));
        }
        if !damaged.is_empty() {
            names = OrderedNames::new(names).into_vec();
            if reverse {
                names.reverse();
            }
        }
        Ok(NamePage {
            names,
            damaged,
            cursor: page.cursor,
        })
    }

    fn missing_thread(&self, thread: &str) -> Error {
        let (start, end) = key::prefix_range(&[key::RECENCY]);
        let page = self
            .scan_names(key::INDEX, (&start, &end), NEAREST_IDS_MAX, true)
            .unwrap_or_default();
        let ids: Vec<String> = page.keys();
        let ids = ids
            .into_iter()
            .filter(|id| id::check_id("thread", id).is_ok());
        let ids: Vec<String> = ids.collect();
        let nearest = threadkeep_units::nearest::nearest(thread, ids.iter().map(String::as_str))
            .map(str::to_owned);
        not_found(thread, nearest)
    }

    /// Reads one of a thread's own entries; `None` for a version that it has not made itself.
    pub fn entry(&self, loaded: &LoadedThread, version: u64) -> Result<Option<Entry>, Error> {
        match loaded.thread.value.position(version) {
            Some(position) => self.entry_at(key::HISTORY, &loaded.key(), position),
            None => Ok(None),
        }
    }

    fn entry_at(&self, log: &str, partition: &str, at: u64) -> Result<Option<Entry>, Error> {
        let lines = self.ports.read_log(log, partition, at, 1, false)?;
        match lines.into_iter().next() {
            Some((position, text)) if position == at => Ok(Some(Entry::from_text(&text)?)),
            _ => Ok(None),
        }
    }

    /// Decides and commits, and decides again after a conflict.
    pub fn decide(
        &self,
        thread: &str,
        decide: &dyn Fn(&LoadedThread, DecisionContext<'_>) -> Result<CommitDecision, Error>,
    ) -> Result<DecisionOutcome, Error> {
        self.decide_in(thread, false, decide)
    }

    /// Decides and commits an event that has happened and must be recorded. If the store has no
    /// room for the steps that would follow, it decides once more so that the run closes: the bill,
    /// the reply and the results are written into the margin of the quota, no step is handed out,
    /// and the run suspends (`store_full`). Open calls are handed out when it goes on. A start is
    /// never decided so: else callers could fill the margin.
    pub fn decide_or_close(
        &self,
        thread: &str,
        decide: &dyn Fn(&LoadedThread, DecisionContext<'_>) -> Result<CommitDecision, Error>,
    ) -> Result<DecisionOutcome, Error> {
        self.decide_in(thread, true, decide)
    }

    fn decide_in(
        &self,
        thread: &str,
        closes: bool,
        decide: &dyn Fn(&LoadedThread, DecisionContext<'_>) -> Result<CommitDecision, Error>,
    ) -> Result<DecisionOutcome, Error> {
        let mut full: Option<String> = None;
        for _ in 0..DECISION_TRIES_MAX {
            let mut loaded = self.load(thread)?;
            loaded.check_formats()?;
            let (now, commit) = (self.ports.now(), self.draw_random()?);
            let moment = DecisionContext {
                now,
                commit: &commit,
                store_full_message: full.as_deref(),
                ceiling: ThreadCaps::NONE,
                unknown_bill: UnknownBill::Estimate,
            };
            let decided = match decide(&loaded, moment) {
                Err(error)
                    if matches!(error.kind(), ErrorKind::Core(CoreErrorKind::StateNotLoaded)) =>
                {
                    if !self.load_state(&mut loaded)? {
                        continue;
                    }
                    decide(&loaded, moment)
                }
                decided => decided,
            };
            let (plan, error) = match decided? {
                CommitDecision::Repeat => {
                    return Ok(DecisionOutcome::Unchanged(Box::new(loaded)));
                }
                CommitDecision::Commit(plan) => (plan, None),
                // The window is given where it is asked for: see `with_window_if_asked`.
                CommitDecision::NeedsWindow(_) => {
                    let message = format!("a decision about {thread} asked twice for its window");
                    return Err(CoreError::corrupt(message).into());
                }
                CommitDecision::CommitThenFail(plan, error) => (plan, Some(error)),
            };
            match self.commit(&plan) {
                Ok(true) => {
                    self.remembered.remember_committed(&plan);
                    return match error {
                        None => Ok(DecisionOutcome::Committed(plan)),
                        Some(error) => Err(error.into()),
                    };
                }
                Ok(false) => {}
                Err(error) => match error.into_kind() {
                    ErrorKind::Storage(StorageError::QuotaExceeded(_, message))
                        if closes && !plan.closing && full.is_none() =>
                    {
                        full = Some(message);
                    }
                    kind => return Err(kind.into()),
                },
            }
        }
        let message = format!("other writers kept changing {thread}: repeat the call");
        Err(StorageError::Unavailable(CONTENTION.into(), message).into())
    }

    /// Commits a plan; returns true if it is written, false after a conflict. If the outcome is
    /// unknown, the entry in the history tells.
    pub fn commit(&self, plan: &CommitPlan) -> Result<bool, Error> {
        let mut doubt = None;
        for _ in 0..UNKNOWN_OUTCOME_TRIES_MAX {
            let answer = self.ports.commit(plan.writes.clone(), plan.closing);
            let unknown = match (&answer, doubt.take()) {
                (Err(unknown @ StorageError::OutcomeUnknown(..)), _) => unknown.clone(),
                (Ok(true), _) | (_, None) => return Ok(answer?),
                // An earlier try may have been written since: it may be the writer that this one
                // has met.
                (Ok(false) | Err(_), Some(unknown)) => unknown,
            };
            match (self.resolve_unknown_outcome(plan), answer) {
                (Ok(Some(committed)), _) => return Ok(committed),
                // What this try has met stands in the way of the earlier ones, too.
                (Ok(None), Ok(_)) => return Ok(false),
                (Ok(None), Err(StorageError::OutcomeUnknown(..))) if plan.logged.is_some() => {}
                // Neither this error nor one of the look-up tells what became of the earlier try:
                // `unavailable`, say, would tell the caller that nothing was written.
                _ => return Err(unknown.into()),
            }
            doubt = Some(unknown);
        }
        let message = "commits keep an unknown outcome".into();
        Err(StorageError::OutcomeUnknown("outcome".into(), message).into())
    }

    /// Resolves an unknown outcome by the entry that the plan names: true if it is this commit's
    /// own, false if it is another's, `None` if there is none.
    fn resolve_unknown_outcome(&self, plan: &CommitPlan) -> Result<Option<bool>, Error> {
        let Some(logged) = &plan.logged else {
            return Ok(None);
        };
        let found = self.entry_at(logged.log, &logged.partition, logged.position)?;
        Ok(found.map(|found| found.commit == logged.commit))
    }
}
