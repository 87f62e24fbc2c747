//! The same random history through two stores gives the same answers, over reopenings.
//!
//! A difference is reported with its seed and the shortest history of that seed that shows it; make
//! it a named test. `THREADKEEP_SEED` runs one seed, `THREADKEEP_STEPS` sets the length.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread::scope;

use threadkeep::storage::{
    CommitOp, CommitOutcome, RecordKey, StorageBackend, StorageError, StorageQuota,
};

use super::broken_stores::{BrokenHome, StoreFault};
use super::fixture::{FilesFixture, SqliteFixture, contents};
use super::random_operations::{OperationMaker, SeededRandom};
use super::suite::{MemoryHome, StoreHome};
use threadkeep_tests::soak::repetitions;

const SEEDS: u32 = 20;
const FILES_SEEDS: u32 = 4;
const STEPS: u64 = 2_000;
/// Histories that run at once: a store waits for its disk most of the time.
const AT_ONCE: usize = 4;
/// Small enough to be reached sometimes. Every other history has it.
const QUOTA: StorageQuota = StorageQuota {
    limit_bytes: 60_000,
    closing_margin_bytes: 2_000,
};

/// Situations that must occur in the histories, with the same answer of both stores.
const HAPPENINGS: [&str; 25] = [
    "commit: committed",
    "commit: conflict",
    "commit: corrupt",
    "commit: quota-exceeded",
    "commit: too-large key",
    "commit: too-large partition",
    "commit: too-large value",
    "commit: too-large operations",
    "commit: too-large commit",
    "commit: other empty-key",
    "commit: other key-named-twice",
    "commit: other not-a-condition",
    "commit: other invalid-collection",
    "commit: other invalid-log",
    "deleted a record",
    "trimmed a log",
    "closed within the margin",
    "reopened",
    "read: given",
    "read: other empty-key",
    "read: other empty-page",
    "read: other invalid-collection",
    "read: other invalid-log",
    "read: too-large keys",
    "read: too-large page",
];

type SituationCounts = BTreeMap<String, u64>;

/// A difference between two stores.
#[derive(Debug)]
struct StoreDifference {
    /// Steps that the history needs to show it.
    steps: u64,
    what: String,
}

/// A history under way in the reference store and the judged one.
struct ComparedHistory<'a> {
    random: SeededRandom,
    believed: &'a dyn StorageBackend,
    counts: &'a mut SituationCounts,
}

impl ComparedHistory<'_> {
    fn count(&mut self, what: impl Into<String>) {
        *self.counts.entry(what.into()).or_default() += 1;
    }

    fn commit(&mut self, judged: &dyn StorageBackend) -> Result<(), String> {
        let ops = OperationMaker::new(&mut self.random, self.believed).ops();
        let closing = self.random.one_in(5);
        let (removed, trimmed) = (self.deletes(&ops), self.trims(&ops));
        let expected = self.believed.commit(&ops, closing);
        check_same(&expected, &judged.commit(&ops, closing), || {
            format!("commit, closing {closing}: {ops:?}")
        })?;
        self.count(format!("commit: {}", kind(&expected)));
        if expected == Ok(CommitOutcome::Committed) {
            (0..removed).for_each(|_| self.count("deleted a record"));
            (0..trimmed).for_each(|_| self.count("trimmed a log"));
        }
        if matches!(expected, Err(StorageError::QuotaExceeded { .. })) && !closing {
            let expected = self.believed.commit(&ops, true);
            check_same(&expected, &judged.commit(&ops, true), || {
                format!("the same commit, closing: {ops:?}")
            })?;
            if expected == Ok(CommitOutcome::Committed) {
                self.count("closed within the margin");
            }
        }
        Ok(())
    }

    /// Counts deletions of existing records.
    fn deletes(&self, ops: &[CommitOp]) -> usize {
        let there = |op: &&CommitOp| match op {
            CommitOp::Delete { key } => self
                .believed
                .get(std::slice::from_ref(key))
                .is_ok_and(|found| !found.is_empty()),
            _ => false,
        };
        ops.iter().filter(there).count()
    }

    /// Counts trims that shorten a log.
    fn trims(&self, ops: &[CommitOp]) -> usize {
        let shortens = |op: &&CommitOp| match op {
            CommitOp::Trim {
                log,
                partition,
                below,
            } => self
                .believed
                .read_log(log, partition, 0, 1, false)
                .is_ok_and(|lines| lines.first().is_some_and(|line| line.position < *below)),
            _ => false,
        };
        ops.iter().filter(shortens).count()
    }

    fn read(&mut self, judged: &dyn StorageBackend) -> Result<(), String> {
        let random = &mut self.random;
        let count = if random.one_in(200) {
            501
        } else {
            random.below(5)
        };
        let keys: Vec<_> = (0..count)
            .map(|_| RecordKey::new(random.collection(), random.name()))
            .collect();
        let (collection, start, end) = (random.collection(), random.name(), random.name());
        let (start, end) = (
            random.pick(&["", start.as_str()]),
            random.pick(&["", end.as_str()]),
        );
        let (limit, reverse) = (random.pick(&[0, 1, 2, 3, 500, 501]), random.one_in(2));
        let (log, partition, from) = (random.log(), random.name(), random.below(20));
        self.compare_reads(judged, &|store| store.get(&keys), || {
            format!("get {keys:?}")
        })?;
        self.compare_reads(
            judged,
            &|store| store.scan(&collection, start, end, limit, reverse),
            || format!("scan {collection} {start:?}..{end:?} {limit} {reverse}"),
        )?;
        self.compare_reads(
            judged,
            &|store| store.read_log(&log, &partition, from, limit, reverse),
            || format!("read {log}/{partition:?} {from} {limit} {reverse}"),
        )
    }

    fn compare_reads<T: PartialEq + std::fmt::Debug>(
        &mut self,
        judged: &dyn StorageBackend,
        read: &dyn Fn(&dyn StorageBackend) -> Result<T, StorageError>,
        what: impl Fn() -> String,
    ) -> Result<(), String> {
        let expected = read(self.believed);
        check_same(&expected, &read(judged), what)?;
        self.count(match &expected {
            Ok(_) => "read: given".to_owned(),
            Err(error) => format!("read: {}", error_kind(error)),
        });
        Ok(())
    }
}

fn check_same<T: PartialEq + std::fmt::Debug>(
    expected: &T,
    found: &T,
    what: impl Fn() -> String,
) -> Result<(), String> {
    match expected == found {
        true => Ok(()),
        false => Err(format!("{}\n{found:?}\ninstead of\n{expected:?}", what())),
    }
}

fn kind(answer: &Result<CommitOutcome, StorageError>) -> String {
    match answer {
        Ok(CommitOutcome::Committed) => "committed".to_owned(),
        Ok(CommitOutcome::Conflict) => "conflict".to_owned(),
        Err(error) => error_kind(error),
    }
}

/// The variant of an error, and the field that tells its kinds apart.
pub(super) fn error_kind(error: &StorageError) -> String {
    match error {
        StorageError::Unavailable { .. } => "unavailable".to_owned(),
        StorageError::OutcomeUnknown { .. } => "outcome-unknown".to_owned(),
        StorageError::QuotaExceeded { .. } => "quota-exceeded".to_owned(),
        StorageError::TooLarge { what, .. } => format!("too-large {what}"),
        StorageError::Corrupt { .. } => "corrupt".to_owned(),
        StorageError::Other { code, .. } => format!("other {code}"),
    }
}

/// Runs `steps` steps of a seed through memory and a new place; `thorough` compares everything
/// after each of them.
fn run(
    (seed, steps, thorough): (u64, u64, bool),
    new_home: &dyn Fn(Option<StorageQuota>) -> Box<dyn StoreHome>,
    counts: &mut SituationCounts,
) -> Result<(), StoreDifference> {
    let quota = seed.is_multiple_of(2).then_some(QUOTA);
    let (home, believed) = (new_home(quota), MemoryHome::new(quota).open());
    let mut judged = home.open();
    let mut history = ComparedHistory {
        random: SeededRandom(seed),
        believed: &*believed,
        counts,
    };
    for step in 1..=steps {
        let differs = |what| StoreDifference { steps: step, what };
        history.commit(&*judged).map_err(differs)?;
        history.read(&*judged).map_err(differs)?;
        let reopens = history.random.one_in(40);
        if reopens {
            drop(judged);
            judged = home.open();
            history.count("reopened");
        }
        if reopens || thorough || step == steps {
            check_same(&contents(&*believed), &contents(&*judged), || {
                "contents".to_owned()
            })
            .map_err(differs)?;
        }
    }
    Ok(())
}

/// Runs a seed; traces a difference to the first step after which the stores are not the same.
fn check(
    seed: u64,
    steps: u64,
    new_home: &dyn Fn(Option<StorageQuota>) -> Box<dyn StoreHome>,
    counts: &mut SituationCounts,
) -> Result<(), StoreDifference> {
    let Err(seen) = run((seed, steps, false), new_home, counts) else {
        return Ok(());
    };
    let shortest = run(
        (seed, seen.steps, true),
        new_home,
        &mut SituationCounts::new(),
    );
    Err(shortest.err().unwrap_or(seen))
}

fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn memory_and_sqlite_answer_alike() {
    compare_all(SEEDS, &|quota| Box::new(SqliteFixture::with_quota(quota)));
}

#[test]
fn memory_and_files_answer_alike() {
    compare_all(FILES_SEEDS, &|quota| {
        Box::new(FilesFixture::with_quota(quota))
    });
}

fn compare_all(seeds: u32, new_home: &(dyn Fn(Option<StorageQuota>) -> Box<dyn StoreHome> + Sync)) {
    let seed = number_from("THREADKEEP_SEED");
    let steps = number_from("THREADKEEP_STEPS").unwrap_or(STEPS);
    let seeds: Vec<u64> = seed.map_or_else(
        || (1..=u64::from(repetitions(seeds))).collect(),
        |seed| vec![seed],
    );
    let (waiting, total) = (Mutex::new(seeds.iter()), Mutex::new(SituationCounts::new()));
    let worker = || {
        let mut counts = SituationCounts::new();
        loop {
            let next = waiting.lock().unwrap().next();
            let Some(seed) = next else { break };
            let checked = check(*seed, steps, new_home, &mut counts);
            if let Err(StoreDifference { steps, what }) = checked {
                panic!("THREADKEEP_SEED={seed} THREADKEEP_STEPS={steps} shows: {what}");
            }
        }
        let mut total = total.lock().unwrap();
        for (what, count) in counts {
            *total.entry(what).or_default() += count;
        }
    };
    scope(|scope| {
        (0..AT_ONCE).for_each(|_| drop(scope.spawn(worker)));
    });
    let counts = total.into_inner().unwrap();
    println!("{} seeds of {steps} steps: {counts:#?}", seeds.len());
    if seed.is_none() {
        let happened: Vec<&str> = counts.keys().map(String::as_str).collect();
        let missing = HAPPENINGS.iter().filter(|what| !happened.contains(what));
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new());
    }
}

/// The report of a difference is minimal: one step less shows none.
#[test]
fn a_difference_is_told_with_the_shortest_history_that_shows_it() {
    for fault in [
        StoreFault::TrimsTooLittle,
        StoreFault::DeleteIgnored,
        StoreFault::VersionNotCounted,
        StoreFault::MarginForAll,
    ] {
        let home = |quota| Box::new(BrokenHome::new(fault, quota)) as Box<dyn StoreHome>;
        let seed = 2;
        let check = |steps| check(seed, steps, &home, &mut SituationCounts::new());
        let Err(difference) = check(STEPS) else {
            panic!("{fault:?} is not found in {STEPS} steps");
        };
        assert!(check(difference.steps).is_err(), "{fault:?}");
        assert!(check(difference.steps - 1).is_ok(), "{fault:?}");
        println!("{fault:?}: {} steps", difference.steps);
    }
}
