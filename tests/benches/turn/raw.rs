//! The best that SQLite can do for the same rows: prepared statements, one connection, no checks.

use rusqlite::{Connection, params};
use std::path::Path;
use std::time::Duration;
use threadkeep::storage::sqlite::CommitDurability;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS head (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, version \
    INTEGER NOT NULL, value TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS chain (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, version \
    INTEGER NOT NULL, value TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS entry (id INTEGER PRIMARY KEY, value TEXT NOT NULL) STRICT;";
/// Longest time that a connection waits for another.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);

/// Writes head, chain and entry of each step of one thread.
pub struct RawRun {
    connection: Connection,
    rows: [String; 3],
    thread: i64,
    version: i64,
}

impl RawRun {
    /// Opens a connection of its own to the file, which is created if it is missing. Each thread
    /// has a number of its own.
    pub fn start(
        path: &Path,
        durability: CommitDurability,
        thread: u32,
        rows: [String; 3],
    ) -> Self {
        let connection = Connection::open(path).expect("a database");
        connection.busy_timeout(BUSY_TIMEOUT).expect("it is set");
        let synchronous = match durability {
            CommitDurability::Full => "FULL",
            CommitDurability::Normal => "NORMAL",
        };
        let set_up = format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; {SCHEMA}
            INSERT INTO head (id, name, version, value) VALUES ({thread}, 'bench-{thread}', 0, '');
            INSERT INTO chain (id, name, version, value) VALUES ({thread}, 'bench-{thread}', 0, \
            '');"
        );
        connection.execute_batch(&set_up).expect("a schema");
        Self {
            connection,
            rows,
            thread: i64::from(thread),
            version: 0,
        }
    }

    /// Performs one step: head, chain and entry.
    pub fn commit(&mut self) -> rusqlite::Result<()> {
        let [head, chain, entry] = &self.rows;
        let run = |sql: &str, values: &[&dyn rusqlite::ToSql]| {
            self.connection.prepare_cached(sql)?.execute(values)
        };
        let (name, version) = (format!("bench-{}", self.thread), self.version);
        run("BEGIN IMMEDIATE", params![])?;
        run(
            "UPDATE head SET version = version + 1, value = ?3 WHERE name = ?1 AND version = ?2",
            params![name, version, head],
        )?;
        run(
            "UPDATE chain SET version = version + 1, value = ?3 WHERE name = ?1 AND version = ?2",
            params![name, version, chain],
        )?;
        run(
            "INSERT INTO entry (id, value) VALUES (?1, ?2)",
            params![self.thread << 32 | version, entry],
        )?;
        run("COMMIT", params![])?;
        self.version += 1;
        Ok(())
    }
}
