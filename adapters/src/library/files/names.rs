//! Names of directives and knowledge, and the search for their files.
//!
//! A name consists of segments that mean the same on every file system. A file is accepted only if
//! its directory lists exactly this name. Otherwise a name could mean one file on Linux and another
//! where case is ignored.

use super::{DEPTH_MAX, NAMES_MAX};
use crate::library::{EntryKind, LibraryError, LibraryFiles};
use std::collections::BTreeSet;

/// Longest name, in bytes. A thread's id begins with its directive's name and has at most 200 bytes
/// itself.
pub const NAME_BYTES_MAX: usize = 200;

const EXTENSION: &str = ".md";

/// Names that Windows reserves for devices, in every directory and with every extension.
const DEVICES: [&str; 22] = [
    "con", "prn", "aux", "nul", "com1", "com2", "com3", "com4", "com5", "com6", "com7", "com8",
    "com9", "lpt1", "lpt2", "lpt3", "lpt4", "lpt5", "lpt6", "lpt7", "lpt8", "lpt9",
];

/// Result of the search for a name.
pub(super) enum FoundFile {
    /// No file.
    Nothing,
    /// The file at this path, relative to the directory searched.
    File(String),
    /// Two entries differ in case only; this is the one that was not asked for.
    DiffersInCase(String),
}

/// Checks a name: segments of letters, digits, `_` and `-`, joined by `/`. The error is a sentence
/// that says what is wrong.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    if name.len() > NAME_BYTES_MAX {
        return Err(format!(
            "a name has at most {NAME_BYTES_MAX} bytes; shorten it"
        ));
    }
    for segment in name.split('/') {
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if segment.is_empty() || !segment.bytes().all(valid) {
            return Err(
                "a name is letters, digits, _ and -, in segments joined by /, without an extension"
                    .to_owned(),
            );
        }
        if DEVICES
            .iter()
            .any(|device| device.eq_ignore_ascii_case(segment))
        {
            return Err(format!(
                "{segment} is the name of a device on Windows; choose another"
            ));
        }
    }
    Ok(())
}

/// Returns true for a name that a document of a library can have.
pub fn is_document_name(name: &str) -> bool {
    check_name(name).is_ok()
}

/// Makes an invalid name fit for an error: short, and without characters that control a terminal.
pub(super) fn printable_name(name: &str) -> String {
    let obeyed = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}'..='\u{2029}' | '\u{202a}'..='\u{202e}')
            || matches!(c, '\u{2066}'..='\u{2069}')
    };
    let mark = |c| if obeyed(c) { '\u{fffd}' } else { c };
    name.chars().take(100).map(mark).collect()
}

/// Finds the file of a name that [`check_name`] accepts.
pub(super) fn find_file(
    root: &LibraryFiles,
    name: &str,
    place: &str,
    entries_max: usize,
) -> Result<FoundFile, LibraryError> {
    let mut inside = String::from(".");
    let mut segments = name.split('/').peekable();
    while let Some(segment) = segments.next() {
        let wanted = match segments.peek() {
            Some(_) => segment.to_owned(),
            None => format!("{segment}{EXTENSION}"),
        };
        match find_entry(root, &inside, &wanted, place, entries_max)? {
            FoundFile::File(path) => inside = path,
            other => return Ok(other),
        }
    }
    Ok(FoundFile::File(inside))
}

/// Looks for `wanted` in the listing of a directory.
fn find_entry(
    root: &LibraryFiles,
    inside: &str,
    wanted: &str,
    place: &str,
    entries_max: usize,
) -> Result<FoundFile, LibraryError> {
    let Some(listing) = root.list(inside, place, entries_max.saturating_add(1))? else {
        return Ok(FoundFile::Nothing);
    };
    let mut exact = false;
    let mut twin = None;
    for (looked, entry) in listing.enumerate() {
        match entry.name {
            // The directory is too large for its listing: the file system decides if the file
            // exists, and names that differ in case are not looked for.
            _ if looked == entries_max => return Ok(FoundFile::File(format!("{inside}/{wanted}"))),
            Some(name) if name == wanted => exact = true,
            Some(name) if name.eq_ignore_ascii_case(wanted) => twin = Some(name),
            Some(_) | None => {}
        }
    }
    Ok(match (exact, twin) {
        (true, None) => FoundFile::File(format!("{inside}/{wanted}")),
        (true, Some(twin)) => FoundFile::DiffersInCase(twin),
        (false, _) => FoundFile::Nothing,
    })
}

/// Returns the first [`NAMES_MAX`] names below `root`, in byte order, among the first `entries_max`
/// entries. Links to directories are not entered.
pub(super) fn list_names(
    root: &LibraryFiles,
    place: &str,
    entries_max: usize,
) -> Result<Vec<String>, LibraryError> {
    let mut names = BTreeSet::new();
    let mut looked = 0;
    let mut waiting = vec![(String::new(), 0)];
    while let Some((prefix, depth)) = waiting.pop() {
        let inside = if prefix.is_empty() { "." } else { &prefix };
        let listing = root.list(inside, place, entries_max.saturating_add(1))?;
        for entry in listing.into_iter().flatten() {
            looked += 1;
            if looked > entries_max {
                return Ok(names.into_iter().collect());
            }
            let Some(file_name) = entry.name.as_deref() else {
                continue;
            };
            let stem = file_name.strip_suffix(EXTENSION);
            let path = |last: &str| {
                if prefix.is_empty() {
                    last.to_owned()
                } else {
                    format!("{prefix}/{last}")
                }
            };
            if entry.kind == EntryKind::Directory {
                if depth + 1 < DEPTH_MAX && check_name(&path(file_name)).is_ok() {
                    waiting.push((path(file_name), depth + 1));
                }
            } else if let Some(name) = stem.map(path).filter(|name| check_name(name).is_ok()) {
                add_readable(&mut names, root, name);
            }
        }
    }
    Ok(names.into_iter().collect())
}

/// Adds a name if its file can be read, and drops the last name if there are too many.
fn add_readable(names: &mut BTreeSet<String>, root: &LibraryFiles, name: String) {
    let full = names.len() == NAMES_MAX;
    if full && names.last().is_some_and(|last| *last < name) {
        return;
    }
    if !root.is_file(&format!("{name}{EXTENSION}")) {
        return;
    }
    if full {
        names.pop_last();
    }
    names.insert(name);
}
