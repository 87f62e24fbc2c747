//! `cargo xtask soak`: the tests whose worth grows with their length, run longer than
//! `cargo xtask test` runs them.

use crate::{component, process, setup, test};
use anyhow::{Context, Result, bail};

/// Repetitions of a soak, as a multiple of those of an ordinary test run.
const FACTOR: u32 = 10;

/// The tests that repeat what they do as often as they are asked to.
const TESTS: [&str; 7] = [
    "children::bad_trees::unreadable_thread_affects_no_other",
    "children::kills::a_tree_whose_process_is_killed_again_and_again_is_completed",
    "children::random_trees::trees_stay_sound_and_come_to_their_end",
    "conformance::byte_count::count_is_exact_after_kills",
    "conformance::differential::memory_and_sqlite_answer_alike",
    "crash::kills::real_kills_lose_nothing",
    "the_books_say_the_same_after_every_request_and_every_outcome_occurs",
];

/// Runs [`TESTS`] with their output; the argument is the factor.
pub fn run(arguments: &[String]) -> Result<()> {
    let factor = match arguments {
        [] => FACTOR,
        [factor] => factor.parse().context("the factor is a whole number")?,
        _ => bail!("usage: cargo xtask soak [factor]"),
    };
    if factor == 0 {
        bail!("the factor is at least 1");
    }
    setup::run()?;
    component::run()?;
    let mut cargo = process::locked_cargo("test");
    cargo
        .args(["--workspace", "--test", "it", "--test", "ledger"])
        .args(["--", "--exact", "--nocapture"])
        .args(TESTS)
        .env("THREADKEEP_SOAK", factor.to_string());
    let passed = test::run_counted(&mut cargo)?;
    // One that was renamed is met by no filter.
    if passed != TESTS.len() {
        bail!("{passed} of {} tests ran", TESTS.len());
    }
    Ok(())
}
