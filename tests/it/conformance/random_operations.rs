//! Random operations from a seed, most of which fit the current content of a store.

use std::collections::BTreeMap;

use threadkeep::storage::RecordExpectation::{Absent, Any, Version};
use threadkeep::storage::{
    COMMIT_OPS_MAX, CommitOp, RecordExpectation, RecordKey, StorageBackend, VALUE_BYTES_MAX,
};

use super::fixture::{collections, logs, put_op};

/// SplitMix64.
pub(super) struct SeededRandom(pub(super) u64);

impl SeededRandom {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(super) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    pub(super) fn name(&mut self) -> String {
        match self.below(40) {
            0 => "k".repeat(self.pick(&[511, 512, 513])),
            1 => String::new(),
            _ => self
                .pick(&[
                    "a",
                    "a\0",
                    "a/b",
                    "b",
                    "é",
                    "\u{ffff}",
                    "\u{10000}",
                    "p",
                    "q",
                    "A",
                ])
                .to_owned(),
        }
    }

    pub(super) fn collection(&mut self) -> String {
        if self.one_in(60) {
            return "history ".to_owned();
        }
        let all: Vec<&str> = collections().collect();
        self.pick(&all).to_owned()
    }

    pub(super) fn log(&mut self) -> String {
        if self.one_in(60) {
            "no log".to_owned()
        } else {
            let all: Vec<&str> = logs().collect();
            self.pick(&all).to_owned()
        }
    }

    fn value(&mut self) -> String {
        let unit = self.pick(&["v", "\0", "é", "{\"a\":1}"]);
        let size = match self.below(20) {
            0 => 4_000,
            1..5 => 1_000,
            _ => self.below(100),
        };
        unit.repeat(size as usize)
    }

    fn expect(&mut self, now: Option<u64>) -> RecordExpectation {
        match (self.below(8), now) {
            (0, _) => Version(self.below(4)),
            (1, _) => Absent,
            (2..4, _) => Any,
            (_, Some(version)) => Version(version),
            (_, None) => Absent,
        }
    }
}

/// Makes operations, most of which fit the content of `store`.
pub(super) struct OperationMaker<'a> {
    random: &'a mut SeededRandom,
    store: &'a dyn StorageBackend,
    /// Last positions of the logs, as this commit leaves them.
    lasts: BTreeMap<(String, String), u64>,
}

impl<'a> OperationMaker<'a> {
    pub(super) fn new(random: &'a mut SeededRandom, store: &'a dyn StorageBackend) -> Self {
        Self {
            random,
            store,
            lasts: BTreeMap::new(),
        }
    }

    pub(super) fn ops(&mut self) -> Vec<CommitOp> {
        let count = match self.random.below(400) {
            0 | 1 => COMMIT_OPS_MAX as u64 + 1,
            2 => return vec![put_op("pin", "a", Any, &"v".repeat(VALUE_BYTES_MAX + 1))],
            3 => return too_much(),
            _ => self.random.below(6),
        };
        (0..count).map(|_| self.op()).collect()
    }

    fn op(&mut self) -> CommitOp {
        match self.random.below(10) {
            0 => CommitOp::Delete { key: self.key() },
            1 => self.check(),
            2..6 => {
                let key = self.key();
                let now = self.version(&key);
                CommitOp::Put {
                    expect: self.random.expect(now),
                    value: self.random.value(),
                    key,
                }
            }
            6 => self.trim(),
            _ => self.append(),
        }
    }

    fn key(&mut self) -> RecordKey {
        RecordKey::new(self.random.collection(), self.random.name())
    }

    fn version(&self, key: &RecordKey) -> Option<u64> {
        self.store
            .get(std::slice::from_ref(key))
            .ok()?
            .first()
            .map(|item| item.version)
    }

    fn check(&mut self) -> CommitOp {
        let key = self.key();
        let now = self.version(&key);
        let expect = match self.random.expect(now) {
            Any if !self.random.one_in(10) => now.map_or(Absent, Version),
            expect => expect,
        };
        CommitOp::Check { key, expect }
    }

    fn append(&mut self) -> CommitOp {
        let (log, partition) = (self.random.log(), self.random.name());
        let last = self.last(&log, &partition);
        let at = if self.random.one_in(12) {
            self.random.below(last + 4)
        } else {
            last + 1
        };
        self.lasts
            .insert((log.clone(), partition.clone()), at.max(last));
        CommitOp::Append {
            log,
            partition,
            at,
            value: self.random.value(),
        }
    }

    fn trim(&mut self) -> CommitOp {
        let (log, partition) = (self.random.log(), self.random.name());
        let last = self.last(&log, &partition);
        let below = self.random.below(last + 3);
        if below > last {
            self.lasts.insert((log.clone(), partition.clone()), 0);
        }
        CommitOp::Trim {
            log,
            partition,
            below,
        }
    }

    fn last(&self, log: &str, partition: &str) -> u64 {
        let planned = self.lasts.get(&(log.to_owned(), partition.to_owned()));
        let stored = || {
            self.store
                .read_log(log, partition, 0, 1, true)
                .ok()
                .and_then(|lines| lines.first().map(|line| line.position))
        };
        planned.copied().or_else(stored).unwrap_or(0)
    }
}

/// Five values of the largest size: more than a commit may hold.
fn too_much() -> Vec<CommitOp> {
    let value = "v".repeat(VALUE_BYTES_MAX);
    let names = ["a", "b", "p", "q", "A"];
    names.map(|name| put_op("blob", name, Any, &value)).to_vec()
}
