//! Children as the thread that asks about them sees them, and the results that its model gets.
//!
//! Each child is a JSON object inside the text of a result, so its bytes count as JSON text within
//! JSON text. The children of one answer share its room. A result that does not fit is cut, and the
//! object says so and how to read on. Small results leave their room to the others.

use crate::history::{cut_escaped, escaped_bytes};
use crate::json::{self, JsonValue, ObjectWriter};
use crate::limits::ThreadCaps;
use crate::plan::{WaitStanding, is_to_be_resumed, wait_standing};
use crate::thread::{ChainRecord, Head, StatusCause, ThreadRecord};

/// Bytes of an answer around its children.
const ENVELOPE_BYTES: usize = 64;
/// Text in place of a cause for a child that cannot be read.
const UNREADABLE: &str =
    "its records are missing or cannot be read: nobody knows what became of it";
/// Most bytes of a child's cause, as JSON text; if the room is small, the cause has a sixth of it.
const CAUSE_BYTES_MAX: usize = 1_200;

/// A child, as the thread that asks about it sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildSnapshot {
    /// Its spawn number.
    pub number: u64,
    id: String,
    /// The first link of its chain, if that is another thread.
    first: Option<String>,
    result: Option<String>,
    /// Head of the child; `None` if its records are missing or cannot be read.
    head: Option<Head>,
    /// True if it draws on the account that its parent draws on.
    shares: bool,
}

impl ChildSnapshot {
    /// Creates a child from its records.
    pub fn new(thread: &ThreadRecord, head: &Head, chain: &ChainRecord) -> Self {
        // A JSON string is shown as its text, other JSON as it is.
        let text = |result: &String| match json::parse(result) {
            Ok(JsonValue::String(text)) => text.to_string(),
            _ => result.clone(),
        };
        Self {
            number: chain.number,
            shares: !chain.has_account(),
            id: thread.id.clone(),
            first: thread.first_link(),
            result: thread.result.as_ref().map(text),
            head: Some(head.clone()),
        }
    }

    /// Creates a child whose records are missing or cannot be read.
    pub fn unreadable(id: &str) -> Self {
        Self {
            number: u64::MAX,
            id: id.to_owned(),
            first: None,
            result: None,
            head: None,
            shares: false,
        }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Replaces its head by one that the same commit has changed.
    pub(super) fn set_head(&mut self, head: &Head) {
        self.head = Some(head.clone());
    }

    /// Returns its state towards a wait for it. `ceiling` holds the operator's caps. A child that
    /// cannot be read answers the wait: nothing more will be known of it.
    pub(super) fn wait_standing(&self, ceiling: ThreadCaps) -> WaitStanding {
        let head = self.head.as_ref();
        head.map_or(WaitStanding::Answers, |head| {
            wait_standing(head, self.shares, ceiling)
        })
    }

    /// Returns true if its records can be read.
    pub(super) fn is_readable(&self) -> bool {
        self.head.is_some()
    }

    /// Cause of its status, if it has one.
    pub(super) fn cause(&self) -> Option<&StatusCause> {
        self.head.as_ref()?.cause.as_ref()
    }

    /// Returns the JSON object of the child, in at most `room` bytes, with the part of its result
    /// from byte `from` on.
    fn to_fitted_json(&self, from: usize, room: usize) -> String {
        let whole = self.to_json(from, usize::MAX, CAUSE_BYTES_MAX);
        if escaped_bytes(&whole) <= room {
            return whole;
        }
        let cause_bytes = (room / 6).min(CAUSE_BYTES_MAX);
        // The object grows with the part of the result that it shows, so a binary search finds the
        // longest part that fits.
        let (mut fits, mut exceeds) = (0, self.result.as_ref().map_or(0, String::len) + 1);
        while fits + 1 < exceeds {
            let middle = fits.midpoint(exceeds);
            if escaped_bytes(&self.to_json(from, middle, cause_bytes)) <= room {
                fits = middle;
            } else {
                exceeds = middle;
            }
        }
        self.to_json(from, fits, cause_bytes)
    }

    /// Returns the same object with at most so many bytes of the result and of the cause.
    fn to_json(&self, from: usize, result_bytes: usize, cause_bytes: usize) -> String {
        let whole = self.result.as_deref();
        let start = whole.map_or(0, |whole| whole.floor_char_boundary(from));
        let shown = whole.map(|whole| {
            let end = start.saturating_add(result_bytes).min(whole.len());
            &whole[start..whole.floor_char_boundary(end).max(start)]
        });
        let end = start + shown.map_or(0, str::len);
        let length = whole.map_or(0, str::len);
        let cut = (start > 0 || end < length).then(|| {
            let rest = match end < length {
                true => format!("; aggregate_results of it alone with from {end} shows more"),
                false => String::new(),
            };
            format!("bytes {start} to {end} of {length} of the result{rest}")
        });
        let mut answer = String::new();
        let Some(head) = &self.head else {
            ObjectWriter::new(&mut answer)
                .add("thread", &self.id)
                .add("status", "unreadable")
                .add("cause", UNREADABLE)
                .finish();
            return answer;
        };
        let cause = head.cause.as_ref();
        // What it has ended with is out of date.
        if is_to_be_resumed(head) {
            ObjectWriter::new(&mut answer)
                .add("thread", &self.id)
                .add("status", "resumed")
                .finish();
            return answer;
        }
        ObjectWriter::new(&mut answer)
            .add("thread", &self.id)
            .add_present("chain", &self.first)
            .add("status", head.status.as_str())
            .add_present("result", &shown.map(str::to_owned))
            .add_present("cut", &cut)
            .add_present("cause", &cause.map(|cause| cause_text(cause, cause_bytes)))
            .add("cost_usd", &head.spend_under_cap().to_string())
            .finish();
        answer
    }
}

/// Joins the code and the sentence of a cause, in at most about `bytes` bytes.
fn cause_text(cause: &StatusCause, bytes: usize) -> String {
    let text = format!("{}: {}", cause.code, cause.message);
    let kept = cut_escaped(&text, bytes);
    match kept.len() == text.len() {
        true => text,
        false => format!("{kept} [cut: thread_status shows more]"),
    }
}

/// Returns the JSON array of children, in at most `room` bytes: results from byte `from` on, each
/// with a fair share of the room.
pub(super) fn children_to_json(children: &[ChildSnapshot], from: usize, room: usize) -> String {
    let room = room.saturating_sub(ENVELOPE_BYTES + children.len());
    let needs = children
        .iter()
        .map(|child| escaped_bytes(&child.to_fitted_json(from, usize::MAX)));
    let share = fair_share(needs.collect(), room);
    let answers: Vec<String> = children
        .iter()
        .map(|child| child.to_fitted_json(from, share))
        .collect();
    format!("[{}]", answers.join(","))
}

/// Returns the largest share with which all needs, each cut to it, fit the room.
fn fair_share(mut needs: Vec<usize>, mut room: usize) -> usize {
    while !needs.is_empty() {
        let share = room / needs.len();
        let unmet: Vec<usize> = needs.iter().copied().filter(|need| *need > share).collect();
        if unmet.len() == needs.len() {
            return share;
        }
        room -= needs.iter().filter(|need| **need <= share).sum::<usize>();
        needs = unmet;
    }
    usize::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_needs_leave_their_room_to_the_others() {
        for (needs, room, share) in [
            (vec![], 10, usize::MAX),
            (vec![4, 6], 10, usize::MAX),
            (vec![9, 9], 10, 5),
            (vec![2, 90, 90], 20, 9),
            (vec![90, 1, 1, 90], 12, 5),
            (vec![1], 0, 0),
        ] {
            assert_eq!(fair_share(needs.clone(), room), share, "{needs:?} {room}");
        }
    }
}
