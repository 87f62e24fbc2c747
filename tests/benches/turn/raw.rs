//! The best that SQLite can do for the same rows: prepared statements, one connection, nothing checked.

use super::world::Candidate;
use rusqlite::{Connection, params};
use std::path::Path;
use threadkeep::storage::sqlite::Durability;

const SCHEMA: &str = "
    CREATE TABLE head (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, version INTEGER NOT NULL, value TEXT NOT NULL) STRICT;
    CREATE TABLE chain (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, version INTEGER NOT NULL, value TEXT NOT NULL) STRICT;
    CREATE TABLE entry (id INTEGER PRIMARY KEY, value TEXT NOT NULL) STRICT;
    INSERT INTO head (name, version, value) VALUES ('bench', 0, '');
    INSERT INTO chain (name, version, value) VALUES ('bench', 0, '');";

/// Head, chain and entry of each step, as its own file has them.
pub struct RawRun {
    connection: Connection,
    rows: [String; 3],
    version: i64,
}

impl RawRun {
    pub fn start(path: &Path, durability: Durability, rows: [String; 3]) -> Self {
        let connection = Connection::open(path).expect("a database");
        let synchronous = match durability {
            Durability::Full => "FULL",
            Durability::Normal => "NORMAL",
        };
        connection
            .execute_batch(&format!(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; {SCHEMA}"
            ))
            .expect("a schema");
        Self {
            connection,
            rows,
            version: 0,
        }
    }

    fn commit(&mut self) -> rusqlite::Result<()> {
        let [head, chain, entry] = &self.rows;
        let run = |sql: &str, values: &[&dyn rusqlite::ToSql]| {
            self.connection.prepare_cached(sql)?.execute(values)
        };
        run("BEGIN IMMEDIATE", params![])?;
        let update = "SET version = version + 1, value = ?3 WHERE name = ?1 AND version = ?2";
        let version = self.version;
        run(
            &format!("UPDATE head {update}"),
            params!["bench", version, head],
        )?;
        run(
            &format!("UPDATE chain {update}"),
            params!["bench", version, chain],
        )?;
        run(
            "INSERT INTO entry (id, value) VALUES (?1, ?2)",
            params![version, entry],
        )?;
        run("COMMIT", params![])?;
        self.version += 1;
        Ok(())
    }
}

impl Candidate for RawRun {
    fn step(&mut self, _: usize, _: &str, _: &str) {
        self.commit().expect("committed");
    }
}
