//! Reads, in place on the caller's thread: a pool of read connections, and the three queries of the
//! store.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::check::collection_place;
use super::super::{
    Answer, COLLECTIONS, DamagedItem, Item, KEY_BYTES_MAX, Key, Line, PAGE_BYTES_MAX, Page,
    StorageError, VALUE_BYTES_MAX,
};
use super::connection::{Reading, Session, open_reader};
use super::error::UnreadableValue;
use super::files::Place;
use super::statements::{
    ENTRIES, LINES_DOWN, LINES_UP, NAME_READ_BYTES_MAX, RecordStatements, Statements, log_name,
};

/// Most read connections of a store: as many as the host has threads that call the component. More
/// readers wait.
const READERS_MAX: usize = 16;
/// The highest position of a log entry: positions share a row id with the log's number.
pub(super) const POSITION_MAX: u64 = u32::MAX as u64;

/// The read connections of a store.
#[derive(Debug)]
pub(super) struct Readers {
    place: Arc<Place>,
    reading: Reading,
    pool: Mutex<Pool>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct Pool {
    idle: Vec<Session>,
    open: usize,
}

/// A connection that returns to the pool when it is dropped, unless it was closed.
struct Borrowed<'a> {
    readers: &'a Readers,
    connection: Option<Session>,
}

impl Readers {
    pub(super) fn new(place: Arc<Place>, reading: Reading) -> Self {
        Self {
            place,
            reading,
            pool: Mutex::default(),
            returned: Condvar::new(),
        }
    }

    /// Runs `question` on a connection of the pool. A connection is closed after an error: it may
    /// be inside a transaction.
    pub(super) fn ask<T>(
        &self,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StorageError> {
        self.place.check_unchanged()?;
        let mut borrowed = self.borrow();
        let connection = match borrowed.connection.take() {
            Some(connection) => connection,
            None => open_reader(&self.place, self.reading)?,
        };
        let answer = connection.ask(question)?;
        borrowed.connection = Some(connection);
        Ok(answer)
    }

    /// Reserves a place in the pool, with a connection if one is idle.
    fn borrow(&self) -> Borrowed<'_> {
        let full = |pool: &mut Pool| pool.idle.is_empty() && pool.open >= READERS_MAX;
        let mut pool = self
            .returned
            .wait_while(self.pool(), full)
            .unwrap_or_else(PoisonError::into_inner);
        let connection = pool.idle.pop();
        pool.open += usize::from(connection.is_none());
        Borrowed {
            readers: self,
            connection,
        }
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        let mut pool = self.readers.pool();
        match self.connection.take() {
            Some(connection) => pool.idle.push(connection),
            None => pool.open -= 1,
        }
        drop(pool);
        self.readers.returned.notify_one();
    }
}

/// The records that exist among `keys`, or the error of an answer that is too large.
pub(super) fn items(
    connection: &Connection,
    sql: &Statements,
    keys: &[Key],
) -> rusqlite::Result<Result<Vec<Item>, StorageError>> {
    let mut answer = Answer::new();
    let mut fits = Ok(());
    for key in keys {
        if let Some(item) = item(connection, sql, key)? {
            fits = answer.push(item);
        }
        if fits.is_err() {
            break;
        }
    }
    Ok(fits.map(|()| answer.into_items()))
}

/// One record. An unknown collection has none; it was refused before.
pub(super) fn item(
    connection: &Connection,
    sql: &Statements,
    key: &Key,
) -> rusqlite::Result<Option<Item>> {
    let Ok(place) = collection_place(&key.collection) else {
        return Ok(None);
    };
    let mut statement = connection.prepare_cached(&sql.records(place).get)?;
    let read = |row: &Row<'_>| {
        Ok(Item {
            key: key.clone(),
            version: number(row, 0)?,
            value: value(row, 1, || format!("record {}/{}", key.collection, key.name))?,
        })
    };
    statement.query_row([&key.name], read).optional()
}

/// A page of a collection.
pub(super) fn page(
    connection: &Connection,
    sql: &RecordStatements,
    collection: &str,
    range: (&str, &str),
    limit: u32,
    reverse: bool,
) -> rusqlite::Result<Page> {
    let (start, end) = range;
    let (open, below) = if reverse {
        (&sql.down, &sql.down_below)
    } else {
        (&sql.up, &sql.up_below)
    };
    let mut statement = connection.prepare_cached(if end.is_empty() { open } else { below })?;
    let mut rows = if end.is_empty() {
        statement.query([start])?
    } else {
        statement.query([start, end])?
    };
    let mut page = Page::default();
    let (mut count, mut bytes, mut last) = (0, 0, String::new());
    let mut unread = UnreadNames::default();
    while let Some(row) = rows.next()? {
        let Some(name) = row.get::<_, Option<String>>(1)? else {
            unread.add(&mut page, collection, number(row, 0)?);
            continue;
        };
        let value = readable_value(row, collection, &name)?;
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
            Ok(value) => page.items.push(Item {
                key: Key::new(collection, name.clone()),
                version: number(row, 2)?,
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

/// Most names that a page says are too long to be read; it counts the others.
const UNREAD_NAMES_MAX: u64 = 10;

/// Records of a scan whose names are too long to be read. A page never ends at one, because nobody
/// could say where to go on, so they count for no limit; each takes a mebibyte of the file.
#[derive(Default)]
struct UnreadNames {
    count: u64,
    /// The count, and how many records the page said are damaged, at the last one that it has.
    settled: (u64, usize),
}

impl UnreadNames {
    fn add(&mut self, page: &mut Page, collection: &str, bytes: u64) {
        self.count += 1;
        if self.count <= UNREAD_NAMES_MAX {
            page.damaged.push(DamagedItem {
                name: String::new(),
                message: format!(
                    "a record of {collection} has a name of {bytes} bytes, the most is {KEY_BYTES_MAX}"
                ),
            });
        }
    }

    /// The page has one more record, so it has those before it.
    fn settle(&mut self, page: &Page) {
        self.settled = (self.count, page.damaged.len());
    }

    /// The next page begins behind the last record of this one, and names what follows it.
    fn leave_to_next_page(&mut self, page: &mut Page) {
        self.count = self.settled.0;
        page.damaged.truncate(self.settled.1);
    }

    fn add_count(&self, page: &mut Page, collection: &str) {
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
fn readable_value(
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
    Ok(text_value(row, 3)?.map_err(|problem| format!("{} {problem}", place())))
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
pub(super) fn lines(
    connection: &Connection,
    place: usize,
    partition: &str,
    start: u64,
    limit: u32,
    reverse: bool,
) -> rusqlite::Result<Vec<Line>> {
    let from = match (reverse, start) {
        (false, start) if start > POSITION_MAX => return Ok(Vec::new()),
        (true, 0) => POSITION_MAX,
        (_, start) => start.min(POSITION_MAX),
    };
    let mut statement = connection.prepare_cached(if reverse { LINES_DOWN } else { LINES_UP })?;
    // At most POSITION_MAX.
    let mut rows = statement.query(params![log_name(place), partition, from as i64, limit])?;
    let mut lines = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let position = number(row, 0)?;
        let value = value(row, 1, || {
            format!("entry {position} of {}/{partition}", log_name(place))
        })?;
        bytes += value.len();
        if bytes > PAGE_BYTES_MAX && !lines.is_empty() {
            break;
        }
        lines.push(Line { position, value });
    }
    Ok(lines)
}

/// Names of records and entries whose values are no text or too long, and records whose names are
/// too long to be read, at most `most`.
pub(super) fn unreadable(connection: &Connection, most: usize) -> rusqlite::Result<Vec<String>> {
    let mut found = Vec::new();
    for (collection, _) in COLLECTIONS {
        let sql = format!(
            "SELECT CASE WHEN octet_length(name) <= {NAME_READ_BYTES_MAX} \
             THEN 'the record {collection} ' || substr(name, 1, 512) \
             ELSE 'a record of {collection} whose name has ' || octet_length(name) || ' bytes' END, \
             octet_length(value), CASE WHEN octet_length(name) BETWEEN 1 AND {KEY_BYTES_MAX} \
             AND octet_length(value) <= {VALUE_BYTES_MAX} THEN value END FROM record_{collection}"
        );
        not_text(connection, &sql, most, &mut found)?;
    }
    not_text(connection, ENTRIES, most, &mut found)?;
    Ok(found)
}

fn not_text(
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
fn value(row: &Row<'_>, column: usize, what: impl Fn() -> String) -> rusqlite::Result<String> {
    text_value(row, column)?.map_err(|problem| UnreadableValue::error(column, &what(), &problem))
}

/// As [`value`], with the problem as text.
fn text_value(row: &Row<'_>, column: usize) -> rusqlite::Result<Result<String, String>> {
    let bytes = number(row, column)?;
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
pub(super) fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}
