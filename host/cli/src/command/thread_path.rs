//! The last entries along the path of a thread.

use super::fault;
use crate::contract::{Entry, Thread};
use crate::exit::CommandFault;
use crate::threads::ProjectThreads;
use threadkeep_units::thread_path::{PathPart, ThreadPath};

/// Entries of one page.
const PAGE_ENTRIES: u32 = 100;

/// Returns the path of a thread.
pub(super) fn path_of(thread: &Thread) -> ThreadPath {
    let base = thread.base.as_ref();
    let parts = base.iter().flat_map(|base| &base.parts);
    let parts = parts.map(|part| PathPart {
        thread: part.thread.clone(),
        first: part.first,
        last: part.last,
    });
    let newest = (thread.id.as_str(), thread.version);
    ThreadPath::new(newest, base.map_or(0, |base| base.length), parts)
}

/// Loads the last entries of a thread's path up to a version, at most `count`, in its order.
pub async fn load_last_entries(
    opened: &impl ProjectThreads,
    thread: &Thread,
    until: u64,
    count: u32,
) -> Result<Vec<Entry>, CommandFault> {
    let failed = |error| fault::from_thread_call(opened, &thread.id, &error);
    let Some(wanted) = path_of(thread).last_versions(until, count.into()) else {
        if until == 0 {
            let message = "--at 0: the first version of a thread is 1";
            let hint = format!("threadkeep checkpoints {} lists the versions", thread.id);
            return Err(CommandFault::new("invalid", message).with_hint(hint));
        }
        // The component says what is wrong with the version.
        let told = opened.load(&thread.id, Some(until)).await;
        return told.map(|_| Vec::new()).map_err(failed);
    };
    let (mut entries, mut next) = (Vec::new(), Some(None));
    while let (Some(cursor), true) = (next, entries.len() < wanted.count) {
        let page = opened
            .entries(&thread.id, wanted.after, PAGE_ENTRIES, cursor)
            .await
            .map_err(failed)?;
        entries.extend(page.entries);
        next = page.cursor.map(Some);
    }
    entries.truncate(wanted.count);
    Ok(entries)
}
