//! The last entries along the path of a thread.

use super::fault;
use super::session::CommandProject;
use threadkeep::thread_path::ThreadPath;
use threadkeep::wit;
use threadkeep::wit::history::Entry;
use threadkeep_cli::exit::CommandFault;

/// Entries of one page.
const PAGE_ENTRIES: u32 = 100;

/// Loads the last entries of a thread's path up to a version, at most `count`, in its order.
pub async fn load_last_entries(
    opened: &CommandProject,
    thread: &wit::Thread,
    until: u64,
    count: u32,
) -> Result<Vec<Entry>, CommandFault> {
    let failed = |error| fault::from_thread_call(opened, &thread.id, &error);
    let Some(wanted) = ThreadPath::of(thread).last_versions(until, count.into()) else {
        if until == 0 {
            let message = "--at 0: the first version of a thread is 1";
            let hint = format!("threadkeep checkpoints {} lists the versions", thread.id);
            return Err(CommandFault::new("invalid", message).with_hint(hint));
        }
        // The component says what is wrong with the version.
        let told = opened.tenant().load(&thread.id, Some(until)).await;
        return told.map(|_| Vec::new()).map_err(failed);
    };
    let (mut entries, mut next) = (Vec::new(), Some(None));
    while let (Some(cursor), true) = (next, entries.len() < wanted.count) {
        let page = opened
            .tenant()
            .entries(&thread.id, wanted.after, PAGE_ENTRIES, cursor)
            .await
            .map_err(failed)?;
        entries.extend(page.entries);
        next = page.cursor.map(Some);
    }
    entries.truncate(wanted.count);
    Ok(entries)
}
