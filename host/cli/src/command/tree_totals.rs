//! Totals of a thread and all threads below it: money, and suspended children.
//!
//! The spend of a tree is the sum over its threads, those that can be read; the others are named.
//! The accounts alone would tell it late: an account learns what those below it have spent when
//! they close, which is right for the ledger and too late for a person.

use super::{fault, view};
use crate::answer::{SuspendedRow, TreeTotalsView, advised_code, suspended_advice};
use crate::contract::{CallError, Thread, TreeBranch};
use crate::threads::{CallResult, ProjectThreads};

/// Most suspended children that are named; the others are counted.
const SUSPENDED_NAMED_MAX: usize = 20;
/// Most levels that are climbed from a thread: records that were forged may name each other.
const LEVELS_MAX: usize = 1_000;

/// Totals of a thread and all threads below it, from one pass over the tree.
#[derive(Debug, Default)]
pub struct TreeTotals {
    /// Nano-USD settled and charged, including open accounts.
    pub spend: u64,
    /// Number of threads, including the root.
    pub threads: u64,
    /// Suspended threads below it, in the order of the tree.
    suspended: Vec<String>,
    suspended_left_out: u64,
    /// Those whose records are missing or cannot be read: the spend lacks what they have spent.
    pub unreadable: Vec<String>,
}

impl TreeTotals {
    fn add_branch(&mut self, branch: TreeBranch) {
        self.threads += 1;
        self.spend = self.spend.saturating_add(branch.spend);
        if branch.depth == 0 || branch.status != "suspended" {
            return;
        }
        match self.suspended.len() < SUSPENDED_NAMED_MAX {
            true => self.suspended.push(branch.thread),
            false => self.suspended_left_out += 1,
        }
    }
}

/// Reads the whole tree of a thread, a page at a time: pages are not one snapshot.
pub async fn load_totals(threads: &impl ProjectThreads, thread: &str) -> CallResult<TreeTotals> {
    let (mut totals, mut cursor) = (TreeTotals::default(), None);
    loop {
        let page = threads.tree(thread, cursor).await?;
        page.branches.into_iter().for_each(|b| totals.add_branch(b));
        let unreadable = page.unreadable.into_iter();
        totals.unreadable.extend(unreadable.map(|one| one.thread));
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(totals);
        }
    }
}

/// Reads the same totals for the end of a run: each suspended child with its cause and what to do.
pub async fn load_view(opened: &impl ProjectThreads, thread: &str) -> CallResult<TreeTotalsView> {
    let mut totals = load_totals(opened, thread).await?;
    let mut suspended = Vec::with_capacity(totals.suspended.len());
    for child in &totals.suspended {
        match opened.get(child).await {
            // It may have been resumed meanwhile.
            Ok(child) if child.status != "suspended" => {}
            Ok(child) => suspended.push(suspended_row(opened, &child).await?),
            Err(CallError::Refused(_)) => totals.unreadable.push(child.clone()),
            Err(error) => return Err(error),
        }
    }
    Ok(TreeTotalsView {
        spend: totals.spend,
        threads: totals.threads,
        suspended,
        suspended_left_out: totals.suspended_left_out,
        unreadable: totals.unreadable,
    })
}

async fn suspended_row(opened: &impl ProjectThreads, child: &Thread) -> CallResult<SuspendedRow> {
    let cause = child.cause.as_ref();
    let advised = match find_payer(opened, child).await {
        Ok(payer) => cause.and_then(|cause| {
            let bound = fault::cap_source(opened, child);
            let code = advised_code(&cause.code, cause.failure.as_deref());
            suspended_advice(&child.id, code, bound, &payer, cause.retry)
        }),
        // The records do not show whose money it is: the audit says more.
        Err(CallError::Refused(_)) => Some("threadkeep audit".to_owned()),
        Err(error) => return Err(error),
    };
    Ok(SuspendedRow {
        thread_id: child.id.clone(),
        cause: cause.map(view::cause),
        next: advised,
    })
}

/// Returns true if a thread is this one or lies below it, as far as the threads between can be
/// read.
pub async fn lies_in(threads: &impl ProjectThreads, thread: &str, top: &str) -> bool {
    let mut next = thread.to_owned();
    for _ in 0..LEVELS_MAX {
        if next == top {
            return true;
        }
        match threads.get(&next).await.map(|found| found.parent) {
            Ok(Some(parent)) => next = parent,
            Ok(None) | Err(_) => return false,
        }
    }
    false
}

/// Returns the thread whose cap on money must be raised before this one can spend more: the first
/// thread of the chain whose account it draws on.
pub async fn find_payer(threads: &impl ProjectThreads, thread: &Thread) -> CallResult<String> {
    let of_money = thread
        .cause
        .as_ref()
        .is_some_and(|cause| cause.code == "spend_exceeded");
    if !of_money || thread.parent.is_none() {
        return Ok(thread.id.clone());
    }
    let account = threads.account(&thread.id).await?;
    Ok(match account.chain == thread.chain {
        true => thread.id.clone(),
        false => account.chain,
    })
}
