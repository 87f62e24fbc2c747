//! The operations of one commit, inside a transaction of the caller.
//!
//! Each condition is part of the statement that needs it, so that it is checked on the way. When an
//! operation does not fit, the caller rolls back and [`find_refusal`] finds the reason: conditions
//! first, positions second.

use rusqlite::{CachedStatement, Connection, OptionalExtension, ToSql, params};

use super::super::check::{condition_of, meets_condition, other_error, position_error};
use super::super::quota::{entry_bytes, partition_bytes, record_bytes};
use super::super::{CommitOp, CommitOutcome, RecordExpectation, RecordKey, StorageError};
use super::read::{POSITION_MAX, read_number, read_version};
use super::statements::{
    ENTRY_ANY, ENTRY_DELETE, ENTRY_FIRST, ENTRY_ID, ENTRY_LAST, ENTRY_NEXT, ENTRY_SIZES,
    PARTITION_DELETE, PARTITION_GET, PARTITION_INSERT, StoreStatements,
};

/// The highest log id: it shares a row id of 63 bits with a position of 32.
const PARTITION_MAX: i64 = i32::MAX as i64;
const POSITION_BITS: u32 = u32::BITS;

/// The outcome of the operations of a commit.
#[derive(Debug)]
pub(super) enum ApplyOutcome {
    /// All are done. They change the store by so many bytes, if the bytes were counted.
    Done(i64),
    /// Some are done, and one cannot be: because of a condition (`None`), or with this error.
    Refused(Option<StorageError>),
}

/// Reason why one operation cannot be done.
enum OpRefusal {
    Condition,
    Reason(StorageError),
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for OpRefusal {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StorageError> for OpRefusal {
    fn from(error: StorageError) -> Self {
        Self::Reason(error)
    }
}

/// Does `ops`; counts bytes if `counting`.
pub(super) fn apply_ops(
    connection: &Connection,
    sql: &StoreStatements,
    ops: &[CommitOp],
    counting: bool,
) -> rusqlite::Result<ApplyOutcome> {
    let work = OpExecutor {
        connection,
        sql,
        counting,
    };
    let mut growth = 0;
    for op in ops {
        match work.apply_op(op) {
            Ok(bytes) => growth += bytes,
            Err(OpRefusal::Condition) => return Ok(ApplyOutcome::Refused(None)),
            Err(OpRefusal::Reason(error)) => return Ok(ApplyOutcome::Refused(Some(error))),
            Err(OpRefusal::Sqlite(error)) => return Err(error),
        }
    }
    Ok(ApplyOutcome::Done(growth))
}

/// The outcome of a commit that was refused and rolled back: a conflict if a condition does not
/// hold, else `reason`.
pub(super) fn find_refusal(
    connection: &Connection,
    sql: &StoreStatements,
    ops: &[CommitOp],
    reason: Option<StorageError>,
) -> rusqlite::Result<Result<CommitOutcome, StorageError>> {
    for (key, expect) in ops.iter().filter_map(condition_of) {
        if !meets_condition(expect, read_version(connection, sql, key)?) {
            return Ok(Ok(CommitOutcome::Conflict));
        }
    }
    let contradiction = || StorageError::Corrupt {
        message: "a condition failed that holds".to_owned(),
    };
    Ok(Err(reason.unwrap_or_else(contradiction)))
}

struct OpExecutor<'a> {
    connection: &'a Connection,
    sql: &'a StoreStatements,
    counting: bool,
}

impl OpExecutor<'_> {
    fn apply_op(&self, op: &CommitOp) -> Result<i64, OpRefusal> {
        match op {
            CommitOp::Check { key, expect } => self.check_record(key, *expect),
            CommitOp::Put { key, expect, value } => self.put_record(key, *expect, value),
            CommitOp::Delete { key } => self.delete_record(key),
            CommitOp::Append {
                log,
                partition,
                at,
                value,
            } => self.append_entry(log, partition, *at, value),
            CommitOp::Trim {
                log,
                partition,
                below,
            } => self.trim_log(log, partition, *below),
        }
    }

    fn check_record(&self, key: &RecordKey, expect: RecordExpectation) -> Result<i64, OpRefusal> {
        let found = read_version(self.connection, self.sql, key)?;
        if meets_condition(expect, found) {
            Ok(0)
        } else {
            Err(OpRefusal::Condition)
        }
    }

    fn put_record(
        &self,
        key: &RecordKey,
        expect: RecordExpectation,
        value: &str,
    ) -> Result<i64, OpRefusal> {
        let sql = self.sql.records(&key.collection);
        let growth = if self.counting {
            record_bytes(key.name.len(), value.len()) - self.record_usage(key)?
        } else {
            0
        };
        let changed = match expect {
            RecordExpectation::Any => self
                .prepare(&sql.upsert)?
                .execute(sql.bind(&[&key.name, &value], &key.collection).as_slice())?,
            RecordExpectation::Absent => self
                .prepare(&sql.insert)?
                .execute(sql.bind(&[&key.name, &value], &key.collection).as_slice())?,
            RecordExpectation::Version(version) => {
                // No record has a version that SQLite cannot store.
                let version = i64::try_from(version).map_err(|_| OpRefusal::Condition)?;
                let row: [&dyn ToSql; 3] = [&key.name, &version, &value];
                self.prepare(&sql.update)?
                    .execute(sql.bind(&row, &key.collection).as_slice())?
            }
        };
        if changed == 1 {
            Ok(growth)
        } else {
            Err(OpRefusal::Condition)
        }
    }

    fn delete_record(&self, key: &RecordKey) -> Result<i64, OpRefusal> {
        let sql = self.sql.records(&key.collection);
        let growth = if self.counting {
            -self.record_usage(key)?
        } else {
            0
        };
        self.prepare(&sql.delete)?
            .execute(sql.bind(&[&key.name], &key.collection).as_slice())?;
        Ok(growth)
    }

    /// The bytes that an existing record counts for.
    fn record_usage(&self, key: &RecordKey) -> Result<i64, OpRefusal> {
        let sql = self.sql.records(&key.collection);
        let bytes: Option<u64> = self
            .prepare(&sql.size)?
            .query_row(sql.bind(&[&key.name], &key.collection).as_slice(), |row| {
                read_number(row, 0)
            })
            .optional()?;
        Ok(bytes.map_or(0, |bytes| record_bytes(key.name.len(), bytes as usize)))
    }

    fn append_entry(
        &self,
        log: &str,
        partition: &str,
        at: u64,
        value: &str,
    ) -> Result<i64, OpRefusal> {
        if at == 1 {
            return self.begin_log(log, partition, value);
        }
        let known = (2..=POSITION_MAX).contains(&at);
        if known
            && let Some(id) = self.next_entry_id(log, partition, at)?
            && self.prepare(ENTRY_NEXT)?.execute(params![id, value])? == 1
        {
            return Ok(entry_bytes(value.len()));
        }
        let last = self.last_position(log, partition)?;
        let full = last == POSITION_MAX && at == POSITION_MAX + 1;
        let reason = if full {
            other_error("log-full", format!("log {log}/{partition} is full"))
        } else {
            position_error(log, partition, at, last)
        };
        Err(OpRefusal::Reason(reason))
    }

    /// Returns the row id of the entry at `at`; `None` if the log has no entry at `at - 1`.
    fn next_entry_id(&self, log: &str, partition: &str, at: u64) -> Result<Option<i64>, OpRefusal> {
        // At most POSITION_MAX.
        let place = params![log, partition, at as i64];
        let id = self.prepare(ENTRY_ID)?.query_row(place, |row| row.get(0));
        Ok(id.optional()?)
    }

    fn begin_log(&self, log: &str, partition: &str, value: &str) -> Result<i64, OpRefusal> {
        if self.prepare(PARTITION_INSERT)?.execute([log, partition])? != 1 {
            return Err(OpRefusal::Reason(position_error(
                log,
                partition,
                1,
                self.last_position(log, partition)?,
            )));
        }
        let id = self.connection.last_insert_rowid();
        if !(1..=PARTITION_MAX).contains(&id) {
            return Err(OpRefusal::Reason(other_error(
                "partitions-full",
                "there is no number left for a log",
            )));
        }
        self.prepare(ENTRY_FIRST)?
            .execute(params![id << POSITION_BITS | 1, value])?;
        Ok(partition_bytes(partition.len()) + entry_bytes(value.len()))
    }

    /// Position of the last entry of a log, 0 if there is none.
    fn last_position(&self, log: &str, partition: &str) -> Result<u64, OpRefusal> {
        let last = self
            .prepare(ENTRY_LAST)?
            .query_row([log, partition], |row| read_number(row, 0));
        Ok(last.optional()?.unwrap_or(0))
    }

    fn trim_log(&self, log: &str, partition: &str, below: u64) -> Result<i64, OpRefusal> {
        let id: Option<i64> = self
            .prepare(PARTITION_GET)?
            .query_row([log, partition], |row| row.get(0))
            .optional()?;
        let Some(id) = id else { return Ok(0) };
        let first = id << POSITION_BITS;
        // At most POSITION_MAX + 1.
        let end = first + below.min(POSITION_MAX + 1) as i64;
        let mut growth = if self.counting {
            -self.entries_usage(first, end)?
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

    fn entries_usage(&self, first: i64, end: i64) -> Result<i64, OpRefusal> {
        let sizes = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        let (count, bytes) = self.prepare(ENTRY_SIZES)?.query_row([first, end], sizes)?;
        Ok(count * entry_bytes(0) + bytes)
    }

    fn prepare(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>> {
        self.connection.prepare_cached(sql)
    }
}
