//! The suite itself under test: each broken store has one fault, which the suite must find by name.

mod commit;
mod store;

use std::sync::{Arc, Mutex, Weak};

use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{CommitOp, StorageBackend, StorageQuota};

use super::suite::{StoreHome, cases, failing};
use store::{BrokenStore, lock};

pub(super) use store::StoreFault;

/// A fault, its description, and the case that must find it.
const FAULTS: &[(StoreFault, &str, &str)] = &[
    (
        StoreFault::GetSorts,
        "get answers in its own order",
        "get leaves out what is missing and keeps the order asked",
    ),
    (
        StoreFault::GetOnce,
        "get answers a key asked twice once",
        "get finds a key as often as it is asked",
    ),
    (
        StoreFault::GetTorn,
        "get reads record by record",
        "a get of two records is one snapshot",
    ),
    (
        StoreFault::GetCaches,
        "a reader keeps what it has read",
        "two openings see each other's commits",
    ),
    (
        StoreFault::GetUnbounded,
        "a get is not bounded by bytes",
        "get answers 4 MiB and no byte more",
    ),
    (
        StoreFault::UnknownIsEmpty,
        "a collection of a bad name is an empty one",
        "get refuses a bad name of a collection",
    ),
    (
        StoreFault::CaseBlind,
        "names are the same in any case",
        "any name comes back as it was",
    ),
    (
        StoreFault::CutsAtNul,
        "text ends at a NUL",
        "any text comes back as it was",
    ),
    (
        StoreFault::ScanWrongOrder,
        "a scan is in the order of a dictionary",
        "scan is ordered by bytes",
    ),
    (
        StoreFault::ScanSkipsAtCursor,
        "a scan skips the record at its cursor",
        "scan walks on by its cursor",
    ),
    (
        StoreFault::ScanLosesCursor,
        "a scan gives no cursor",
        "scan walks on by its cursor",
    ),
    (
        StoreFault::ScanTakesEnd,
        "a scan takes its end",
        "scan takes its start and leaves out its end",
    ),
    (
        StoreFault::ScanLosesStart,
        "a scan leaves out its start",
        "scan takes its start and leaves out its end",
    ),
    (
        StoreFault::ScanReverseTakesEnd,
        "a scan back takes its end",
        "scan walks back by its cursor",
    ),
    (
        StoreFault::PageOverLimit,
        "a page has one too many",
        "reading takes at most its limit",
    ),
    (
        StoreFault::PageOverBytes,
        "a page is not bounded by bytes",
        "scan fills a page by bytes",
    ),
    (
        StoreFault::LogAfterStart,
        "a log is read behind its start",
        "reading up begins where it is told",
    ),
    (
        StoreFault::LogDownFromZero,
        "a log is not read down from its newest",
        "reading down begins where it is told",
    ),
    (
        StoreFault::LogsAreOne,
        "two logs of one partition are one",
        "every log keeps entries",
    ),
    (
        StoreFault::AppendAnywhere,
        "an append at a wrong position is put right",
        "an append at another position is corrupt",
    ),
    (
        StoreFault::TrimsTooMuch,
        "trim removes the lowest that stays",
        "trim keeps positions",
    ),
    (
        StoreFault::TrimsTooLittle,
        "trim leaves the highest that goes",
        "trim keeps positions",
    ),
    (
        StoreFault::TrimIgnored,
        "trim does nothing",
        "a log that was trimmed whole is as new",
    ),
    (
        StoreFault::ChecksIgnored,
        "checks are ignored",
        "a failed check stops every other operation",
    ),
    (
        StoreFault::AbsentIsAny,
        "absent is taken for anything",
        "put where something is conflicts",
    ),
    (
        StoreFault::VersionIsAny,
        "a version is taken for anything",
        "put at an old version conflicts",
    ),
    (
        StoreFault::VersionNotCounted,
        "the same text is not a new version",
        "put of the same text is a new version",
    ),
    (
        StoreFault::DeleteIgnored,
        "delete leaves the record",
        "delete removes one record",
    ),
    (
        StoreFault::DeletesPrefix,
        "delete takes what begins alike with it",
        "delete removes one record",
    ),
    (
        StoreFault::HalfOfRefused,
        "what is refused is half applied",
        "a failed last condition stops what came before",
    ),
    (
        StoreFault::NoTransaction,
        "operations are applied one by one",
        "a get of two records is one snapshot",
    ),
    (
        StoreFault::LostUpdates,
        "conditions are looked at before they are needed",
        "threads that guard one record lose nothing",
    ),
    (
        StoreFault::ConflictEarly,
        "a conflict is answered before what it found is written",
        "threads that guard one record lose nothing",
    ),
    (
        StoreFault::CorruptBeforeConflict,
        "positions are looked at before conditions",
        "a conflict comes before a position that does not fit",
    ),
    (
        StoreFault::QuotaIgnored,
        "the quota is ignored",
        "a byte more than the quota is refused",
    ),
    (
        StoreFault::QuotaBeforeConflict,
        "the quota is looked at before conditions",
        "a conflict comes before the quota",
    ),
    (
        StoreFault::MarginForAll,
        "the closing margin is everybody's",
        "a closing commit fills the margin and no more",
    ),
    (
        StoreFault::MarginForNobody,
        "the closing margin is nobody's",
        "a closing commit fills the margin and no more",
    ),
    (
        StoreFault::KeyLimitLax,
        "a name may be a byte too long",
        "a name of 513 bytes does not fit any operation",
    ),
    (
        StoreFault::KeyLimitTight,
        "the longest name is refused",
        "a name of 512 bytes fits",
    ),
    (
        StoreFault::ValueLimitLax,
        "a value that is too long is cut",
        "a value of 1 MiB and a byte does not fit",
    ),
    (
        StoreFault::OperationsLimitTight,
        "1,024 operations are refused",
        "1,024 operations fit",
    ),
    (
        StoreFault::TwiceNamedTaken,
        "a second operation on a record is dropped",
        "a key named twice is refused",
    ),
    (
        StoreFault::ForgetsLast,
        "the last commit is not durable",
        "the last commit before closing is there when it is opened again",
    ),
    (
        StoreFault::OpeningsApart,
        "each opening is a store of its own",
        "two openings see each other's commits",
    ),
];

/// The place of a broken store. The journal holds acknowledged commits, for the faults of opening
/// it again.
pub(super) struct BrokenHome {
    fault: StoreFault,
    quota: Option<StorageQuota>,
    kept: Arc<MemoryStore>,
    opened: Mutex<Weak<MemoryStore>>,
    behind: Arc<MemoryStore>,
    journal: Arc<Mutex<Vec<Vec<CommitOp>>>>,
}

impl BrokenHome {
    pub(super) fn new(fault: StoreFault, quota: Option<StorageQuota>) -> Self {
        let quota = quota.filter(|_| fault != StoreFault::QuotaIgnored);
        Self {
            fault,
            quota,
            kept: Arc::new(memory(quota)),
            opened: Mutex::default(),
            behind: Arc::new(MemoryStore::new()),
            journal: Arc::default(),
        }
    }

    /// Returns a store with all but the last commit, unless the store is still open.
    fn without_last(&self) -> Arc<MemoryStore> {
        let mut opened = lock(&self.opened);
        if let Some(store) = opened.upgrade() {
            return store;
        }
        let mut journal = lock(&self.journal);
        journal.pop();
        let store = Arc::new(memory(self.quota));
        for ops in journal.iter() {
            store.commit(ops, true).expect("it was committed before");
        }
        *opened = Arc::downgrade(&store);
        store
    }
}

impl StoreHome for BrokenHome {
    fn open(&self) -> Arc<dyn StorageBackend> {
        let inner = match self.fault {
            StoreFault::ForgetsLast => self.without_last(),
            StoreFault::OpeningsApart => Arc::new(memory(self.quota)),
            _ => Arc::clone(&self.kept),
        };
        let (behind, journal) = (Arc::clone(&self.behind), Arc::clone(&self.journal));
        Arc::new(BrokenStore::new(self.fault, inner, behind, journal))
    }
}

fn memory(quota: Option<StorageQuota>) -> MemoryStore {
    quota.map_or_else(MemoryStore::new, MemoryStore::with_quota)
}

/// Tries of a case that needs threads to meet: on a busy machine they sometimes do not.
const TRIES_MAX: usize = 50;

/// Returns the cases that find a fault, including the case that must.
fn finding_cases(fault: StoreFault, case: &str) -> Vec<&'static str> {
    let home = |quota| Box::new(BrokenHome::new(fault, quota)) as Box<dyn StoreHome>;
    let mut found = failing(&home, |_| true);
    for _ in 0..TRIES_MAX {
        if !found.contains(&case) {
            found.extend(failing(&home, |name| name == case));
        }
    }
    found
}

#[test]
fn each_broken_store_fails_by_name() {
    let healthy = |quota| Box::new(BrokenHome::new(StoreFault::None, quota)) as Box<dyn StoreHome>;
    assert_eq!(failing(&healthy, |_| true), Vec::<&str>::new(), "no fault");
    let known: Vec<&str> = cases().iter().map(|case| case.name).collect();
    let (mut table, mut missed) = (String::new(), Vec::new());
    for (fault, words, case) in FAULTS {
        assert!(known.contains(case), "there is no case {case:?}");
        let found = finding_cases(*fault, case);
        table += &format!("{words:<52} {:>3}  {case}\n", found.len());
        if !found.contains(case) {
            missed.push((words, case, found));
        }
    }
    println!(
        "{:<52} cases that found it, and the one for it\n{table}",
        "fault"
    );
    assert!(missed.is_empty(), "not found: {missed:#?}");
}
