//! Damaged and read-only files: never a wrong answer where SQLite can detect damage, never a
//! change.

use super::{FILE, append, code, commit, files, get, open, put_op, try_open};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use threadkeep::storage::sqlite::SqliteStore;
use threadkeep::storage::{StorageBackend, StorageError};

const RECORDS: usize = 40;
const ENTRIES: u64 = 60;
/// Distance in bytes between two flipped ones: a prime, so that every place of a page is flipped
/// once.
const STRIDE: usize = 331;

/// Makes a store with every kind of page: inner pages, leaves, overflow pages, an index.
fn fill_store(path: &Path) {
    let store = open(path);
    for at in 0..RECORDS {
        let name = format!("record {at:03} {}", "n".repeat(200));
        commit(
            &store,
            &[put_op(&name, &format!("{at:03} {}", "v".repeat(at * 200)))],
        );
    }
    for at in 1..=ENTRIES {
        commit(
            &store,
            &[append("p", at, &format!("{at:03} {}", "e".repeat(700)))],
        );
    }
}

/// Every text of the store, in order.
fn texts(store: &SqliteStore) -> Result<Vec<String>, StorageError> {
    let mut texts = Vec::new();
    let mut start = String::new();
    loop {
        let page = store.scan("head", &start, "", 500, false)?;
        if let Some(damaged) = page.damaged.into_iter().next() {
            let message = damaged.message;
            return Err(StorageError::Corrupt { message });
        }
        for item in page.items {
            texts.extend(
                store
                    .get(std::slice::from_ref(&item.key))?
                    .into_iter()
                    .map(|item| item.value),
            );
            texts.push(item.key.name);
        }
        let Some(cursor) = page.cursor else { break };
        start = cursor;
    }
    for line in store.read_log("history", "p", 0, 500, false)? {
        texts.push(format!("{} {}", line.position, line.value));
    }
    Ok(texts)
}

/// Returns true if at most one text differs, by one byte: only its writer could notice that.
fn same_but_for_a_byte(found: &[String], expected: &[String]) -> bool {
    let bytes = |texts: &[String]| texts.join("\n").into_bytes();
    let (found, expected) = (bytes(found), bytes(expected));
    found.len() == expected.len()
        && found.iter().zip(&expected).filter(|(a, b)| a != b).count() <= 1
}

fn is_sound(path: &Path) -> bool {
    let connection = rusqlite::Connection::open(path.join(FILE)).unwrap();
    let check = connection.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
    check.is_ok_and(|word| word == "ok")
}

#[test]
fn a_flipped_byte_is_seen_or_changes_one_byte_of_one_text() {
    let (temp, damaged) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fill_store(temp.path());
    let expected = texts(&open(temp.path())).unwrap();
    let bytes = std::fs::read(temp.path().join(FILE)).unwrap();
    let at = damaged.path().join(FILE);
    let (mut refused, mut same, mut other) = (0, 0, 0);
    for place in (0..bytes.len()).step_by(STRIDE) {
        let mut flipped = bytes.clone();
        flipped[place] ^= 0x11;
        std::fs::write(&at, &flipped).unwrap();
        let answer = try_open(damaged.path()).and_then(|store| texts(&store));
        match &answer {
            Ok(found) if *found == expected => same += 1,
            Ok(found) if same_but_for_a_byte(found, &expected) => other += 1,
            Ok(_) => assert!(
                !is_sound(damaged.path()),
                "byte {place}: a wrong answer that nobody can see"
            ),
            Err(_) => {
                let code = code(&answer);
                let known = [
                    "corrupt",
                    "foreign-database",
                    "newer-schema",
                    "unavailable",
                    "sqlite",
                ];
                assert!(known.contains(&code), "byte {place}: {answer:?}");
                refused += 1;
            }
        }
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(damaged.path().join(format!("{FILE}{suffix}")));
        }
    }
    println!("{refused} refused, {same} without effect, {other} with one other byte");
    assert!(
        refused > 10 && other > 100,
        "{refused} refused, {other} with one other byte"
    );
}

#[test]
fn a_file_that_was_cut_is_corrupt() {
    let (temp, cut) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fill_store(temp.path());
    let bytes = std::fs::read(temp.path().join(FILE)).unwrap();
    for length in [
        1,
        16,
        99,
        100,
        4_095,
        4_096,
        4_097,
        bytes.len() / 2,
        bytes.len() - 4_096,
        bytes.len() - 1,
    ] {
        let at = cut.path().join(FILE);
        std::fs::write(&at, &bytes[..length]).unwrap();
        let answer = try_open(cut.path()).and_then(|store| texts(&store));
        assert_eq!(
            code(&answer),
            "corrupt",
            "{length} of {} bytes",
            bytes.len()
        );
        drop(answer);
        assert!(
            std::fs::read(&at).unwrap() == bytes[..length],
            "{length}: the file was changed"
        );
    }
}

/// Task of a child process that may not write: returns the texts that it reads, and the answers to
/// a commit and to a later read.
pub(super) fn read_and_try_to_write(path: &Path) -> String {
    match try_open(path) {
        Err(error) => code(&Err::<(), _>(error)).to_owned(),
        Ok(store) => {
            let read = get(&store, "a");
            let written = code(&store.commit(&[put_op("a", "2")], false));
            let again = get(&store, "a");
            assert_eq!(read, again);
            format!("{} {written}", read.unwrap_or_default().unwrap_or_default())
        }
    }
}

/// A user who is neither root nor the owner.
const NOBODY: u32 = 65_534;

/// Runs [`read_and_try_to_write`] as a user whom permissions bind.
fn run_as_reader(path: &Path) -> String {
    let root =
        std::fs::metadata("/proc/self").map(|found| std::os::unix::fs::MetadataExt::uid(&found));
    let uid = root.is_ok_and(|uid| uid == 0).then_some(NOBODY);
    let said = super::lazy::run_in_child("read", path, uid);
    let line = said
        .lines()
        .find_map(|line| line.strip_prefix("said "))
        .unwrap();
    line.to_owned()
}

pub(super) fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_store_that_may_not_be_written_is_read() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path();
    set_mode(path, 0o555);
    assert_eq!(run_as_reader(path), "read-only", "there is none");
    set_mode(path, 0o755);
    commit(&open(path), &[put_op("a", "1")]);
    let before = files(path);
    for (what, directory, file) in [
        ("both", 0o555, 0o444),
        ("the directory", 0o555, 0o666),
        ("the file", 0o777, 0o444),
    ] {
        set_mode(&path.join(FILE), file);
        set_mode(&path.join("registry.db.lock"), file);
        set_mode(path, directory);
        assert_eq!(
            run_as_reader(path),
            "1 read-only",
            "{what} may not be written"
        );
        set_mode(path, 0o755);
        for suffix in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(path.join(format!("{FILE}{suffix}")));
        }
        assert!(files(path) == before, "{what} may not be written, and was");
    }
}

#[test]
fn reader_reads_a_store_that_others_write() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path();
    let store = open(path);
    commit(&store, &[put_op("a", "1")]);
    // Our files are private; these are open to readers, as their owner wants it.
    for suffix in ["", "-wal", "-shm"] {
        set_mode(&path.join(format!("{FILE}{suffix}")), 0o644);
    }
    set_mode(path, 0o555);
    assert_eq!(run_as_reader(path), "1 read-only");
    set_mode(path, 0o755);
    commit(&store, &[put_op("a", "3")]);
}

/// Symptom: an endless trigger held the process beyond every limit, and one that resets a record
/// falsified a bill. Cause: SQLite runs the SQL in the file. Fix: it runs none of it, and a file
/// with such SQL is refused.
#[test]
fn planted_sql_is_not_run() {
    let forever =
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r";
    for (planted, name) in [
        (
            format!("CREATE TRIGGER t AFTER INSERT ON record_head BEGIN {forever}; END"),
            "trigger \"t\"",
        ),
        (
            "CREATE TRIGGER u AFTER INSERT ON record_head BEGIN UPDATE record_head SET value = \
             'forged'; END"
                .to_owned(),
            "trigger \"u\"",
        ),
        (
            format!(
                "ALTER TABLE record_head RENAME TO kept; CREATE VIEW record_head AS SELECT 'n' AS \
                 name, 1 AS version, ({forever}) AS value"
            ),
            "table \"kept\"",
        ),
    ] {
        let temp = tempfile::tempdir().unwrap();
        let store = open(temp.path());
        commit(&store, &[put_op("before", "own")]);
        let other = rusqlite::Connection::open(temp.path().join(FILE)).unwrap();
        other.execute_batch(&planted).unwrap();
        drop(other);
        // With a trigger planted while the file is open, nothing is read or written any more.
        assert_eq!(
            code(&store.commit(&[put_op("after", "own")], false)),
            "corrupt"
        );
        assert_eq!(code(&get(&store, "before")), "corrupt");
        drop(store);
        let refused = try_open(temp.path()).unwrap_err();
        assert_eq!(code::<()>(&Err(refused.clone())), "corrupt", "{refused}");
        assert!(refused.to_string().contains(name), "{refused}");
    }
}
