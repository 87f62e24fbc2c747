//! The files of the checkout, without those that builds and editors leave in it.

use std::path::{Path, PathBuf};

/// Largest number of files of a checkout; the walk fails above it.
const FILES_MAX: usize = 20_000;

/// Directories without sources, at any depth. In a second working tree `.git` is a file.
const SKIPPED: [&str; 6] = [
    ".git",
    ".idea",
    ".vscode",
    ".venv",
    "node_modules",
    "__pycache__",
];

/// One file.
pub struct SourceFile {
    /// From the root of the checkout, with `/`.
    pub path: String,
    /// Its text; empty if it is not UTF-8.
    pub text: String,
}

impl SourceFile {
    /// True if the name ends in `.kind`.
    pub fn is(&self, kind: &str) -> bool {
        self.path
            .strip_suffix(kind)
            .is_some_and(|rest| rest.ends_with('.'))
    }
}

/// All files, ordered by path.
pub fn files() -> Vec<SourceFile> {
    let mut paths = Vec::new();
    walk(&root(), "", &mut paths);
    paths.sort();
    let read = |path: &String| {
        std::fs::read(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    paths
        .iter()
        .map(|path| SourceFile {
            path: path.clone(),
            text: String::from_utf8(read(path)).unwrap_or_default(),
        })
        .collect()
}

/// Returns true if a path from the root of the checkout exists.
pub fn exists(path: &str) -> bool {
    root().join(path).exists()
}

/// Returns the root of the checkout.
pub fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests
        .parent()
        .expect("tests/ lies in the checkout")
        .to_path_buf()
}

/// Collects files below a folder. Symbolic links are not followed: the one in the sources,
/// `host/wit`, leads to files that are walked anyway.
fn walk(folder: &Path, prefix: &str, paths: &mut Vec<String>) {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let entry = entry.expect("a folder of the checkout can be read");
        let name = entry.file_name().into_string().expect("names are UTF-8");
        let path = format!("{prefix}{name}");
        let kind = entry
            .file_type()
            .expect("a file of the checkout has a type");
        if kind.is_dir() && !is_skipped(prefix, &name) {
            walk(&entry.path(), &format!("{path}/"), paths);
        } else if kind.is_file() && !is_skipped(prefix, &name) && !name.ends_with(".snap.new") {
            paths.push(path);
        }
        assert!(paths.len() <= FILES_MAX, "more than {FILES_MAX} files");
    }
}

/// Skips, besides the list, target directories, which may have any name that begins so, and the
/// threads of a demo.
fn is_skipped(prefix: &str, name: &str) -> bool {
    SKIPPED.contains(&name)
        || (prefix.is_empty() && name.starts_with("target"))
        || (prefix.ends_with(".ai/") && name == "threads")
}
