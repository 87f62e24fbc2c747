//! Files whose schema an attacker has written: SQLite runs parts of a schema, so a foreign one must
//! not be loaded. Each file is used in a process of its own, whose memory and time are measured.

use super::{FILE, append, code, commit, get, open, put_op, try_open};
use rusqlite::Connection;
use std::path::Path;
use threadkeep::storage::{RecordKey, StorageBackend, StorageError};

/// Most that the use of one planted file may cost: memory beyond the process's earlier peak, and
/// time of a core, which does not depend on other processes of the machine.
const MEMORY_KIB_MAX: u64 = 64 << 10;
const TIME_MILLIS_MAX: u64 = 2_000;
/// An expression that takes 800 MB each time it is computed.
const COSTLY: &str = "hex(zeroblob(400000000))";

/// Makes a store with a record and an entry, and opens its file with a plain connection.
fn make_store(path: &Path) -> Connection {
    commit(&open(path), &[put_op("a", "own"), append("p", 1, "own")]);
    Connection::open(path.join(FILE)).unwrap()
}

/// SQL that replaces the text of one object of the schema.
fn rewrite(name: &str, sql: &str) -> String {
    let sql = sql.replace('\'', "''");
    format!(
        "PRAGMA writable_schema = ON; \
         UPDATE sqlite_master SET sql = '{sql}' WHERE name = '{name}'; PRAGMA schema_version = 99;"
    )
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.unwrap().split_whitespace().next();
    number.unwrap().parse().unwrap()
}

/// Milliseconds of a core that this process has used, in steps of ten.
fn core_millis() -> u64 {
    const MILLIS_PER_TICK: u64 = 10;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks = |at: usize| fields.split(' ').nth(at).unwrap().parse::<u64>().unwrap();
    // Fields behind the name: state, ten numbers, then user and system time.
    (ticks(11) + ticks(12)) * MILLIS_PER_TICK
}

/// Task of a child process: returns the answers of the file in `planted` and their cost; a
/// neighbour's file is read meanwhile.
pub(super) fn use_planted(root: &Path) -> String {
    let neighbour = open(&root.join("neighbour"));
    commit(&neighbour, &[put_op("a", "own")]);
    let (before, begun) = (peak_kib(), core_millis());
    let answer = try_open(&root.join("planted")).and_then(|store| {
        let read = get(&store, "a")?;
        let page = store.scan("head", "", "", 500, false)?;
        if let Some(damaged) = page.damaged.into_iter().next() {
            let message = damaged.message;
            return Err(StorageError::Corrupt { message });
        }
        store.read_log("history", "p", 0, 500, false)?;
        store.commit(&[put_op("b", "new"), append("p", 2, "new")], false)?;
        Ok(read)
    });
    let (kib, millis) = (peak_kib() - before, core_millis() - begun);
    assert_eq!(get(&neighbour, "a"), Ok(Some("own".to_owned())));
    let message = answer.as_ref().err().map(StorageError::to_string);
    format!(
        "{} {kib} {millis} {}",
        code(&answer),
        message.unwrap_or_default()
    )
}

/// Plants, lets a process use the file, and checks its answer and its cost.
#[track_caller]
fn check(what: &str, plant: &str, expected: &str, named: &str) {
    let temp = tempfile::tempdir().unwrap();
    for folder in ["planted", "neighbour"] {
        std::fs::create_dir(temp.path().join(folder)).unwrap();
    }
    let shell = make_store(&temp.path().join("planted"));
    shell
        .execute_batch(plant)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    drop(shell);
    let output = super::lazy::run_in_child("planted", temp.path(), None);
    let said = output.lines().find_map(|line| line.strip_prefix("said "));
    let mut parts = said.unwrap().splitn(4, ' ');
    let mut part = || parts.next().unwrap();
    assert_eq!(part(), expected, "{what}: {output}");
    let (kib, millis): (u64, u64) = (part().parse().unwrap(), part().parse().unwrap());
    assert!(kib <= MEMORY_KIB_MAX, "{what}: {kib} KiB");
    assert!(millis <= TIME_MILLIS_MAX, "{what}: {millis} ms");
    let message = part();
    assert!(message.contains(named), "{what}: {message}");
    println!("{what}: {kib} KiB, {millis} ms, {message}");
}

/// Symptom: a file of 115 KB took 4.3 GB and a thread for minutes. Cause: SQLite computes the
/// generated columns, CHECK constraints and indexed expressions of a file, and only triggers and
/// views were looked for. Fix: the schema is compared with ours as text, before it is loaded. Kind:
/// every part of a schema that SQLite computes.
#[test]
fn expressions_in_a_schema_are_not_computed() {
    let columns = "id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, version INTEGER";
    let in_place = |column: &str| {
        rewrite(
            "record_head",
            &format!("CREATE TABLE record_head ({columns}, {column})"),
        )
    };
    for (what, plant, named) in [
        (
            "a generated column",
            in_place(&format!("value AS ({COSTLY})")),
            "table \"record_head\"",
        ),
        (
            "a CHECK",
            in_place(&format!("value ANY CHECK (length({COSTLY}) > 0)")),
            "table \"record_head\"",
        ),
        (
            "a default",
            in_place(&format!("value ANY, more DEFAULT ({COSTLY})")),
            "table \"record_head\"",
        ),
        (
            "an index on an expression",
            "CREATE INDEX i ON record_due (hex(zeroblob(400000000 * length(value))))".to_owned(),
            "index \"i\"",
        ),
        (
            "a partial index",
            format!("CREATE INDEX i ON record_due (value) WHERE length({COSTLY}) > 0"),
            "index \"i\"",
        ),
        (
            "a trigger",
            format!("CREATE TRIGGER t AFTER INSERT ON record_head BEGIN SELECT {COSTLY}; END"),
            "trigger \"t\"",
        ),
        (
            "a generated column of the statistics",
            format!(
                "ANALYZE; {}",
                rewrite(
                    "sqlite_stat1",
                    &format!("CREATE TABLE sqlite_stat1(tbl, idx, x, stat AS ({COSTLY}))")
                )
            ),
            "table \"sqlite_stat1\"",
        ),
    ] {
        check(what, &plant, "corrupt", named);
    }
}

/// As above, for other parts of a schema. Kind: objects that are none of ours.
#[test]
fn objects_that_are_not_ours_are_refused() {
    for (what, plant, named) in [
        (
            "a virtual table",
            "CREATE VIRTUAL TABLE v USING fts5(x)",
            "table \"v\"",
        ),
        (
            "a virtual table in the place of ours",
            "DROP TABLE record_head; CREATE VIRTUAL TABLE record_head USING fts5(name, version, \
             value)",
            "table \"record_head",
        ),
        (
            "a view in the place of a table",
            "ALTER TABLE record_head RENAME TO kept; CREATE VIEW record_head AS SELECT * FROM kept",
            "\"kept\"",
        ),
        (
            "a table in the place of a view",
            "DROP VIEW threads; CREATE TABLE threads (x)",
            "table \"threads\"",
        ),
        (
            "a table by the name of a pragma",
            "CREATE TABLE pragma_user_version (user_version)",
            "table \"pragma_user_version\"",
        ),
        (
            "a table that was dropped",
            "DROP TABLE record_blob",
            "table \"record_blob\"",
        ),
        (
            "a name for a terminal",
            "CREATE TABLE \"\u{1b}[2J\u{202e}x\" (x)",
            "table \"\\u{1b}[2J\\u{202e}x\"",
        ),
    ] {
        check(what, plant, "corrupt", named);
    }
}

/// As above. Kind: a schema, or statistics, of any size.
#[test]
fn schemas_that_are_too_large_are_not_read_to_their_end() {
    let many: String = (0..3_000)
        .map(|number| format!("CREATE TABLE t{number} (a, b, c);"))
        .collect();
    let long = format!("CREATE VIEW v AS SELECT {}1", "1 + ".repeat(900));
    let longer = rewrite(
        "threads",
        &format!("CREATE VIEW threads AS SELECT {}1", "1, ".repeat(300_000)),
    );
    let rows = "ANALYZE; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT \
                200000) \
                INSERT INTO sqlite_stat1 SELECT 'record_head', 'x' || i, '1 1' FROM n";
    let samples = "ANALYZE; PRAGMA writable_schema = ON; \
                   INSERT INTO sqlite_stat4 SELECT 'record_head', 'i', '1', '1', '1', \
                   zeroblob(50000000)";
    for (what, plant, named) in [
        ("many tables", many.as_str(), "larger than any"),
        ("a long view", long.as_str(), "view \"v\""),
        ("a longer view", longer.as_str(), "larger than any"),
        ("rows of statistics", rows, "table \"sqlite_stat1\""),
        ("a sample of statistics", samples, "table \"sqlite_stat1\""),
    ] {
        check(what, plant, "corrupt", named);
    }
}

/// Symptom: a value of any size was read into memory. Cause: its bytes were read, not its length.
/// Fix: the length comes first, and no row takes more than a few MiB. Kind: every column of text or
/// bytes, in each table.
#[test]
fn huge_values_are_named_and_not_read() {
    for (what, plant, named) in [
        (
            "a huge blob",
            "INSERT INTO record_head (name, version, value) VALUES ('0', 1, zeroblob(90000000))",
            "record head/0 has 90000000 bytes",
        ),
        (
            "a text of 5 MB",
            "UPDATE record_head SET value = printf('%.*c', 5000000, 'x')",
            "record head/a has 5000000 bytes",
        ),
        (
            "a text that is a little too long",
            "UPDATE record_head SET value = printf('%.*c', 1048577, 'x')",
            "record head/a has 1048577 bytes",
        ),
        (
            "a huge entry",
            "UPDATE entry SET value = zeroblob(90000000)",
            "entry 1 of history/p has 90000000 bytes",
        ),
    ] {
        check(what, plant, "corrupt", named);
    }
    // The index compares names whole, so that one takes its size in memory, once.
    let huge_name = "INSERT INTO record_head (name, version, value) \
                     VALUES (printf('%.*c', 40000000, '0'), 1, '')";
    check(
        "a huge name",
        huge_name,
        "corrupt",
        "has a name of 40000000 bytes",
    );
}

/// A value of the largest size that we write is read.
#[test]
fn the_longest_value_is_read() {
    check(
        "the longest value",
        "UPDATE record_head SET value = printf('%.*c', 1048576, 'x')",
        "ok",
        "",
    );
}

/// Symptom: as above, with SQL that was planted while the file was open. Cause: only the opening
/// checked the schema. Fix: each snapshot checks whether the schema has changed. Kind: reads on
/// each connection, and commits.
#[test]
fn a_schema_that_changes_while_the_file_is_open_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    drop(make_store(temp.path()));
    let store = open(temp.path());
    assert_eq!(get(&store, "a"), Ok(Some("own".to_owned())));
    let shell = Connection::open(temp.path().join(FILE)).unwrap();
    for (plant, undo) in [
        (
            "CREATE INDEX i ON record_head (hex(zeroblob(100000000 * (value = 'new'))))",
            "DROP INDEX i",
        ),
        (
            "CREATE TRIGGER t AFTER INSERT ON record_head BEGIN SELECT 1; END",
            "DROP TRIGGER t",
        ),
        ("CREATE TABLE t (x)", "DROP TABLE t"),
    ] {
        shell.execute_batch(plant).unwrap();
        let keys: Vec<RecordKey> = (0..20)
            .map(|at| RecordKey::new("head", at.to_string()))
            .collect();
        let refused = [
            code(&get(&store, "a")),
            code(&store.get(&keys)),
            code(&store.scan("head", "", "", 10, false)),
            code(&store.read_log("history", "p", 0, 10, false)),
            code(&store.commit(&[put_op("a", "new")], false)),
        ];
        assert_eq!(refused, ["corrupt"; 5], "{plant}");
        shell.execute_batch(undo).unwrap();
        assert_eq!(get(&store, "a"), Ok(Some("own".to_owned())), "{undo}");
        commit(&store, &[put_op("a", "own")]);
    }
    // A view is never read, so another one does no harm.
    shell
        .execute_batch("DROP VIEW threads; CREATE VIEW threads AS SELECT 1")
        .unwrap();
    assert_eq!(get(&store, "a"), Ok(Some("own".to_owned())));
    commit(&store, &[put_op("a", "new")]);
}

/// Symptom: a person who looks into the file was shown a forged view. Cause: views were not
/// checked. Fix: the next opening that can write makes ours again. Kind: views that were changed,
/// and that are gone.
#[test]
fn views_that_differ_are_made_anew() {
    for plant in [
        "DROP VIEW threads; CREATE VIEW threads AS SELECT 'forged' AS thread_id",
        "DROP VIEW budget_ledger",
        "DROP VIEW threads; DROP VIEW budget_ledger",
    ] {
        let (temp, fresh) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        make_store(temp.path()).execute_batch(plant).unwrap();
        assert_eq!(
            get(&open(temp.path()), "a"),
            Ok(Some("own".to_owned())),
            "{plant}"
        );
        drop(make_store(fresh.path()));
        let schema = super::migrations::schema;
        assert_eq!(schema(temp.path()), schema(fresh.path()), "{plant}");
    }
}
