//! The operations of one commit, inside a transaction of the caller.
//!
//! Each condition is part of the statement that needs it, so that it is checked on the way. When an
//! operation does not fit, the caller rolls back and [`judge`] finds the reason: conditions first,
//! positions second.

use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::super::check::{collection_place, condition_of, holds, log_place, misfit, other};
use super::super::quota::{entry_bytes, partition_bytes, record_bytes};
use super::super::{Answer, Expect, Key, Op, Outcome, StorageError};
use super::read::{POSITION_MAX, item, number};
use super::statements::{
    ENTRY_ANY, ENTRY_DELETE, ENTRY_FIRST, ENTRY_LAST, ENTRY_NEXT, ENTRY_SIZES, PARTITION_DELETE,
    PARTITION_GET, PARTITION_INSERT, Statements, log_name,
};

/// The highest log id: it shares a row id of 63 bits with a position of 32.
const PARTITION_MAX: i64 = i32::MAX as i64;
const POSITION_BITS: u32 = u32::BITS;

/// The outcome of the operations of a commit.
#[derive(Debug)]
pub(super) enum Applied {
    /// All are done. They change the store by so many bytes, if the bytes were counted.
    Done(i64),
    /// Some are done, and one cannot be: because of a condition (`None`), or with this error.
    Refused(Option<StorageError>),
}

/// Reason why one operation cannot be done.
enum Refusal {
    Condition,
    Reason(StorageError),
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StorageError> for Refusal {
    fn from(error: StorageError) -> Self {
        Self::Reason(error)
    }
}

/// Does `ops`; counts bytes if `counting`.
pub(super) fn apply(
    connection: &Connection,
    sql: &Statements,
    ops: &[Op],
    counting: bool,
) -> rusqlite::Result<Applied> {
    let work = Work {
        connection,
        sql,
        counting,
    };
    let mut growth = 0;
    for op in ops {
        match work.op(op) {
            Ok(bytes) => growth += bytes,
            Err(Refusal::Condition) => return Ok(Applied::Refused(None)),
            Err(Refusal::Reason(error)) => return Ok(Applied::Refused(Some(error))),
            Err(Refusal::Sqlite(error)) => return Err(error),
        }
    }
    Ok(Applied::Done(growth))
}

/// The outcome of a commit that was refused and rolled back: a conflict if a condition does not
/// hold, else `reason`.
pub(super) fn judge(
    connection: &Connection,
    sql: &Statements,
    ops: &[Op],
    reason: Option<StorageError>,
) -> rusqlite::Result<Result<Outcome, StorageError>> {
    let mut found = Answer::new();
    let mut refused = false;
    for (key, expect) in ops.iter().filter_map(condition_of) {
        let item = item(connection, sql, key)?;
        refused |= !holds(expect, item.as_ref().map(|item| item.version));
        item.into_iter()
            .for_each(|item| found.push_if_it_fits(item));
    }
    if refused {
        return Ok(Ok(Outcome::Conflict(found.into_items())));
    }
    let contradiction = || StorageError::Corrupt {
        message: "a condition failed that holds".to_owned(),
    };
    Ok(Err(reason.unwrap_or_else(contradiction)))
}

struct Work<'a> {
    connection: &'a Connection,
    sql: &'a Statements,
    counting: bool,
}

impl Work<'_> {
    fn op(&self, op: &Op) -> Result<i64, Refusal> {
        match op {
            Op::Check { key, expect } => self.check(key, *expect),
            Op::Put { key, expect, value } => self.put(key, *expect, value),
            Op::Delete { key } => self.delete(key),
            Op::Append {
                log,
                partition,
                at,
                value,
            } => self.append(log_place(log)?, partition, *at, value),
            Op::Trim {
                log,
                partition,
                below,
            } => self.trim(log_place(log)?, partition, *below),
        }
    }

    fn check(&self, key: &Key, expect: Expect) -> Result<i64, Refusal> {
        let found = item(self.connection, self.sql, key)?;
        if holds(expect, found.map(|item| item.version)) {
            Ok(0)
        } else {
            Err(Refusal::Condition)
        }
    }

    fn put(&self, key: &Key, expect: Expect, value: &str) -> Result<i64, Refusal> {
        let sql = self.sql.records(collection_place(&key.collection)?);
        let growth = if self.counting {
            record_bytes(key.name.len(), value.len()) - self.counted(key)?
        } else {
            0
        };
        let changed = match expect {
            Expect::Any => self
                .prepare(&sql.upsert)?
                .execute(params![key.name, value])?,
            Expect::Absent => self
                .prepare(&sql.insert)?
                .execute(params![key.name, value])?,
            Expect::Version(version) => {
                // No record has a version that SQLite cannot store.
                let version = i64::try_from(version).map_err(|_| Refusal::Condition)?;
                self.prepare(&sql.update)?
                    .execute(params![key.name, version, value])?
            }
        };
        if changed == 1 {
            Ok(growth)
        } else {
            Err(Refusal::Condition)
        }
    }

    fn delete(&self, key: &Key) -> Result<i64, Refusal> {
        let sql = self.sql.records(collection_place(&key.collection)?);
        let growth = if self.counting {
            -self.counted(key)?
        } else {
            0
        };
        self.prepare(&sql.delete)?.execute([&key.name])?;
        Ok(growth)
    }

    /// The bytes that an existing record counts for.
    fn counted(&self, key: &Key) -> Result<i64, Refusal> {
        let sql = self.sql.records(collection_place(&key.collection)?);
        let bytes: Option<u64> = self
            .prepare(&sql.size)?
            .query_row([&key.name], |row| number(row, 0))
            .optional()?;
        Ok(bytes.map_or(0, |bytes| record_bytes(key.name.len(), bytes as usize)))
    }

    fn append(&self, place: usize, partition: &str, at: u64, value: &str) -> Result<i64, Refusal> {
        let log = log_name(place);
        if at == 1 {
            return self.begin_log(log, partition, value);
        }
        let known = (2..=POSITION_MAX).contains(&at);
        // At most POSITION_MAX.
        let row = params![log, partition, at as i64, value];
        if known && self.prepare(ENTRY_NEXT)?.execute(row)? == 1 {
            return Ok(entry_bytes(value.len()));
        }
        let last = self.last(log, partition)?;
        let full = last == POSITION_MAX && at == POSITION_MAX + 1;
        let reason = if full {
            other("log-full", format!("log {log}/{partition} is full"))
        } else {
            misfit(log, partition, at, last)
        };
        Err(Refusal::Reason(reason))
    }

    fn begin_log(&self, log: &str, partition: &str, value: &str) -> Result<i64, Refusal> {
        if self.prepare(PARTITION_INSERT)?.execute([log, partition])? != 1 {
            return Err(Refusal::Reason(misfit(
                log,
                partition,
                1,
                self.last(log, partition)?,
            )));
        }
        let id = self.connection.last_insert_rowid();
        if !(1..=PARTITION_MAX).contains(&id) {
            return Err(Refusal::Reason(other(
                "partitions-full",
                "there is no number left for a log",
            )));
        }
        self.prepare(ENTRY_FIRST)?
            .execute(params![id << POSITION_BITS | 1, value])?;
        Ok(partition_bytes(partition.len()) + entry_bytes(value.len()))
    }

    /// Position of the last entry of a log, 0 if there is none.
    fn last(&self, log: &str, partition: &str) -> Result<u64, Refusal> {
        let last = self
            .prepare(ENTRY_LAST)?
            .query_row([log, partition], |row| number(row, 0));
        Ok(last.optional()?.unwrap_or(0))
    }

    fn trim(&self, place: usize, partition: &str, below: u64) -> Result<i64, Refusal> {
        let id: Option<i64> = self
            .prepare(PARTITION_GET)?
            .query_row([log_name(place), partition], |row| row.get(0))
            .optional()?;
        let Some(id) = id else { return Ok(0) };
        let first = id << POSITION_BITS;
        // At most POSITION_MAX + 1.
        let end = first + below.min(POSITION_MAX + 1) as i64;
        let mut growth = if self.counting {
            -self.counted_entries(first, end)?
        } else {
            0
        };
        self.prepare(ENTRY_DELETE)?.execute([first, end])?;
        let left: bool = self.prepare(ENTRY_ANY)?.query_row([id], |row| row.get(0))?;
        if !left {
            self.prepare(PARTITION_DELETE)?.execute([id])?;
            growth -= partition_bytes(partition.len());
        }
        Ok(growth)
    }

    fn counted_entries(&self, first: i64, end: i64) -> Result<i64, Refusal> {
        let sizes = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        let (count, bytes) = self.prepare(ENTRY_SIZES)?.query_row([first, end], sizes)?;
        Ok(count * entry_bytes(0) + bytes)
    }

    fn prepare(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>> {
        self.connection.prepare_cached(sql)
    }
}
