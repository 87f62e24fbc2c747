//! The granted directory as a model sees it: paths resolved, links followed inside, `.ai` absent.
//!
//! A path is first resolved by cap-std, which refuses to leave the directory. It is then walked one
//! name at a time without following links, and each opened object is compared with the one seen. So
//! neither a link nor a swap in between leads to a directory whose name was not checked. A hard
//! link cannot be told from the file itself, so a file with more than one name is not read at all.

use super::work::{CallWork, LOOKED_MAX};
use crate::authority::{self, AI_DIR, AuthorityError};
use cap_std::fs::{Dir, File, Metadata};
use std::io;
use std::path::{Component, Path};

/// Longest path, in bytes, and longest name in a path: more than common file systems allow.
pub(super) const PATH_BYTES_MAX: usize = 1_024;

/// Most entries of one directory that are looked at. A model can use about a hundredth of that.
const ENTRIES_MAX: usize = 10_000;

/// A directory that may be read.
#[derive(Debug)]
pub(super) struct GrantedDirectory {
    root: Dir,
    /// [`ENTRIES_MAX`], less in tests.
    pub(super) entries_max: usize,
    /// [`LOOKED_MAX`], less in tests.
    pub(super) looked_max: usize,
}

/// The type of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
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
pub(super) struct DirectoryEntry {
    pub(super) name: String,
    pub(super) kind: EntryKind,
}

/// The entries of a directory that may be seen.
pub(super) struct DirectoryEntries {
    /// The entries by name, in byte order; hidden ones are left out.
    pub(super) entries: Vec<DirectoryEntry>,
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
    Directory(Dir),
    File(File, Metadata),
}

impl GrantedDirectory {
    pub(super) fn new(root: Dir) -> Self {
        Self {
            root,
            entries_max: ENTRIES_MAX,
            looked_max: LOOKED_MAX,
        }
    }

    /// Opens the directory or file at a path; also returns the path with links resolved, empty for
    /// the root.
    pub(super) fn open_path(&self, path: &str) -> Result<(OpenedPath, String), String> {
        let asked = &normalize_path(path)?;
        let resolved = self.resolve(asked)?;
        let mut dir = self
            .root
            .try_clone()
            .map_err(|error| model_sentence(asked, AuthorityError::from_io(asked, error)))?;
        let hidden = self.hidden_identity();
        let mut names = resolved
            .split('/')
            .filter(|name| !name.is_empty())
            .peekable();
        while let Some(name) = names.next() {
            let seen = dir
                .symlink_metadata(name)
                .map_err(|error| model_sentence(asked, AuthorityError::from_io(asked, error)))?;
            if names.peek().is_none() && !seen.is_dir() {
                let file = open_file(&dir, name, asked)?;
                return match path.ends_with('/') {
                    true => Err(format!(
                        "\"{asked}\" is a file; leave the slash at the end away"
                    )),
                    false => Ok((OpenedPath::File(file, seen), resolved)),
                };
            }
            dir = authority::child_dir(&dir, name).map_err(|error| model_sentence(asked, error))?;
            if hidden.is_some()
                && hidden
                    == dir
                        .dir_metadata()
                        .ok()
                        .and_then(|found| authority::file_identity(&found))
            {
                return Err(absent_sentence(asked));
            }
        }
        Ok((OpenedPath::Directory(dir), resolved))
    }

    /// Opens a directory that [`GrantedDirectory::list_entries`] returned for `dir`.
    pub(super) fn child_dir(&self, dir: &Dir, name: &str) -> Result<Dir, String> {
        let child = authority::child_dir(dir, name).map_err(|error| model_sentence(name, error))?;
        let found = child
            .dir_metadata()
            .ok()
            .and_then(|found| authority::file_identity(&found));
        if is_hidden(name) || (found.is_some() && found == self.hidden_identity()) {
            return Err(absent_sentence(name));
        }
        Ok(child)
    }

    /// Lists a directory; `path` is its resolved path. Every entry that is looked at counts, even
    /// if it is left out.
    pub(super) fn list_entries(
        &self,
        dir: &Dir,
        path: &str,
        links: LinkRule,
        work: &mut CallWork<'_>,
    ) -> Result<DirectoryEntries, String> {
        let failed = |error| model_sentence(path, AuthorityError::from_io(path, error));
        let (mut entries, mut incomplete) = (Vec::new(), false);
        for (looked, entry) in dir.entries().map_err(failed)?.enumerate() {
            let entry = entry.map_err(failed)?;
            if looked == self.entries_max {
                incomplete = true;
                break;
            }
            if !work.count_entry() {
                break;
            }
            let Ok(name) = entry.file_name().into_string() else {
                incomplete = true;
                continue;
            };
            // An entry that vanishes during the listing is left out.
            let Ok(metadata) = dir.symlink_metadata(&name) else {
                continue;
            };
            if is_hidden(&name) || self.is_hidden_dir(&metadata) {
                continue;
            }
            if metadata.is_symlink() {
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
            entries.push(DirectoryEntry {
                name,
                kind: entry_kind(&metadata),
            });
        }
        entries.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(DirectoryEntries {
            entries,
            incomplete,
        })
    }

    /// Returns the path with links resolved, relative to the root. All its names are plain and may
    /// be seen.
    fn resolve(&self, asked: &str) -> Result<String, String> {
        if asked.is_empty() {
            return Ok(String::new());
        }
        let found = self
            .root
            .canonicalize(asked)
            .map_err(|error| model_sentence(asked, AuthorityError::from_io(asked, error)))?;
        let mut resolved = String::new();
        for component in found.components() {
            match component {
                Component::CurDir => {}
                Component::Normal(name) => match name.to_str() {
                    Some(name) if !is_hidden(name) => {
                        resolved.push_str(if resolved.is_empty() { "" } else { "/" });
                        resolved.push_str(name);
                    }
                    _ => return Err(absent_sentence(asked)),
                },
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(absent_sentence(asked));
                }
            }
        }
        Ok(resolved)
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

    fn is_hidden_dir(&self, metadata: &Metadata) -> bool {
        metadata.is_dir()
            && authority::file_identity(metadata)
                .is_some_and(|found| Some(found) == self.hidden_identity())
    }

    /// Returns the identity of `.ai` at the root, for file systems that know it by other names as
    /// well.
    fn hidden_identity(&self) -> Option<(u64, u64)> {
        self.root
            .metadata(AI_DIR)
            .ok()
            .and_then(|metadata| authority::file_identity(&metadata))
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

fn entry_kind(metadata: &Metadata) -> EntryKind {
    if metadata.is_symlink() {
        EntryKind::Link
    } else if metadata.is_dir() {
        EntryKind::Directory
    } else if metadata.is_file() && !authority::has_one_name(metadata) {
        EntryKind::HardLink
    } else if metadata.is_file() {
        EntryKind::File {
            bytes: metadata.len(),
        }
    } else {
        EntryKind::Special
    }
}

/// Opens a regular file directly inside `dir`, following no link. `asked` names it in errors.
pub(super) fn open_file(dir: &Dir, name: &str, asked: &str) -> Result<File, String> {
    let failed = |error: io::Error| model_sentence(asked, AuthorityError::from_io(asked, error));
    let seen = dir.symlink_metadata(name).map_err(failed)?;
    let replaced = || {
        model_sentence(
            asked,
            AuthorityError::Replaced {
                place: asked.to_owned(),
            },
        )
    };
    if seen.is_symlink() {
        return Err(replaced());
    }
    let file = authority::open_without_hard_links(dir, Path::new(name), asked)
        .map_err(|error| model_sentence(asked, error))?;
    let opened = file.metadata().map_err(failed)?;
    if authority::file_identity(&seen) != authority::file_identity(&opened) {
        return Err(replaced());
    }
    Ok(file)
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
