//! File names that have misled programs, and the tree outside a project that must stay unchanged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The content of every file outside. An answer that holds it has read one.
pub const CANARY: &str = "canary-3f9c";

/// Files outside, each with a name that some directory of a project would use.
const FILES: [&str; 5] = [
    "canary",
    "canary.md",
    "canary.json",
    "canary.yaml",
    "deep/canary.md",
];

/// Names that are dangerous, or that name a file of Threadkeep.
const ODD_NAMES: &[&str] = &[
    "",
    ".",
    "..",
    "...",
    "/",
    "//",
    "../",
    "./x",
    "../x",
    "x/..",
    "x/../../y",
    "x//y",
    "/x",
    "x/",
    "x/.",
    " ",
    " x",
    "x ",
    "x.",
    ".x",
    ".hidden",
    "x y",
    "-",
    "--help",
    "-x",
    "\0",
    "x\0y",
    "x\n",
    "\n",
    "x\ty",
    "\u{1b}[31mred",
    "x\\y",
    "..\\x",
    "C:\\",
    "C:x",
    "\\\\server\\share",
    "x:stream",
    "x::$DATA",
    "CON",
    "nul.md",
    "com1",
    "x/aux/y",
    "LPT9",
    "%2e%2e",
    "%2e%2e%2fx",
    "%00",
    "~",
    "~root",
    "$HOME",
    "${HOME}",
    "$(id)",
    "`id`",
    "*",
    "?",
    "[a]",
    "x;y",
    "x|y",
    "'x'",
    "\"x\"",
    "é",
    "e\u{301}",
    "ｘ",
    "．．",
    "а",
    "\u{2024}\u{2024}",
    "..\u{2215}x",
    "x\u{2044}y",
    "x\u{202e}y",
    "x\u{200b}y",
    "\u{feff}x",
    "\u{1f512}",
    "registry.db",
    "registry.db-wal",
    "locks.d",
    "thread.json",
    "transcript.md",
    ".ai",
    ".AI/threads",
    "threads/registry.db",
    "locks.d/native-0000000000000000.lock",
];

/// Names that are valid ids: those that are accepted must not collide.
const PLAIN_NAMES: &[&str] = &["Twin", "twin", "TWIN", "a/b", "A/b", "con1", "x_y-Z9"];

/// Returns every name, with those that lead from each depth of a project to the tree outside it,
/// which is called `outside` and lies beside it.
pub fn hostile_names(outside: &Path) -> Vec<String> {
    let mut names: Vec<String> = ODD_NAMES
        .iter()
        .chain(PLAIN_NAMES)
        .map(|name| (*name).to_owned())
        .collect();
    for bytes in [201, 300, 10_000] {
        names.push("x".repeat(bytes));
    }
    names.push("é".repeat(150));
    names.push(["a"; 17].join("/"));
    names.push("x/".repeat(500) + "x");
    for depth in 1..=6 {
        let up = "../".repeat(depth);
        names.push(format!("{up}outside/canary"));
        names.push(format!("{up}outside/canary.json"));
        names.push(format!("x/{up}../outside/canary"));
    }
    for file in FILES {
        names.push(outside.join(file).display().to_string());
    }
    names
}

/// Returns true for a name that a thread or a directive may have: defined here a second time, apart
/// from the code that decides it.
pub fn may_be_an_id(name: &str) -> bool {
    let device = |segment: &str| {
        let lower = segment.to_ascii_lowercase();
        let numbered = ["com", "lpt"].iter().any(|port| {
            lower.strip_prefix(port).is_some_and(|rest| {
                rest.len() == 1 && rest.bytes().all(|byte| byte.is_ascii_digit())
            })
        });
        numbered || ["con", "prn", "aux", "nul"].contains(&lower.as_str())
    };
    let segment = |segment: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        !segment.is_empty() && segment.chars().all(plain) && !device(segment)
    };
    name.len() <= 200 && name.split('/').count() <= 16 && name.split('/').all(segment)
}

/// A tree outside a project, with a snapshot of its first state.
#[derive(Debug)]
pub struct OutsideTree {
    path: PathBuf,
    before: BTreeMap<PathBuf, String>,
}

impl OutsideTree {
    /// Creates files and a directory in a new directory `path`.
    ///
    /// # Panics
    /// If one cannot be created.
    pub fn create(path: &Path) -> Self {
        for file in FILES {
            let file = path.join(file);
            std::fs::create_dir_all(file.parent().expect("it is in a directory")).expect("made");
            std::fs::write(file, CANARY).expect("written");
        }
        Self {
            path: path.to_owned(),
            before: snapshot_tree(path),
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asserts that nothing was written, created, removed or renamed in it.
    ///
    /// # Panics
    /// If something was, after `what`.
    pub fn assert_untouched(&self, what: &str) {
        assert_eq!(
            snapshot_tree(&self.path),
            self.before,
            "the outside after {what}"
        );
    }
}

/// Returns every entry below a directory: its type, length, modification time and content. The
/// number of hard links is left out: tests create hard links.
fn snapshot_tree(path: &Path) -> BTreeMap<PathBuf, String> {
    let mut seen = BTreeMap::new();
    let mut waiting = vec![path.to_owned()];
    while let Some(path) = waiting.pop() {
        let metadata = std::fs::symlink_metadata(&path).expect("it is there");
        let mut what = format!("{:?} {:?}", metadata.file_type(), metadata.modified());
        if metadata.is_file() {
            what += &format!(" {:?}", std::fs::read(&path).expect("it can be read"));
        } else if metadata.is_dir() {
            let entries = std::fs::read_dir(&path).expect("it can be listed");
            waiting.extend(entries.map(|entry| entry.expect("it can be listed").path()));
        }
        seen.insert(path, what);
    }
    seen
}

/// The number of names that an interface was tried with, and their results.
#[derive(Debug)]
pub struct NameTally {
    entry: String,
    refused: usize,
    accepted: usize,
}

impl NameTally {
    /// A tally for an interface that takes names.
    pub fn for_entry(entry: &str) -> Self {
        Self {
            entry: entry.to_owned(),
            refused: 0,
            accepted: 0,
        }
    }

    /// Counts one name.
    pub fn count(&mut self, accepted: bool) {
        match accepted {
            true => self.accepted += 1,
            false => self.refused += 1,
        }
    }

    /// Returns the number of accepted names.
    pub fn accepted_count(&self) -> usize {
        self.accepted
    }
}

/// Formats the tallies as a table.
pub fn format_tallies(tallies: &[NameTally]) -> String {
    let mut table = format!(
        "{:<34} {:>5} {:>7} {:>8}\n",
        "entry", "names", "refused", "accepted"
    );
    for NameTally {
        entry,
        refused,
        accepted,
    } in tallies
    {
        let tried = refused + accepted;
        table += &format!("{entry:<34} {tried:>5} {refused:>7} {accepted:>8}\n");
    }
    table
}

/// Asserts that an answer or error holds no content from outside.
///
/// # Panics
/// If it does.
pub fn assert_clean(what: &str, answer: &str) {
    assert!(
        !answer.contains(CANARY),
        "{what} has read outside: {answer}"
    );
}

/// Asserts that a message is clean, not empty, printable whatever the name holds, and bounded
/// however long the name was.
///
/// # Panics
/// If it is not.
pub fn assert_message(what: &str, message: &str) {
    assert_clean(what, message);
    assert!(!message.is_empty(), "{what} says nothing");
    assert!(!message.contains(is_obeyed), "{what}: {message:?}");
    assert!(
        message.len() <= 2_000,
        "{what}: {} bytes: {message:.300}",
        message.len()
    );
}

/// Returns true for a character that a terminal would obey instead of showing: controls, line ends,
/// and characters that reorder text.
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
