//! One suite over every store, written from `wit/storage.wit`: whoever keeps the contract passes, however they do it.
//!
//! A case gets a new store of its own. Cases of a quota say with which quota they want it. What only one backend can
//! do wrong is in a file of its own.

mod commits;
mod differential;
mod fixture;
mod limits;
mod logs;
mod processes;
mod quotas;
mod reads;
mod sqlite;
mod together;
mod views;

use std::panic::{AssertUnwindSafe, catch_unwind};

use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{Quota, Storage};

use fixture::SqliteFixture;

/// What a case does with its store.
type Case = fn(&dyn Storage);

/// Every case that needs no quota, by file.
const CASES: &[&[(&str, Case)]] = &[
    reads::CASES,
    commits::CASES,
    logs::CASES,
    limits::CASES,
    together::CASES,
];

/// Fewer than this, and somebody has lost a file of cases.
const CASES_MIN: usize = 60;

/// Runs each case on a store that `with_store` makes, and names all that fail.
fn check_all(with_store: &dyn Fn(Option<Quota>, Case)) {
    let plain = CASES
        .iter()
        .flat_map(|cases| cases.iter())
        .map(|(name, case)| (*name, None, *case));
    let quotas = quotas::CASES
        .iter()
        .map(|(name, quota, case)| (*name, Some(*quota), *case));
    let cases: Vec<(&str, Option<Quota>, Case)> = plain.chain(quotas).collect();
    assert!(cases.len() >= CASES_MIN, "only {} cases", cases.len());
    let fails = |(name, quota, case): &(&'static str, Option<Quota>, Case)| {
        catch_unwind(AssertUnwindSafe(|| with_store(*quota, *case)))
            .is_err()
            .then_some(*name)
    };
    let failed: Vec<&str> = cases.iter().filter_map(fails).collect();
    assert!(
        failed.is_empty(),
        "{} of {} cases failed: {failed:#?}",
        failed.len(),
        cases.len()
    );
    println!("{} cases", cases.len());
}

#[test]
fn names_of_cases_are_unique() {
    let mut names: Vec<&str> = CASES
        .iter()
        .flat_map(|cases| cases.iter())
        .map(|(name, _)| *name)
        .collect();
    names.extend(quotas::CASES.iter().map(|(name, ..)| *name));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn memory_keeps_the_contract() {
    check_all(&|quota, case| match quota {
        Some(quota) => case(&MemoryStore::with_quota(quota)),
        None => case(&MemoryStore::new()),
    });
}

#[test]
fn sqlite_keeps_the_contract() {
    check_all(&|quota, case| {
        let fixture = SqliteFixture::new();
        case(&fixture.open_with(quota));
    });
}
