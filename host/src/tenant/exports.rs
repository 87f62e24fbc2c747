//! The exports of the component, one method each. Contracts, limits and errors are those of `wit/`.

use super::Tenant;
use crate::bindings::Threads;
use crate::component::RandomUnavailable;
use crate::engine::InstanceState;
use crate::error::CallError;
use crate::wit::{self, history, ledger, maintenance, registry, runner, transcript};
use wasmtime::Store;

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
    pub async fn get(thread: &str) -> wit::Thread = call_get(&thread);

    /// `registry.create`: the same key with the same draft answers the thread that it has made.
    pub async fn create_once(draft: registry::Draft, key: &str) -> wit::Thread
        = call_create(&draft, &key);

    /// `registry.list`.
    pub async fn list(
        filter: registry::Filter,
        limit: u32,
        cursor: Option<String>,
    ) -> registry::RowPage
        = call_list(&filter, limit, cursor.as_deref());

    /// `registry.set-title`.
    pub async fn set_title(thread: &str, title: Option<String>) -> wit::Thread
        = call_set_title(&thread, title.as_deref());

    /// `registry.delete`.
    pub async fn delete(
        thread: &str,
        options: Option<String>,
        cursor: Option<String>,
    ) -> String
        = call_delete(&thread, options.as_deref(), cursor.as_deref());
}

forward_exports! { threadkeep_threads_history:
    /// `history.load`.
    pub async fn load(thread: &str, version: Option<u64>) -> history::Snapshot
        = call_load(&thread, version);

    /// `history.entries`.
    pub async fn entries(
        thread: &str,
        after: u64,
        limit: u32,
        cursor: Option<String>,
    ) -> history::EntryPage
        = call_entries(&thread, after, limit, cursor.as_deref());

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

    /// `history.fork`: the same key with the same request answers the thread that it has made.
    pub async fn fork(
        thread: &str,
        version: u64,
        key: &str,
        change: Option<String>,
    ) -> wit::Thread
        = call_fork(&thread, version, &key, change.as_deref());
}

forward_exports! { threadkeep_threads_ledger:
    /// `ledger.account`: the account that a thread's chain draws on.
    pub async fn account(thread: &str) -> wit::Account = call_account(&thread);

    /// `ledger.tree`: a thread and all that it spawned, with their accounts, a page at a time.
    pub async fn tree(thread: &str, cursor: Option<String>) -> ledger::TreePage
        = call_tree(&thread, cursor.as_deref());

    /// `ledger.charges`: adds up what was charged for calls of unknown cost after a version, a page
    /// of entries at a time.
    pub async fn charges(
        thread: &str,
        after: u64,
        cursor: Option<String>,
    ) -> ledger::ChargePage
        = call_charges(&thread, after, cursor.as_deref());

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
        = call_settle(&thread, version, &bill);

    /// `ledger.release`: releases a held call of which nothing was sent.
    pub async fn release(thread: &str, version: u64) -> u64 = call_release(&thread, version);
}

forward_exports! { threadkeep_threads_continuation:
    /// `continuation.usage`.
    pub async fn window_usage(thread: &str) -> String = call_usage(&thread);

    /// `continuation.chain`: the links of a thread's chain as JSON, a page at a time.
    pub async fn chain(thread: &str, cursor: Option<String>) -> String
        = call_chain(&thread, cursor.as_deref());

    /// `continuation.plan`.
    pub async fn plan_handoff(thread: &str) -> String = call_plan(&thread);
}

forward_exports! { threadkeep_threads_transcript:
    /// `transcript.events`.
    pub async fn events(
        thread: &str,
        after: u64,
        limit: u32,
        cursor: Option<String>,
    ) -> transcript::EventPage
        = call_events(&thread, after, limit, cursor.as_deref());

    /// `transcript.messages`.
    pub async fn messages(
        thread: &str,
        after: u64,
        until: Option<u64>,
        cursor: Option<String>,
    ) -> transcript::MessagePage
        = call_messages(&thread, after, until, cursor.as_deref());

    /// `transcript.render`.
    pub async fn render(
        thread: &str,
        what: &str,
        at: Option<u64>,
        after: u64,
        cursor: Option<String>,
    ) -> transcript::Piece
        = call_render(&thread, &what, at, after, cursor.as_deref());

    /// `transcript.search`.
    pub async fn search(thread: &str, query: &str, limit: u32, cursor: Option<String>) -> String
        = call_search(&thread, &query, limit, cursor.as_deref());
}

forward_exports! { threadkeep_threads_runner:
    /// `runner.start`.
    pub async fn start(
        thread: &str,
        input: Option<String>,
        holder: &str,
        key: &str,
        about: Option<String>,
    ) -> runner::Handle
        = call_start(&thread, input.as_deref(), &holder, &key, about.as_deref());

    /// `runner.resume`.
    pub async fn resume(
        thread: &str,
        input: Option<String>,
        holder: &str,
        key: &str,
        about: Option<String>,
    ) -> runner::Handle
        = call_resume(&thread, input.as_deref(), &holder, &key, about.as_deref());

    /// `runner.claim`.
    pub async fn claim(thread: &str, holder: &str, proof: runner::Proof) -> runner::Handle
        = call_claim(&thread, &holder, &proof);

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
    pub async fn progress(thread: &str, token: u64, partial: Option<String>) -> runner::News
        = call_progress(&thread, token, partial.as_deref());

    /// `runner.signal`.
    pub async fn signal(thread: &str, key: &str, what: runner::SignalKind) -> u64
        = call_signal(&thread, &key, &what);

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

    /// `maintenance.attest`.
    pub async fn attest(thread: &str, version: u64, signature: &str) -> String
        = call_attest(&thread, version, &signature);
}

impl Tenant {
    /// `registry.create`, with a key of its own, so that it makes one thread also where its first
    /// outcome is unknown. The key ends with the call: one that may have made a thread after all is
    /// [`CallError::OutcomeUnknown`].
    pub async fn create(&self, draft: registry::Draft) -> Result<wit::Thread, CallError> {
        let key = random_key()?;
        let created = self.create_once(draft, &key).await;
        created.map_err(CallError::for_non_idempotent)
    }

    /// `history.fork`, with a key of its own, as [`Tenant::create`].
    pub async fn fork_at(
        &self,
        thread: &str,
        version: u64,
        change: Option<String>,
    ) -> Result<wit::Thread, CallError> {
        let key = random_key()?;
        let forked = self.fork(thread, version, &key, change).await;
        forked.map_err(CallError::for_non_idempotent)
    }

    /// `history.append`: adds events to a history, each one JSON object, with the token of a lease
    /// or, for a thread without a lease, without one. `expected` is the version before them.
    /// Without a token each call is a request of its own: called again, it is a conflict.
    pub async fn append(
        &self,
        thread: &str,
        token: Option<u64>,
        expected: u64,
        events: Vec<String>,
    ) -> Result<history::Written, CallError> {
        let change = history::ChangeSet::of_events(events);
        let expected = history::Expected::Exact(expected);
        self.append_change(thread, token, expected, change).await
    }

    /// `history.append` as the contract has it. An append to any version is not repeated after an
    /// unknown outcome, because it might append twice; such an end is
    /// [`CallError::OutcomeUnknown`]. An append to a version that has neither a token nor a request
    /// gets a request of its own, by which its repetitions are known.
    pub async fn append_change(
        &self,
        thread: &str,
        token: Option<u64>,
        expected: history::Expected,
        mut change: history::ChangeSet,
    ) -> Result<history::Written, CallError> {
        let thread = thread.to_owned();
        let once = matches!(expected, history::Expected::Any);
        if !once && token.is_none() && change.request.is_none() {
            change.request = Some(random_key()?);
        }
        let append = move |c: &Threads, s: &mut Store<InstanceState>| {
            c.threadkeep_threads_history()
                .call_append(s, &thread, token, expected, &change)
        };
        match once {
            true => self
                .call_once(append)
                .await
                .map_err(CallError::for_non_idempotent),
            false => self.call_with_retries(append).await,
        }
    }
}

/// A key that no other request has.
fn random_key() -> Result<String, CallError> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|_| CallError::Trapped(RandomUnavailable.to_string()))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
