//! `cargo bench -p threadkeep-tests --bench peers`: what a turn of a conversation costs here and in
//! stores of Python: LangGraph's AsyncSqliteSaver and OpenAI's SQLiteSession. Skipped, and said so,
//! where their packages are not installed (`peers/requirements.txt`; `THREADKEEP_PYTHON` names the
//! interpreter).
//!
//! All compute on the thread that asks; AsyncSqliteSaver has one for its connection. A turn is a
//! question and the same answer of 480 bytes, all in SQLite with a write-ahead log. Each candidate
//! makes one turn before any makes the next, and the order changes. A peer measures its own calls,
//! so what the pipe to it takes is not counted. How durable a peer is, it asks of the connection
//! that writes; ours is set as the backend's options say. Nothing is asserted.

#[path = "peers/own.rs"]
mod own;
#[path = "peers/python.rs"]
mod python;

use std::io::Read;
use std::path::Path;
use std::time::Duration;
use threadkeep::storage::sqlite::CommitDurability;

/// Turns after which a row is printed.
const MILESTONES: [usize; 3] = [100, 400, 1_600];
/// Count of the newest that are read.
const NEWEST: u64 = 50;

/// A store that keeps a conversation.
trait ConversationStore {
    /// Its name in the table.
    fn name(&self) -> &str;
    /// Adds a question and its answer; returns the time it took.
    fn turn(&mut self, number: usize, answer: &str) -> Duration;
    /// Reads the newest 50 of what it keeps; returns the time it took.
    fn newest(&mut self) -> Duration;
}

fn main() {
    let measured = std::env::args().any(|argument| argument == "--bench");
    // `cargo test --benches` only proves that the bench works.
    let milestones: &[usize] = if measured { &MILESTONES } else { &[4] };
    for (word, durability) in [
        ("normal", CommitDurability::Normal),
        ("full", CommitDurability::Full),
    ] {
        println!("synchronous = {word}");
        compare(word, durability, milestones);
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load of the machine at the end: {}", load.trim());
    println!(
        "newest 50: `entries` of a thread here, `get_items(50)` of SQLiteSession, \
         `alist(limit=50)` of AsyncSqliteSaver"
    );
}

/// Runs all candidates turn by turn and prints a row of each at each milestone.
fn compare(word: &str, durability: CommitDurability, milestones: &[usize]) {
    let folder = tempfile::tempdir().expect("a folder");
    let place = |name: &str| {
        let at = folder.path().join(name);
        std::fs::create_dir(&at).expect("a folder");
        at
    };
    let folders = ["append", "run", "driver", "openai", "langgraph"].map(place);
    let mut candidates: Vec<(&Path, Box<dyn ConversationStore>)> = vec![
        (
            &folders[0],
            Box::new(own::AppendedChat::begin(&folders[0], durability)),
        ),
        (
            &folders[1],
            Box::new(own::SubmittedChat::begin(&folders[1], durability)),
        ),
        (
            &folders[2],
            Box::new(own::DrivenChat::begin(&folders[2], durability)),
        ),
    ];
    for (name, at) in [("openai", &folders[3]), ("langgraph", &folders[4])] {
        match python::PythonPeer::start(name, word, at) {
            Ok(peer) => candidates.push((at, Box::new(peer))),
            Err(problem) => println!("skipped: {name}: {problem}"),
        }
    }
    let answer = "All work and no play makes a dull day. ".repeat(13);
    let answer = &answer[..480];
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); candidates.len()];
    let mut done = 0;
    println!(
        "  {:>5}  {:34} {:>10} {:>12} {:>12} {:>14}",
        "turns", "store", "ms a turn", "data bytes", "with logs", "newest 50, ms"
    );
    for &milestone in milestones {
        while done < milestone {
            done += 1;
            for at in 0..candidates.len() {
                let at = (at + done) % candidates.len();
                let took = candidates[at].1.turn(done, answer);
                times[at].push(took);
            }
        }
        for ((folder, candidate), times) in candidates.iter_mut().zip(&mut times) {
            let newest = candidate.newest();
            // The median of the turns since the last row.
            times.sort_unstable();
            let median = times[times.len() / 2];
            times.clear();
            println!(
                "  {milestone:>5}  {:34} {:>10.3} {:>12} {:>12} {:>14.2}",
                candidate.name(),
                median.as_secs_f64() * 1e3,
                data_bytes(folder),
                bytes_below(folder),
                newest.as_secs_f64() * 1e3
            );
        }
    }
}

/// Bytes of a folder's data: of a copy whose write-ahead logs, which are of one size however much
/// there is, were moved into their files.
fn data_bytes(folder: &Path) -> u64 {
    let copy = tempfile::tempdir().expect("a folder");
    let files = std::fs::read_dir(folder).expect("a folder");
    let files: Vec<_> = files
        .map(|file| file.expect("a file").file_name())
        .collect();
    for name in &files {
        std::fs::copy(folder.join(name), copy.path().join(name)).expect("copied");
    }
    for name in files
        .iter()
        .filter(|name| is_database(&copy.path().join(name)))
    {
        let database = rusqlite::Connection::open(copy.path().join(name)).expect("opened");
        let moved = database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get(0));
        assert_eq!(moved, Ok(0), "{name:?} was not moved");
    }
    bytes_below(copy.path())
}

fn is_database(file: &Path) -> bool {
    let mut start = [0; 16];
    let read = std::fs::File::open(file).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start.starts_with(b"SQLite format 3")
}

/// Bytes of the files of a folder, logs included.
fn bytes_below(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).expect("a folder");
    files
        .map(|file| {
            file.and_then(|file| file.metadata())
                .map_or(0, |found| found.len())
        })
        .sum()
}
