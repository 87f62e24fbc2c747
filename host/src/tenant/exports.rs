//! The exports of the component, one method each. Contracts, limits and errors are those of `wit/`.

use super::Tenant;
use crate::error::CallError;
use crate::wit::{self, history, ledger, maintenance, registry, runner, transcript};

/// Defines a method for each export of an interface. After `=` stands the call of the export, with
/// the arguments that it gets. A call is repeated as [`Tenant::call_with_retries`] says, on another
/// thread, so texts are copied.
macro_rules! forward_exports {
    ($interface:ident: $(
        $(#[$doc:meta])*
        pub async fn $name:ident(
            $($arg:ident: $(&$text:ident)? $($type:path)?),* $(,)?
        ) -> $answer:ty
            = $call:ident($($passed:expr),*);
    )*) => {
        impl Tenant {$(
            $(#[$doc])*
            pub async fn $name(
                &self,
                $($arg: $(&$text)? $($type)?),*
            ) -> Result<$answer, CallError> {
                $($(let $arg = <$text as ToOwned>::to_owned($arg);)?)*
                self.call_with_retries(move |c, s| c.$interface().$call(s, $($passed),*))
                    .await
            }
        )*}
    };
}

forward_exports! { threadkeep_threads_registry:
    /// `registry.get`.
    pub async fn get(id: &str) -> wit::Thread = call_get(&id);

    /// `registry.list`.
    pub async fn list(
        filter: registry::Filter,
        limit: u32,
        cursor: Option<String>,
    ) -> registry::Page
        = call_list(&filter, limit, cursor.as_deref());

    /// `registry.set-title`.
    pub async fn set_title(id: &str, title: Option<String>) -> wit::Thread
        = call_set_title(&id, title.as_deref());
}

forward_exports! { threadkeep_threads_history:
    /// `history.load`.
    pub async fn load(id: &str, version: Option<u64>) -> history::Snapshot
        = call_load(&id, version);

    /// `history.entries`.
    pub async fn entries(id: &str, after: u64, limit: u32) -> history::Page
        = call_entries(&id, after, limit);

    /// `history.open`: takes the lease of a thread for an external loop.
    pub async fn open_thread(thread: &str, holder: &str, deadline: wit::Instant) -> history::Opened
        = call_open(&thread, &holder, deadline);

    /// `history.close`: ends a lease.
    pub async fn close_thread(
        thread: &str,
        token: u64,
        outcome: &str,
        result: Option<String>,
    ) -> history::Written
        = call_close(&thread, token, &outcome, result.as_deref());
}

forward_exports! { threadkeep_threads_ledger:
    /// `ledger.account`: the account that a thread's chain draws on.
    pub async fn account(thread: &str) -> wit::Account = call_account(&thread);

    /// `ledger.tree`: a thread and all that it spawned, with their accounts, a page at a time.
    pub async fn tree(thread: &str, cursor: Option<String>) -> ledger::TreePage
        = call_tree(&thread, cursor.as_deref());

    /// `ledger.charges`: adds up what was charged for calls of unknown cost after a version, a page
    /// of entries at a time.
    pub async fn charges(thread: &str, after: u64) -> ledger::ChargePage
        = call_charges(&thread, after);

    /// `ledger.hold`: sets money aside for a call of an external loop. `key` names the call: asked
    /// again, the recorded answer is returned.
    pub async fn hold(
        thread: &str,
        token: u64,
        key: &str,
        estimate: ledger::Estimate,
        deadline: wit::Instant,
    ) -> ledger::Admission
        = call_hold(&thread, token, &key, &estimate, deadline);

    /// `ledger.settle`: settles a held call with its actual cost, however late; returns the version
    /// of the thread.
    pub async fn settle(thread: &str, version: u64, bill: ledger::Bill) -> u64
        = call_settle(&thread, version, bill);

    /// `ledger.release`: releases a held call of which nothing was sent.
    pub async fn release(thread: &str, version: u64) -> u64 = call_release(&thread, version);
}

forward_exports! { threadkeep_threads_transcript:
    /// `transcript.events`.
    pub async fn events(id: &str, after: u64, limit: u32) -> transcript::EventPage
        = call_events(&id, after, limit);

    /// `transcript.messages`.
    pub async fn messages(id: &str, after: u64, until: u64) -> transcript::MessagePage
        = call_messages(&id, after, until);

    /// `transcript.render`.
    pub async fn render(id: &str, what: &str, after: u64) -> transcript::Piece
        = call_render(&id, &what, after);
}

forward_exports! { threadkeep_threads_runner:
    /// `runner.start`.
    pub async fn start(
        thread: &str,
        input: Option<String>,
        holder: &str,
        key: &str,
    ) -> runner::Handle
        = call_start(&thread, input.as_deref(), &holder, &key);

    /// `runner.claim`.
    pub async fn claim(thread: &str, holder: &str, proof: runner::Proof) -> runner::Handle
        = call_claim(&thread, &holder, proof);

    /// `runner.submit`.
    pub async fn submit(
        thread: &str,
        token: u64,
        version: u64,
        outcome: runner::Outcome,
        have: u64,
    ) -> runner::Step
        = call_submit(&thread, token, version, &outcome, have);

    /// `runner.progress`.
    pub async fn progress(thread: &str, token: u64, partial: String) -> runner::News
        = call_progress(&thread, token, &partial);

    /// `runner.signal`.
    pub async fn signal(thread: &str, id: &str, what: runner::SignalKind) -> u64
        = call_signal(&thread, &id, &what);

    /// `runner.ready`.
    pub async fn ready(limit: u32, cursor: Option<String>, under: Option<String>) -> runner::DuePage
        = call_ready(limit, cursor.as_deref(), under.as_deref());
}

forward_exports! { threadkeep_threads_maintenance:
    /// `maintenance.recover`.
    pub async fn recover(dead: Vec<String>, cursor: Option<String>) -> maintenance::Recovery
        = call_recover(&dead, cursor.as_deref());

    /// `maintenance.stats`.
    pub async fn stats(cursor: Option<String>) -> maintenance::Statistics
        = call_stats(cursor.as_deref());
}

impl Tenant {
    /// `registry.create`. Not repeated after an unknown outcome, because it might make two threads;
    /// such an end is [`CallError::OutcomeUnknown`].
    pub async fn create(&self, draft: registry::Draft) -> Result<wit::Thread, CallError> {
        self.call_once(move |c, s| c.threadkeep_threads_registry().call_create(s, &draft))
            .await
            .map_err(CallError::for_non_idempotent)
    }

    /// `history.append`: adds events to a history, each one JSON object, with the token of a lease
    /// or, for a thread without a lease, without one.
    pub async fn append(
        &self,
        thread: &str,
        token: Option<u64>,
        expected: u64,
        events: Vec<String>,
    ) -> Result<history::Written, CallError> {
        let (thread, change) = (thread.to_owned(), history::ChangeSet { events });
        self.call_with_retries(move |c, s| {
            c.threadkeep_threads_history()
                .call_append(s, &thread, token, expected, &change)
        })
        .await
    }
}
