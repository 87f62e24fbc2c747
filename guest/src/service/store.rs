//! Loading and committing: records by id, entries by version, and plans.

use super::{Error, Service};
use crate::ports::{Item, Ports, StorageError};
use threadkeep_core::error::{ECHO_BYTES_MAX, Error as CoreError, cut};
use threadkeep_core::history::Entry;
use threadkeep_core::json::{self, FromJson};
use threadkeep_core::ledger::{ACCOUNTS_MAX, UnknownBill};
use threadkeep_core::limits::Limits;
use threadkeep_core::plan::{Loaded, Moment, Neighbour, Plan, Stored, Write};
use threadkeep_core::runner::Decision;
use threadkeep_core::thread::{ChainRecord, Head, ThreadRecord};
use threadkeep_core::{id, key};

/// How often a conflict is decided again before the caller hears `busy`.
pub const CONFLICTS_MAX: u32 = 3;
/// Code of `unavailable` where other writers were faster each time. Somebody always gets through, so the same call,
/// repeated after a while, does too.
pub const CONTENTION: &str = "contention";
/// Reads of [`Service::load`]: the thread, its chain if that has another key, and the chains above it.
const LOAD_READS_MAX: u32 = 3;
/// How often a commit of unknown outcome is tried.
const UNKNOWN_MAX: u32 = 3;
/// Longest cursor, in bytes: one is a key of the store.
const CURSOR_BYTES_MAX: usize = 512;
/// Ids that are compared for the nearest to one that does not exist.
const NEAREST_IDS_MAX: u32 = 200;

/// Threads that were asked for together.
#[derive(Debug, Default)]
pub struct Many {
    /// Those that could be read.
    pub threads: Vec<Loaded>,
    /// Those that could not: key, and what is wrong.
    pub unreadable: Vec<(String, String)>,
}

/// A page of entries whose names tell all: those of an index, and of what is due.
#[derive(Debug, Default)]
pub struct NamePage {
    /// The names, in order: also of entries that the store cannot give.
    pub names: Vec<String>,
    /// The threads of those that it cannot give: name, and what is wrong.
    pub damaged: Vec<(String, String)>,
    /// Where to go on.
    pub cursor: Option<String>,
}

impl NamePage {
    /// The keys of the threads, which the names end with.
    pub fn keys(&self) -> Vec<String> {
        self.names.iter().map(|name| key::last(name)).collect()
    }
}

/// A stored text as a record.
pub fn parse<T: FromJson>(item: &Item) -> Result<T, Error> {
    json::read(&item.value).map_err(|e| {
        Error::Core(CoreError::Corrupt(format!(
            "the record {} {:?} cannot be read: {e}",
            item.collection, item.name
        )))
    })
}

/// Refuse a cursor that no page of this range has given.
pub fn check_cursor(cursor: Option<&str>, start: &str, end: &str) -> Result<(), Error> {
    match cursor {
        Some(cursor) if cursor < start || cursor > end || cursor.len() > CURSOR_BYTES_MAX => {
            Err(CoreError::invalid("cursor", cursor, "is not one of this list").into())
        }
        Some(_) | None => Ok(()),
    }
}

#[inline(never)]
fn stored<T: FromJson>(
    items: &[Item],
    collection: &str,
    name: &str,
) -> Result<Option<Stored<T>>, Error> {
    items
        .iter()
        .find(|item| item.collection == collection && item.name == name)
        .map(|item| {
            Ok(Stored {
                version: item.version,
                value: parse(item)?,
            })
        })
        .transpose()
}

/// The thread that spawned another, if its head is among what was read and can be read itself.
#[inline(never)]
fn spawner(items: &[Item], thread: &ThreadRecord, chain: &ChainRecord) -> Option<Neighbour> {
    let (parent, of) = (thread.parent.as_ref()?, chain.parent.as_ref()?);
    let head = stored(items, key::HEAD, &id::key(parent)).ok().flatten()?;
    Some(Neighbour {
        id: parent.clone(),
        chain: of.clone(),
        head,
    })
}

/// The chains above another, from the nearest up to the first that is missing or cannot be read.
#[inline(never)]
fn accounts_above(items: &[Item], chain: &ChainRecord) -> Vec<Stored<ChainRecord>> {
    let above = chain.above.iter();
    above
        .map_while(|root| stored(items, key::CHAIN, &id::key(root)).ok().flatten())
        .collect()
}

/// The record of a thread under this key, if it says that it is that thread.
#[inline(never)]
fn named(items: &[Item], key: &str) -> Result<Option<Stored<ThreadRecord>>, Error> {
    let record: Option<Stored<ThreadRecord>> = stored(items, key::THREAD, key)?;
    match record {
        Some(record) if id::key(&record.value.id) != key => {
            let other = id::shown(&record.value.id);
            Err(corrupt(key, &format!("is of another thread, {other:?}")))
        }
        Some(record) if id::check("chain", &record.value.chain).is_err() => {
            let other = id::shown(&record.value.chain);
            Err(corrupt(
                key,
                &format!("names a chain that is no id, {other:?}"),
            ))
        }
        record => Ok(record),
    }
}

fn corrupt(key: &str, what: &str) -> Error {
    CoreError::Corrupt(format!("the record of the thread {key} {what}")).into()
}

fn not_found(thread: &str, nearest: Option<String>) -> Error {
    let name = cut(thread, ECHO_BYTES_MAX).to_owned();
    let kind = "thread";
    CoreError::NotFound {
        kind,
        name,
        nearest,
    }
    .into()
}

/// Keys of the chains above one; none if they cannot be those that were written.
fn keys_above(chain: &ChainRecord) -> Vec<String> {
    let above = &chain.above;
    let valid =
        above.len() <= ACCOUNTS_MAX && above.iter().all(|id| id::check("above", id).is_ok());
    let above = above.iter().filter(|_| valid);
    above.map(|id| id::key(id)).collect()
}

impl<P: Ports> Service<P> {
    /// The records of a thread with the chains whose accounts lie above its own, as one snapshot: a root's in one read.
    /// A parent or an account above that is missing or cannot be read is left out, and the thread is
    /// not taken away by it.
    pub fn load(&self, thread: &str) -> Result<Loaded, Error> {
        id::check("thread", thread)?;
        let own = id::key(thread);
        let (mut root, mut above, mut parent) = (own.clone(), Vec::new(), None::<String>);
        for _ in 0..LOAD_READS_MAX {
            let records = [
                (key::THREAD, own.as_str()),
                (key::HEAD, own.as_str()),
                (key::CHAIN, root.as_str()),
            ];
            let chains = above
                .iter()
                .map(|root: &String| (key::CHAIN, root.as_str()));
            let parents = parent.iter().map(|parent| (key::HEAD, parent.as_str()));
            let beside: Vec<(&str, &str)> = chains.chain(parents).collect();
            let items = self.read_with_neighbours(&records, &beside)?;
            let record = named(&items, &own)?;
            let head: Option<Stored<Head>> = stored(&items, key::HEAD, &own)?;
            let (record, head) = match (record, head) {
                (Some(record), Some(head)) => (record, head),
                (None, None) => return Err(self.missing_thread(thread)),
                (None, Some(_)) => return Err(corrupt(&own, "is missing")),
                (Some(_), None) => return Err(corrupt(&own, "is there and its head is missing")),
            };
            let chain_key = id::key(&record.value.chain);
            let known = root == chain_key;
            let chain: Option<Stored<ChainRecord>> = stored(&items, key::CHAIN, &chain_key)?;
            // What a chain draws on never changes, so the second or third read has all of it.
            let wanted = match &chain {
                None if known => break,
                None => Vec::new(),
                Some(chain) => keys_above(&chain.value),
            };
            if let Some(chain) = chain.filter(|_| known && wanted == above) {
                return Ok(Loaded {
                    parent: spawner(&items, &record.value, &chain.value),
                    above: accounts_above(&items, &chain.value),
                    thread: record,
                    head,
                    chain,
                });
            }
            (root, above) = (chain_key, wanted);
            let spawned_by = record.value.parent.as_deref();
            let spawned_by = spawned_by.filter(|parent| id::check("parent", parent).is_ok());
            parent = spawned_by.map(id::key);
        }
        let message = format!("the chain record of {thread} is missing");
        Err(CoreError::Corrupt(message).into())
    }

    /// The records of a thread in one read with those of its neighbours. Where one of the neighbours
    /// cannot be read, that one is left out.
    fn read_with_neighbours(
        &self,
        own: &[(&str, &str)],
        neighbours: &[(&str, &str)],
    ) -> Result<Vec<Item>, Error> {
        match self.ports.get(&[own, neighbours].concat()) {
            Err(StorageError::Corrupt(..) | StorageError::TooLarge(..)) => {}
            done => return Ok(done?),
        }
        let mut items = self.ports.get(own)?;
        items.extend(self.get_readable(neighbours)?);
        Ok(items)
    }

    /// Those of these records that are there and that the store can read: in one read, or one by one
    /// where one of them cannot be read.
    pub fn get_readable(&self, keys: &[(&str, &str)]) -> Result<Vec<Item>, Error> {
        match self.ports.get(keys) {
            Err(StorageError::Corrupt(..) | StorageError::TooLarge(..)) => {}
            done => return Ok(done?),
        }
        let mut items = Vec::new();
        for key in keys {
            match self.ports.get(&[*key]) {
                Ok(found) => items.extend(found),
                Err(StorageError::Corrupt(..) | StorageError::TooLarge(..)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(items)
    }

    /// Every thread of a list of keys, in order, to be shown: without the chains above. Those that are missing or cannot
    /// be read are named, so that one of them does not take the others away.
    pub fn load_many(&self, keys: &[String]) -> Result<Many, Error> {
        let ids = keys.iter().filter(|key| id::check("thread", key).is_ok());
        let pairs: Vec<(&str, &str)> = ids
            .flat_map(|key| {
                [key::THREAD, key::HEAD, key::CHAIN].map(|collection| (collection, key.as_str()))
            })
            .collect();
        // One that the store cannot read, or many large ones, and there is no answer for all of them.
        let items = match self.ports.get(&pairs) {
            Ok(items) => Some(items),
            Err(StorageError::Corrupt(..) | StorageError::TooLarge(..)) => None,
            Err(error) => return Err(error.into()),
        };
        let mut many = Many::default();
        for key in keys {
            if id::check("thread", key).is_err() {
                let why = "an index entry names it, and it is no id".to_owned();
                many.unreadable.push((id::shown(key), why));
                continue;
            }
            let found = match &items {
                Some(items) => self.loaded(key, items),
                None => self.load(key),
            };
            match found {
                Ok(loaded) => many.threads.push(loaded),
                Err(error) => many.unreadable.push((key.clone(), error.unreadable()?)),
            }
        }
        Ok(many)
    }

    /// The thread of a key among what was read of several.
    fn loaded(&self, key: &str, items: &[Item]) -> Result<Loaded, Error> {
        let (thread, head) = (named(items, key)?, stored(items, key::HEAD, key)?);
        if thread.is_none() && head.is_none() {
            // Nobody asked for it by name, so the nearest to it is not looked for.
            return Err(not_found(key, None));
        }
        let Some(thread) = thread.filter(|thread| id::key(&thread.value.chain) == key) else {
            return self.load(key);
        };
        let chain = stored(items, key::CHAIN, key)?;
        match (head, chain) {
            (Some(head), Some(chain)) => Ok(Loaded {
                thread,
                head,
                chain,
                above: Vec::new(),
                parent: None,
            }),
            // It says which is missing.
            _ => self.load(key),
        }
    }

    /// A page of the names of a collection whose entries have no value that counts. One that the store
    /// cannot give takes no others away: its name is as good as theirs.
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
            damaged.push((id::shown(&key::last(&name)), why));
            // One that nobody can read names no thread.
            names.extend(Some(name).filter(|name| !name.is_empty()));
        }
        if !damaged.is_empty() {
            names.sort();
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
        let (start, end) = key::below(&[key::RECENCY]);
        let page = self
            .scan_names(key::INDEX, (&start, &end), NEAREST_IDS_MAX, true)
            .unwrap_or_default();
        let ids: Vec<String> = page.keys();
        let ids = ids.into_iter().filter(|id| id::check("thread", id).is_ok());
        let ids: Vec<String> = ids.collect();
        let nearest = threadkeep_core::nearest::nearest(thread, ids.iter().map(String::as_str))
            .map(str::to_owned);
        not_found(thread, nearest)
    }

    /// One entry of a history.
    pub fn entry(&self, thread_key: &str, version: u64) -> Result<Option<Entry>, Error> {
        let lines = self.ports.read_history(thread_key, version, 1, false)?;
        match lines.into_iter().next() {
            Some((position, text)) if position == version => Ok(Some(Entry::from_text(&text)?)),
            _ => Ok(None),
        }
    }

    /// The entry that holds the calls of a head's round, if it has one.
    #[inline(never)]
    pub fn round(&self, loaded: &Loaded) -> Result<Option<Entry>, Error> {
        match &loaded.head.value.round {
            Some(round) => self.entry(&loaded.key(), round.version),
            None => Ok(None),
        }
    }

    /// Decide and commit, deciding again after a conflict. The plan that was committed, or what was loaded if there
    /// was nothing to do.
    pub fn decide(
        &self,
        thread: &str,
        decide: &dyn Fn(&Loaded, Moment<'_>) -> Result<Decision, Error>,
    ) -> Result<Result<Plan, Loaded>, Error> {
        self.decide_in(thread, false, decide)
    }

    /// The same for what has happened and must be recorded: where the store has no room for what would follow, it is
    /// decided once more so that it closes.
    pub fn decide_or_close(
        &self,
        thread: &str,
        decide: &dyn Fn(&Loaded, Moment<'_>) -> Result<Decision, Error>,
    ) -> Result<Result<Plan, Loaded>, Error> {
        self.decide_in(thread, true, decide)
    }

    fn decide_in(
        &self,
        thread: &str,
        closes: bool,
        decide: &dyn Fn(&Loaded, Moment<'_>) -> Result<Decision, Error>,
    ) -> Result<Result<Plan, Loaded>, Error> {
        let mut full: Option<String> = None;
        for _ in 0..CONFLICTS_MAX {
            let loaded = self.load(thread)?;
            let (now, commit) = (self.ports.now(), self.ports.random(8));
            let moment = Moment {
                now,
                commit: &commit,
                full: full.as_deref(),
                ceiling: Limits::NONE,
                unknown_bill: UnknownBill::Estimate,
            };
            let (plan, error) = match decide(&loaded, moment)? {
                Decision::Repeat => return Ok(Err(loaded)),
                Decision::Commit(plan) => (plan, None),
                Decision::Late(plan, error) => (plan, Some(error)),
            };
            match self.commit(&plan) {
                Ok(true) => return error.map_or(Ok(Ok(*plan)), |error| Err(error.into())),
                Ok(false) => {}
                Err(Error::Storage(StorageError::QuotaExceeded(_, message)))
                    if closes && !plan.closing && full.is_none() =>
                {
                    full = Some(message);
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::Storage(StorageError::Unavailable(
            CONTENTION.into(),
            format!("other writers kept changing {thread}: repeat the call"),
        )))
    }

    /// Commit a plan: true if it is written, false after a conflict. Where nobody knows, the entry tells.
    pub fn commit(&self, plan: &Plan) -> Result<bool, Error> {
        for _ in 0..UNKNOWN_MAX {
            match self.ports.commit(plan.writes.clone(), plan.closing) {
                Ok(committed) => return Ok(committed),
                Err(StorageError::OutcomeUnknown(code, message)) => match self.find_out(plan)? {
                    Some(committed) => return Ok(committed),
                    None if plan.entry.is_some() => {}
                    None => {
                        return Err(Error::Storage(StorageError::OutcomeUnknown(code, message)));
                    }
                },
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Storage(StorageError::OutcomeUnknown(
            "outcome".into(),
            "commits keep an unknown outcome".into(),
        )))
    }

    /// After an unknown outcome: our entry, another's, or none at its position.
    fn find_out(&self, plan: &Plan) -> Result<Option<bool>, Error> {
        let (Some(entry), Some(Write::Append { partition, at, .. })) =
            (&plan.entry, plan.writes.last())
        else {
            return Ok(None);
        };
        Ok(self
            .entry(partition, *at)?
            .map(|found| found.commit == entry.commit))
    }
}
