//! What a thread and all that lies below it came to: money, and children that need somebody.

use super::open::Opened;
use super::{fault, view};
use threadkeep::error::CallError;
use threadkeep::tenant::Tenant;
use threadkeep::wit::{self, ledger};
use threadkeep_cli::answer::{FamilyView, SuspendedRow, advised_code, suspended_advice};

/// Most children that are named because they are suspended; the others are counted.
const SUSPENDED_NAMED_MAX: usize = 20;

/// A thread and all that lies below it, as one sweep of the tree found it.
#[derive(Debug, Default)]
pub struct Family {
    /// Nano-USD settled and charged, open accounts included.
    pub spend: u64,
    /// Threads, with the one that was asked for.
    pub threads: u64,
    /// Those below it that are suspended, in the order of the tree.
    suspended: Vec<String>,
    suspended_left_out: u64,
}

impl Family {
    fn add(&mut self, branch: ledger::Branch) {
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
pub async fn gather(tenant: &Tenant, thread: &str) -> Result<Family, CallError> {
    let (mut family, mut cursor) = (Family::default(), None);
    loop {
        let page = tenant.tree(thread, cursor).await?;
        page.branches.into_iter().for_each(|b| family.add(b));
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(family);
        }
    }
}

/// The same as the end of a run shows it: each suspended child with its cause and what to do.
pub async fn view(opened: &Opened, thread: &str) -> Result<FamilyView, CallError> {
    let family = gather(opened.tenant(), thread).await?;
    let mut suspended = Vec::with_capacity(family.suspended.len());
    for child in &family.suspended {
        let child = opened.tenant().get(child).await?;
        // It may have gone on meanwhile.
        if child.status == "suspended" {
            suspended.push(row(opened, &child).await?);
        }
    }
    Ok(FamilyView {
        spend: family.spend,
        threads: family.threads,
        suspended,
        suspended_left_out: family.suspended_left_out,
    })
}

async fn row(opened: &Opened, child: &wit::Thread) -> Result<SuspendedRow, CallError> {
    let cause = child.cause.as_ref();
    let payer = payer(opened.tenant(), child).await?;
    let advised = cause.and_then(|cause| {
        let bound = fault::bound(opened, child);
        let code = advised_code(&cause.code, &cause.message);
        suspended_advice(&child.id, code, bound, &payer, wait_of(cause))
    });
    Ok(SuspendedRow {
        thread_id: child.id.clone(),
        cause: cause.map(view::cause),
        next: advised,
    })
}

/// The thread whose cap on money is to be raised before this one can spend more: the first of the
/// chain whose account it draws on.
pub async fn payer(tenant: &Tenant, thread: &wit::Thread) -> Result<String, CallError> {
    let of_money = thread
        .cause
        .as_ref()
        .is_some_and(|cause| cause.code == "spend_exceeded");
    if !of_money || thread.parent.is_none() {
        return Ok(thread.id.clone());
    }
    let account = tenant.account(&thread.id).await?;
    Ok(match account.chain == thread.chain {
        true => thread.id.clone(),
        false => account.chain,
    })
}

/// Milliseconds that a provider asked to wait before its next attempt: the value of a cause that is
/// an error.
pub fn wait_of(cause: &wit::Cause) -> Option<u64> {
    cause.value.filter(|_| cause.reason == "error")
}
