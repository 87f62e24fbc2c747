//! Brings the documents of dead processes up to date, in the next command that writes.
//!
//! A process that dies leaves its lock file, whose time is the earliest time at which it may have
//! changed threads. The threads that changed since then are refreshed, newest first; then the file
//! gets the time of this pass, so that the next command has less to do. `recover` removes the file.

use super::session::{CommandProject, warn_unwritten};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use threadkeep::authority;
use threadkeep::documents::DocumentError;
use threadkeep::project::TransferLeftovers;
use threadkeep::tenant::PAGE_THREADS_MAX;
use threadkeep::wit::registry::{Filter, Row};
use threadkeep_cli::command::fault;
use threadkeep_cli::screen::OutputScreen;
use threadkeep_cli::threads::ProjectThreads;

/// Most threads that are refreshed in one pass: more than a process leaves behind, and done in a
/// few seconds.
const THREADS_MAX: usize = 1_000;

/// Tolerance for file times, which are coarser than the clock.
const SLACK: Duration = Duration::from_secs(2);

/// Brings the documents that dead processes left behind up to date, and says so where a copy of the
/// store was interrupted. A failure is only a warning.
pub async fn catch_up(opened: &CommandProject, screen: &mut OutputScreen) {
    let Some(threads) = opened.project().threads() else {
        return;
    };
    let left = TransferLeftovers::find(threads).unwrap_or_default();
    if let Some((what, mend)) = left.describe_interrupted() {
        screen.warn(&format!("{what}; {mend}"));
    }
    let now = SystemTime::now();
    // `recover` and `doctor` report lock files that cannot be read.
    let Ok(dead) = authority::dead_processes_since(threads) else {
        return;
    };
    let Some(since) = dead.iter().map(|(_, since)| *since).min() else {
        return;
    };
    let since = since.checked_sub(SLACK).unwrap_or(UNIX_EPOCH);
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
    let since_seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    if refresh_since(opened, since_seconds, screen).await {
        // If that fails, the next command looks at the same threads again.
        let _ = authority::mark_caught_up(threads, &dead, now);
    }
}

/// Refreshes the threads that changed since a time. Returns false if some of them could not be
/// read.
async fn refresh_since(
    opened: &CommandProject,
    since_seconds: i64,
    screen: &mut OutputScreen,
) -> bool {
    let (mut looked_at, mut cursor) = (0, None);
    loop {
        let page = opened
            .tenant()
            .list(Filter::default(), PAGE_THREADS_MAX, cursor)
            .await;
        let Ok(page) = page else { return false };
        for thread in page.threads {
            // Threads are listed by the last change of their status: a thread that changed since
            // then may come after one that did not.
            if thread.updated.seconds < since_seconds {
                continue;
            }
            if looked_at >= THREADS_MAX {
                return false;
            }
            looked_at += 1;
            if !is_held_by_live_process(opened, &thread).await {
                refresh_documents(opened, &thread.id, screen).await;
            }
        }
        cursor = page.cursor;
        if cursor.is_none() {
            return true;
        }
    }
}

/// Returns true if a live process holds the thread: that process writes its documents.
async fn is_held_by_live_process(opened: &CommandProject, row: &Row) -> bool {
    if row.status != "running" {
        return false;
    }
    let found = opened.get(&row.id).await.ok();
    let lease = found.and_then(|thread| thread.run.lease);
    lease.is_some_and(|lease| fault::is_alive(opened, &lease))
}

async fn refresh_documents(opened: &CommandProject, thread: &str, screen: &mut OutputScreen) {
    let Some(documents) = opened.documents() else {
        return;
    };
    match documents.refresh(thread).await {
        // Another process is writing them.
        Ok(_) | Err(DocumentError::Busy(_)) => {}
        Err(error) => warn_unwritten(thread, &error, screen),
    }
}
