//! Selection of the trailing messages: the part of a conversation that the next link carries.
//!
//! A conversation is cut between groups alone. A group begins with an entry whose first message
//! answers no call, and reaches to the next such entry: so a call stays with its results, and a
//! message with its thinking. Two groups are always carried: the newest one, and that of the last
//! user's message, which may leave a gap behind it.

use super::content_size::ContentSize;
use super::live_window::{LiveWindow, WindowEntry};
use crate::history::{ProviderRole, ProviderText};
use crate::id;
use crate::thread::{BASE_PARTS_MAX, BasePart};

/// Bounds of a selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrailingBounds {
    /// The most that is carried, if the groups that must be carried leave room.
    pub wanted: ContentSize,
    /// The most that the groups that must be carried may have.
    pub most: ContentSize,
    /// Most parts.
    pub parts: usize,
}

impl TrailingBounds {
    /// Bounds that select what must be carried, however large that is.
    pub const LEAST: Self = Self {
        wanted: ContentSize {
            tokens: 0,
            bytes: 0,
        },
        most: ContentSize {
            tokens: u64::MAX,
            bytes: u64::MAX,
        },
        parts: BASE_PARTS_MAX / 2,
    };

    /// Returns the bounds of what is carried beside a summary of so many tokens. `most` is the most
    /// of everything that the next request has, `fixed` its part that is neither summary nor
    /// carried; `ceiling` is the most tokens of the summary and what is carried.
    pub fn with_summary(
        summary: ContentSize,
        fixed: ContentSize,
        most: ContentSize,
        ceiling: u64,
    ) -> Self {
        let most = most.minus(fixed).minus(summary);
        let tokens = ceiling.saturating_sub(summary.tokens).min(most.tokens);
        Self {
            wanted: ContentSize { tokens, ..most },
            most,
            // Half of the most: else a thread that is resumed often is handed off each time.
            parts: BASE_PARTS_MAX / 2,
        }
    }
}

/// The entries that are carried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrailingSelection {
    /// Their ranges, in the order of the path. The last one ends with the pending entry: its hash
    /// is empty, because that entry is not stored yet.
    pub parts: Vec<BasePart>,
    /// Their messages as JSON texts, in order.
    pub texts: Vec<String>,
    /// Number of messages of the assistant in them.
    pub turns: u64,
    /// Size of their messages.
    pub size: ContentSize,
    /// True if the first of their messages is a user's.
    pub starts_with_user: bool,
    /// True if messages are left out, apart from those that the program wrote at the beginning.
    pub leaves_out: bool,
}

/// The groups that must be carried are larger than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrailingRefusal {
    /// Size of those groups.
    pub needed: ContentSize,
    /// The most that they may have.
    pub available: ContentSize,
}

/// Consecutive entries that stay together, newest first.
struct EntryGroup<'a> {
    entries: Vec<&'a WindowEntry>,
    size: ContentSize,
}

impl<'a> EntryGroup<'a> {
    fn new(entries: Vec<&'a WindowEntry>) -> Self {
        let sizes = entries.iter().map(|entry| entry.size());
        let size = sizes.fold(ContentSize::default(), ContentSize::plus);
        Self { entries, size }
    }

    fn has_user_text(&self) -> bool {
        self.entries.iter().any(|entry| entry.has_user_text())
    }
}

/// A conversation in groups, newest first.
struct GroupedWindow<'a> {
    groups: Vec<EntryGroup<'a>>,
    /// The group of the last user's message, and its place if it is one of those.
    asked: Option<(EntryGroup<'a>, Option<usize>)>,
    /// True if the conversation has more messages before those.
    has_more: bool,
}

impl<'a> GroupedWindow<'a> {
    fn new(window: &'a LiveWindow, pending: &'a WindowEntry) -> Self {
        let (mut groups, mut open) = (Vec::new(), Vec::new());
        for entry in std::iter::once(pending).chain(&window.newest) {
            open.push(entry);
            if entry.begins_group() {
                groups.push(EntryGroup::new(std::mem::take(&mut open)));
            }
        }
        let at = groups.iter().position(EntryGroup::has_user_text);
        let entries = match at {
            Some(at) => groups[at].entries.clone(),
            None => window.asked.iter().collect(),
        };
        let asked_apart = at.map_or(entries.len() as u64, |_| 0);
        let missing = window.left.saturating_sub(asked_apart);
        let is_empty = |entry: &&WindowEntry| entry.messages.is_empty();
        Self {
            groups,
            asked: (!entries.is_empty()).then(|| (EntryGroup::new(entries), at)),
            has_more: missing > 0 || !open.iter().all(is_empty),
        }
    }

    /// Returns the group of the last user's message if it is not one of the newest `count` groups.
    fn asked_before(&self, count: usize) -> Option<&EntryGroup<'a>> {
        let (group, at) = self.asked.as_ref()?;
        at.is_none_or(|at| at >= count).then_some(group)
    }

    /// Returns the size of the newest `count` groups and of that of the last user's message.
    fn carried_size(&self, count: usize) -> ContentSize {
        let groups = self.groups[..count].iter().chain(self.asked_before(count));
        let sizes = groups.map(|group| group.size);
        sizes.fold(ContentSize::default(), ContentSize::plus)
    }

    /// Returns the entries of the newest `count` groups and those of the group of the last user's
    /// message, newest first.
    fn carried_entries(&self, count: usize) -> impl Iterator<Item = &'a WindowEntry> {
        let groups = self.groups[..count].iter().chain(self.asked_before(count));
        groups.flat_map(|group| group.entries.iter().copied())
    }

    /// Returns true if carrying the newest `count` groups leaves a message out.
    fn leaves_out(&self, count: usize) -> bool {
        let asked_at = self.asked.as_ref().and_then(|(_, at)| *at);
        let kept_apart = asked_at.is_some_and(|at| at >= count);
        self.has_more || count + usize::from(kept_apart) < self.groups.len()
    }
}

/// Selects the longest end of a conversation that fits the bounds. `pending` is the entry that the
/// commit adds, with or without messages.
///
/// # Errors
/// [`TrailingRefusal`] if the groups that must be carried do not fit.
pub fn select_trailing(
    window: &LiveWindow,
    pending: &WindowEntry,
    bounds: TrailingBounds,
) -> Result<TrailingSelection, TrailingRefusal> {
    let grouped = GroupedWindow::new(window, pending);
    let mut count = grouped.groups.len().min(1);
    let needed = grouped.carried_size(count);
    if !needed.fits(bounds.most) {
        return Err(TrailingRefusal {
            needed,
            available: bounds.most,
        });
    }
    let mut size = needed;
    while let Some(next) = grouped.groups.get(count) {
        let is_asked = grouped
            .asked
            .as_ref()
            .is_some_and(|(_, at)| *at == Some(count));
        // The group of the last user's message is counted already.
        let more = if is_asked { size } else { size.plus(next.size) };
        if !more.fits(bounds.wanted) {
            break;
        }
        (size, count) = (more, count + 1);
    }
    let mut parts = join_parts(pending, grouped.carried_entries(count));
    while parts.len() > bounds.parts && count > 1 {
        count -= 1;
        parts = join_parts(pending, grouped.carried_entries(count));
    }
    let mut carried: Vec<&WindowEntry> = grouped.carried_entries(count).collect();
    carried.reverse();
    let messages = || carried.iter().flat_map(|entry| &entry.messages);
    let role = |role| move |message: &&ProviderText| message.role == role;
    let first = messages().next();
    Ok(TrailingSelection {
        parts,
        texts: messages().map(|message| message.json.clone()).collect(),
        turns: messages().filter(role(ProviderRole::Assistant)).count() as u64,
        size: grouped.carried_size(count),
        starts_with_user: first.is_some_and(|message| message.role == ProviderRole::User),
        leaves_out: grouped.leaves_out(count),
    })
}

/// Joins entries, given newest first, to ranges in the order of the path. The first one is the
/// pending entry, with or without messages.
fn join_parts<'a>(
    pending: &WindowEntry,
    entries: impl Iterator<Item = &'a WindowEntry>,
) -> Vec<BasePart> {
    let mut parts = vec![BasePart {
        thread: pending.thread.clone(),
        from: pending.version,
        to: pending.version,
        hash: pending.hash.clone(),
    }];
    for entry in entries.filter(|entry| entry.version != pending.version) {
        match parts.last_mut() {
            Some(part)
                if part.from == entry.version + 1
                    && id::key(&part.thread) == id::key(&entry.thread) =>
            {
                part.from = entry.version;
            }
            _ => parts.push(BasePart {
                thread: entry.thread.clone(),
                from: entry.version,
                to: entry.version,
                hash: entry.hash.clone(),
            }),
        }
    }
    parts.reverse();
    parts
}

#[cfg(test)]
#[path = "trailing_tests.rs"]
mod tests;
