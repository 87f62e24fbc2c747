//! Charges for calls of unknown cost: calls that were dropped, broke off, or were under way when
//! their process died.

use crate::answer::ChargedRow;
use crate::threads::ProjectThreads;
use std::collections::BTreeMap;

/// Most threads that are named because a call of theirs was charged; the others are added up.
const CHARGED_NAMED_MAX: usize = 10;

/// Loads the charges of threads, each since a version: those of `top` first, then the others by
/// name, and one row without a name for those that are too many to be named.
pub async fn load_charges(
    threads: &impl ProjectThreads,
    top: &str,
    performed: &BTreeMap<String, u64>,
) -> Vec<ChargedRow> {
    let (mut rows, mut others) = (Vec::new(), empty_row(""));
    if let Some(before) = performed.get(top) {
        rows.push(load_since(threads, top, *before).await);
    }
    for (thread, before) in performed.iter().filter(|(thread, _)| *thread != top) {
        let charges = load_since(threads, thread, *before).await;
        match rows.len() < CHARGED_NAMED_MAX {
            true => rows.push(charges),
            false => add_charges(&mut others, &charges),
        }
        rows.retain(|row| row.calls > 0);
    }
    rows.push(others);
    rows.retain(|row| row.calls > 0);
    rows
}

/// Loads what the newest entry of each of these threads charges: that of runs which were closed a
/// moment ago.
pub async fn load_closing_charges(
    threads: &impl ProjectThreads,
    closed: &[String],
) -> Vec<ChargedRow> {
    let mut since = BTreeMap::new();
    for thread in closed {
        // A thread that cannot be read is named by what closed it.
        if let Ok(record) = threads.get(thread).await {
            since.insert(record.id, record.version.saturating_sub(1));
        }
    }
    load_charges(threads, "", &since).await
}

/// Adds up the charges that a thread's history records after a version, as far as they can be read.
async fn load_since(threads: &impl ProjectThreads, thread: &str, before: u64) -> ChargedRow {
    let mut charges = empty_row(thread);
    let mut cursor = None;
    while let Ok(page) = threads.charges(thread, before, cursor).await {
        charges.calls += u64::from(page.calls);
        charges.spend = charges.spend.saturating_add(page.spend);
        charges.most = charges.most.saturating_add(page.most);
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    charges
}

fn empty_row(thread: &str) -> ChargedRow {
    ChargedRow {
        thread_id: thread.to_owned(),
        calls: 0,
        spend: 0,
        most: 0,
    }
}

fn add_charges(sum: &mut ChargedRow, more: &ChargedRow) {
    sum.calls += more.calls;
    sum.spend = sum.spend.saturating_add(more.spend);
    sum.most = sum.most.saturating_add(more.most);
}
