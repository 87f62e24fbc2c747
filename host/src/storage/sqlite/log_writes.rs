//! Joins what one COMMIT writes to the write-ahead log.
//!
//! SQLite writes each frame of a commit by two calls, a header of 24 bytes and a page behind it.
//! That is ten system calls for the commit of a turn. While a COMMIT runs ([`join_log_writes`]) the
//! bytes are held in memory instead, and all of them are written when the page of the last frame
//! has come, which its header marks.
//!
//! This is as safe as single writes are, because
//! - SQLite syncs the log, and shows the frames to others through the shared memory, after the last
//!   frame and never before. So nobody looks for a frame that is held;
//! - what is held is written before every other operation on the log, to the places and in the
//!   order in which it came. A write that a crash or a full disk cuts leaves what single writes
//!   leave: frames without the one that commits them, told by their checksums;
//! - a write that fails is an error of the COMMIT, as SQLite has shown none of the frames yet. What
//!   is held when a COMMIT has failed belongs to no transaction and is dropped: another process may
//!   have written at its place since.
//!
//! Frames that SQLite writes before a COMMIT, because its cache is full, are not held: their last
//! one has no mark, and a rollback would leave them here. Nor are the headers that a COMMIT writes
//! anew afterwards, behind its last frame. No pointer is handled here: see [`super::vfs`].

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most bytes that are held: more than twice what a turn writes. A larger commit is written in
/// parts of at most this size.
const HELD_BYTES_MAX: usize = 64 << 10;
/// Bytes of the header of a frame; no other write to the log has as many.
const FRAME_HEADER_BYTES: usize = 24;

/// The number of no COMMIT.
const NO_COMMIT: u64 = 0;

/// A number for each COMMIT of this process.
static NEXT_COMMIT: AtomicU64 = AtomicU64::new(NO_COMMIT + 1);

thread_local! {
    /// The COMMIT that this thread runs now. SQLite writes the log on the thread that calls it.
    static CURRENT_COMMIT: Cell<u64> = const { Cell::new(NO_COMMIT) };
}

/// Ends the joining of writes when it is dropped, also by a panic.
struct CommitScope;

impl Drop for CommitScope {
    fn drop(&mut self) {
        CURRENT_COMMIT.set(NO_COMMIT);
    }
}

/// Runs `commit`, which executes one COMMIT on this thread, with its writes to the log joined.
pub(super) fn join_log_writes<T>(commit: impl FnOnce() -> T) -> T {
    CURRENT_COMMIT.set(NEXT_COMMIT.fetch_add(1, Ordering::Relaxed));
    let _scope = CommitScope;
    commit()
}

/// The write to the file itself, of bytes at an offset. Returns SQLite's code of a failure.
type WriteFile<'a> = &'a mut dyn FnMut(&[u8], i64) -> Result<(), c_int>;

/// The writes to one open log that are held; see the documentation of the module.
#[derive(Debug, Default)]
pub(super) struct HeldWrites {
    bytes: Vec<u8>,
    /// The place of the first byte in the file.
    start: i64,
    /// The COMMIT that wrote the bytes.
    commit: u64,
    /// True if the header of its last frame has come, and the page has not.
    is_last_frame: bool,
    /// The last COMMIT whose frames have all come.
    finished: u64,
}

impl HeldWrites {
    /// Holds a write of a COMMIT, or writes it, with what is held before it.
    pub(super) fn write(
        &mut self,
        bytes: &[u8],
        offset: i64,
        write_file: WriteFile<'_>,
    ) -> Result<(), c_int> {
        let commit = CURRENT_COMMIT.get();
        let is_held = commit != NO_COMMIT && commit != self.finished && self.can_hold(bytes.len());
        if !is_held || !self.is_continued_by(commit, offset, bytes.len()) {
            self.flush(write_file)?;
        }
        if !is_held {
            return write_file(bytes, offset);
        }
        if self.bytes.is_empty() {
            (self.start, self.commit) = (offset, commit);
        }
        self.bytes.extend_from_slice(bytes);
        if bytes.len() == FRAME_HEADER_BYTES {
            self.is_last_frame = is_commit_header(bytes);
        } else if self.is_last_frame {
            self.is_last_frame = false;
            self.finished = commit;
            return self.flush(write_file);
        }
        Ok(())
    }

    /// Writes what is held. Whatever the result is, nothing is held afterwards.
    pub(super) fn flush(&mut self, write_file: WriteFile<'_>) -> Result<(), c_int> {
        let is_current = self.commit == CURRENT_COMMIT.get();
        let written = match is_current && !self.bytes.is_empty() {
            true => write_file(&self.bytes, self.start),
            false => Ok(()),
        };
        self.bytes.clear();
        written
    }

    /// True if there is memory for a write of so many bytes.
    fn can_hold(&mut self, count: usize) -> bool {
        count <= HELD_BYTES_MAX
            && (self.bytes.capacity() >= HELD_BYTES_MAX
                || self.bytes.try_reserve_exact(HELD_BYTES_MAX).is_ok())
    }

    /// True if such a write is one with what is held.
    fn is_continued_by(&self, commit: u64, offset: i64, count: usize) -> bool {
        let end = self.start.checked_add(self.bytes.len() as i64);
        self.commit == commit && end == Some(offset) && self.bytes.len() + count <= HELD_BYTES_MAX
    }
}

/// True if the header of a frame marks it as the last one of its transaction: its second number is
/// the size of the database then, and otherwise 0.
fn is_commit_header(header: &[u8]) -> bool {
    header
        .get(4..8)
        .is_some_and(|pages| pages.iter().any(|byte| *byte != 0))
}

#[cfg(test)]
mod tests {
    use super::super::super::{
        CommitOp, CommitOutcome, RecordExpectation, RecordKey, StorageBackend,
    };
    use super::super::{CommitDurability, SqliteOptions, SqliteStore};
    use super::*;
    use crate::authority::ProjectDir;
    use std::path::Path;

    const PAGE: [u8; 512] = [7; 512];
    const FRAME_BYTES: i64 = (FRAME_HEADER_BYTES + PAGE.len()) as i64;

    /// A file that takes so many writes and notes the place and the bytes of each.
    struct NotedWrites {
        writes: Vec<(i64, usize)>,
        taken_max: usize,
    }

    impl NotedWrites {
        fn new(taken_max: usize) -> Self {
            let writes = Vec::new();
            Self { writes, taken_max }
        }

        fn write(&mut self, bytes: &[u8], offset: i64) -> Result<(), c_int> {
            if self.writes.len() == self.taken_max {
                return Err(13);
            }
            self.writes.push((offset, bytes.len()));
            Ok(())
        }
    }

    fn header(is_last: bool) -> [u8; FRAME_HEADER_BYTES] {
        let mut header = [0; FRAME_HEADER_BYTES];
        header[3] = 9;
        header[7] = u8::from(is_last);
        header
    }

    /// Writes a frame as SQLite does.
    fn write_frame(
        held: &mut HeldWrites,
        file: &mut NotedWrites,
        number: i64,
        is_last: bool,
    ) -> Result<(), c_int> {
        let offset = 32 + number * FRAME_BYTES;
        let mut write = |bytes: &[u8], offset| file.write(bytes, offset);
        held.write(&header(is_last), offset, &mut write)?;
        held.write(&PAGE, offset + FRAME_HEADER_BYTES as i64, &mut write)
    }

    #[test]
    fn commit_is_one_write_and_nothing_else_is_held() {
        let (mut held, mut file) = (HeldWrites::default(), NotedWrites::new(99));
        let whole = 3 * FRAME_BYTES as usize;
        join_log_writes(|| {
            for number in 0..3 {
                assert!(file.writes.is_empty());
                write_frame(&mut held, &mut file, number, number == 2).unwrap();
            }
            assert_eq!(file.writes, [(32, whole)]);
            // Headers written anew, and the frame that fills up a sector.
            let mut write = |bytes: &[u8], offset| file.write(bytes, offset);
            held.write(&header(true), 32, &mut write).unwrap();
            write_frame(&mut held, &mut file, 3, true).unwrap();
            assert_eq!(file.writes.len(), 4);
        });
        // A spill.
        write_frame(&mut held, &mut file, 4, false).unwrap();
        assert_eq!(file.writes.len(), 6);
        assert!(held.bytes.is_empty());
    }

    #[test]
    fn write_elsewhere_and_each_full_buffer_are_written_in_order() {
        let (mut held, mut file) = (HeldWrites::default(), NotedWrites::new(99));
        join_log_writes(|| {
            write_frame(&mut held, &mut file, 5, false).unwrap();
            let mut write = |bytes: &[u8], offset| file.write(bytes, offset);
            held.write(&PAGE, 56, &mut write).unwrap();
            held.flush(&mut write).unwrap();
            let frame = FRAME_BYTES as usize;
            let expected = [(32 + 5 * FRAME_BYTES, frame), (56, PAGE.len())];
            assert_eq!(file.writes, expected);
            for number in 6..500 {
                write_frame(&mut held, &mut file, number, number == 499).unwrap();
            }
        });
        let mut end = 32 + 6 * FRAME_BYTES;
        for (offset, count) in &file.writes[2..] {
            assert!(
                *offset == end && *count <= HELD_BYTES_MAX,
                "{offset} {count}"
            );
            end += *count as i64;
        }
        assert_eq!(end, 32 + 500 * FRAME_BYTES);
        assert!(file.writes.len() < 10, "{}", file.writes.len());
    }

    #[test]
    fn failed_write_is_the_error_of_its_commit_and_never_written_later() {
        let (mut held, mut file) = (HeldWrites::default(), NotedWrites::new(0));
        let failed = join_log_writes(|| {
            write_frame(&mut held, &mut file, 0, false).unwrap();
            write_frame(&mut held, &mut file, 1, true)
        });
        assert_eq!(failed, Err(13));
        file.taken_max = 99;
        // A COMMIT that ends before its last frame; then another process may write.
        join_log_writes(|| write_frame(&mut held, &mut file, 0, false).unwrap());
        held.flush(&mut |bytes, offset| file.write(bytes, offset))
            .unwrap();
        assert!(file.writes.is_empty(), "{:?}", file.writes);
        join_log_writes(|| write_frame(&mut held, &mut file, 0, false).unwrap());
        join_log_writes(|| write_frame(&mut held, &mut file, 1, true).unwrap());
        assert_eq!(file.writes, [(32 + FRAME_BYTES, FRAME_BYTES as usize)]);
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "looks from outside at the files of a store"
    )]
    fn copy_files(from: &Path, to: &Path) {
        for name in ["a.db", "a.db-wal"] {
            std::fs::copy(from.join(name), to.join(name)).expect("copied");
        }
    }

    /// Symptom to be prevented: SQLite writes the headers of frames anew behind the last frame of a
    /// COMMIT, when pages that had been written before it were changed again. Were such a header
    /// held, nothing would write it, and a death would cost a commit that was acknowledged.
    #[test]
    fn frames_written_before_commit_and_headers_written_anew_are_in_the_file() {
        const OPS: u32 = 900;
        let temp = tempfile::TempDir::new().expect("a temporary directory");
        let project = ProjectDir::open_ambient(temp.path()).expect("it opens");
        let threads = project.threads_dir_or_create().expect("made");
        // A COMMIT that syncs would write what is held.
        let options = SqliteOptions {
            durability: CommitDurability::Normal,
            ..SqliteOptions::local()
        };
        let store = SqliteStore::open(&threads, "a.db", options).expect("opened");
        let small = store
            .query_writer_if_free(|connection| connection.execute_batch("PRAGMA cache_size = 12"));
        assert_eq!(small, Ok(Some(())));
        for round in 0..3 {
            let ops: Vec<CommitOp> = (0..OPS)
                .map(|number| CommitOp::Put {
                    // In an order that comes back to each page.
                    key: RecordKey::new("index", format!("{}", number * 577 % OPS)),
                    expect: RecordExpectation::Any,
                    value: format!("{round} {}", "v".repeat(400)),
                })
                .collect();
            let done = store.commit(&ops, false);
            assert_eq!(done, Ok(CommitOutcome::Committed));
            // As a death leaves the files.
            let files = temp.path().join(".ai/threads");
            let copy = tempfile::TempDir::new().expect("a temporary directory");
            copy_files(&files, copy.path());
            let stock = rusqlite::Connection::open(copy.path().join("a.db")).expect("opened");
            let sound: String = stock
                .query_row("PRAGMA integrity_check", [], |row| row.get(0))
                .expect("read");
            let sql = "SELECT count(*) FROM record_index WHERE value LIKE ?1";
            let count: u32 = stock
                .query_row(sql, [format!("{round} v%")], |row| row.get(0))
                .expect("read");
            assert_eq!((sound.as_str(), count), ("ok", OPS), "round {round}");
        }
    }
}
