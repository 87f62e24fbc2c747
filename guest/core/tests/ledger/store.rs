//! A store in memory that keeps the storage contract: a batch is written whole, or not at all where
//! a record has another version.

use std::collections::BTreeMap;
use threadkeep_core::json::{self, FromJson};
use threadkeep_core::plan::{LoadedThread, ParentHead, StoreWrite, StoredRecord, WriteCondition};
use threadkeep_core::thread::{ChainRecord, Head, ThreadRecord};
use threadkeep_core::{id, key};

/// A collection and a key.
pub type RecordName = (String, String);

#[derive(Debug, Clone, Default)]
pub struct TestStore {
    pub records: BTreeMap<RecordName, (u64, String)>,
    pub histories: BTreeMap<String, Vec<String>>,
    /// Lines of the log `state`, by the thread's key.
    pub states: BTreeMap<String, Vec<String>>,
    /// Names of records in the order in which they were written; the auditor looks at the new ones
    /// again.
    pub written: Vec<RecordName>,
    version: u64,
}

impl TestStore {
    pub fn text(&self, collection: &str, name: &str) -> Option<&str> {
        let name = (collection.to_owned(), name.to_owned());
        self.records.get(&name).map(|(_, text)| text.as_str())
    }

    pub fn get<T: FromJson>(&self, collection: &str, name: &str) -> StoredRecord<T> {
        let name = (collection.to_owned(), name.to_owned());
        let (version, text) = &self.records[&name];
        let value: T = json::read(text).expect("a record that was written");
        StoredRecord::new(*version, value)
    }

    pub fn load(&self, thread: &str) -> LoadedThread {
        let own = id::key(thread);
        let record: StoredRecord<ThreadRecord> = self.get(key::THREAD, &own);
        let head: StoredRecord<Head> = self.get(key::HEAD, &own);
        let chain: StoredRecord<ChainRecord> = self.get(key::CHAIN, &id::key(&record.value.chain));
        let above = chain.value.above.iter();
        let above = above.map(|above| self.get(key::CHAIN, &id::key(above)));
        let parent = chain.value.parent.as_ref().map(|of| {
            let above: StoredRecord<ChainRecord> = self.get(key::CHAIN, &id::key(of));
            let tip = above.value.tip.clone();
            let (version, text) = &self.records[&(key::HEAD.to_owned(), id::key(&tip))];
            ParentHead {
                id: tip,
                chain: of.clone(),
                version: *version,
                text: text.clone(),
            }
        });
        LoadedThread {
            parent,
            above: above.collect(),
            thread: record,
            head,
            chain,
            state: self
                .text(key::STATE, &own)
                .is_some()
                .then(|| self.get(key::STATE, &own)),
        }
    }

    /// Lines of a log.
    fn lines(&self, log: &str) -> &BTreeMap<String, Vec<String>> {
        match log {
            key::STATE => &self.states,
            _ => &self.histories,
        }
    }

    /// The stored text of an own entry of a thread.
    pub fn entry_text(&self, thread: &ThreadRecord, version: u64) -> Option<&str> {
        let at = thread.position(version)?.checked_sub(1)?;
        let lines = self.histories.get(&id::key(&thread.id))?;
        lines.get(at as usize).map(String::as_str)
    }

    /// Writes a batch; returns false if a record has another version.
    pub fn commit(&mut self, writes: &[StoreWrite]) -> bool {
        let mut appended = BTreeMap::new();
        if !writes.iter().all(|write| self.fits(write, &mut appended)) {
            return false;
        }
        self.version += 1;
        for write in writes {
            self.write(write);
        }
        true
    }

    /// Checks a write; `appended` counts the lines that the batch has appended to each log.
    fn fits<'a>(
        &self,
        write: &'a StoreWrite,
        appended: &mut BTreeMap<(&'a str, &'a str), usize>,
    ) -> bool {
        let at = |collection: &str, key: &str| {
            let name = (collection.to_owned(), key.to_owned());
            self.records.get(&name).map(|(version, _)| *version)
        };
        match write {
            StoreWrite::Check {
                collection,
                key,
                expect,
            }
            | StoreWrite::Put {
                collection,
                key,
                expect,
                ..
            } => match expect {
                WriteCondition::Any => true,
                WriteCondition::Absent => at(collection, key).is_none(),
                WriteCondition::Version(version) => at(collection, key) == Some(*version),
            },
            StoreWrite::Delete { .. } => true,
            StoreWrite::Append {
                log, partition, at, ..
            } => {
                let appended = appended.entry((log, partition)).or_default();
                let lines = self.lines(log).get(partition).map_or(0, Vec::len) + *appended;
                *appended += 1;
                assert!(lines as u64 >= at - 1, "a gap in a history");
                lines as u64 == at - 1
            }
            StoreWrite::Trim { .. } => panic!("no decision trims a log yet"),
        }
    }

    fn write(&mut self, write: &StoreWrite) {
        match write {
            StoreWrite::Check { .. } | StoreWrite::Trim { .. } => {}
            StoreWrite::Put {
                collection,
                key,
                value,
                ..
            } => {
                let name = ((*collection).to_owned(), key.clone());
                self.records
                    .insert(name.clone(), (self.version, value.clone()));
                self.written.push(name);
            }
            StoreWrite::Delete { collection, key } => {
                self.records
                    .remove(&((*collection).to_owned(), key.clone()));
            }
            StoreWrite::Append {
                log,
                partition,
                value,
                ..
            } => {
                let logs = match *log {
                    key::STATE => &mut self.states,
                    _ => &mut self.histories,
                };
                let lines = logs.entry(partition.clone()).or_default();
                lines.push(value.clone());
            }
        }
    }
}
