//! One suite over every store, written from `wit/storage.wit`: whoever keeps the contract passes, however they do it.
//!
//! The cases are in `suite`, by name. That they find what they are for is shown by broken stores, each of which fails by
//! name. What only one backend can do wrong is in a file of its own.

mod broken;
mod commits;
mod coverage;
mod differential;
mod fixture;
mod limits;
mod logs;
mod openings;
mod processes;
mod quotas;
mod random;
mod reads;
mod remote;
mod sqlite;
mod suite;
mod together;
mod views;

use fixture::SqliteFixture;
use suite::{MemoryHome, NewHome, cases, failing};

/// Fewer than this, and somebody has lost a file of cases.
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

#[test]
fn sqlite_keeps_the_contract() {
    check_all(&|quota| Box::new(SqliteFixture::with_quota(quota)));
}
