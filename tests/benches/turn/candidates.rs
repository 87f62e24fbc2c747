//! A turn's commit by every candidate, step by step over one store.

use super::direct::DirectRun;
use super::figures::{median, micros, ratio};
use super::native::{NativeRun, rows, script};
use super::raw::RawRun;
use super::tenant::TenantRun;
use super::world::BenchCandidate;
use cap_std::fs::Dir;
use std::sync::Arc;
use std::time::{Duration, Instant};
use threadkeep::storage::StorageBackend;
use threadkeep::storage::directory::GrantedDirectory;
use threadkeep::storage::files::{FilesOptions, FilesStore};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::sqlite::{CommitDurability, SqliteOptions, SqliteStore};

impl BenchCandidate for RawRun {
    fn step(&mut self, _: usize, _: &str, _: &str) {
        self.commit().expect("committed");
    }
}

/// Median durations of a turn's commit by each candidate.
pub struct CandidateMedians {
    native: Duration,
    component: Duration,
    lent: Duration,
    raw: Option<Duration>,
    /// The tenant over the pool, measured beside raw SQL alone.
    pooled: Duration,
    raw_beside: Option<Duration>,
}

impl CandidateMedians {
    pub fn print(&self, store: &str, goals: [&str; 2]) {
        let of = |raw: Option<Duration>, time| {
            raw.map_or_else(|| "-".to_owned(), |raw| ratio(time, raw))
        };
        println!(
            "  {store:14} {:>9} {:>10} {:>9} {:>9} {:>9} {:>5} {:>9} {:>9} {:>11} {:>5}",
            micros(self.native),
            micros(self.component),
            micros(self.lent),
            self.raw.map_or_else(|| "-".to_owned(), micros),
            ratio(self.native, self.component),
            goals[0],
            of(self.raw, self.lent),
            micros(self.pooled),
            of(self.raw_beside, self.pooled),
            goals[1],
        );
    }
}

/// A new store in this folder: SQLite, or one in memory.
pub fn store(
    folder: &std::path::Path,
    durability: Option<CommitDurability>,
) -> Arc<dyn StorageBackend> {
    let Some(durability) = durability else {
        return Arc::new(MemoryStore::new());
    };
    let dir = Dir::open_ambient_dir(folder, cap_std::ambient_authority());
    let options = SqliteOptions {
        durability,
        ..SqliteOptions::local()
    };
    let dir = dir.expect("a folder");
    Arc::new(SqliteStore::open(&dir, "bench.db", options).expect("a store"))
}

/// The store of a comparison.
#[derive(Debug, Clone, Copy)]
pub enum BenchStore {
    /// In memory.
    Memory,
    /// In SQLite.
    Sqlite(CommitDurability),
    /// In plain files; with `durable` each commit is synced.
    Files { durable: bool },
}

impl BenchStore {
    /// Opens a new store in this folder.
    fn open(self, folder: &std::path::Path) -> Arc<dyn StorageBackend> {
        let durable = match self {
            Self::Memory => return store(folder, None),
            Self::Sqlite(durability) => return store(folder, Some(durability)),
            Self::Files { durable } => durable,
        };
        let options = FilesOptions {
            writer: "bench".to_owned(),
            durable,
            quota: None,
        };
        let directory = Dir::open_ambient_dir(folder, cap_std::ambient_authority());
        let directory = Box::new(GrantedDirectory::new(directory.expect("a folder")));
        Arc::new(FilesStore::open(directory, options).expect("a store"))
    }
}

/// Measures a turn's commit of the native service with and without a budget: a thread whose model
/// costs nothing, so that its account is not written; a root with a budget; children three levels
/// below one, with accounts of their own and without.
pub fn compare_budgets(
    durability: Option<CommitDurability>,
    warm: usize,
    steps: usize,
) -> [Duration; 4] {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = store(folder.path(), durability);
    let mut free = NativeRun::start_free(&storage);
    let mut root = NativeRun::start(&storage);
    let mut own = NativeRun::start_deep(&storage, true);
    let mut shared = NativeRun::start_deep(&storage, false);
    let mut candidates: [&mut dyn BenchCandidate; 4] =
        [&mut free, &mut root, &mut own, &mut shared];
    let times = measure(&mut candidates, warm, steps);
    [times[0], times[1], times[2], times[3]]
}

/// Measures a turn's commit of the native service in a root, in a child of one, and in the third
/// link of a chain.
pub fn compare_places(kind: BenchStore, warm: usize, steps: usize) -> [Duration; 3] {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = kind.open(folder.path());
    let mut root = NativeRun::start(&storage);
    let mut child = NativeRun::start_child(&storage);
    let mut link = NativeRun::start_link(&storage);
    let mut candidates: [&mut dyn BenchCandidate; 3] = [&mut root, &mut child, &mut link];
    let times = measure(&mut candidates, warm, steps);
    [times[0], times[1], times[2]]
}

/// Measures all candidates over one new store: in SQLite, or in memory.
pub fn compare(
    durability: Option<CommitDurability>,
    warm: usize,
    steps: usize,
) -> CandidateMedians {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = store(folder.path(), durability);
    let mut native = NativeRun::start(&storage);
    let (blocks, content) = script(0);
    native.step(0, &blocks, &content);
    let rows = rows(&storage, &native);
    native.step(0, &blocks, &content);
    let mut component = DirectRun::start(&storage);
    let mut lent = TenantRun::start_lent(&storage);
    let mut raw = durability
        .map(|durability| RawRun::start(&folder.path().join("raw.db"), durability, 1, rows));
    let mut candidates: Vec<&mut dyn BenchCandidate> = vec![&mut native, &mut component, &mut lent];
    candidates.extend(raw.as_mut().map(|raw| raw as &mut dyn BenchCandidate));
    let mut times = measure(&mut candidates, warm, steps).into_iter();
    let mut next = || times.next();
    // Apart from the others: its caller sleeps while the pool computes, and what runs next on a
    // core that slept finds it cold.
    let mut pooled = TenantRun::start(&storage);
    let mut candidates: Vec<&mut dyn BenchCandidate> = vec![&mut pooled];
    candidates.extend(raw.as_mut().map(|raw| raw as &mut dyn BenchCandidate));
    let mut beside = measure(&mut candidates, warm, steps).into_iter();
    CandidateMedians {
        native: next().unwrap_or_default(),
        component: next().unwrap_or_default(),
        lent: next().unwrap_or_default(),
        raw: next(),
        pooled: beside.next().unwrap_or_default(),
        raw_beside: beside.next(),
    }
}

/// A store in SQLite looks at each of its files before a commit while its directory is younger than
/// a second. Measurements begin after that.
const STORE_SETTLES_AFTER: Duration = Duration::from_millis(1_100);

/// Returns the median step of each candidate. They change places after every two steps, a reply and
/// its results: if one were always first with replies, it would be first with the longer ones.
pub fn measure(
    candidates: &mut [&mut dyn BenchCandidate],
    warm: usize,
    steps: usize,
) -> Vec<Duration> {
    let mut times = vec![Vec::with_capacity(steps); candidates.len()];
    let count = candidates.len();
    for step in 0..warm + steps {
        if step > 0 && step == warm {
            std::thread::sleep(STORE_SETTLES_AFTER);
        }
        let (blocks, content) = script(step);
        for turn in 0..count {
            let place = (step / 2 + turn) % count;
            let begun = Instant::now();
            candidates[place].step(step, &blocks, &content);
            if step >= warm {
                times[place].push(begun.elapsed());
            }
        }
    }
    times.iter_mut().map(|times| median(times)).collect()
}
