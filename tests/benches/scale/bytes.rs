//! Bytes on disk of entries of 1 to 3 KB, compared with the best table that SQLite has for them.

use super::size::{BenchSize, store};
use rusqlite::{Connection, params};
use std::path::Path;
use threadkeep::storage::CommitOp;

/// Threads that the entries belong to.
const THREADS: usize = 50;
/// Entries of one commit: some of each of several threads, as they come when many run.
const ENTRIES_PER_COMMIT: usize = 25;
const SCHEMA: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
    CREATE TABLE entry (id INTEGER PRIMARY KEY, value TEXT NOT NULL) STRICT;";

/// Prints both sizes.
pub fn compare(size: BenchSize) {
    let count = size.scale_count(500_000);
    let folder = tempfile::tempdir().expect("a folder");
    fill_store(folder.path(), count);
    fill_raw(&folder.path().join("raw.db"), count);
    let bytes = |name: &str| {
        let found = folder.path().join(name).metadata();
        found.expect("a file").len()
    };
    let payload: u64 = (0..count).map(|place| text(place).len() as u64).sum();
    let (ours, raw) = (bytes("bench.db"), bytes("raw.db"));
    let each = |bytes: u64| bytes as f64 / count as f64;
    println!("bytes on disk of {count} entries of 1 to 3 KB in {THREADS} threads, each");
    println!(
        "  text {:.0}   best native table {:.0}   ours {:.0}   ours/native {:.3}   goal at most \
         1.15",
        each(payload),
        each(raw),
        each(ours),
        ours as f64 / raw as f64
    );
}

/// Returns a text of 1,000 to 3,000 bytes.
fn text(place: usize) -> String {
    let bytes = 1_000 + place * 7_919 % 2_001;
    let mut text = format!("{{\"n\":{place},\"text\":\"");
    while text.len() < bytes - 2 {
        text.push(char::from(b'a' + (text.len() * 31 + place) as u8 % 26));
    }
    text.push_str("\"}");
    text
}

/// Returns the thread of an entry, and its position there.
fn thread_and_position(place: usize) -> (usize, usize) {
    (place % THREADS, place / THREADS + 1)
}

fn fill_store(folder: &Path, count: usize) {
    let store = store(folder);
    let places: Vec<usize> = (0..count).collect();
    for some in places.chunks(ENTRIES_PER_COMMIT) {
        let ops: Vec<CommitOp> = some
            .iter()
            .map(|place| {
                let (thread, at) = thread_and_position(*place);
                CommitOp::Append {
                    log: "history".to_owned(),
                    partition: format!("bench/thread-{thread}"),
                    at: at as u64,
                    value: text(*place),
                }
            })
            .collect();
        store.commit(&ops, false).expect("committed");
    }
}

fn fill_raw(path: &Path, count: usize) {
    let mut connection = Connection::open(path).expect("a database");
    connection.execute_batch(SCHEMA).expect("a schema");
    let places: Vec<usize> = (0..count).collect();
    for some in places.chunks(ENTRIES_PER_COMMIT) {
        let commit = connection.transaction().expect("a transaction");
        for place in some {
            let (thread, at) = thread_and_position(*place);
            commit
                .prepare_cached("INSERT INTO entry (id, value) VALUES (?1, ?2)")
                .and_then(|mut insert| {
                    insert.execute(params![((thread as i64) << 32) | at as i64, text(*place)])
                })
                .expect("inserted");
        }
        commit.commit().expect("committed");
    }
}
