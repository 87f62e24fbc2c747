//! Examines a file before SQLite runs any SQL of it.
//!
//! A schema is SQL that SQLite runs on behalf of its author: generated columns, CHECK constraints
//! and expressions of indexes whenever a row is read or written, virtual tables when they are
//! named, and the columns of `sqlite_stat1` as soon as the schema is loaded. So the schema is
//! compared as text with the result of our migrations before it is loaded for work.
//!
//! Reading the text loads the schema, too. [`read_schema`] does that on a connection that parses no
//! expression deeper than one node ([`EXPRESSION_DEPTH_MAX`]): our own tables do not parse there,
//! and SQLite then loads no statistics and gives access to the text alone, which is what
//! `SQLITE_DBCONFIG_WRITABLE_SCHEMA` is for. The connection cannot write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode};

use super::super::StorageError;
use super::connection::{ReadMode, SqliteSession, open_without_pragmas};
use super::error::error_before_commit;
use super::files::StoreFiles;
use super::schema::{FoundSchema, SchemaObject};
use super::statements::BEGIN_READ;

/// Nodes of an expression that is parsed: one, a name or a literal, which computes nothing.
const EXPRESSION_DEPTH_MAX: i32 = 1;
/// Longest statement that is parsed, in bytes: our longest has less than half of it.
const STATEMENT_BYTES_MAX: i32 = 8 << 10;
/// Longest row of the schema, in bytes.
const ROW_BYTES_MAX: i32 = 16 << 10;
/// Most columns of a table that is parsed: ours have four.
const COLUMNS_MAX: i32 = 32;
/// SQLite instructions between two counts.
const STEPS_COUNTED: i32 = 128;
/// Most counts of one examination, about 1,500 instructions. Our schema takes 400; a schema of a
/// hundred more objects is not read to its end.
const COUNTS_MAX: u32 = 12;

/// Reads the versions of a file and its schema as text. Runs no SQL of the file.
pub(super) fn read_schema(
    place: &Arc<StoreFiles>,
    reading: ReadMode,
) -> Result<FoundSchema, StorageError> {
    if !place.is_there()? {
        return Ok(FoundSchema::default());
    }
    let mut connection = open_without_pragmas(place, reading)?;
    let found = restrict(&mut connection).and_then(|()| read_schema_text(&connection));
    found.map_err(|error| match error.sqlite_error_code() {
        Some(ErrorCode::TooBig | ErrorCode::OperationInterrupted) => StorageError::Corrupt {
            message: "the schema of the file is larger than any that this program makes".to_owned(),
        },
        _ => error_before_commit(&error),
    })
}

fn restrict(connection: &mut SqliteSession) -> rusqlite::Result<()> {
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, ROW_BYTES_MAX)?;
    connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, STATEMENT_BYTES_MAX)?;
    connection.set_limit(Limit::SQLITE_LIMIT_COLUMN, COLUMNS_MAX)?;
    connection.set_limit(Limit::SQLITE_LIMIT_EXPR_DEPTH, EXPRESSION_DEPTH_MAX)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true)?;
    let counts = AtomicU32::new(0);
    let too_many = move || counts.fetch_add(1, Ordering::Relaxed) >= COUNTS_MAX;
    connection.progress_handler(STEPS_COUNTED, Some(too_many))
}

fn read_schema_text(connection: &Connection) -> rusqlite::Result<FoundSchema> {
    // One snapshot, so that the cookie belongs to the text.
    connection.execute_batch(BEGIN_READ)?;
    let number = |pragma: &str| connection.query_row(pragma, [], |row| row.get::<_, i32>(0));
    let cookie = number("PRAGMA main.schema_version")?;
    let application = number("PRAGMA main.application_id")?;
    let version = number("PRAGMA main.user_version")?;
    // `sqlite_master`, not its newer name, which a table in the file could have.
    let sql = "SELECT type, name, tbl_name, sql FROM main.sqlite_master ORDER BY rowid";
    // The statement that loads the schema may fail because our own tables do not parse here.
    let mut statement = connection
        .prepare(sql)
        .or_else(|_| connection.prepare(sql))?;
    let rows = statement.query_map([], SchemaObject::read)?;
    Ok(FoundSchema {
        cookie,
        application,
        version,
        objects: rows.collect::<rusqlite::Result<_>>()?,
    })
}
