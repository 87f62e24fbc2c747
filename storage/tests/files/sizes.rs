//! The files and bytes that a long history takes, and what opening it reads.

use super::failing_directory::{DirectoryCounts, FailingDirectory, PlannedFailure};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use threadkeep_storage::directory::PreopenedDirectory;
use threadkeep_storage::files::{FilesOptions, FilesStore};
use threadkeep_storage::{CommitOp, RecordExpectation, RecordKey, StorageBackend};

fn open(place: &Path) -> (FilesStore, Arc<DirectoryCounts>) {
    let options = FilesOptions {
        writer: "w".to_owned(),
        durable: false,
        quota: None,
    };
    let directory = Box::new(PreopenedDirectory::new(place));
    let (directory, counts) = FailingDirectory::new(directory, PlannedFailure::Never);
    (FilesStore::open(directory, options).unwrap(), counts)
}

/// A turn of one of twenty threads: its head, its chain and an entry.
fn append_turn(store: &FilesStore, n: u64) -> u64 {
    let (thread, at) = (n % 20, n / 20 + 1);
    let expect = match at {
        1 => RecordExpectation::Absent,
        at => RecordExpectation::Version(at - 1),
    };
    let put = |collection: &str, bytes: usize| CommitOp::Put {
        key: RecordKey::new(collection, format!("thread {thread}")),
        expect,
        value: format!("{n:08}").repeat(bytes / 8),
    };
    let ops = [
        put("head", 1_000),
        put("chain", 500),
        CommitOp::Append {
            log: "history".to_owned(),
            partition: format!("thread {thread}"),
            at,
            value: format!("{n:08}").repeat(100),
        },
    ];
    store.commit(&ops, false).unwrap();
    1_000 + 500 + 800 + 3 * 60
}

#[test]
fn a_long_history_takes_few_files_and_three_times_its_bytes() {
    let count = std::env::var("THREADKEEP_ENTRIES").ok();
    let count: u64 = count.and_then(|text| text.parse().ok()).unwrap_or(3_000);
    let place = tempfile::tempdir().unwrap();
    let (store, counts) = open(place.path());
    let mut bytes = 0;
    let mut files_most = 0;
    for n in 0..count {
        bytes += append_turn(&store, n);
        if n % 100 == 99 {
            files_most = files_most.max(std::fs::read_dir(place.path()).unwrap().count());
        }
    }
    assert_eq!(store.packing_failure(), None);
    let usage = store.usage();
    drop(store);
    let written = counts.bytes_written.load(Ordering::Relaxed);
    // Most that 100,000 entries may take; a shorter history has fewer segments.
    let most = 1_000.min(count as usize / 256 + 600);
    assert!(files_most <= most, "{files_most} files, at most {most}");
    let kept: u64 = std::fs::read_dir(place.path())
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    let began = Instant::now();
    let (opened, counts) = open(place.path());
    let took = began.elapsed();
    let reads = counts.operations.load(Ordering::Relaxed);
    let read = counts.bytes_read.load(Ordering::Relaxed);
    println!(
        "{count} entries, {bytes} bytes of commits: {written} bytes written, {kept} kept in \
         {files_most} files at most, {usage:?}; opened in {took:?} by {reads} operations, {read} \
         bytes read"
    );
    assert!(written <= 3 * bytes, "{written} bytes written");
    let newest = opened.read_log("history", "thread 0", 0, 1, true).unwrap();
    assert_eq!(newest[0].position, count.div_ceil(20));
    assert_eq!(opened.usage().commits, count);
    // Places in memory: runs in segments, and the entries of commits that are not packed.
    assert!(
        usage.places < 20 * usage.segments + 2 * 256 + 1,
        "{usage:?}"
    );
    // Segments since the newest snapshot, and commits that are in none.
    assert!(
        reads < 8 * (usage.segments + usage.loose) + 100,
        "{reads} operations"
    );
}
