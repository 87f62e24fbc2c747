//! The interface `ledger` of a tenant: accounts, trees of them, and the money of a host's own loop.

use super::Tenant;
use crate::error::CallError;
use crate::wit::{self, ledger};

impl Tenant {
    /// `ledger.account`: the account that a thread's chain draws on.
    pub async fn account(&self, thread: &str) -> Result<wit::Account, CallError> {
        let thread = thread.to_owned();
        self.call(move |c, s| c.threadkeep_threads_ledger().call_account(s, &thread))
            .await
    }

    /// `ledger.tree`: a thread and all that it spawned, with their accounts, a page at a time.
    pub async fn tree(
        &self,
        thread: &str,
        cursor: Option<String>,
    ) -> Result<ledger::TreePage, CallError> {
        let thread = thread.to_owned();
        self.call(move |c, s| {
            c.threadkeep_threads_ledger()
                .call_tree(s, &thread, cursor.as_deref())
        })
        .await
    }

    /// `ledger.hold`: set money aside for a call of a loop of one's own. `key` names the call: asked again, the recorded
    /// answer comes back.
    pub async fn hold(
        &self,
        thread: &str,
        token: u64,
        key: &str,
        estimate: ledger::Estimate,
        deadline: wit::Instant,
    ) -> Result<ledger::Admission, CallError> {
        let (thread, key) = (thread.to_owned(), key.to_owned());
        self.call(move |c, s| {
            c.threadkeep_threads_ledger()
                .call_hold(s, &thread, token, &key, &estimate, deadline)
        })
        .await
    }

    /// `ledger.settle`: tell what a held call came to, however late; the version of the thread.
    pub async fn settle(
        &self,
        thread: &str,
        version: u64,
        bill: ledger::Bill,
    ) -> Result<u64, CallError> {
        let thread = thread.to_owned();
        self.call(move |c, s| {
            c.threadkeep_threads_ledger()
                .call_settle(s, &thread, version, bill)
        })
        .await
    }

    /// `ledger.release`: nothing was sent for a held call.
    pub async fn release(&self, thread: &str, version: u64) -> Result<u64, CallError> {
        let thread = thread.to_owned();
        self.call(move |c, s| {
            c.threadkeep_threads_ledger()
                .call_release(s, &thread, version)
        })
        .await
    }
}
