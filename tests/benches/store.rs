//! `cargo bench -p threadkeep-tests --bench store`: measures the SQLite store and SQL written by
//! hand for the same rows, alone and with eight writers, and the cost of opening a store.
//!
//! As in the bench `turn`, candidates alternate within one run, only ratios are meaningful, and
//! nothing is asserted. A commit is a turn's: head, chain, entry of the sizes below; a step also
//! reads the first two before it.

#[path = "store/alone.rs"]
mod alone;
#[path = "turn/figures.rs"]
mod figures;
#[path = "store/opening.rs"]
mod opening;
#[path = "turn/raw.rs"]
mod raw;
#[path = "store/together.rs"]
mod together;

use cap_std::fs::Dir;
use std::path::Path;
use threadkeep::storage::sqlite::{CommitDurability, SqliteOptions, SqliteStore};
use threadkeep::storage::{CommitOp, CommitOutcome, RecordExpectation, RecordKey, StorageBackend};

/// Steps that count, of each candidate.
const STEPS: usize = 4_000;
/// Steps that count where each waits for the disk.
const STEPS_DURABLE: usize = 300;

fn main() {
    // `cargo test --benches` runs this file, too: then it only proves that the bench works.
    let steps = match std::env::args().any(|argument| argument == "--bench") {
        true => |steps| steps,
        false => |_| 4,
    };
    // A word selects a part: `cargo bench ... -- alone`.
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let wanted = |word: &str| words.is_empty() || words.iter().any(|given| given == word);
    if wanted("alone") {
        alone::compare(CommitDurability::Normal, steps(STEPS));
        alone::compare(CommitDurability::Full, steps(STEPS_DURABLE));
    }
    if wanted("together") {
        together::compare(CommitDurability::Full, steps(STEPS_DURABLE));
        together::compare(CommitDurability::Normal, steps(STEPS));
    }
    if wanted("opening") {
        opening::compare(steps(STEPS_DURABLE));
    }
}

/// Head, chain and entry of a turn.
fn rows() -> [String; 3] {
    let text = |bytes: usize| {
        format!(
            "{{\"text\":\"{}\"}}",
            "The quick brown fox. ".repeat(bytes / 21)
        )
    };
    [text(1_100), text(500), text(2_600)]
}

fn open(folder: &Path, durability: CommitDurability) -> SqliteStore {
    let dir = Dir::open_ambient_dir(folder, cap_std::ambient_authority()).expect("a folder");
    let options = SqliteOptions {
        durability,
        ..SqliteOptions::local()
    };
    SqliteStore::open(&dir, "bench.db", options).expect("a store")
}

/// One thread in a store.
struct StoreRun<'a> {
    store: &'a SqliteStore,
    rows: [String; 3],
    keys: [RecordKey; 2],
    version: u64,
}

impl<'a> StoreRun<'a> {
    fn start(store: &'a SqliteStore, thread: u32) -> Self {
        let name = format!("bench-{thread}");
        let keys = ["head", "chain"].map(|collection| RecordKey::new(collection, name.clone()));
        Self {
            store,
            rows: rows(),
            keys,
            version: 0,
        }
    }

    fn get(&self) {
        let found = self.store.get(&self.keys).expect("read");
        assert_eq!(found.len(), if self.version == 0 { 0 } else { 2 });
    }

    fn commit(&mut self) {
        let expect = match self.version {
            0 => RecordExpectation::Absent,
            version => RecordExpectation::Version(version),
        };
        let [head, chain, entry] = self.rows.clone();
        let [head_key, chain_key] = self.keys.clone();
        let partition = head_key.name.clone();
        let put = |key, value| CommitOp::Put { key, expect, value };
        let append = CommitOp::Append {
            log: "history".to_owned(),
            partition,
            at: self.version + 1,
            value: entry,
        };
        let ops = [put(head_key, head), put(chain_key, chain), append];
        assert_eq!(self.store.commit(&ops, false), Ok(CommitOutcome::Committed));
        self.version += 1;
    }
}
