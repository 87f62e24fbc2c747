//! Loading and committing: records by id, entries by version, and plans.

use super::{Error, Service};
use crate::ports::{Item, Ports, StorageError};
use threadkeep_core::error::{ECHO_BYTES_MAX, Error as CoreError, cut};
use threadkeep_core::history::Entry;
use threadkeep_core::json::{self, FromJson};
use threadkeep_core::ledger::UnknownBill;
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

/// The thread that spawned another, if it is among what was read.
#[inline(never)]
fn spawner(
    items: &[Item],
    thread: &ThreadRecord,
    chain: &ChainRecord,
) -> Result<Option<Neighbour>, Error> {
    let (Some(parent), Some(of)) = (&thread.parent, &chain.parent) else {
        return Ok(None);
    };
    let head = stored(items, key::HEAD, &id::key(parent))?;
    Ok(head.map(|head| Neighbour {
        id: parent.clone(),
        chain: of.clone(),
        head,
    }))
}

impl<P: Ports> Service<P> {
    /// The records of a thread with the chains whose accounts lie above its own, as one snapshot: a root's in one read.
    pub fn load(&self, thread: &str) -> Result<Loaded, Error> {
        id::check("thread", thread)?;
        let own = id::key(thread);
        let (mut chains, mut parent) = (vec![own.clone()], None::<String>);
        for _ in 0..LOAD_READS_MAX {
            let records = [(key::THREAD, own.as_str()), (key::HEAD, own.as_str())];
            let chain_keys = chains.iter().map(|root| (key::CHAIN, root.as_str()));
            let parent_key = parent.iter().map(|parent| (key::HEAD, parent.as_str()));
            let pairs: Vec<(&str, &str)> = records
                .into_iter()
                .chain(chain_keys)
                .chain(parent_key)
                .collect();
            let items = self.ports.get(&pairs)?;
            let record: Option<Stored<ThreadRecord>> = stored(&items, key::THREAD, &own)?;
            let head: Option<Stored<Head>> = stored(&items, key::HEAD, &own)?;
            let (Some(record), Some(head)) = (record, head) else {
                return Err(self.missing_thread(thread));
            };
            let root = id::key(&record.value.chain);
            let known = chains.contains(&root);
            let chain: Option<Stored<ChainRecord>> = stored(&items, key::CHAIN, &root)?;
            let wanted: Vec<String> = match &chain {
                None if known => break,
                None => vec![root],
                Some(chain) => {
                    let above = chain.value.above.iter().map(|above| id::key(above));
                    std::iter::once(root).chain(above).collect()
                }
            };
            // What a chain draws on never changes, so the second or third read has all of it.
            if let Some(chain) = chain
                && wanted == chains
            {
                let above = chains.iter().skip(1);
                let above: Option<Vec<Stored<ChainRecord>>> = above
                    .map(|root| stored(&items, key::CHAIN, root))
                    .collect::<Result<_, _>>()?;
                let Some(above) = above else { break };
                let parent = spawner(&items, &record.value, &chain.value)?;
                return Ok(Loaded {
                    parent,
                    thread: record,
                    head,
                    chain,
                    above,
                });
            }
            chains = wanted;
            parent = record.value.parent.as_deref().map(id::key);
        }
        let message = format!("a chain record of {thread}, or of what it draws on, is missing");
        Err(CoreError::Corrupt(message).into())
    }

    /// Every thread of a list of keys, in order, to be shown: without the chains above. Those that are gone are left out;
    /// those that cannot be read are named, so that one of them does not take the others away.
    pub fn load_many(&self, keys: &[String]) -> Result<Many, Error> {
        let pairs: Vec<(&str, &str)> = keys
            .iter()
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
            let found = match &items {
                Some(items) => self.loaded(key, items),
                None => self.load(key).map(Some),
            };
            match found {
                Ok(loaded) => many.threads.extend(loaded),
                Err(Error::Core(CoreError::NotFound { .. })) => {}
                Err(error) => many.unreadable.push((key.clone(), error.unreadable()?)),
            }
        }
        Ok(many)
    }

    /// The thread of a key among what was read of several.
    fn loaded(&self, key: &str, items: &[Item]) -> Result<Option<Loaded>, Error> {
        let Some(thread) = stored::<ThreadRecord>(items, key::THREAD, key)? else {
            return Ok(None);
        };
        if id::key(&thread.value.chain) != *key {
            return self.load(&thread.value.id).map(Some);
        }
        let head = stored(items, key::HEAD, key)?;
        let both = head.zip(stored(items, key::CHAIN, key)?);
        Ok(both.map(|(head, chain)| Loaded {
            thread,
            head,
            chain,
            above: Vec::new(),
            parent: None,
        }))
    }

    fn missing_thread(&self, thread: &str) -> Error {
        let (start, end) = key::below(&[key::RECENCY]);
        let page = self
            .ports
            .scan(key::INDEX, &start, &end, NEAREST_IDS_MAX, true)
            .unwrap_or_default();
        let ids: Vec<String> = page
            .items
            .iter()
            .map(|item| key::last(&item.name))
            .collect();
        let nearest = threadkeep_core::nearest::nearest(thread, ids.iter().map(String::as_str))
            .map(str::to_owned);
        Error::Core(CoreError::NotFound {
            kind: "thread",
            name: cut(thread, ECHO_BYTES_MAX).to_owned(),
            nearest,
        })
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
