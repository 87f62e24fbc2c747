//! The live window of a thread, read from its newest entry back and only as far as it is needed:
//! for the selection of what a hand-off carries, and for the request of a summary.

use super::history::{missing_entry, thread_path};
use super::{Error, ThreadService};
use crate::ports::HostPorts;
use threadkeep_core::continuation::{LiveWindow, WindowEntry, WindowNeeds};
use threadkeep_core::history::Entry;
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::thread::{HistoryPath, PathRange};

/// Entries of a page. A hand-off may read at most 64 entries more than it carries: of the last page
/// of the newest entries all but one, and a few around the last message of a user.
const WINDOW_PAGE_ENTRIES: u32 = 32;
/// Entries of a page around the last message of a user.
const ASKED_PAGE_ENTRIES: u32 = 8;

/// Visitor of entries: returns true to get the next one.
type EntryVisitor<'a> = dyn FnMut(WindowEntry) -> bool + 'a;

impl<P: HostPorts> ThreadService<P> {
    /// Loads the live window that a thread had at a version, as far as it is needed.
    pub fn load_window(
        &self,
        loaded: &LoadedThread,
        until: u64,
        needs: WindowNeeds,
    ) -> Result<LiveWindow, Error> {
        let mut path = thread_path(loaded);
        // The newest version need not be the last of a path that ends with what is carried.
        if until < loaded.head.value.version {
            path = path.until(until);
        }
        let context = self.first_injected(loaded, &path)?;
        if let Some(context) = &context {
            path = path.after(context.version);
        }
        let asked = loaded.head.value.asked_version;
        if let Some(asked) = asked.filter(|version| path.range_of(*version).is_some()) {
            let mut window = LiveWindow::new(needs, context.clone(), count_entries(&path));
            self.load_newest(loaded, &path, &mut window, true)?;
            if window.has_user_text() {
                return Ok(window);
            }
            window.asked = self.load_group(loaded, &path, asked)?;
            if window.asked.iter().any(WindowEntry::has_user_text) {
                return Ok(window);
            }
        }
        // Where it is not known where a user spoke last, all entries may have to be read.
        let mut window = LiveWindow::new(needs, context, count_entries(&path));
        self.load_newest(loaded, &path, &mut window, false)?;
        Ok(window)
    }

    /// Loads the newest entries of a path as far as they are needed; unless it is known where a
    /// user spoke last, at least as far as that.
    fn load_newest(
        &self,
        loaded: &LoadedThread,
        path: &HistoryPath<'_>,
        window: &mut LiveWindow,
        is_asked_known: bool,
    ) -> Result<(), Error> {
        self.visit_back(loaded, path, WINDOW_PAGE_ENTRIES, &mut |entry| {
            window.push_older(entry);
            window.needs_older() || !(is_asked_known || window.has_user_text())
        })
    }

    /// Loads the entries, newest first, that stay together with that of a version.
    fn load_group(
        &self,
        loaded: &LoadedThread,
        path: &HistoryPath<'_>,
        version: u64,
    ) -> Result<Vec<WindowEntry>, Error> {
        let mut group = Vec::new();
        self.visit_on(loaded, &path.after(version), &mut |entry| {
            let follows = !entry.begins_group();
            if follows {
                group.push(entry);
            }
            follows
        })?;
        group.reverse();
        let before = path.clone().until(version);
        self.visit_back(loaded, &before, ASKED_PAGE_ENTRIES, &mut |entry| {
            let begun = entry.begins_group();
            group.push(entry);
            !begun
        })?;
        Ok(group)
    }

    /// Reads the first entry of a path if it stands for what an earlier hand-off left out.
    fn first_injected(
        &self,
        loaded: &LoadedThread,
        path: &HistoryPath<'_>,
    ) -> Result<Option<WindowEntry>, Error> {
        let Some(range) = path.ranges.first() else {
            return Ok(None);
        };
        let texts = self.range_entries(loaded, *range, range.from, 1, false)?;
        let first = texts.into_iter().next();
        let entry = first.map(|(version, text)| read_entry(range, version, &text));
        Ok(entry.transpose()?.filter(WindowEntry::is_injected))
    }

    /// Visits the entries of a path from its newest on.
    fn visit_back(
        &self,
        loaded: &LoadedThread,
        path: &HistoryPath<'_>,
        page: u32,
        visit: &mut EntryVisitor<'_>,
    ) -> Result<(), Error> {
        for range in path.ranges.iter().rev() {
            let mut from = range.to;
            loop {
                let left = u32::try_from(from - range.from).unwrap_or(u32::MAX);
                let limit = page.min(left.saturating_add(1));
                let texts = self.range_entries(loaded, *range, from, limit, true)?;
                for (version, text) in texts {
                    from = version;
                    if !visit(read_entry(range, version, &text)?) {
                        return Ok(());
                    }
                }
                if from == range.from {
                    break;
                }
                from -= 1;
            }
        }
        Ok(())
    }

    /// Visits the entries of a path from its first on.
    fn visit_on(
        &self,
        loaded: &LoadedThread,
        path: &HistoryPath<'_>,
        visit: &mut EntryVisitor<'_>,
    ) -> Result<(), Error> {
        for range in &path.ranges {
            let mut from = range.from;
            while from <= range.to {
                let texts = self.range_entries(loaded, *range, from, ASKED_PAGE_ENTRIES, false)?;
                for (version, text) in texts {
                    from = version + 1;
                    if !visit(read_entry(range, version, &text)?) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the number of entries on a path.
fn count_entries(path: &HistoryPath<'_>) -> u64 {
    let ranges = path.ranges.iter();
    ranges.fold(0, |sum, range| {
        sum.saturating_add(range.to - range.from).saturating_add(1)
    })
}

/// Reads an entry of a range, which must be that of the version under which it is stored.
fn read_entry(range: &PathRange<'_>, version: u64, text: &str) -> Result<WindowEntry, Error> {
    let entry = Entry::from_text(text)?;
    match entry.version == version {
        true => Ok(WindowEntry::of_stored(range.thread, entry, text)),
        false => Err(missing_entry(range.thread, version)),
    }
}
