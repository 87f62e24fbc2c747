//! One writer: the store's commit, and a whole step, beside the same rows by hand.

use super::raw::RawRun;
use super::{Durability, StoreRun, median, micros, open, rows};
use std::time::{Duration, Instant};

/// Steps before the clock counts.
const WARM_STEPS: usize = 50;

/// Print the medians of `steps` steps each.
pub fn compare(durability: Durability, steps: usize) {
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
    let over = |whole: Duration| whole.as_secs_f64() / raw.as_secs_f64();
    println!(
        "one writer, {durability:?}: raw SQL {:>9}, commit {:>9} = {:.2}, get {:>8}, get and commit {:.2} of raw SQL",
        micros(raw),
        micros(commit),
        over(commit),
        micros(get),
        over(get + commit),
    );
}

fn time(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}
