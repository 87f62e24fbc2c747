//! Eight writers on their own threads: one store, which commits queued writes as one, compared with
//! eight connections that each commit.

use super::raw::RawRun;
use super::{CommitDurability, StoreRun, open, rows};
use std::path::Path;
use std::sync::Barrier;
use std::thread::scope;
use std::time::{Duration, Instant};

const WRITERS: u32 = 8;
/// Rounds of each side; sides alternate and the median counts.
const ROUNDS: usize = 3;

/// Prints the rate of the store as a multiple of that of eight connections, with `steps` commits of
/// each writer.
pub fn compare(durability: CommitDurability, steps: usize) {
    let mut ratios: Vec<f64> = Vec::new();
    let mut last = (0.0, 0.0, 0.0);
    for _ in 0..ROUNDS {
        let folder = tempfile::tempdir().expect("a folder");
        let alone = rate(steps, time_one_writer(folder.path(), durability, steps));
        let connections = rate(steps, time_connections(folder.path(), durability, steps));
        let store = rate(steps, time_store(folder.path(), durability, steps));
        ratios.push(store / connections);
        last = (alone, connections, store);
    }
    ratios.sort_by(f64::total_cmp);
    let (alone, connections, store) = last;
    println!(
        "{WRITERS} writers, {durability:?}: {WRITERS} connections {connections:.0}/s, one store \
         {store:.0}/s = {:.2} times \
         (goal 3 at Full); one writer of the store {:.0}/s",
        ratios[ratios.len() / 2],
        alone / f64::from(WRITERS),
    );
}

/// Returns the commits of all writers in a second.
fn rate(steps: usize, time: Duration) -> f64 {
    steps as f64 * f64::from(WRITERS) / time.as_secs_f64()
}

fn time_one_writer(folder: &Path, durability: CommitDurability, steps: usize) -> Duration {
    let folder = folder.join("alone");
    std::fs::create_dir(&folder).expect("a folder");
    let store = open(&folder, durability);
    let mut run = StoreRun::start(&store, 1);
    run.commit();
    let begun = Instant::now();
    (0..steps).for_each(|_| run.commit());
    begun.elapsed()
}

fn time_store(folder: &Path, durability: CommitDurability, steps: usize) -> Duration {
    let store = open(folder, durability);
    run_writers(
        |thread| StoreRun::start(&store, thread),
        |run| {
            for _ in 0..steps {
                run.get();
                run.commit();
            }
        },
    )
}

fn time_connections(folder: &Path, durability: CommitDurability, steps: usize) -> Duration {
    let path = folder.join("raw.db");
    run_writers(
        |thread| RawRun::start(&path, durability, thread, rows()),
        |run| (0..steps).for_each(|_| run.commit().expect("committed")),
    )
}

/// Prepares each writer in order, then lets all work at once.
fn run_writers<W: Send>(prepare: impl Fn(u32) -> W, work: impl Fn(&mut W) + Sync) -> Duration {
    let writers: Vec<W> = (1..=WRITERS).map(prepare).collect();
    let start = Barrier::new(WRITERS as usize + 1);
    scope(|scope| {
        let threads: Vec<_> = writers
            .into_iter()
            .map(|mut writer| {
                let (start, work) = (&start, &work);
                scope.spawn(move || {
                    start.wait();
                    work(&mut writer);
                })
            })
            .collect();
        start.wait();
        let begun = Instant::now();
        for thread in threads {
            thread.join().expect("no panic");
        }
        begun.elapsed()
    })
}
