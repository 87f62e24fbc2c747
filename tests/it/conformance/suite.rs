//! The suite as a library: every case by name, over any source of stores.
//!
//! A case gets a new place of its own. Most want one store in it; some open it several times, one
//! after the other or at once. Cases that need a quota say which.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{StorageBackend, StorageQuota};

use super::{commits, concurrency, limits, logs, openings, quotas, reads};

/// The place of one store: every opening of it gives the same store.
pub(super) trait StoreHome {
    fn open(&self) -> Arc<dyn StorageBackend>;
}

/// Makes an empty place.
pub(super) type NewHome<'a> = &'a dyn Fn(Option<StorageQuota>) -> Box<dyn StoreHome>;

/// A case that uses one opened store.
pub(super) type StoreCase = fn(&dyn StorageBackend);

/// A case that opens its store itself.
pub(super) type HomeCase = fn(&dyn StoreHome);

/// One case with its name and quota.
pub(super) struct NamedCase {
    pub(super) name: &'static str,
    pub(super) quota: Option<StorageQuota>,
    run: CaseRun,
}

enum CaseRun {
    Store(StoreCase),
    Home(HomeCase),
}

impl NamedCase {
    /// Runs the case in a new place; panics if the store does not keep the contract.
    pub(super) fn run(&self, new_home: NewHome<'_>) {
        let home = new_home(self.quota);
        match self.run {
            CaseRun::Store(case) => case(&*home.open()),
            CaseRun::Home(case) => case(&*home),
        }
    }
}

/// Every case.
pub(super) fn cases() -> Vec<NamedCase> {
    let plain = [
        reads::CASES,
        commits::CASES,
        logs::CASES,
        limits::CASES,
        concurrency::CASES,
    ];
    let plain = plain.into_iter().flatten().map(|(name, case)| NamedCase {
        name,
        quota: None,
        run: CaseRun::Store(*case),
    });
    let quotas = quotas::CASES.iter().map(|(name, quota, case)| NamedCase {
        name,
        quota: Some(*quota),
        run: CaseRun::Store(*case),
    });
    let openings = openings::CASES.iter().map(|(name, quota, case)| NamedCase {
        name,
        quota: *quota,
        run: CaseRun::Home(*case),
    });
    plain.chain(quotas).chain(openings).collect()
}

/// The names of the chosen cases that fail, in the order of the suite.
pub(super) fn failing(new_home: NewHome<'_>, chosen: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let fails = |case: &NamedCase| catch_unwind(AssertUnwindSafe(|| case.run(new_home))).is_err();
    cases()
        .iter()
        .filter(|case| chosen(case.name) && fails(case))
        .map(|case| case.name)
        .collect()
}

/// A place of a store in memory, which every opening shares.
pub(super) struct MemoryHome(Arc<MemoryStore>);

impl MemoryHome {
    pub(super) fn new(quota: Option<StorageQuota>) -> Self {
        Self(Arc::new(
            quota.map_or_else(MemoryStore::new, MemoryStore::with_quota),
        ))
    }
}

impl StoreHome for MemoryHome {
    fn open(&self) -> Arc<dyn StorageBackend> {
        Arc::<MemoryStore>::clone(&self.0)
    }
}
