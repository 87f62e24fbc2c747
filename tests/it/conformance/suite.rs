//! The suite as a library: every case by name, over any source of stores.
//!
//! A case gets a new place of its own. Most want one store in it; some open it several times, one
//! after the other or at once. Cases that need a quota say which.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{Quota, Storage};

use super::{commits, limits, logs, openings, quotas, reads, together};

/// The place of one store: every opening of it gives the same store.
pub(super) trait Home {
    fn open(&self) -> Arc<dyn Storage>;
}

/// Makes an empty place.
pub(super) type NewHome<'a> = &'a dyn Fn(Option<Quota>) -> Box<dyn Home>;

/// A case that uses one opened store.
pub(super) type Case = fn(&dyn Storage);

/// A case that opens its store itself.
pub(super) type HomeCase = fn(&dyn Home);

/// One case with its name and quota.
pub(super) struct Named {
    pub(super) name: &'static str,
    pub(super) quota: Option<Quota>,
    run: Run,
}

enum Run {
    Store(Case),
    Home(HomeCase),
}

impl Named {
    /// Runs the case in a new place; panics if the store does not keep the contract.
    pub(super) fn run(&self, new_home: NewHome<'_>) {
        let home = new_home(self.quota);
        match self.run {
            Run::Store(case) => case(&*home.open()),
            Run::Home(case) => case(&*home),
        }
    }
}

/// Every case.
pub(super) fn cases() -> Vec<Named> {
    let plain = [
        reads::CASES,
        commits::CASES,
        logs::CASES,
        limits::CASES,
        together::CASES,
    ];
    let plain = plain.into_iter().flatten().map(|(name, case)| Named {
        name,
        quota: None,
        run: Run::Store(*case),
    });
    let quotas = quotas::CASES.iter().map(|(name, quota, case)| Named {
        name,
        quota: Some(*quota),
        run: Run::Store(*case),
    });
    let openings = openings::CASES.iter().map(|(name, quota, case)| Named {
        name,
        quota: *quota,
        run: Run::Home(*case),
    });
    plain.chain(quotas).chain(openings).collect()
}

/// The names of the chosen cases that fail, in the order of the suite.
pub(super) fn failing(new_home: NewHome<'_>, chosen: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let fails = |case: &Named| catch_unwind(AssertUnwindSafe(|| case.run(new_home))).is_err();
    cases()
        .iter()
        .filter(|case| chosen(case.name) && fails(case))
        .map(|case| case.name)
        .collect()
}

/// A place of a store in memory, which every opening shares.
pub(super) struct MemoryHome(Arc<MemoryStore>);

impl MemoryHome {
    pub(super) fn new(quota: Option<Quota>) -> Self {
        Self(Arc::new(
            quota.map_or_else(MemoryStore::new, MemoryStore::with_quota),
        ))
    }
}

impl Home for MemoryHome {
    fn open(&self) -> Arc<dyn Storage> {
        Arc::<MemoryStore>::clone(&self.0)
    }
}
