//! The suite itself under test: each broken store has one fault, which the suite must find by name.

mod commit;
mod store;

use std::sync::{Arc, Mutex, Weak};

use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{Op, Quota, Storage};

use super::suite::{Home, cases, failing};
use store::{Broken, lock};

pub(super) use store::Fault;

/// A fault, its description, and the case that must find it.
const FAULTS: &[(Fault, &str, &str)] = &[
    (
        Fault::GetSorts,
        "get answers in its own order",
        "get leaves out what is missing and keeps the order asked",
    ),
    (
        Fault::GetOnce,
        "get answers a key asked twice once",
        "get finds a key as often as it is asked",
    ),
    (
        Fault::GetTorn,
        "get reads record by record",
        "a get of two records is one snapshot",
    ),
    (
        Fault::GetCaches,
        "a reader keeps what it has read",
        "two openings see each other's commits",
    ),
    (
        Fault::GetUnbounded,
        "a get is not bounded by bytes",
        "get answers 4 MiB and no byte more",
    ),
    (
        Fault::UnknownIsEmpty,
        "an unknown collection is an empty one",
        "get refuses an unknown collection",
    ),
    (
        Fault::CaseBlind,
        "names are the same in any case",
        "any name comes back as it was",
    ),
    (
        Fault::CutsAtNul,
        "text ends at a NUL",
        "any text comes back as it was",
    ),
    (
        Fault::ScanWrongOrder,
        "a scan is in the order of a dictionary",
        "scan is ordered by bytes",
    ),
    (
        Fault::ScanSkipsAtCursor,
        "a scan skips the record at its cursor",
        "scan walks on by its cursor",
    ),
    (
        Fault::ScanLosesCursor,
        "a scan gives no cursor",
        "scan walks on by its cursor",
    ),
    (
        Fault::ScanTakesEnd,
        "a scan takes its end",
        "scan takes its start and leaves out its end",
    ),
    (
        Fault::ScanLosesStart,
        "a scan leaves out its start",
        "scan takes its start and leaves out its end",
    ),
    (
        Fault::ScanReverseTakesEnd,
        "a scan back takes its end",
        "scan walks back by its cursor",
    ),
    (
        Fault::PageOverLimit,
        "a page has one too many",
        "reading takes at most its limit",
    ),
    (
        Fault::PageOverBytes,
        "a page is not bounded by bytes",
        "scan fills a page by bytes",
    ),
    (
        Fault::LogAfterStart,
        "a log is read behind its start",
        "reading up begins where it is told",
    ),
    (
        Fault::LogDownFromZero,
        "a log is not read down from its newest",
        "reading down begins where it is told",
    ),
    (
        Fault::LogsAreOne,
        "two logs of one partition are one",
        "every log keeps entries",
    ),
    (
        Fault::AppendAnywhere,
        "an append at a wrong position is put right",
        "an append at another position is corrupt",
    ),
    (
        Fault::TrimsTooMuch,
        "trim removes the lowest that stays",
        "trim keeps positions",
    ),
    (
        Fault::TrimsTooLittle,
        "trim leaves the highest that goes",
        "trim keeps positions",
    ),
    (
        Fault::TrimIgnored,
        "trim does nothing",
        "a log that was trimmed whole is as new",
    ),
    (
        Fault::ChecksIgnored,
        "checks are ignored",
        "a failed check stops every other operation",
    ),
    (
        Fault::AbsentIsAny,
        "absent is taken for anything",
        "put where something is conflicts",
    ),
    (
        Fault::VersionIsAny,
        "a version is taken for anything",
        "put at an old version conflicts",
    ),
    (
        Fault::VersionNotCounted,
        "the same text is not a new version",
        "put of the same text is a new version",
    ),
    (
        Fault::DeleteIgnored,
        "delete leaves the record",
        "delete removes one record",
    ),
    (
        Fault::DeletesPrefix,
        "delete takes what begins alike with it",
        "delete removes one record",
    ),
    (
        Fault::HalfOfRefused,
        "what is refused is half applied",
        "a failed last condition stops what came before",
    ),
    (
        Fault::NoTransaction,
        "operations are applied one by one",
        "a get of two records is one snapshot",
    ),
    (
        Fault::LostUpdates,
        "conditions are looked at before they are needed",
        "threads that guard one record lose nothing",
    ),
    (
        Fault::ConflictStale,
        "a conflict finds what was there before",
        "put at an old version conflicts",
    ),
    (
        Fault::ConflictEarly,
        "a conflict is answered before what it found is written",
        "threads that guard one record lose nothing",
    ),
    (
        Fault::ConflictFindsNothing,
        "a conflict finds nothing",
        "a conflict finds every condition in order",
    ),
    (
        Fault::ConflictFindsAll,
        "a conflict finds what had no condition",
        "a conflict does not find what had no condition",
    ),
    (
        Fault::ConflictUnbounded,
        "what a conflict finds is not bounded by bytes",
        "a conflict leaves out what is more than 4 MiB",
    ),
    (
        Fault::CorruptBeforeConflict,
        "positions are looked at before conditions",
        "a conflict comes before a position that does not fit",
    ),
    (
        Fault::QuotaIgnored,
        "the quota is ignored",
        "a byte more than the quota is refused",
    ),
    (
        Fault::QuotaBeforeConflict,
        "the quota is looked at before conditions",
        "a conflict comes before the quota",
    ),
    (
        Fault::MarginForAll,
        "the closing margin is everybody's",
        "a closing commit fills the margin and no more",
    ),
    (
        Fault::MarginForNobody,
        "the closing margin is nobody's",
        "a closing commit fills the margin and no more",
    ),
    (
        Fault::KeyLimitLax,
        "a name may be a byte too long",
        "a name of 513 bytes does not fit any operation",
    ),
    (
        Fault::KeyLimitTight,
        "the longest name is refused",
        "a name of 512 bytes fits",
    ),
    (
        Fault::ValueLimitLax,
        "a value that is too long is cut",
        "a value of 1 MiB and a byte does not fit",
    ),
    (
        Fault::OperationsLimitTight,
        "1,024 operations are refused",
        "1,024 operations fit",
    ),
    (
        Fault::TwiceNamedTaken,
        "a second operation on a record is dropped",
        "a key named twice is refused",
    ),
    (
        Fault::ForgetsLast,
        "the last commit is not durable",
        "the last commit before closing is there when it is opened again",
    ),
    (
        Fault::OpeningsApart,
        "each opening is a store of its own",
        "two openings see each other's commits",
    ),
];

/// The place of a broken store. The journal holds acknowledged commits, for the faults of opening
/// it again.
pub(super) struct BrokenHome {
    fault: Fault,
    quota: Option<Quota>,
    kept: Arc<MemoryStore>,
    opened: Mutex<Weak<MemoryStore>>,
    behind: Arc<MemoryStore>,
    journal: Arc<Mutex<Vec<Vec<Op>>>>,
}

impl BrokenHome {
    pub(super) fn new(fault: Fault, quota: Option<Quota>) -> Self {
        let quota = quota.filter(|_| fault != Fault::QuotaIgnored);
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

impl Home for BrokenHome {
    fn open(&self) -> Arc<dyn Storage> {
        let inner = match self.fault {
            Fault::ForgetsLast => self.without_last(),
            Fault::OpeningsApart => Arc::new(memory(self.quota)),
            _ => Arc::clone(&self.kept),
        };
        let (behind, journal) = (Arc::clone(&self.behind), Arc::clone(&self.journal));
        Arc::new(Broken::new(self.fault, inner, behind, journal))
    }
}

fn memory(quota: Option<Quota>) -> MemoryStore {
    quota.map_or_else(MemoryStore::new, MemoryStore::with_quota)
}

/// Tries of a case that needs threads to meet: on a busy machine they sometimes do not.
const TRIES_MAX: usize = 50;

/// Returns the cases that find a fault, including the case that must.
fn found(fault: Fault, case: &str) -> Vec<&'static str> {
    let home = |quota| Box::new(BrokenHome::new(fault, quota)) as Box<dyn Home>;
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
    let healthy = |quota| Box::new(BrokenHome::new(Fault::None, quota)) as Box<dyn Home>;
    assert_eq!(failing(&healthy, |_| true), Vec::<&str>::new(), "no fault");
    let known: Vec<&str> = cases().iter().map(|case| case.name).collect();
    let (mut table, mut missed) = (String::new(), Vec::new());
    for (fault, words, case) in FAULTS {
        assert!(known.contains(case), "there is no case {case:?}");
        let found = found(*fault, case);
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
