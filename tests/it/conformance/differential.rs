//! The same random history through memory and SQLite gives the same answers, over reopenings.
//!
//! A failing seed is printed; make it a named test. `THREADKEEP_SEED` runs one seed, `THREADKEEP_STEPS` sets how long.

use std::collections::BTreeMap;

use threadkeep::storage::Expect::{Absent, Any, Version};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::sqlite::SqliteStore;
use threadkeep::storage::{
    COLLECTIONS, Expect, Key, LOGS, Op, Outcome, Quota, Storage, StorageError,
};

use super::fixture::{SqliteFixture, contents};

const SEEDS: [u64; 4] = [1, 2, 3, 4];
const STEPS: u64 = 1_500;
/// Small enough to be met now and then.
const QUOTA: Quota = Quota {
    limit_bytes: 60_000,
    closing_margin_bytes: 2_000,
};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    fn name(&mut self) -> String {
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

    fn collection(&mut self) -> String {
        if self.one_in(60) {
            return "history ".to_owned();
        }
        COLLECTIONS[self.below(COLLECTIONS.len() as u64) as usize]
            .0
            .to_owned()
    }

    fn log(&mut self) -> String {
        if self.one_in(60) {
            "thread".to_owned()
        } else {
            self.pick(&LOGS).to_owned()
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

    fn expect(&mut self, now: Option<u64>) -> Expect {
        match (self.below(8), now) {
            (0, _) => Version(self.below(4)),
            (1, _) => Absent,
            (2..4, _) => Any,
            (_, Some(version)) => Version(version),
            (_, None) => Absent,
        }
    }
}

/// Makes operations, most of which fit what `store` holds.
struct Maker<'a> {
    random: &'a mut Random,
    store: &'a dyn Storage,
    /// Last positions of the logs, as this commit leaves them.
    lasts: BTreeMap<(String, String), u64>,
}

impl Maker<'_> {
    fn ops(&mut self) -> Vec<Op> {
        let count = if self.random.one_in(200) {
            1_025
        } else {
            self.random.below(6)
        };
        (0..count).map(|_| self.op()).collect()
    }

    fn op(&mut self) -> Op {
        match self.random.below(10) {
            0 => Op::Delete { key: self.key() },
            1 => self.check(),
            2..6 => {
                let key = self.key();
                let now = self.version(&key);
                Op::Put {
                    expect: self.random.expect(now),
                    value: self.random.value(),
                    key,
                }
            }
            6 => self.trim(),
            _ => self.append(),
        }
    }

    fn key(&mut self) -> Key {
        Key::new(self.random.collection(), self.random.name())
    }

    fn version(&self, key: &Key) -> Option<u64> {
        self.store
            .get(std::slice::from_ref(key))
            .ok()?
            .first()
            .map(|item| item.version)
    }

    fn check(&mut self) -> Op {
        let key = self.key();
        let now = self.version(&key);
        let expect = match self.random.expect(now) {
            Any if !self.random.one_in(10) => now.map_or(Absent, Version),
            expect => expect,
        };
        Op::Check { key, expect }
    }

    fn append(&mut self) -> Op {
        let (log, partition) = (self.random.log(), self.random.name());
        let last = self.last(&log, &partition);
        let at = if self.random.one_in(12) {
            self.random.below(last + 4)
        } else {
            last + 1
        };
        self.lasts
            .insert((log.clone(), partition.clone()), at.max(last));
        Op::Append {
            log,
            partition,
            at,
            value: self.random.value(),
        }
    }

    fn trim(&mut self) -> Op {
        let (log, partition) = (self.random.log(), self.random.name());
        let last = self.last(&log, &partition);
        let below = self.random.below(last + 3);
        if below > last {
            self.lasts.insert((log.clone(), partition.clone()), 0);
        }
        Op::Trim {
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

fn kind(answer: &Result<Outcome, StorageError>) -> String {
    match answer {
        Ok(Outcome::Committed) => "committed".to_owned(),
        Ok(Outcome::Conflict(_)) => "conflict".to_owned(),
        Err(StorageError::Unavailable { .. }) => "unavailable".to_owned(),
        Err(StorageError::OutcomeUnknown { .. }) => "outcome-unknown".to_owned(),
        Err(StorageError::QuotaExceeded { .. }) => "quota-exceeded".to_owned(),
        Err(StorageError::TooLarge { what, .. }) => format!("too-large {what}"),
        Err(StorageError::Corrupt { .. }) => "corrupt".to_owned(),
        Err(StorageError::Other { code, .. }) => format!("other {code}"),
    }
}

fn compare_reads(random: &mut Random, memory: &MemoryStore, sqlite: &SqliteStore, context: &str) {
    let keys: Vec<_> = (0..random.below(5))
        .map(|_| Key::new(random.collection(), random.name()))
        .collect();
    assert_eq!(
        memory.get(&keys),
        sqlite.get(&keys),
        "get {keys:?} {context}"
    );
    let (collection, start, end) = (random.collection(), random.name(), random.name());
    let (start, end) = (
        random.pick(&["", start.as_str()]),
        random.pick(&["", end.as_str()]),
    );
    let (limit, reverse) = (random.pick(&[0, 1, 2, 3, 500, 501]), random.one_in(2));
    let scan = |store: &dyn Storage| store.scan(&collection, start, end, limit, reverse);
    assert_eq!(
        scan(memory),
        scan(sqlite),
        "scan {collection} {start:?}..{end:?} {limit} {reverse} {context}"
    );
    let (log, partition, from) = (random.log(), random.name(), random.below(20));
    let read = |store: &dyn Storage| store.read_log(&log, &partition, from, limit, reverse);
    assert_eq!(
        read(memory),
        read(sqlite),
        "read {log}/{partition:?} {from} {limit} {reverse} {context}"
    );
}

fn run(seed: u64, steps: u64, quota: Option<Quota>, counts: &mut BTreeMap<String, u64>) {
    let mut random = Random(seed);
    let fixture = SqliteFixture::new();
    let memory = quota.map_or_else(MemoryStore::new, MemoryStore::with_quota);
    let mut sqlite = fixture.open_with(quota);
    for step in 0..steps {
        let context = format!("(seed {seed}, step {step}, quota {})", quota.is_some());
        let ops = Maker {
            random: &mut random,
            store: &memory,
            lasts: BTreeMap::new(),
        }
        .ops();
        let closing = random.one_in(5);
        let expected = memory.commit(&ops, closing);
        assert_eq!(sqlite.commit(&ops, closing), expected, "{context}");
        *counts.entry(kind(&expected)).or_default() += 1;
        compare_reads(&mut random, &memory, &sqlite, &context);
        if random.one_in(40) {
            drop(sqlite);
            sqlite = fixture.open_with(quota);
            *counts.entry("reopened".to_owned()).or_default() += 1;
            assert_eq!(contents(&sqlite), contents(&memory), "{context}");
        }
    }
    assert_eq!(
        contents(&sqlite),
        contents(&memory),
        "seed {seed}, at the end"
    );
}

fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn memory_and_sqlite_answer_alike() {
    let seeds = number_from("THREADKEEP_SEED").map_or_else(|| SEEDS.to_vec(), |seed| vec![seed]);
    let steps = number_from("THREADKEEP_STEPS").unwrap_or(STEPS);
    let mut counts = BTreeMap::new();
    for seed in seeds {
        run(seed, steps, None, &mut counts);
        run(seed, steps, Some(QUOTA), &mut counts);
    }
    println!("{counts:#?}");
    for kind in [
        "committed",
        "conflict",
        "corrupt",
        "quota-exceeded",
        "too-large key",
        "other key-named-twice",
        "reopened",
    ] {
        assert!(
            counts.contains_key(kind),
            "no history met {kind}: {counts:?}"
        );
    }
}
