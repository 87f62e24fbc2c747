//! The interface `ledger` of a tenant: accounts, trees of them, and the money of an external loop.

use super::Tenant;
use crate::error::CallError;
use crate::wit::{self, ledger};

impl Tenant {
    /// `ledger.account`: the account that a thread's chain draws on.
    pub async fn account(&self, thread: &str) -> Result<wit::Account, CallError> {
        let thread = thread.to_owned();
        self.call_with_retries(move |c, s| c.threadkeep_threads_ledger().call_account(s, &thread))
            .await
    }

    /// `ledger.tree`: a thread and all that it spawned, with their accounts, a page at a time.
    pub async fn tree(
        &self,
        thread: &str,
        cursor: Option<String>,
    ) -> Result<ledger::TreePage, CallError> {
        let thread = thread.to_owned();
        self.call_with_retries(move |c, s| {
            c.threadkeep_threads_ledger()
                .call_tree(s, &thread, cursor.as_deref())
        })
        .await
    }

    /// `ledger.charges`: adds up what was charged for calls of unknown cost after a version, a page
    /// of entries at a time.
    pub async fn charges(&self, thread: &str, after: u64) -> Result<ledger::ChargePage, CallError> {
        let thread = thread.to_owned();
        self.call_with_retries(move |c, s| {
            c.threadkeep_threads_ledger()
                .call_charges(s, &thread, after)
        })
        .await
    }

    /// `ledger.hold`: sets money aside for a call of an external loop. `key` names the call: asked
    /// again, the recorded answer is returned.
    pub async fn hold(
        &self,
        thread: &str,
        token: u64,
        key: &str,
        estimate: ledger::Estimate,
        deadline: wit::Instant,
    ) -> Result<ledger::Admission, CallError> {
        let (thread, key) = (thread.to_owned(), key.to_owned());
        self.call_with_retries(move |c, s| {
            c.threadkeep_threads_ledger()
                .call_hold(s, &thread, token, &key, &estimate, deadline)
        })
        .await
    }

    /// `ledger.settle`: settles a held call with its actual cost, however late; returns the version
    /// of the thread.
    pub async fn settle(
        &self,
        thread: &str,
        version: u64,
        bill: ledger::Bill,
    ) -> Result<u64, CallError> {
        let thread = thread.to_owned();
        self.call_with_retries(move |c, s| {
            c.threadkeep_threads_ledger()
                .call_settle(s, &thread, version, bill)
        })
        .await
    }

    /// `ledger.release`: releases a held call of which nothing was sent.
    pub async fn release(&self, thread: &str, version: u64) -> Result<u64, CallError> {
        let thread = thread.to_owned();
        self.call_with_retries(move |c, s| {
            c.threadkeep_threads_ledger()
                .call_release(s, &thread, version)
        })
        .await
    }
}
