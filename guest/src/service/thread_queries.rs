//! Answers to a thread that asks about others: the list of threads under it, and their newest
//! messages.
//!
//! An answer has a bounded size. It leaves out the least wanted parts, and says that something is
//! left out.

use super::history::{PAGE_ENTRIES_MAX, thread_path};
use super::{Error, ThreadService};
use crate::ports::HostPorts;
use threadkeep_core::error::{Error as CoreError, cut};
use threadkeep_core::history::{Entry, provider_messages};
use threadkeep_core::json::ObjectWriter;
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::thread::ThreadStatus;

/// Most bytes of one message that `read_transcript` shows.
const MESSAGE_BYTES_MAX: usize = 8 << 10;
/// Most bytes of all messages of one answer; the newest come first.
const MESSAGES_BYTES_MAX: usize = 20 << 10;
/// Most threads that `list_threads` shows: even with the longest ids and names, the list fits its
/// answer.
const LIST_THREADS_MAX: usize = 50;
/// Most pages of a tree that one `list_threads` reads, so that a filter without matches does
/// bounded work.
const LIST_PAGES_MAX: usize = 10;

impl<P: HostPorts> ThreadService<P> {
    /// Lists the threads under one as a JSON object; only those of one status if it is named.
    /// `more` is true if others may follow.
    pub(super) fn list_under(
        &self,
        loaded: &LoadedThread,
        only: Option<&str>,
    ) -> Result<String, Error> {
        if let Some(only) = only
            && !ThreadStatus::ALL.iter().any(|known| known.as_str() == only)
        {
            let names: Vec<&str> = ThreadStatus::ALL
                .iter()
                .map(|known| known.as_str())
                .collect();
            let field = "list_threads.status";
            return Err(CoreError::invalid_name(field, only, "is not a status", &names).into());
        }
        let (mut lines, mut cursor, mut more) = (Vec::new(), None, false);
        for _ in 0..LIST_PAGES_MAX {
            let page = self.tree_page(&loaded.thread.value.id, cursor.as_deref())?;
            let next = page.cursor;
            let matching = page.branches.iter().filter(|(found, depth)| {
                *depth > 0 && only.is_none_or(|only| found.head.value.status.as_str() == only)
            });
            lines.extend(matching.map(|(found, depth)| thread_line(found, *depth)));
            let unreadable = page.unreadable.iter().filter(|_| only.is_none());
            lines.extend(unreadable.map(|(thread, _)| unreadable_line(thread)));
            more = next.is_some() || lines.len() > LIST_THREADS_MAX;
            lines.truncate(LIST_THREADS_MAX);
            if !more || lines.len() == LIST_THREADS_MAX {
                break;
            }
            cursor = next;
        }
        let lines = lines.join(",");
        Ok(format!(r#"{{"threads":[{lines}],"more":{more}}}"#))
    }

    /// Returns the newest `last` messages of a thread, oldest first. If they do not fit, only the
    /// newest of them are returned.
    pub(super) fn newest_messages(&self, found: &LoadedThread, last: u64) -> Result<String, Error> {
        let (mut shown, mut bytes) = (Vec::new(), 0);
        let path = thread_path(found);
        let mut ranges = path.ranges.iter().rev();
        let (mut range, mut looked) = (ranges.next(), 0);
        let mut next = range.map_or(0, |range| range.to);
        let mut left_out = false;
        while let Some(at) = range
            && looked < PAGE_ENTRIES_MAX
            && !left_out
            && shown.len() < last as usize
        {
            let limit = (PAGE_ENTRIES_MAX - looked).min(last as u32 * 2);
            for (version, text) in self.range_entries(found, *at, next, limit, true)? {
                let own = provider_messages(&Entry::from_text(&text)?);
                for message in own.iter().rev().take(last as usize - shown.len()) {
                    let message = cut_message(message);
                    bytes += message.len();
                    left_out = left_out || bytes > MESSAGES_BYTES_MAX;
                    if !left_out {
                        shown.push(message);
                    }
                }
                (next, looked) = (version - 1, looked + 1);
            }
            if next < at.from {
                range = ranges.next();
                next = range.map_or(0, |range| range.to);
            }
        }
        if left_out {
            let count = shown.len();
            shown.push(format!("[cut: the newest {count} messages are shown]"));
        }
        shown.reverse();
        Ok(shown.join("\n"))
    }
}

/// Cuts a message that is too long, and adds a note about it.
fn cut_message(message: &str) -> String {
    let kept = cut(message, MESSAGE_BYTES_MAX);
    match kept.len() == message.len() {
        true => message.to_owned(),
        false => {
            let (shown, whole) = (kept.len(), message.len());
            format!("{kept}\n[cut: {shown} of {whole} bytes shown]")
        }
    }
}

fn thread_line(found: &LoadedThread, depth: u32) -> String {
    let mut line = String::new();
    ObjectWriter::new(&mut line)
        .add("thread", &found.thread.value.id)
        .add_present("chain", &found.thread.value.first_link())
        .add("depth", &u64::from(depth))
        .add("status", found.head.value.status.as_str())
        .add_present("directive", &found.thread.value.directive)
        .finish();
    line
}

/// Renders a thread whose records are missing or cannot be read.
fn unreadable_line(thread: &str) -> String {
    let mut line = String::new();
    ObjectWriter::new(&mut line)
        .add("thread", thread)
        .add("status", "unreadable")
        .finish();
    line
}
