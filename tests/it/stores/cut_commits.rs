//! After a commit was cut, and beside other writers and readers, a store holds what was
//! acknowledged, and SQLite by itself reads it.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;
use threadkeep::storage::sqlite::SqliteStore;
use threadkeep::storage::{
    CommitOp, CommitOutcome, RecordExpectation, RecordKey, StorageBackend, StorageError,
};

use super::{FILE, append, code, commit, dir, get, open, options, put_op};

/// The name of a record that holds how often its store was committed to.
const COUNT: &str = "count";
/// Bytes of an entry: with what else changes, a commit takes several pages.
const ENTRY_BYTES: usize = 3_000;
/// Bytes of the header of a page in the log.
const FRAME_HEADER_BYTES: usize = 24;

/// The commit of this number: the record, and an entry of the same number.
fn make_numbered_ops(number: u64) -> [CommitOp; 2] {
    let value = number.to_string();
    let entry = format!("{number} {}", "e".repeat(ENTRY_BYTES));
    [put_op(COUNT, &value), append("p", number, &entry)]
}

/// Copies a store as a death at this moment leaves it, with so many bytes of its log.
fn copy_store(path: &Path, log_bytes: Option<usize>) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    let log = format!("{FILE}-wal");
    std::fs::copy(path.join(FILE), copy.path().join(FILE)).unwrap();
    let bytes = std::fs::read(path.join(&log)).unwrap();
    let kept = log_bytes.unwrap_or(bytes.len());
    std::fs::write(copy.path().join(&log), &bytes[..kept]).unwrap();
    copy
}

/// The number of the last commit in a store, as SQLite by itself reads it, with its own VFS. Record
/// and entries agree, and the file is sound.
fn read_by_stock_sqlite(path: &Path) -> u64 {
    let stock = rusqlite::Connection::open(path.join(FILE)).unwrap();
    let sound: String = stock
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(sound, "ok");
    read_number(&stock)
}

fn read_number(stock: &rusqlite::Connection) -> u64 {
    let sql = "SELECT CAST(value AS INTEGER), (SELECT count(*) FROM entry), \
               (SELECT max(id & 4294967295) FROM entry), \
               (SELECT min(length(value)) FROM entry) FROM record_head WHERE name = 'count'";
    let numbers = |row: &rusqlite::Row<'_>| {
        Ok([0, 1, 2, 3].map(|column| row.get::<_, i64>(column).unwrap() as u64))
    };
    let [number, entries, last, shortest] = stock.query_row(sql, [], numbers).unwrap();
    assert_eq!((entries, last), (number, number));
    assert!(shortest > ENTRY_BYTES as u64);
    number
}

/// A death while the log is written, or a loss of power that keeps its beginning: the commit is
/// there once all of its bytes are, and before that the one before it.
#[test]
fn a_commit_that_was_cut_is_none() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    for number in 1..=5 {
        commit(&store, &make_numbered_ops(number));
    }
    let log = temp.path().join(format!("{FILE}-wal"));
    let bytes = || std::fs::metadata(&log).unwrap().len() as usize;
    let begin = bytes();
    commit(&store, &make_numbered_ops(6));
    let end = bytes();
    assert!(end - begin > 3 * 4_096, "{begin} to {end}");
    // Within each page, and at each byte of the last page's header, which marks the commit.
    let last_frame = end - 4_096 - FRAME_HEADER_BYTES;
    let cuts = (begin..end).step_by(211);
    let cuts = cuts.chain(last_frame..=end - 4_096).chain([end - 1, end]);
    for cut in cuts {
        let copy = copy_store(temp.path(), Some(cut));
        let expected = if cut == end { 6 } else { 5 };
        assert_eq!(
            read_by_stock_sqlite(copy.path()),
            expected,
            "{cut} of {end}"
        );
        // Ours goes on from there.
        commit(&open(copy.path()), &make_numbered_ops(expected + 1));
        assert_eq!(read_by_stock_sqlite(copy.path()), expected + 1);
    }
}

/// Adds one to a counted record, `times` times, however many others do so.
fn add_counts(store: &SqliteStore, times: u64) {
    let mut done = 0;
    while done < times {
        let found = store.get(&[RecordKey::new("head", COUNT)]).unwrap();
        let (version, number) = match found.first() {
            Some(item) => (item.version, item.value.parse::<u64>().unwrap() + 1),
            None => (0, 1),
        };
        let [_, entry] = make_numbered_ops(number);
        let put = CommitOp::Put {
            key: RecordKey::new("head", COUNT),
            expect: match version {
                0 => RecordExpectation::Absent,
                version => RecordExpectation::Version(version),
            },
            value: number.to_string(),
        };
        match store.commit(&[put, entry], false) {
            Ok(CommitOutcome::Committed) => done += 1,
            Ok(CommitOutcome::Conflict) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Commits of each of the writers of [`writers_and_readers_beside_each_other_see_whole_commits`].
const COUNTS: u64 = 300;

/// In another process: adds to the record of a store.
pub(super) fn add_counts_at(path: &Path) {
    add_counts(&open(path), COUNTS);
}

/// Two connections of this process and another process write in turn, so that each continues a log
/// whose end another one wrote, while SQLite by itself reads.
#[test]
fn writers_and_readers_beside_each_other_see_whole_commits() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path();
    let (one, other) = (open(path), open(path));
    add_counts(&one, 1);
    let ended = AtomicBool::new(false);
    let reads = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let stock = rusqlite::Connection::open(path.join(FILE)).unwrap();
            stock
                .busy_timeout(std::time::Duration::from_secs(9))
                .unwrap();
            let (mut last, mut reads) = (1, 0);
            while !ended.load(Ordering::Relaxed) {
                let number = read_number(&stock);
                assert!(number >= last, "{number} after {last}");
                reads += u64::from(number > last);
                last = number;
            }
            reads
        });
        let writers = [&one, &other].map(|store| scope.spawn(|| add_counts(store, COUNTS)));
        super::lazy::run_in_child("count", path, None);
        for writer in writers {
            writer.join().unwrap();
        }
        ended.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    assert!(reads > 3, "{reads} reads of something new");
    let all = 1 + 3 * COUNTS;
    assert_eq!(get(&one, COUNT), Ok(Some(all.to_string())));
    assert_eq!(read_by_stock_sqlite(copy_store(path, None).path()), all);
    drop((one, other));
    assert_eq!(read_by_stock_sqlite(path), all);
}

/// Mounts a small disk at `$PLACE`, in a namespace of its own, and runs the child there.
const ON_SMALL_DISK: &str = r#"
mount -t tmpfs -o size=2m none "$PLACE" || exit 77
exec "$TEST" stores::lazy::child --exact --nocapture
"#;

/// Exit codes where no disk can be mounted: of `unshare`, and of `mount`.
const NO_DISK: [i32; 2] = [1, 77];

#[test]
fn a_disk_that_fills_up_within_a_commit_costs_that_commit_alone() {
    let temp = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c"])
        .arg(ON_SMALL_DISK)
        .env("PLACE", temp.path())
        .env("TEST", std::env::current_exe().unwrap())
        .env(
            super::lazy::VARIABLE,
            format!("full:{}", temp.path().display()),
        )
        .output();
    match output {
        Ok(output)
            if output
                .status
                .code()
                .is_none_or(|code| !NO_DISK.contains(&code)) =>
        {
            let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(
                output.status.success() && stdout.contains("full 24"),
                "{stdout}{stderr}"
            );
        }
        _ => println!("skipped: a disk of its own (unshare, mount) cannot be made here"),
    }
}

/// On a small disk: fills it but for `pages` pages of 4,096 bytes.
fn fill_disk(filler: &Path, pages: u64) {
    let full = std::fs::write(filler, vec![0; 4 << 20]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(filler)
        .unwrap();
    let bytes = file.metadata().unwrap().len() / 4_096 * 4_096;
    file.set_len(bytes - pages * 4_096).unwrap();
}

/// On a small disk: commits until it is full, which happens at each place of a commit's pages, and
/// goes on once there is room.
pub(super) fn fill_disk_while_committing(path: &Path) {
    let filler = path.join("filler");
    let mut number = 0;
    let mut rounds = 0;
    for round in 0..24 {
        // A store that is opened anew begins with an empty log, which grows.
        let store = SqliteStore::open(&dir(path), FILE, options()).unwrap();
        if number == 0 {
            number = 1;
            commit(&store, &make_numbered_ops(number));
        }
        fill_disk(&filler, round);
        let refused: Result<_, StorageError> = loop {
            match store.commit(&make_numbered_ops(number + 1), false) {
                Ok(CommitOutcome::Committed) => number += 1,
                refused => break refused,
            }
        };
        assert_eq!(code(&refused), "unavailable", "{refused:?}");
        assert_eq!(get(&store, COUNT), Ok(Some(number.to_string())));
        assert_eq!(read_by_stock_sqlite(copy_store(path, None).path()), number);
        std::fs::remove_file(&filler).unwrap();
        number += 1;
        commit(&store, &make_numbered_ops(number));
        assert_eq!(read_by_stock_sqlite(copy_store(path, None).path()), number);
        rounds += 1;
        if round % 2 == 0 {
            drop(store);
            assert_eq!(read_by_stock_sqlite(path), number);
        }
    }
    // A full disk has no room for what readers share, either.
    fill_disk(&filler, 0);
    let opened = SqliteStore::open(&dir(path), FILE, options());
    let read = opened.and_then(|store| store.get(&[RecordKey::new("head", COUNT)]));
    let refusal = read.unwrap_err().to_string();
    assert!(
        refusal.contains("the disk is full: free space"),
        "{refusal}"
    );
    std::fs::remove_file(&filler).unwrap();
    assert_eq!(get(&open(path), COUNT), Ok(Some(number.to_string())));
    println!("\nfull {rounds}");
}
