//! The due entries whose time has come, page by page: new threads last.
//!
//! Entries are stored in the order of their times, and that of a new thread is earlier than any
//! real time. A driver that has no room to begin more threads must find what it can do without it:
//! a wait whose time is over, a holder that is dead, an end that is to be passed on. So the new
//! ones are a list of their own, which is read when the others are done.

use super::store::check_cursor;
use super::{Error, ThreadService};
use crate::ports::{HostPorts, ScanPage};
use std::vec;
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::key;
use threadkeep_core::ordered_names::OrderedNames;
use threadkeep_core::plan::is_tree_entry;
use threadkeep_core::thread::DUE_NEW;
use threadkeep_core::time::UnixTime;

/// Most scans of due entries in one call: other trees may have any number of them.
const DUE_SCANS_MAX: u32 = 20;
/// Fewest and most due entries that one scan reads.
const SCAN_ENTRIES_MIN: u32 = 16;
const SCAN_ENTRIES_MAX: u32 = 500;
/// First character of a cursor: the list that it lies in.
const DUE_LIST: &str = "d";
const NEW_DUE_LIST: &str = "n";
/// Cursor of the first due entry.
pub const FIRST_DUE: &str = DUE_LIST;

/// A page of names of due entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueNames {
    /// The names.
    pub names: Vec<String>,
    /// Start of the next page.
    pub cursor: Option<String>,
}

/// The rest of the due entries: of each list the names that were read and not told yet, and the
/// start of those that were not read.
#[derive(Debug)]
struct UnreadDue {
    due: vec::IntoIter<String>,
    due_from: Option<String>,
    new: vec::IntoIter<String>,
    new_from: Option<String>,
}

impl UnreadDue {
    fn at_cursor(cursor: Option<&str>) -> Result<Self, Error> {
        let (first_new, after_new) = (first_new(), after_new());
        let cursor = cursor.unwrap_or(FIRST_DUE);
        let (due_from, new_from) = if let Some(given) = cursor.strip_prefix(NEW_DUE_LIST) {
            check_cursor(Some(given), &first_new, &after_new)?;
            (None, given.to_owned())
        } else if let Some(given) = cursor.strip_prefix(DUE_LIST) {
            // If the clock has stepped back since the previous page, its cursor lies behind the
            // end, and nothing is due.
            check_cursor(Some(given), "", &key::encode_number(u64::MAX))?;
            (Some(given.to_owned()), first_new)
        } else {
            return Err(CoreError::invalid("cursor", cursor, "is not one of this list").into());
        };
        Ok(Self {
            due: Vec::new().into_iter(),
            due_from,
            new: Vec::new().into_iter(),
            new_from: Some(new_from),
        })
    }

    /// Returns the range that is read next. That of the time 0 includes the new ones, so that a
    /// short list takes no scan of its own for them.
    fn range(&self, end: &str) -> Option<(String, String)> {
        match (&self.due_from, &self.new_from) {
            (Some(from), _) if *from >= first_new() => Some((from.clone(), end.to_owned())),
            (Some(from), _) | (None, Some(from)) => Some((from.clone(), after_new())),
            (None, None) => None,
        }
    }

    /// Takes what was read of the range, with the start of its rest. All names of the list that is
    /// read were told before.
    fn add(&mut self, names: Vec<String>, rest: Option<String>) {
        let first_new = first_new();
        match &self.due_from {
            Some(from) if *from >= first_new => {
                self.due = names.into_iter();
                self.due_from = rest;
            }
            Some(_) => {
                let (new, due): (Vec<_>, Vec<_>) =
                    names.into_iter().partition(|name| *name >= first_new);
                self.due = due.into_iter();
                if rest.as_ref().is_some_and(|rest| *rest < first_new) {
                    self.due_from = rest;
                } else {
                    self.new = new.into_iter();
                    self.new_from = rest;
                    self.due_from = Some(after_new());
                }
            }
            None => {
                self.new = names.into_iter();
                self.new_from = rest;
            }
        }
    }

    /// Returns the next name to be told.
    fn next_name(&mut self) -> Option<String> {
        let due = self.due.next();
        if due.is_some() || self.due_from.is_some() {
            return due;
        }
        self.new.next()
    }

    fn into_cursor(mut self) -> Option<String> {
        if let Some(due) = self.due.next().or(self.due_from) {
            return Some(format!("{DUE_LIST}{due}"));
        }
        let new = self.new.next().or(self.new_from)?;
        Some(format!("{NEW_DUE_LIST}{new}"))
    }
}

impl<P: HostPorts> ThreadService<P> {
    /// Reads a page of the names of due entries whose time has come: all, or those of a tree.
    pub fn due_names(
        &self,
        now: UnixTime,
        limit: u32,
        cursor: Option<&str>,
        tree: Option<&str>,
    ) -> Result<DueNames, Error> {
        let end = key::encode_number(now.millis().saturating_add(1));
        let mut unread = UnreadDue::at_cursor(cursor)?;
        let mut names = Vec::new();
        let mut entries = match tree {
            Some(_) => limit.max(SCAN_ENTRIES_MIN),
            None => limit,
        };
        for _ in 0..DUE_SCANS_MAX {
            let Some((start, stop)) = unread.range(&end) else {
                break;
            };
            let page = self.ports.scan(key::DUE, &start, &stop, entries, false)?;
            let rest = page.cursor.clone();
            unread.add(tree_names(page, tree), rest);
            let room = limit as usize - names.len();
            names.extend(std::iter::from_fn(|| unread.next_name()).take(room));
            if names.len() == limit as usize {
                break;
            }
            if tree.is_some() {
                entries = (entries * 4).min(SCAN_ENTRIES_MAX);
            }
        }
        Ok(DueNames {
            names,
            cursor: unread.into_cursor(),
        })
    }
}

/// Returns the names of due entries that may be of a tree, in order; without a tree, all. An entry
/// that the store cannot read is known by its name alone.
pub fn tree_names(page: ScanPage, tree: Option<&str>) -> Vec<String> {
    let own = page.items.into_iter();
    let own = own.filter(|item| tree.is_none_or(|tree| is_tree_entry(&item.value, tree)));
    let damaged = page.damaged.into_iter().map(|(name, _)| name);
    let named = damaged.filter(|name| !name.is_empty());
    OrderedNames::new(own.map(|item| item.name).chain(named).collect()).into_vec()
}

/// Start of the entries of new threads.
fn first_new() -> String {
    key::encode_number(DUE_NEW)
}

/// End of the entries of new threads.
fn after_new() -> String {
    key::encode_number(DUE_NEW + 1)
}
