//! Opening and closing an existing store, with one read and one commit, compared with a connection
//! that does the same.

use super::figures::{median, micros};
use super::raw::RawRun;
use super::{CommitDurability, StoreRun, open, rows};
use std::time::Instant;

/// Prints the medians of `steps` times each.
pub fn compare(steps: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    drop(open(folder.path(), CommitDurability::Normal));
    let (mut opens, mut uses, mut raws) = (Vec::new(), Vec::new(), Vec::new());
    for step in 1..=steps as u32 {
        let begun = Instant::now();
        drop(open(folder.path(), CommitDurability::Normal));
        opens.push(begun.elapsed());
        let begun = Instant::now();
        let store = open(folder.path(), CommitDurability::Normal);
        let mut run = StoreRun::start(&store, step);
        run.get();
        run.commit();
        drop(store);
        uses.push(begun.elapsed());
        let begun = Instant::now();
        let path = folder.path().join("raw.db");
        let mut run = RawRun::start(&path, CommitDurability::Normal, step, rows());
        run.commit().expect("committed");
        drop(run);
        raws.push(begun.elapsed());
    }
    println!(
        "open and close {}; open, get, commit, close {}; by hand {}",
        micros(median(&mut opens)),
        micros(median(&mut uses)),
        micros(median(&mut raws)),
    );
}
