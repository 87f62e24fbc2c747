//! Reads, in place on the caller's thread: a pool of read connections, and the three queries of the
//! store.

use std::sync::Arc;
use threadkeep_storage::locks::{SleepingCondvar, SleepingMutex};

use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};

use super::super::whole_store::LogName;
use super::super::{
    BoundedRecords, COLLECTIONS, DamagedItem, KEY_BYTES_MAX, LogEntry, PAGE_BYTES_MAX,
    PAGE_ENTRIES_MAX, RecordKey, RecordPage, StorageError, StoredRecord, VALUE_BYTES_MAX,
};
use super::connection::{ReadMode, SqliteSession, open_reader};
use super::error::UnreadableValue;
use super::files::StoreFiles;
use super::statements::{
    ENTRIES, LINES_DOWN, LINES_UP, LOG_NAMES, NAME_READ_BYTES_MAX, OTHER_TABLE, RecordStatements,
    StoreStatements, record_table,
};

/// Most read connections of a store: as many as the host has threads that call the component. More
/// readers wait.
const READERS_MAX: usize = 16;
/// The highest position of a log entry: positions share a row id with the log's number.
pub(super) const POSITION_MAX: u64 = u32::MAX as u64;

/// The read connections of a store.
#[derive(Debug)]
pub(super) struct ReaderPool {
    place: Arc<StoreFiles>,
    reading: ReadMode,
    pool: SleepingMutex<ReaderPoolState>,
    returned: SleepingCondvar,
}

#[derive(Debug, Default)]
struct ReaderPoolState {
    idle: Vec<SqliteSession>,
    open: usize,
}

/// A connection that returns to the pool when it is dropped, unless it was closed.
struct BorrowedReader<'a> {
    readers: &'a ReaderPool,
    connection: Option<SqliteSession>,
}

impl ReaderPool {
    pub(super) fn new(place: Arc<StoreFiles>, reading: ReadMode) -> Self {
        Self {
            place,
            reading,
            pool: SleepingMutex::default(),
            returned: SleepingCondvar::new(),
        }
    }

    /// Runs `question` on a connection of the pool. A connection is closed after an error: it may
    /// be inside a transaction.
    pub(super) fn query<T>(
        &self,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StorageError> {
        self.place.check_unchanged()?;
        let mut borrowed = self.borrow_reader();
        let connection = match borrowed.connection.take() {
            Some(connection) => connection,
            None => open_reader(&self.place, self.reading)?,
        };
        let answer = connection.query(question)?;
        borrowed.connection = Some(connection);
        Ok(answer)
    }

    /// Reserves a place in the pool, with a connection if one is idle.
    fn borrow_reader(&self) -> BorrowedReader<'_> {
        let full = |pool: &mut ReaderPoolState| pool.idle.is_empty() && pool.open >= READERS_MAX;
        let mut pool = self.pool.lock();
        self.returned.wait_while(&mut pool, full);
        let connection = pool.idle.pop();
        pool.open += usize::from(connection.is_none());
        BorrowedReader {
            readers: self,
            connection,
        }
    }
}

impl Drop for BorrowedReader<'_> {
    fn drop(&mut self) {
        let mut pool = self.readers.pool.lock();
        match self.connection.take() {
            Some(connection) => pool.idle.push(connection),
            None => pool.open -= 1,
        }
        drop(pool);
        self.readers.returned.notify_one();
    }
}

/// The records that exist among `keys`, or the error of an answer that is too large.
pub(super) fn read_items(
    connection: &Connection,
    sql: &StoreStatements,
    keys: &[RecordKey],
) -> rusqlite::Result<Result<Vec<StoredRecord>, StorageError>> {
    let mut answer = BoundedRecords::new();
    let mut fits = Ok(());
    for key in keys {
        if let Some(item) = read_item(connection, sql, key)? {
            fits = answer.push(item);
        }
        if fits.is_err() {
            break;
        }
    }
    Ok(fits.map(|()| answer.into_items()))
}

/// One record.
pub(super) fn read_item(
    connection: &Connection,
    sql: &StoreStatements,
    key: &RecordKey,
) -> rusqlite::Result<Option<StoredRecord>> {
    let sql = sql.records(&key.collection);
    let mut statement = connection.prepare_cached(&sql.get)?;
    let read = |row: &Row<'_>| {
        Ok(StoredRecord {
            key: key.clone(),
            version: read_number(row, 0)?,
            value: read_value(row, 1, || format!("record {}/{}", key.collection, key.name))?,
        })
    };
    let row = sql.bind(&[&key.name], &key.collection);
    statement.query_row(row.as_slice(), read).optional()
}

/// The version of a record, without its value.
pub(super) fn read_version(
    connection: &Connection,
    sql: &StoreStatements,
    key: &RecordKey,
) -> rusqlite::Result<Option<u64>> {
    let sql = sql.records(&key.collection);
    let mut statement = connection.prepare_cached(&sql.version)?;
    let row = sql.bind(&[&key.name], &key.collection);
    let version = statement.query_row(row.as_slice(), |row| read_number(row, 0));
    version.optional()
}

/// A page of a collection.
pub(super) fn read_page(
    connection: &Connection,
    sql: &RecordStatements,
    collection: &str,
    range: (&str, &str),
    limit: u32,
    reverse: bool,
) -> rusqlite::Result<RecordPage> {
    let (start, end) = range;
    let (open, below) = if reverse {
        (&sql.down, &sql.down_below)
    } else {
        (&sql.up, &sql.up_below)
    };
    let mut statement = connection.prepare_cached(if end.is_empty() { open } else { below })?;
    let bounds: &[&dyn ToSql] = if end.is_empty() {
        &[&start]
    } else {
        &[&start, &end]
    };
    let mut rows = statement.query(sql.bind(bounds, &collection).as_slice())?;
    let mut page = RecordPage::default();
    let (mut count, mut bytes, mut last) = (0, 0, String::new());
    let mut unread = UnreadNames::default();
    while let Some(row) = rows.next()? {
        let Some(name) = row.get::<_, Option<String>>(1)? else {
            unread.add(&mut page, collection, read_number(row, 0)?);
            continue;
        };
        let value = read_scanned_value(row, collection, &name)?;
        bytes += value.as_ref().map_or(0, String::len);
        if count > 0 && (count == limit || bytes > PAGE_BYTES_MAX) {
            let cursor = cursor_at(&last, &name, reverse);
            if cursor == last || cursor.strip_suffix('\0') == Some(&last) {
                unread.leave_to_next_page(&mut page);
            }
            page.cursor = Some(cursor);
            break;
        }
        match value {
            Ok(value) => page.items.push(StoredRecord {
                key: RecordKey::new(collection, name.clone()),
                version: read_number(row, 2)?,
                value,
            }),
            Err(message) => page.damaged.push(DamagedItem {
                name: cut_name(&name).to_owned(),
                message,
            }),
        }
        count += 1;
        last = name;
        unread.settle(&page);
    }
    unread.add_count(&mut page, collection);
    Ok(page)
}

/// Passes the names of all records of a collection on.
pub(super) fn visit_names(
    connection: &Connection,
    sql: &RecordStatements,
    collection: &str,
    visit: &mut dyn FnMut(&str),
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(&sql.names)?;
    let mut rows = statement.query(sql.bind(&[], &collection).as_slice())?;
    while let Some(row) = rows.next()? {
        let name = row.get_ref(1)?.as_str_or_null()?.unwrap_or_default();
        visit(cut_name(name));
    }
    Ok(())
}

/// Passes all records of a collection on, in the order of their table: by name, each row would be
/// looked up by itself.
pub(super) fn visit_records(
    connection: &Connection,
    sql: &RecordStatements,
    collection: &str,
    visit: &mut dyn FnMut(&str, Option<&str>),
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(&sql.all)?;
    let mut rows = statement.query(sql.bind(&[], &collection).as_slice())?;
    while let Some(row) = rows.next()? {
        let name = row.get_ref(1)?.as_str_or_null()?.unwrap_or_default();
        let is_name = (1..=KEY_BYTES_MAX).contains(&name.len());
        let fits = is_name && read_number(row, 3)? <= VALUE_BYTES_MAX as u64;
        let value = row.get_ref(4)?;
        visit(cut_name(name), value.as_str().ok().filter(|_| fits));
    }
    Ok(())
}

/// Most names that a page says are too long to be read; it counts the others.
const UNREAD_NAMES_MAX: u64 = 10;

/// Records of a scan whose names are too long to be read. Such a name cannot be a cursor, so a page
/// never ends at one and they do not count for its limit; each takes a mebibyte of the file.
#[derive(Default)]
struct UnreadNames {
    count: u64,
    /// The count, and how many records the page said are damaged, at the last one that it has.
    settled: (u64, usize),
}

impl UnreadNames {
    fn add(&mut self, page: &mut RecordPage, collection: &str, bytes: u64) {
        self.count += 1;
        if self.count <= UNREAD_NAMES_MAX {
            page.damaged.push(DamagedItem {
                name: String::new(),
                message: format!(
                    "a record of {collection} has a name of {bytes} bytes, the most is \
                     {KEY_BYTES_MAX}"
                ),
            });
        }
    }

    /// The page has one more record, so it has those before it.
    fn settle(&mut self, page: &RecordPage) {
        self.settled = (self.count, page.damaged.len());
    }

    /// The next page begins behind the last record of this one, and names what follows it.
    fn leave_to_next_page(&mut self, page: &mut RecordPage) {
        self.count = self.settled.0;
        page.damaged.truncate(self.settled.1);
    }

    fn add_count(&self, page: &mut RecordPage, collection: &str) {
        let more = self.count.saturating_sub(UNREAD_NAMES_MAX);
        if more > 0 {
            page.damaged.push(DamagedItem {
                name: String::new(),
                message: format!("{more} more records of {collection} have names as long"),
            });
        }
    }
}

/// The value of a row of a scan, or the problem of the record.
fn read_scanned_value(
    row: &Row<'_>,
    collection: &str,
    name: &str,
) -> rusqlite::Result<Result<String, String>> {
    let place = || format!("record {collection}/{}", cut_name(name));
    if name.is_empty() {
        return Ok(Err(format!("a record of {collection} has an empty name")));
    }
    if name.len() > KEY_BYTES_MAX {
        let bytes = name.len();
        return Ok(Err(format!(
            "{} has a name of {bytes} bytes, the most is {KEY_BYTES_MAX}",
            place()
        )));
    }
    Ok(read_text_value(row, 3)?.map_err(|problem| format!("{} {problem}", place())))
}

/// A name, cut to the longest length of names.
fn cut_name(name: &str) -> &str {
    &name[..name.floor_char_boundary(KEY_BYTES_MAX)]
}

/// The cursor of a scan that returned the name `last` and has come to the name `next`. A name
/// longer than the limit cannot be a cursor: then it is a name between the two, and if both are too
/// long, one that skips all names that begin as `next` does.
fn cursor_at(last: &str, next: &str, reverse: bool) -> String {
    let fits = |name: &str| name.len() < KEY_BYTES_MAX;
    match reverse {
        false if next.len() <= KEY_BYTES_MAX => next.to_owned(),
        false if fits(last) => format!("{last}\0"),
        false => {
            let begins = &next[..next.floor_char_boundary(KEY_BYTES_MAX - char::MAX.len_utf8())];
            format!("{begins}{}", char::MAX)
        }
        true if last.len() <= KEY_BYTES_MAX => last.to_owned(),
        true if fits(next) => format!("{next}\0"),
        true => cut_name(next).to_owned(),
    }
}

/// A page of the log at `place`.
pub(super) fn read_entries(
    connection: &Connection,
    log: &str,
    partition: &str,
    start: u64,
    limit: u32,
    reverse: bool,
) -> rusqlite::Result<Vec<LogEntry>> {
    let from = match (reverse, start) {
        (false, start) if start > POSITION_MAX => return Ok(Vec::new()),
        (true, 0) => POSITION_MAX,
        (_, start) => start.min(POSITION_MAX),
    };
    let mut statement = connection.prepare_cached(if reverse { LINES_DOWN } else { LINES_UP })?;
    // At most POSITION_MAX.
    let mut rows = statement.query(params![log, partition, from as i64, limit])?;
    let mut lines = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let position = read_number(row, 0)?;
        let value = read_value(row, 1, || format!("entry {position} of {log}/{partition}"))?;
        bytes += value.len();
        if bytes > PAGE_BYTES_MAX && !lines.is_empty() {
            break;
        }
        lines.push(LogEntry { position, value });
    }
    Ok(lines)
}

/// Names of records and entries whose values are no text or too long, and records whose names are
/// too long to be read, at most `most`.
pub(super) fn find_unreadable(
    connection: &Connection,
    most: usize,
) -> rusqlite::Result<Vec<String>> {
    let mut found = Vec::new();
    let known = COLLECTIONS.map(|(name, _)| (record_table(name), format!("'{name}'")));
    // The name of another collection is as long as a row allows, and the row was not read yet.
    let others = "substr(collection, 1, 16)".to_owned();
    for (table, collection) in known.into_iter().chain([(OTHER_TABLE.to_owned(), others)]) {
        let sql = format!(
            "SELECT CASE WHEN octet_length(name) <= {NAME_READ_BYTES_MAX} \
             THEN 'the record ' || {collection} || ' ' || substr(name, 1, 512) \
             ELSE 'a record of ' || {collection} || ' whose name has ' || octet_length(name) \
             || ' bytes' END, \
             octet_length(value), CASE WHEN octet_length(name) BETWEEN 1 AND {KEY_BYTES_MAX} \
             AND octet_length(value) <= {VALUE_BYTES_MAX} THEN value END FROM {table}"
        );
        find_non_text(connection, &sql, most, &mut found)?;
    }
    find_non_text(connection, ENTRIES, most, &mut found)?;
    Ok(found)
}

/// Names of the collections that have records, in order.
pub(super) fn read_collection_names(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut names = Vec::new();
    for (collection, _) in COLLECTIONS {
        let table = record_table(collection);
        let sql = format!("SELECT EXISTS (SELECT 1 FROM {table})");
        if connection.query_row(&sql, [], |row| row.get(0))? {
            names.push(collection.to_owned());
        }
    }
    let sql = format!("SELECT DISTINCT collection FROM {OTHER_TABLE}");
    let mut others = connection.prepare(&sql)?;
    for name in others.query_map([], |row| row.get(0))? {
        names.push(name?);
    }
    names.sort_unstable();
    Ok(names)
}

/// A page of the names of logs after one, in order.
pub(super) fn read_log_names(
    connection: &Connection,
    after: Option<&LogName>,
) -> rusqlite::Result<Vec<LogName>> {
    // Every name is behind the empty one.
    let (log, partition) = after.map_or(("", ""), |name| (&name.log, &name.partition));
    let mut names = connection.prepare_cached(LOG_NAMES)?;
    let rows = names.query_map(params![log, partition, PAGE_ENTRIES_MAX], |row| {
        Ok(LogName {
            log: row.get(0)?,
            partition: row.get(1)?,
        })
    })?;
    rows.collect()
}

fn find_non_text(
    connection: &Connection,
    sql: &str,
    most: usize,
    found: &mut Vec<String>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()?
        && found.len() < most
    {
        if row.get_ref(2)?.as_str().is_err() {
            found.push(String::from_utf8_lossy(row.get_ref(0)?.as_bytes()?).into_owned());
        }
    }
    Ok(())
}

/// The value in column `column + 1`, whose length is in `column`; an error that names it by `what`,
/// if it is longer than the limit or no text.
fn read_value(row: &Row<'_>, column: usize, what: impl Fn() -> String) -> rusqlite::Result<String> {
    read_text_value(row, column)?
        .map_err(|problem| UnreadableValue::error(column, &what(), &problem))
}

/// As [`read_value`], with the problem as text.
fn read_text_value(row: &Row<'_>, column: usize) -> rusqlite::Result<Result<String, String>> {
    let bytes = read_number(row, column)?;
    if bytes > VALUE_BYTES_MAX as u64 {
        return Ok(Err(format!(
            "has {bytes} bytes, the most is {VALUE_BYTES_MAX}"
        )));
    }
    Ok(match row.get_ref(column + 1)?.as_str() {
        Ok(text) => Ok(text.to_owned()),
        Err(error) => Err(format!("is no text: {error}")),
    })
}

/// A number that is never negative.
pub(super) fn read_number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}
