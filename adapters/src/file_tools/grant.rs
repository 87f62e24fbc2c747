//! The granted directory as a model sees it: paths resolved, links followed inside, `.ai` absent.
//!
//! A path is walked one name at a time ([`WalkedPath`]), so neither a link nor a swap in between
//! leads to a directory whose name was not checked. A hard link cannot be told from the file
//! itself, so a file with more than one name is not read at all.

use super::work::{CallWork, LOOKED_MAX};
use crate::tree_walk::{WalkRefusal, WalkedPart, WalkedPath};
use std::io;
use threadkeep_storage::directory::{
    AuthorityError, DirectoryTree, EntryDetails, EntryType, FileAccess, TreeFile,
    open_checked_file, open_child_tree,
};

/// The directory of a tenant inside its project, which no tool sees.
const AI_DIR: &str = ".ai";

/// Longest path, in bytes, and longest name in a path: more than common file systems allow.
pub(super) const PATH_BYTES_MAX: usize = 1_024;

/// Most entries of one directory that are looked at. A model can use about a hundredth of that.
const ENTRIES_MAX: usize = 10_000;

/// A directory that tools may read.
pub struct GrantedFiles {
    root: Box<dyn DirectoryTree>,
    /// [`ENTRIES_MAX`], or less.
    entries_max: usize,
    /// [`LOOKED_MAX`], or less.
    pub(super) looked_max: usize,
}

/// The type of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeenKind {
    Directory,
    File {
        bytes: u64,
    },
    /// A symbolic link.
    Link,
    /// A file that has another name, which is not read: that name may be in `.ai`, or outside.
    HardLink,
    /// A pipe, a socket or a device.
    Special,
}

/// An entry of a directory.
pub(super) struct SeenEntry {
    pub(super) name: String,
    pub(super) kind: SeenKind,
}

/// The entries of a directory that may be seen.
pub(super) struct DirectoryEntries {
    /// The entries by name, in byte order; hidden ones are left out.
    pub(super) entries: Vec<SeenEntry>,
    /// True if entries were left out: names that are not UTF-8, more than [`ENTRIES_MAX`], or more
    /// links than are followed. [`CallWork::is_spent`] tells if the call's own bound was reached.
    pub(super) incomplete: bool,
}

/// The treatment of links in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkRule {
    /// Links that can be opened are entries.
    Follow,
    /// Links are left out.
    Skip,
}

/// The directory or file at a path.
pub(super) enum OpenedPath {
    Directory(Box<dyn DirectoryTree>),
    File(Box<dyn TreeFile>, EntryDetails),
}

impl GrantedFiles {
    /// Makes the view of a directory that tools may read below, and nothing else.
    pub fn new(root: Box<dyn DirectoryTree>) -> Self {
        Self {
            root,
            entries_max: ENTRIES_MAX,
            looked_max: LOOKED_MAX,
        }
    }

    /// Lowers the bounds: the entries of one directory that are looked at, and those that one call
    /// looks at in all directories together.
    pub fn lower_bounds(&mut self, entries_max: usize, looked_max: usize) {
        self.entries_max = entries_max.min(ENTRIES_MAX);
        self.looked_max = looked_max.min(LOOKED_MAX);
    }

    /// Opens the directory or file at a path; also returns the path with links resolved, empty for
    /// the root.
    pub(super) fn open_path(&self, path: &str) -> Result<(OpenedPath, String), String> {
        let asked = &normalize_path(path)?;
        let hides = |part: WalkedPart<'_>| match part {
            WalkedPart::Name(name) => is_hidden(name),
            WalkedPart::Directory(dir) => self.is_hidden_tree(dir),
        };
        let walked = WalkedPath::walk(&*self.root, asked, &hides);
        let walked = walked.map_err(|refusal| match refusal {
            WalkRefusal::Hidden => absent_sentence(asked),
            WalkRefusal::Authority(error) => model_sentence(asked, error),
        })?;
        let resolved = walked.resolved_path();
        if let Some((name, seen)) = walked.entry() {
            let file = open_file(walked.directory(), name, asked)?;
            return match path.ends_with('/') {
                true => Err(format!(
                    "\"{asked}\" is a file; leave the slash at the end away"
                )),
                false => Ok((OpenedPath::File(file, *seen), resolved)),
            };
        }
        let dir = walked.into_directory();
        let dir = dir.map_err(|error| model_sentence(asked, AuthorityError::from_io(asked, error)));
        Ok((OpenedPath::Directory(dir?), resolved))
    }

    /// Opens a directory that [`GrantedFiles::list_entries`] returned for `dir`.
    pub(super) fn child_dir(
        &self,
        dir: &dyn DirectoryTree,
        name: &str,
    ) -> Result<Box<dyn DirectoryTree>, String> {
        let child = open_child_tree(dir, name).map_err(|error| model_sentence(name, error))?;
        match is_hidden(name) || self.is_hidden_tree(&*child) {
            true => Err(absent_sentence(name)),
            false => Ok(child),
        }
    }

    /// Lists a directory; `path` is its resolved path. Every entry that is looked at counts, even
    /// if it is left out.
    pub(super) fn list_entries(
        &self,
        dir: &dyn DirectoryTree,
        path: &str,
        links: LinkRule,
        work: &mut CallWork<'_>,
    ) -> Result<DirectoryEntries, String> {
        let failed = |error| model_sentence(path, AuthorityError::from_io(path, error));
        let (mut entries, mut incomplete) = (Vec::new(), false);
        let names = dir.list_some(self.entries_max + 1).map_err(failed)?;
        for (looked, name) in names.into_iter().enumerate() {
            if looked == self.entries_max {
                incomplete = true;
                break;
            }
            if !work.count_entry() {
                break;
            }
            let Some(name) = name else {
                incomplete = true;
                continue;
            };
            // An entry that vanishes during the listing is left out.
            let Ok(seen) = dir.details(&name) else {
                continue;
            };
            if is_hidden(&name) || self.is_hidden_dir(&seen) {
                continue;
            }
            if seen.entry_type == EntryType::Link {
                if links == LinkRule::Skip {
                    continue;
                }
                if !work.count_link() {
                    incomplete = true;
                    continue;
                }
                if !self.can_be_opened(path, &name) {
                    continue;
                }
            }
            entries.push(SeenEntry {
                name,
                kind: entry_kind(&seen),
            });
        }
        entries.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(DirectoryEntries {
            entries,
            incomplete,
        })
    }

    /// Returns true if a link can be opened, and so is listed.
    fn can_be_opened(&self, path: &str, name: &str) -> bool {
        let whole = if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}/{name}")
        };
        self.open_path(&whole).is_ok()
    }

    fn is_hidden_dir(&self, seen: &EntryDetails) -> bool {
        let is_directory = seen.entry_type == EntryType::Directory;
        is_directory && seen.identity.is_some() && seen.identity == self.hidden_identity()
    }

    fn is_hidden_tree(&self, dir: &dyn DirectoryTree) -> bool {
        dir.describe().is_ok_and(|seen| self.is_hidden_dir(&seen))
    }

    /// Returns the identity of `.ai` at the root, for file systems that know it by other names as
    /// well.
    fn hidden_identity(&self) -> Option<(u64, u64)> {
        self.root.details(AI_DIR).ok()?.identity
    }
}

/// Normalizes a path: names joined by `/`, without empty ones and `.`; empty for the root.
fn normalize_path(path: &str) -> Result<String, String> {
    let fault = if path.len() > PATH_BYTES_MAX {
        "is too long"
    } else if path.chars().any(char::is_control) {
        "has control characters in it"
    } else if path.contains('\\') {
        "has backslashes in it; separate names by /"
    } else if path.starts_with('/') || path.as_bytes().get(1) == Some(&b':') {
        "is absolute; paths are relative to the root of the granted directory, such as \
         \"src/main.rs\""
    } else if path.split('/').any(|name| name == "..") {
        "has .. in it; paths go down from the root of the granted directory"
    } else {
        let names: Vec<&str> = path
            .split('/')
            .filter(|name| !name.is_empty() && *name != ".")
            .collect();
        return Ok(names.join("/"));
    };
    let shown: String = path
        .chars()
        .take(100)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    Err(format!("the path \"{shown}\" {fault}"))
}

/// Returns true for `.ai` and every name that some file system treats as `.ai`: other case, dots
/// and spaces at the end, a stream after a colon, ignored characters, the short name.
fn is_hidden(name: &str) -> bool {
    let ignored = |c: char| {
        let marks = '\u{200b}'..='\u{200f}';
        let directions = '\u{202a}'..='\u{202e}';
        let invisible = '\u{2060}'..='\u{206f}';
        marks.contains(&c) || directions.contains(&c) || invisible.contains(&c) || c == '\u{feff}'
    };
    let bare: String = name
        .split(':')
        .next()
        .unwrap_or_default()
        .chars()
        .filter(|c| !ignored(*c))
        .collect();
    let bare = bare.trim_end_matches(['.', ' ']);
    bare.eq_ignore_ascii_case(AI_DIR)
        || (cfg!(windows) && bare.to_ascii_lowercase().starts_with("ai~"))
}

fn entry_kind(seen: &EntryDetails) -> SeenKind {
    match seen.entry_type {
        EntryType::Link => SeenKind::Link,
        EntryType::Directory => SeenKind::Directory,
        EntryType::File if !seen.has_one_name => SeenKind::HardLink,
        EntryType::File => SeenKind::File { bytes: seen.bytes },
        EntryType::Special => SeenKind::Special,
    }
}

/// Opens a regular file directly inside `dir`, following no link. `asked` names it in errors.
pub(super) fn open_file(
    dir: &dyn DirectoryTree,
    name: &str,
    asked: &str,
) -> Result<Box<dyn TreeFile>, String> {
    let opened = open_checked_file(dir, name, FileAccess::Read, asked);
    opened.map_err(|error| model_sentence(asked, error))
}

/// A file that is read from its beginning on.
pub(super) struct FileReader {
    file: Box<dyn TreeFile>,
    at: u64,
}

impl FileReader {
    pub(super) fn new(file: Box<dyn TreeFile>) -> Self {
        Self { file, at: 0 }
    }
}

impl io::Read for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let part = self.file.read_at(self.at, buffer.len())?;
        buffer[..part.len()].copy_from_slice(&part);
        self.at += part.len() as u64;
        Ok(part.len())
    }
}

fn absent_sentence(path: &str) -> String {
    format!("there is no \"{path}\"; list_files shows what there is")
}

/// Returns the sentence for the model. It never reveals where a link leads.
fn model_sentence(path: &str, error: AuthorityError) -> String {
    match error {
        AuthorityError::Missing { .. } => absent_sentence(path),
        AuthorityError::Leaves { .. } => {
            format!("\"{path}\" leads out of the granted directory and cannot be read")
        }
        AuthorityError::NotDirectory { .. } => {
            format!(
                "there is no \"{path}\": a name before the last is not a directory; list_files \
                 shows what there is"
            )
        }
        AuthorityError::NotRegular { .. } => {
            format!("\"{path}\" is a pipe, a socket or a device; only regular files can be read")
        }
        AuthorityError::HardLink { .. } => {
            format!(
                "\"{path}\" is a hard link and cannot be read: the file has another name, which \
                 may be outside"
            )
        }
        AuthorityError::Link { .. } | AuthorityError::Replaced { .. } => {
            format!("\"{path}\" was replaced while it was opened; try again")
        }
        AuthorityError::TooLarge { .. } => {
            format!("\"{path}\" is too large")
        }
        AuthorityError::Io { source, .. } => match source.kind() {
            io::ErrorKind::PermissionDenied => format!("\"{path}\" may not be read"),
            kind => format!("\"{path}\" cannot be read ({kind})"),
        },
    }
}
