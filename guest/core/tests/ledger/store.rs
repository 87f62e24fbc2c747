//! A store in memory that keeps the storage contract: a batch is written whole, or not at all where
//! a record has another version.

use std::collections::BTreeMap;
use threadkeep_core::json::{self, FromJson};
use threadkeep_core::plan::{Expect, Loaded, Neighbour, Stored, Write};
use threadkeep_core::thread::{ChainRecord, Head, ThreadRecord};
use threadkeep_core::{id, key};

/// A collection and a key.
pub type Name = (String, String);

#[derive(Debug, Clone, Default)]
pub struct Store {
    pub records: BTreeMap<Name, (u64, String)>,
    pub histories: BTreeMap<String, Vec<String>>,
    /// Names of records in the order in which they were written; the auditor looks at the new ones
    /// again.
    pub written: Vec<Name>,
    version: u64,
}

impl Store {
    pub fn text(&self, collection: &str, name: &str) -> Option<&str> {
        let name = (collection.to_owned(), name.to_owned());
        self.records.get(&name).map(|(_, text)| text.as_str())
    }

    pub fn get<T: FromJson>(&self, collection: &str, name: &str) -> Stored<T> {
        let name = (collection.to_owned(), name.to_owned());
        let (version, text) = &self.records[&name];
        let value = json::read(text).expect("a record that was written");
        Stored {
            version: *version,
            value,
        }
    }

    pub fn load(&self, thread: &str) -> Loaded {
        let own = id::key(thread);
        let record: Stored<ThreadRecord> = self.get(key::THREAD, &own);
        let head: Stored<Head> = self.get(key::HEAD, &own);
        let chain: Stored<ChainRecord> = self.get(key::CHAIN, &id::key(&record.value.chain));
        let above = chain.value.above.iter();
        let above = above.map(|above| self.get(key::CHAIN, &id::key(above)));
        let parent = record.value.parent.as_ref();
        let parent = parent.zip(chain.value.parent.as_ref());
        let parent = parent.map(|(parent, of)| Neighbour {
            id: parent.clone(),
            chain: of.clone(),
            head: self.get(key::HEAD, &id::key(parent)),
        });
        Loaded {
            parent,
            above: above.collect(),
            thread: record,
            head,
            chain,
        }
    }

    /// Writes a batch; returns false if a record has another version.
    pub fn commit(&mut self, writes: &[Write]) -> bool {
        if !writes.iter().all(|write| self.fits(write)) {
            return false;
        }
        self.version += 1;
        for write in writes {
            self.write(write);
        }
        true
    }

    fn fits(&self, write: &Write) -> bool {
        let at = |collection: &str, key: &str| {
            let name = (collection.to_owned(), key.to_owned());
            self.records.get(&name).map(|(version, _)| *version)
        };
        match write {
            Write::Check {
                collection,
                key,
                version,
            } => at(collection, key) == Some(*version),
            Write::Put {
                collection,
                key,
                expect,
                ..
            } => match expect {
                Expect::Any => true,
                Expect::Absent => at(collection, key).is_none(),
                Expect::Version(version) => at(collection, key) == Some(*version),
            },
            Write::Delete { .. } => true,
            Write::Append { partition, at, .. } => {
                let lines = self.histories.get(partition).map_or(0, Vec::len);
                assert!(lines as u64 >= at - 1, "a gap in a history");
                lines as u64 == at - 1
            }
        }
    }

    fn write(&mut self, write: &Write) {
        match write {
            Write::Check { .. } => {}
            Write::Put {
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
            Write::Delete { collection, key } => {
                self.records
                    .remove(&((*collection).to_owned(), key.clone()));
            }
            Write::Append {
                partition, value, ..
            } => {
                let lines = self.histories.entry(partition.clone()).or_default();
                lines.push(value.clone());
            }
        }
    }
}
