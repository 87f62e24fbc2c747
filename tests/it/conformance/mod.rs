//! One suite over every store, written from `wit/storage.wit`: every store that keeps the contract
//! passes, whatever its implementation.
//!
//! The cases are in `suite`, by name. Broken stores show that each case finds its fault: each of
//! them fails by name. Faults that only one backend can have are in a file of its own.

mod broken_stores;
mod budget_view;
mod byte_count;
mod commits;
mod concurrency;
mod coverage;
mod differential;
mod fixture;
#[path = "../../../examples/embedder/src/bin/own/store.rs"]
mod guide_store;
mod limits;
mod logs;
mod openings;
mod processes;
mod quotas;
mod random_operations;
mod reads;
mod sqlite;
mod suite;
mod threads_view;
mod two_processes;

use fixture::{FilesFixture, LazyFixture, SqliteFixture};
use std::sync::Arc;
use suite::{MemoryHome, NewHome, StoreHome, cases, failing};
use threadkeep::storage::StorageBackend;
use threadkeep::storage::sqlite::{StorePool, StorePoolOptions};

/// A smaller number means that a file of cases was lost.
const CASES_MIN: usize = 135;

#[track_caller]
fn check_all(new_home: NewHome<'_>) {
    let (failed, count) = (failing(new_home, |_| true), cases().len());
    assert!(
        failed.is_empty(),
        "{} of {count} cases failed: {failed:#?}",
        failed.len(),
    );
    println!("{count} cases");
}

#[test]
fn names_of_cases_are_unique() {
    let mut names: Vec<&str> = cases().iter().map(|case| case.name).collect();
    let count = names.len();
    assert!(count >= CASES_MIN, "only {count} cases");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn memory_keeps_the_contract() {
    check_all(&|quota| Box::new(MemoryHome::new(quota)));
}

/// The whole suite once more, with each call in the other of two processes.
#[test]
fn two_processes_keep_the_contract() {
    let servers = processes::servers();
    check_all(&|quota| servers.home(quota));
}

/// The store that docs/embedding.md shows. It has no quota; every other case must pass.
#[test]
fn the_store_of_the_guide_keeps_the_contract() {
    let cases = cases();
    let plain = cases.iter().filter(|case| case.quota.is_none());
    let names: Vec<&str> = plain.map(|case| case.name).collect();
    let new_home = |_| -> Box<dyn StoreHome> { Box::new(GuideHome(Arc::default())) };
    let failed = failing(&new_home, |name| names.contains(&name));
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(names.len() > 100, "only {} cases", names.len());
}

struct GuideHome(Arc<guide_store::MapStore>);

impl StoreHome for GuideHome {
    fn open(&self) -> Arc<dyn StorageBackend> {
        Arc::<guide_store::MapStore>::clone(&self.0)
    }
}

#[test]
fn sqlite_keeps_the_contract() {
    check_all(&|quota| Box::new(SqliteFixture::with_quota(quota)));
}

#[test]
fn files_keep_the_contract() {
    check_all(&|quota| Box::new(FilesFixture::with_quota(quota)));
}

#[test]
fn stores_that_open_on_first_use_keep_the_contract() {
    let stores = StorePool::new(StorePoolOptions::service());
    check_all(&|quota| Box::new(LazyFixture::new(&stores, quota)));
    stores.close_idle();
    assert_eq!(stores.open_count(), 0);
}
