//! A turn's commit in a store of a million entries, and in a thread of ten thousand, compared with
//! one in an empty store.

use super::figures::{median, micros, ratio};
use super::native::{NativeRun, rows, script};
use super::size::{BenchSize, store};
use super::world::BenchCandidate;
use std::sync::Arc;
use std::time::{Duration, Instant};
use threadkeep::storage::{CommitOp, StorageBackend};

/// Entries of each thread that fills the store.
const ENTRIES_PER_THREAD: usize = 1_000;
/// Entries of one commit while the store is filled.
const ENTRIES_PER_COMMIT: usize = 500;

/// Prints the three medians.
pub fn compare(size: BenchSize) {
    let (entries, own) = (size.scale_count(1_000_000), size.scale_count(10_000));
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let [empty, full] = [0, 1].map(|place: usize| store(folders[place].path()));
    fill(&full, entries);
    let mut long = NativeRun::start(&empty);
    for step in 0..own {
        time_step(&mut long, step);
    }
    let mut fresh = NativeRun::start(&empty);
    let mut crowded = NativeRun::start(&full);
    let mut times = [(); 3].map(|()| Vec::new());
    let (warm, steps) = (size.steps(40), size.steps(1_000));
    for step in 0..warm + steps {
        let runs = [&mut fresh, &mut crowded, &mut long];
        for turn in 0..runs.len() {
            let place = (step + turn) % runs.len();
            let taken = time_step(runs[place], step);
            if step >= warm {
                times[place].push(taken);
            }
        }
    }
    let [fresh, crowded, long] = times.map(|mut times| median(&mut times));
    println!("a turn's commit, median of each, SQLite NORMAL");
    println!("  {:44} {:>10}", "in an empty store", micros(fresh));
    for (what, time) in [
        (format!("in a store of {entries} entries"), crowded),
        (format!("in a thread of {own} entries"), long),
    ] {
        println!(
            "  {what:44} {:>10}   empty/this {}   goal at least 0.80",
            micros(time),
            ratio(fresh, time)
        );
    }
}

/// Performs one step and returns its duration.
fn time_step(run: &mut NativeRun, step: usize) -> Duration {
    let (blocks, content) = script(step);
    let begun = Instant::now();
    run.step(step, &blocks, &content);
    begun.elapsed()
}

/// Appends entries of other threads, each the text of a real one cut to about 700 bytes.
fn fill(store: &Arc<dyn StorageBackend>, entries: usize) {
    let mut model = NativeRun::start(store);
    let (blocks, content) = script(0);
    model.step(0, &blocks, &content);
    let [_, _, entry] = rows(store, &model);
    let text: String = entry.chars().take(700).collect();
    for first in (0..entries).step_by(ENTRIES_PER_COMMIT) {
        let ops: Vec<CommitOp> = (first..entries.min(first + ENTRIES_PER_COMMIT))
            .map(|place| CommitOp::Append {
                log: "history".to_owned(),
                partition: format!("filled-{}", place / ENTRIES_PER_THREAD),
                at: (place % ENTRIES_PER_THREAD) as u64 + 1,
                value: text.clone(),
            })
            .collect();
        store.commit(&ops, false).expect("committed");
    }
}
