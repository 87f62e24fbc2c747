//! Files of older versions become files of the current one, with several openers and after a death
//! at any moment.

use super::{FILE, append, commit, get, open, put_op};
use rusqlite::Connection;
use std::path::Path;
use std::sync::Barrier;
use threadkeep::storage::sqlite::{SqliteOptions, SqliteStore};
use threadkeep::storage::{StorageBackend, StorageError};

/// Every migration, in order.
const MIGRATIONS: [&str; 5] = [
    include_str!("../../../host/src/storage/sqlite/schema/0001_records_and_logs.sql"),
    include_str!("../../../host/src/storage/sqlite/schema/0002_threads_view.sql"),
    include_str!("../../../host/src/storage/sqlite/schema/0003_usage_is_exact.sql"),
    include_str!("../../../host/src/storage/sqlite/schema/0004_budget_ledger_view.sql"),
    include_str!("../../../host/src/storage/sqlite/schema/0005_state_and_other_collections.sql"),
];

/// "Thkp" in ASCII.
const APPLICATION_ID: i32 = 0x5468_6b70;

/// Makes a file of the first version as its program left it: closed, with a record, a log and an
/// old count of bytes.
fn make_oldest_file(path: &Path) {
    let connection = Connection::open(path.join(FILE)).unwrap();
    let set_up = format!(
        "PRAGMA page_size = 4096; PRAGMA journal_mode = WAL; BEGIN; {} \
         PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1; COMMIT; \
         INSERT INTO record_head (name, version, value) VALUES ('a', 7, 'old'); \
         INSERT INTO usage (id, bytes) VALUES (1, 5); \
         INSERT INTO partition (id, log, name) VALUES (1, 'history', 'p'); \
         INSERT INTO entry (id, value) VALUES (4294967297, 'first')",
        MIGRATIONS[0]
    );
    connection.execute_batch(&set_up).unwrap();
}

fn version(path: &Path) -> i32 {
    let connection = Connection::open(path.join(FILE)).unwrap();
    connection
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .unwrap()
}

pub(super) fn schema(path: &Path) -> Vec<(String, String)> {
    let connection = Connection::open(path.join(FILE)).unwrap();
    let mut statement = connection
        .prepare("SELECT name, coalesce(sql, '') FROM sqlite_schema ORDER BY name")
        .unwrap();
    let rows = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    rows.map(Result::unwrap).collect()
}

/// Checks that the content of the oldest file is there, and that the store accepts commits.
#[track_caller]
fn check_migrated(path: &Path) {
    let store = open(path);
    assert_eq!(get(&store, "a"), Ok(Some("old".to_owned())));
    let lines = store.read_log("history", "p", 0, 10, false).unwrap();
    assert_eq!(lines.len(), 1);
    commit(&store, &[put_op("a", "new"), append("p", 2, "second")]);
    drop(store);
    assert_eq!(version(path), MIGRATIONS.len() as i32);
}

#[test]
fn the_oldest_file_becomes_as_a_new_one() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    make_oldest_file(old.path());
    assert_eq!(version(old.path()), 1);
    check_migrated(old.path());
    drop(open(new.path()));
    assert_eq!(schema(old.path()), schema(new.path()));
}

/// Older versions left an old count behind when they wrote without a quota.
#[test]
fn the_count_of_an_older_file_is_not_believed() {
    let temp = tempfile::tempdir().unwrap();
    make_oldest_file(temp.path());
    let options = SqliteOptions {
        quota_bytes: Some(1),
        closing_margin_bytes: 0,
        ..super::options()
    };
    let store = SqliteStore::open(&super::dir(temp.path()), FILE, options).unwrap();
    // A record, a log and its entry.
    let used = (64 + 1 + 3) + (64 + 1) + (16 + 5);
    let full = StorageError::QuotaExceeded { limit: 1, used };
    assert_eq!(store.commit(&[put_op("b", "")], false), Err(full));
}

#[test]
fn many_who_open_an_old_file_at_once_migrate_it_once() {
    const OPENERS: usize = 6;
    let temp = tempfile::tempdir().unwrap();
    make_oldest_file(temp.path());
    let start = Barrier::new(OPENERS + 2);
    std::thread::scope(|scope| {
        for _ in 0..OPENERS {
            scope.spawn(|| {
                start.wait();
                drop(open(temp.path()));
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                start.wait();
                super::lazy::run_in_child("open", temp.path(), None);
            });
        }
    });
    check_migrated(temp.path());
}

/// The files of a process that died before or after the end of the transaction.
#[test]
fn death_in_a_migration_leaves_the_old_or_the_new_file() {
    for committed in [false, true] {
        let (temp, crashed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        make_oldest_file(temp.path());
        let connection = Connection::open(temp.path().join(FILE)).unwrap();
        // A cache so small that pages of the transaction are in the log before it ends.
        let migrate = format!(
            "PRAGMA cache_size = 1; PRAGMA cache_spill = 1; BEGIN IMMEDIATE; {} PRAGMA \
             user_version = {}; \
             CREATE TEMP TABLE unused (x);",
            MIGRATIONS[1..].concat(),
            MIGRATIONS.len()
        );
        connection.execute_batch(&migrate).unwrap();
        if committed {
            connection.execute_batch("COMMIT").unwrap();
        }
        for (name, bytes) in super::files(temp.path()) {
            std::fs::write(crashed.path().join(name), bytes).unwrap();
        }
        drop(connection);
        let copy = tempfile::tempdir().unwrap();
        for (name, bytes) in super::files(crashed.path()) {
            std::fs::write(copy.path().join(name), bytes).unwrap();
        }
        assert_eq!(
            version(copy.path()),
            if committed {
                MIGRATIONS.len() as i32
            } else {
                1
            }
        );
        check_migrated(crashed.path());
    }
}
