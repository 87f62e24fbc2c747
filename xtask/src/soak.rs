//! `cargo xtask soak`: the tests whose worth grows with their length, run longer than
//! `cargo xtask test` runs them.

use crate::{component, process, setup, test};
use anyhow::{Context, Result, bail};

/// Repetitions of a soak, as a multiple of those of an ordinary test run.
const FACTOR: u32 = 10;

/// Random schedules of writers of the store of plain files.
const SCHEDULES: &str = "40000";
/// Entries of the store of plain files whose size is measured: as many as it is made for.
const ENTRIES: &str = "100000";

/// The tests that repeat what they do as often as they are asked to.
const TESTS: [&str; 13] = [
    "children::bad_trees::unreadable_thread_affects_no_other",
    "children::kills::a_tree_whose_process_is_killed_again_and_again_is_completed",
    "children::random_trees::trees_stay_sound_and_come_to_their_end",
    "conformance::byte_count::count_is_exact_after_kills",
    "conformance::differential::memory_and_files_answer_alike",
    "conformance::differential::memory_and_sqlite_answer_alike",
    "crash::kills::real_kills_lose_nothing",
    "crash::kills::real_kills_lose_nothing_in_plain_files",
    "processes::a_process_that_is_killed_again_and_again_loses_nothing",
    "processes::processes_that_append_at_once_lose_and_double_nothing",
    "schedules::nothing_is_lost_or_doubled_under_any_schedule",
    "sizes::a_long_history_takes_few_files_and_three_times_its_bytes",
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
    component::build()?;
    let mut cargo = process::locked_cargo("test");
    cargo
        .args([
            "--workspace",
            "--test",
            "it",
            "--test",
            "ledger",
            "--test",
            "files",
        ])
        .args(["--", "--exact", "--nocapture"])
        .args(TESTS)
        .env("THREADKEEP_SOAK", factor.to_string())
        .env("THREADKEEP_SCHEDULES", SCHEDULES)
        .env("THREADKEEP_ENTRIES", ENTRIES);
    let passed = test::run_counted(&mut cargo)?;
    // One that was renamed is met by no filter.
    if passed != TESTS.len() {
        bail!("{passed} of {} tests ran", TESTS.len());
    }
    Ok(())
}
