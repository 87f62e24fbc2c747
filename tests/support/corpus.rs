//! The tree outside a project that must stay as it is, with canaries in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What stands in every file outside. An answer that holds it has read one.
pub const CANARY: &str = "canary-3f9c";

/// Files outside, each with a name that some room of a project would give it.
const FILES: [&str; 5] = [
    "canary",
    "canary.md",
    "canary.json",
    "canary.yaml",
    "deep/canary.md",
];

/// A tree outside, and how it was.
#[derive(Debug)]
pub struct Outside {
    path: PathBuf,
    before: BTreeMap<PathBuf, String>,
}

impl Outside {
    /// Plant files and a directory in a new directory `path`.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn plant(path: &Path) -> Self {
        for file in FILES {
            let file = path.join(file);
            std::fs::create_dir_all(file.parent().expect("it is in a directory")).expect("made");
            std::fs::write(file, CANARY).expect("written");
        }
        Self {
            path: path.to_owned(),
            before: seen(path),
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Nothing was written, made, removed or renamed in it.
    ///
    /// # Panics
    /// If something was, after `what`.
    pub fn assert_untouched(&self, what: &str) {
        assert_eq!(seen(&self.path), self.before, "the outside after {what}");
    }
}

/// Every thing below a directory: what it is, how long, when it was written, and what it holds. The number of names of a
/// file is left out: tests give files second names.
fn seen(path: &Path) -> BTreeMap<PathBuf, String> {
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

/// No answer and no error holds what stands outside.
///
/// # Panics
/// If it is.
pub fn assert_clean(what: &str, answer: &str) {
    assert!(
        !answer.contains(CANARY),
        "{what} has read outside: {answer}"
    );
}
