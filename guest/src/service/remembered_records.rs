//! The memory of a warm instance for the records that it has read and written: parsed records by
//! their text, and the entry of an open round by its hash.
//!
//! Nothing remembered is believed. A record is read from the store each time, and the remembered
//! one stands for it only where key and text are the same, byte by byte; so another writer, another
//! thread or a restored store is never mixed up with it. An entry never changes, and the head that
//! was read names it by the hash of its text.

use super::store::{find_item, parse_record};
use super::{Error, ThreadService};
use crate::ports::{HostPorts, StoredItem};
use std::cell::RefCell;
use std::fmt::Debug;
use std::rc::Rc;
use threadkeep_core::history::Entry;
use threadkeep_core::json::{self, FromJson};
use threadkeep_core::plan::{CommitPlan, LoadedThread, StoreWrite, StoredRecord};
use threadkeep_core::thread::{ChainRecord, Head, ThreadRecord};
use threadkeep_core::{id, key};

/// Most parsed records of a kind: as many as the runs of one tree that a driver performs at once.
const RECORDS_MAX: usize = 64;
/// Longest text of a parsed record that is kept, in bytes. Records of threads with long inputs are
/// longer; they are parsed each time.
const RECORD_BYTES_MAX: usize = 8 * 1024;
/// Most entries: those of runs that take turns. A run that is not among them reads its entry.
const ENTRIES_MAX: usize = 8;
/// Longest text of an entry that is kept, in bytes.
const ENTRY_BYTES_MAX: usize = 32 * 1024;

/// Parsed records of one kind, the one whose text changed last at the end.
pub(super) type ParsedRecords<T> = RefCell<Vec<ParsedRecord<T>>>;

/// A record that was parsed or written, with its text.
#[derive(Debug)]
pub struct ParsedRecord<T> {
    /// Its key.
    name: String,
    /// Its text.
    text: String,
    /// The record of that text.
    record: Rc<T>,
}

/// The entry that holds the calls of an open round.
#[derive(Debug)]
struct RoundEntry {
    /// Key of the thread.
    thread: String,
    /// SHA-256 of its text.
    hash: String,
    entry: Rc<Entry>,
}

/// The memory of a warm instance.
#[derive(Debug)]
pub struct RememberedRecords {
    pub(super) threads: ParsedRecords<ThreadRecord>,
    pub(super) heads: ParsedRecords<Head>,
    pub(super) chains: ParsedRecords<ChainRecord>,
    rounds: RefCell<Vec<RoundEntry>>,
}

impl RememberedRecords {
    /// An empty memory.
    pub const fn new() -> Self {
        Self {
            threads: RefCell::new(Vec::new()),
            heads: RefCell::new(Vec::new()),
            chains: RefCell::new(Vec::new()),
            rounds: RefCell::new(Vec::new()),
        }
    }

    /// Remembers the records that a plan has written, and its entry if a round of calls is open in
    /// it: the next step of the thread reads them.
    pub fn remember_committed(&self, plan: &CommitPlan) {
        let thread = id::key(&plan.thread.id);
        if let Some(text) = plan.written_text(key::HEAD, &thread) {
            remember_record(&self.heads, &thread, text, &plan.head);
        }
        let chain = id::key(&plan.thread.chain);
        if let Some(text) = plan.written_text(key::CHAIN, &chain) {
            remember_record(&self.chains, &chain, text, &plan.chain);
        }
        self.remember_round(thread, plan);
    }

    fn remember_round(&self, thread: String, plan: &CommitPlan) {
        let mut rounds = self.rounds.borrow_mut();
        rounds.retain(|known| known.thread != thread);
        let (Some(entry), Some(round)) = (&plan.entry, &plan.head.round) else {
            return;
        };
        let newest = round.version == entry.version && entry.version == plan.head.version;
        if !newest || appended_bytes(plan, &thread) > ENTRY_BYTES_MAX {
            return;
        }
        debug_assert_eq!(Entry::hash_of(&entry.to_text()), plan.head.hash);
        if rounds.len() >= ENTRIES_MAX {
            rounds.remove(0);
        }
        rounds.push(RoundEntry {
            thread,
            hash: plan.head.hash.clone(),
            entry: Rc::clone(entry),
        });
    }

    /// Returns the entry of the open round, if it is the newest of the thread and is remembered.
    fn known_round(&self, loaded: &LoadedThread) -> Option<Rc<Entry>> {
        let (thread, head) = (loaded.key(), &loaded.head.value);
        let newest = head.round.as_ref()?.version == head.version;
        let rounds = self.rounds.borrow();
        let known = rounds
            .iter()
            .find(|known| newest && known.thread == thread && known.hash == head.hash);
        known.map(|known| Rc::clone(&known.entry))
    }
}

/// Returns the bytes of the texts that a plan appends to the history of a thread.
fn appended_bytes(plan: &CommitPlan, thread: &str) -> usize {
    let bytes = plan.writes.iter().map(|write| match write {
        StoreWrite::Append {
            log: key::HISTORY,
            partition,
            value,
            ..
        } if partition == thread => value.len(),
        _ => 0,
    });
    bytes.sum()
}

/// Parses a record, unless its text is the one that is remembered under its key.
pub(super) fn parse_once<T: FromJson + PartialEq + Debug>(
    parsed: &ParsedRecords<T>,
    item: &StoredItem,
) -> Result<Rc<T>, Error> {
    if let Some(record) = known_record(parsed, item) {
        return Ok(record);
    }
    let record: Rc<T> = Rc::new(parse_record(item)?);
    remember_record(parsed, &item.name, &item.value, &record);
    Ok(record)
}

/// Returns the record that is remembered under the key of an item, if it has the same text.
fn known_record<T>(parsed: &ParsedRecords<T>, item: &StoredItem) -> Option<Rc<T>> {
    let parsed = parsed.borrow();
    let known = parsed.iter().find(|known| known.name == item.name)?;
    is_same_text(&known.text, &item.value).then(|| Rc::clone(&known.record))
}

/// Compares two texts eight bytes at a time: in WebAssembly the comparison of the standard library
/// takes one.
fn is_same_text(one: &str, two: &str) -> bool {
    let (one_words, one_rest) = one.as_bytes().as_chunks::<8>();
    let (two_words, two_rest) = two.as_bytes().as_chunks::<8>();
    let mut pairs = one_words.iter().zip(two_words);
    one.len() == two.len()
        && pairs.all(|(one, two)| u64::from_ne_bytes(*one) == u64::from_ne_bytes(*two))
        && one_rest == two_rest
}

/// Returns the record of this collection and name among the items, if it is there; it is parsed
/// only if it is not remembered.
pub(super) fn find_once<T: FromJson + PartialEq + Debug>(
    parsed: &ParsedRecords<T>,
    items: &[StoredItem],
    collection: &str,
    name: &str,
) -> Result<Option<StoredRecord<T>>, Error> {
    let Some(item) = find_item(items, collection, name) else {
        return Ok(None);
    };
    let record = parse_once(parsed, item)?;
    Ok(Some(StoredRecord::new(item.version, record)))
}

/// Remembers a record and its text in place of an earlier text of its key.
fn remember_record<T: FromJson + PartialEq + Debug>(
    parsed: &ParsedRecords<T>,
    name: &str,
    text: &str,
    record: &Rc<T>,
) {
    debug_assert_eq!(json::read::<T>(text).as_ref(), Ok(&**record));
    let mut parsed = parsed.borrow_mut();
    let known = parsed.iter().position(|known| known.name == name);
    let oldest = (parsed.len() >= RECORDS_MAX).then_some(0);
    if let Some(place) = known.or(oldest) {
        parsed.remove(place);
    }
    if text.len() <= RECORD_BYTES_MAX {
        parsed.push(ParsedRecord {
            name: name.to_owned(),
            text: text.to_owned(),
            record: Rc::clone(record),
        });
    }
}

impl<P: HostPorts> ThreadService<P> {
    /// Returns the entry that holds the calls of a head's open round, if it has one.
    #[inline(never)]
    pub fn round(&self, loaded: &LoadedThread) -> Result<Option<Rc<Entry>>, Error> {
        let Some(round) = &loaded.head.value.round else {
            return Ok(None);
        };
        match self.remembered.known_round(loaded) {
            Some(entry) => Ok(Some(entry)),
            None => Ok(self.entry(loaded, round.version)?.map(Rc::new)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_the_same_only_byte_by_byte() {
        let text = "a text of more than two words";
        assert!(is_same_text("", "") && is_same_text(text, text));
        for place in 0..text.len() {
            let mut other = text.to_owned().into_bytes();
            other[place] = b'#';
            let other = String::from_utf8(other).unwrap();
            assert!(!is_same_text(text, &other), "byte {place}");
            assert!(!is_same_text(text, &text[..place]), "{place} bytes");
        }
    }
}
