//! One writer: the store's commit, and a whole step, compared with the same rows by hand.

use super::figures::{median, micros, ratio};
use super::raw::RawRun;
use super::{CommitDurability, StoreRun, open, rows};
use std::time::{Duration, Instant};

/// Steps before measuring begins.
const WARM_STEPS: usize = 50;

/// Prints the medians of `steps` steps each.
pub fn compare(durability: CommitDurability, steps: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path(), durability);
    let mut raw = RawRun::start(&folder.path().join("raw.db"), durability, 1, rows());
    let mut run = StoreRun::start(&store, 1);
    let (mut gets, mut commits, mut raws) = (Vec::new(), Vec::new(), Vec::new());
    for step in 0..WARM_STEPS + steps {
        let raw_first = step % 2 == 0;
        if raw_first {
            raws.push(time(|| raw.commit().expect("committed")));
        }
        gets.push(time(|| run.get()));
        commits.push(time(|| run.commit()));
        if !raw_first {
            raws.push(time(|| raw.commit().expect("committed")));
        }
    }
    let middle = |times: &mut Vec<Duration>| median(&mut times[WARM_STEPS..]);
    let (get, commit, raw) = (middle(&mut gets), middle(&mut commits), middle(&mut raws));
    println!(
        "one writer, {durability:?}: raw SQL {:>9}, commit {:>9} = {}, get {:>8}, get and commit \
         {} of raw SQL",
        micros(raw),
        micros(commit),
        ratio(commit, raw),
        micros(get),
        ratio(get + commit, raw),
    );
}

fn time(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}
