//! The project in the granted directory: the calls of commands, over the component's interfaces.

use crate::calls::{
    ConvertRecord, bundle_host, call, call_plain, clock, continuation, history, ledger, library,
    maintenance, random, registry, runner, transcript, types,
};
use crate::documents::{BundleDocuments, DocumentFault, check_checkpoint_settings};
use std::cell::RefCell;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;
use threadkeep_adapters::blobs::BlobName;
use threadkeep_cli::command::fault;
use threadkeep_cli::command::inner_run::{self, InnerRuns};
use threadkeep_cli::contract::{
    AccountRecord, CallBill, CallError, CallRefusal, ChangeSet, ChargePage, CommittedChange,
    CostEstimate, EntryPage, ExpectedVersion, HeldMoney, ListPage, OpenedThread, RunLease,
    SignalContent, Thread, ThreadDraft, ThreadFilter, ThreadSnapshot, TranscriptPiece, TreePage,
    UnixTime, UnreadableThread,
};
use threadkeep_cli::exit::CommandFault;
use threadkeep_cli::screen::OutputScreen;
use threadkeep_cli::threads::{
    CallResult, HolderLife, PAGE_THREADS_MAX, PerformedRun, ProjectThreads, RecoveredRuns,
    RunOrder, ThreadRuns,
};
use threadkeep_units::lease_grace::is_grace_over;
use threadkeep_units::project_layout::{FoundStores, STORE_CHOICE, STORE_NAMES, TWO_STORES};

/// Most holders in one call of `recover`.
const HOLDERS_PER_CALL_MAX: usize = 500;
/// Random bytes of a key, and of an id.
const KEY_BYTES: u32 = 16;
const ID_BYTES: u32 = 8;
/// The wait where no time is given.
const WAIT_TIME: Duration = Duration::from_secs(2);
/// The longest wait before the component is asked again.
const WAIT_TIME_MAX: Duration = Duration::from_secs(30);

/// The project in the granted directory.
pub struct GrantedProject {
    /// True if it has no store, and none is to be made: no call is made then.
    is_empty: bool,
    /// True over an empty store in memory, for as long as this is open.
    is_rehearsal: bool,
    /// The directory that is granted.
    root: PathBuf,
    /// The documents of its threads, opened at first use: only then there is a directory for them.
    documents: RefCell<Option<BundleDocuments>>,
}

impl GrantedProject {
    /// Opens the project in this directory; `creates` if a missing store is to be made,
    /// `names_files` if the store of plain files is the one that counts.
    ///
    /// # Errors
    /// If the place of the store cannot be looked at, or is no directory, or has two stores.
    pub fn open(root: &Path, creates: bool, names_files: bool) -> Result<Self, CommandFault> {
        let has_store = find_store(root, names_files)?;
        Ok(Self {
            is_empty: !creates && !has_store,
            is_rehearsal: false,
            root: root.to_owned(),
            documents: RefCell::default(),
        })
    }

    /// Opens the project over an empty store in memory, until the value is dropped.
    pub fn rehearse(root: &Path) -> Self {
        bundle_host::set_rehearsal(true);
        Self {
            is_empty: false,
            is_rehearsal: true,
            root: root.to_owned(),
            documents: RefCell::default(),
        }
    }

    /// Does work on the documents. A failure is a warning: the records are what counts.
    fn write_documents(
        &self,
        thread: &str,
        screen: &mut OutputScreen,
        work: impl FnOnce(&mut BundleDocuments) -> Result<(), DocumentFault>,
    ) {
        let mut opened = self.documents.borrow_mut();
        let documents = match &mut *opened {
            Some(documents) => Ok(documents),
            missing => BundleDocuments::open(&self.root).map(|opened| missing.insert(opened)),
        };
        if let Err(error) = documents.and_then(work) {
            screen.warn(&format!(
                "the documents of {thread} are not up to date: {error}; the next command that \
                 changes it writes them, and so does `threadkeep repair {thread}` of the native \
                 program"
            ));
        }
    }

    /// Makes a call about a thread, of which an empty project has none.
    fn call_about<A: ConvertRecord<B>, B>(
        &self,
        thread: &str,
        export: impl Fn() -> Result<A, types::Error>,
    ) -> CallResult<B> {
        if !self.is_empty {
            return call(export);
        }
        Err(CallError::Refused(CallRefusal::from_record(
            ("not-found", "thread".to_owned()),
            (format!("there is no thread {thread:?}"), String::new()),
            None,
            "{}",
        )))
    }
}

impl Drop for GrantedProject {
    fn drop(&mut self) {
        if self.is_rehearsal {
            bundle_host::set_rehearsal(false);
        }
    }
}

/// Returns true if the project has a store. Only what is not there is missing: a place that cannot
/// be looked at may have one.
fn find_store(root: &Path, names_files: bool) -> Result<bool, CommandFault> {
    let threads = root.join(".ai").join("threads");
    let unreadable = |path: &Path, error: &io::Error| {
        CommandFault::new("io", format!("{} cannot be read: {error}", path.display()))
    };
    match fs::symlink_metadata(&threads) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => {
            let message = format!("{} is a link or a file", threads.display());
            return Err(CommandFault::new("not-a-directory", message)
                .with_hint("put the directory itself there"));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(unreadable(&threads, &error)),
    }
    let mut found = Vec::new();
    for name in STORE_NAMES {
        let store = threads.join(name);
        match fs::symlink_metadata(&store) {
            Ok(_) => found.push(name),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(unreadable(&store, &error)),
        }
    }
    let stores = FoundStores::look(|name| found.contains(&name));
    // While a store is copied, its file says which counts.
    let is_copied = found.contains(&STORE_CHOICE);
    if stores == FoundStores::Both && !names_files && !is_copied {
        return Err(CommandFault::new("two-stores", TWO_STORES).with_hint(fault::TWO_STORES_HINT));
    }
    Ok(!found.is_empty())
}

/// Returns the error of a call that made something, if nobody knows whether it did.
fn after_creation(made: CallResult<Thread>) -> CallResult<Thread> {
    match made {
        Err(CallError::Refused(refusal)) if refusal.kind.as_str() == "unknown" => {
            let message = format!("{}; it may have been done all the same", refusal.message);
            Err(CallError::Failed(
                CommandFault::new("unknown", message)
                    .with_hint("`threadkeep list` shows whether the thread was made: look first"),
            ))
        }
        made => made,
    }
}

impl ProjectThreads for GrantedProject {
    async fn create(&self, draft: ThreadDraft) -> CallResult<Thread> {
        let (draft, key) = (draft.convert(), random::bytes(KEY_BYTES));
        after_creation(call(|| registry::create(&draft, &key)))
    }

    async fn get(&self, thread: &str) -> CallResult<Thread> {
        self.call_about(thread, || registry::get(thread))
    }

    async fn list(
        &self,
        filter: ThreadFilter,
        limit: u32,
        cursor: Option<String>,
    ) -> CallResult<ListPage> {
        if self.is_empty {
            return Ok(ListPage::default());
        }
        let filter = filter.convert();
        call(|| registry::list(&filter, limit, cursor.as_deref()))
    }

    async fn set_title(&self, thread: &str, title: Option<String>) -> CallResult<Thread> {
        self.call_about(thread, || registry::set_title(thread, title.as_deref()))
    }

    async fn load(&self, thread: &str, version: Option<u64>) -> CallResult<ThreadSnapshot> {
        self.call_about(thread, || history::load(thread, version))
    }

    async fn entries(
        &self,
        thread: &str,
        after: u64,
        limit: u32,
        cursor: Option<String>,
    ) -> CallResult<EntryPage> {
        self.call_about(thread, || {
            history::entries(thread, after, limit, cursor.as_deref())
        })
    }

    async fn open_thread(
        &self,
        thread: &str,
        holder: &str,
        deadline: UnixTime,
    ) -> CallResult<OpenedThread> {
        self.call_about(thread, || history::open(thread, holder, deadline.convert()))
    }

    async fn append_change(
        &self,
        thread: &str,
        token: Option<u64>,
        expected: ExpectedVersion,
        change: ChangeSet,
    ) -> CallResult<CommittedChange> {
        let change = change.convert();
        self.call_about(thread, || {
            history::append(thread, token, expected.convert(), &change)
        })
    }

    async fn close_thread(
        &self,
        thread: &str,
        token: u64,
        outcome: &str,
        result: Option<String>,
    ) -> CallResult<CommittedChange> {
        self.call_about(thread, || {
            history::close(thread, token, outcome, result.as_deref())
        })
    }

    async fn fork_at(
        &self,
        thread: &str,
        version: u64,
        change: Option<String>,
    ) -> CallResult<Thread> {
        let key = random::bytes(KEY_BYTES);
        after_creation(self.call_about(thread, || {
            history::fork(thread, version, &key, change.as_deref())
        }))
    }

    async fn account(&self, thread: &str) -> CallResult<AccountRecord> {
        self.call_about(thread, || ledger::account(thread))
    }

    async fn tree(&self, thread: &str, cursor: Option<String>) -> CallResult<TreePage> {
        self.call_about(thread, || ledger::tree(thread, cursor.as_deref()))
    }

    async fn charges(
        &self,
        thread: &str,
        after: u64,
        cursor: Option<String>,
    ) -> CallResult<ChargePage> {
        self.call_about(thread, || ledger::charges(thread, after, cursor.as_deref()))
    }

    async fn hold(
        &self,
        thread: &str,
        token: u64,
        key: &str,
        estimate: CostEstimate,
        deadline: UnixTime,
    ) -> CallResult<HeldMoney> {
        let estimate = estimate.convert();
        self.call_about(thread, || {
            ledger::hold(thread, token, key, &estimate, deadline.convert())
        })
    }

    async fn settle(&self, thread: &str, version: u64, bill: CallBill) -> CallResult<u64> {
        let bill = bill.convert();
        self.call_about(thread, || ledger::settle(thread, version, &bill))
    }

    async fn release(&self, thread: &str, version: u64) -> CallResult<u64> {
        self.call_about(thread, || ledger::release(thread, version))
    }

    async fn chain(&self, thread: &str, cursor: Option<String>) -> CallResult<String> {
        self.call_about(thread, || continuation::chain(thread, cursor.as_deref()))
    }

    async fn render(
        &self,
        thread: &str,
        what: &str,
        at: Option<u64>,
        after: u64,
        cursor: Option<String>,
    ) -> CallResult<TranscriptPiece> {
        self.call_about(thread, || {
            transcript::render(thread, what, at, after, cursor.as_deref())
        })
    }

    async fn signal(&self, thread: &str, key: &str, what: SignalContent) -> CallResult<u64> {
        let what = what.convert();
        self.call_about(thread, || runner::signal(thread, key, &what))
    }

    async fn sweep_all(&self, under: Option<&str>) -> CallResult<Vec<UnreadableThread>> {
        let (mut kept, mut unreadable) = (Vec::new(), Vec::new());
        if self.is_empty {
            return Ok(unreadable);
        }
        // A child that was told may have children of its own.
        while sweep_once(under, &mut kept, &mut unreadable)? {}
        Ok(unreadable)
    }

    async fn store_image(&self, thread: &str, bytes: Vec<u8>) -> Result<BlobName, CommandFault> {
        match bundle_host::store_image(thread, &bytes) {
            Ok(stored) => Ok(BlobName {
                hash: stored.hash,
                media: stored.media,
                size: stored.size,
            }),
            Err(failure) => Err(fault::from_blob(&failure.code, failure.message)),
        }
    }

    fn takes_images(&self, model: &str) -> bool {
        bundle_host::takes_images(model)
    }

    fn library_names(&self, kind: &str) -> Vec<String> {
        library::names(kind).unwrap_or_default()
    }

    /// The policy of the bundle has no caps: those of the preset are a thread's own.
    fn policy_cap(&self, _: &str) -> Option<u64> {
        None
    }

    /// The lock of a native holder cannot be looked at here.
    fn holder_life(&self, _: &RunLease) -> HolderLife {
        HolderLife::Unknown
    }

    fn is_empty(&self) -> bool {
        self.is_empty
    }

    fn is_memory_only(&self) -> bool {
        self.is_rehearsal
    }

    fn now(&self) -> UnixTime {
        let now = clock::now();
        UnixTime {
            seconds: now.seconds,
            nanos: now.nanos,
        }
    }

    fn random_digits(&self) -> String {
        random::bytes(ID_BYTES)
    }

    async fn refresh_documents(&self, thread: &str, screen: &mut OutputScreen) {
        if !self.is_empty {
            self.write_documents(thread, screen, |documents| documents.refresh(thread));
        }
    }
}

/// Passes the ends of threads that are due on; returns false if there was none that could be.
fn sweep_once(
    under: Option<&str>,
    kept: &mut Vec<String>,
    unreadable: &mut Vec<UnreadableThread>,
) -> CallResult<bool> {
    let (mut cursor, mut swept) = (None::<String>, false);
    loop {
        let page = call_plain(|| runner::ready(PAGE_THREADS_MAX, cursor.as_deref(), under))?;
        for due in page.threads {
            let is_due = due.calls.iter().any(|needed| needed == "sweep");
            if !is_due || kept.contains(&due.thread) {
                continue;
            }
            swept = true;
            let left = sweep_thread(&due.thread)?;
            if !left.is_empty() {
                kept.push(due.thread);
                unreadable.extend(left);
            }
        }
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(swept);
        }
    }
}

fn sweep_thread(thread: &str) -> CallResult<Vec<UnreadableThread>> {
    let (mut cursor, mut unreadable) = (None::<String>, Vec::new());
    loop {
        let page = match call_plain(|| runner::sweep(thread, cursor.as_deref())) {
            Err(CallError::Refused(refusal)) if refusal.kind.as_str() == "corrupt" => {
                unreadable.push(UnreadableThread {
                    thread: thread.to_owned(),
                    why: threadkeep_cli::contract::RecordDamage {
                        code: refusal.code,
                        message: refusal.message,
                    },
                });
                return Ok(unreadable);
            }
            page => page?,
        };
        let left: Vec<UnreadableThread> = page.unreadable.convert();
        unreadable.extend(left);
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(unreadable);
        }
    }
}

impl ThreadRuns for GrantedProject {
    fn check_settings(&self) -> Result<(), CommandFault> {
        check_checkpoint_settings()
    }

    fn check_room(&self) -> Result<(), CommandFault> {
        Ok(())
    }

    fn check_model(&self, model: &str) -> Result<(), CommandFault> {
        let Err(failure) = bundle_host::check_model(model) else {
            return Ok(());
        };
        let fault = CommandFault::new(&failure.code, failure.message);
        Err(match failure.code.as_str() {
            "provider_setup" | "unknown_model" => fault.with_hint(
                "`threadkeep doctor` of the native program shows every provider and what it lacks",
            ),
            _ => fault,
        })
    }

    async fn recover_runs(&self, dead: &[String]) -> Result<RecoveredRuns, CommandFault> {
        let mut recovered = RecoveredRuns::default();
        if self.is_empty {
            return Ok(recovered);
        }
        let failed = |error| fault::from_call(&error);
        let now = clock::now().seconds;
        let mut dead = dead.to_vec();
        let held = recover_pages(&[], &mut recovered).map_err(failed)?;
        for lease in held {
            // Nothing tells here whether a holder lives but the time of its lease.
            let gone = is_grace_over(now, lease.expiry.seconds);
            if gone && !dead.contains(&lease.holder) {
                dead.push(lease.holder);
            }
        }
        for holders in dead.chunks(HOLDERS_PER_CALL_MAX) {
            recover_pages(holders, &mut recovered).map_err(failed)?;
        }
        Ok(recovered)
    }

    async fn catch_up(&self, _: &mut OutputScreen) {}

    async fn perform(
        &self,
        order: RunOrder,
        screen: &mut OutputScreen,
    ) -> Result<PerformedRun, CommandFault> {
        inner_run::perform(self, order, screen).await
    }
}

/// Closes the runs of these holders; returns the leases of the others.
fn recover_pages(dead: &[String], recovered: &mut RecoveredRuns) -> CallResult<Vec<types::Lease>> {
    let (mut cursor, mut held) = (None::<String>, Vec::new());
    loop {
        let page = call_plain(|| maintenance::recover(dead, cursor.as_deref()))?;
        recovered.closed.extend(page.closed);
        held.extend(page.held);
        let found: Vec<UnreadableThread> = page.unreadable.convert();
        for thread in found {
            if !recovered.unreadable.contains(&thread) {
                recovered.unreadable.push(thread);
            }
        }
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(held);
        }
    }
}

impl InnerRuns for GrantedProject {
    async fn run_inside(
        &self,
        thread: &str,
        input: Option<String>,
        holder: &str,
        steps: u32,
    ) -> CallResult<String> {
        self.call_about(thread, || {
            runner::run(thread, input.as_deref(), holder, holder, steps)
        })
    }

    async fn follow_step(&self, tip: &Thread, screen: &mut OutputScreen) {
        self.write_documents(&tip.id, screen, |documents| {
            let logged = documents.log_replies();
            logged.and(documents.save_step(tip))
        });
    }

    async fn refresh_after_run(&self, thread: &str, screen: &mut OutputScreen) {
        self.write_documents(thread, screen, |documents| {
            documents.refresh_after_run(thread)
        });
    }

    fn wait_until(&self, until: Option<UnixTime>) {
        let wait = until.map_or(WAIT_TIME, |until| {
            let now = clock::now();
            let seconds = u64::try_from(until.seconds.saturating_sub(now.seconds));
            // Rounded up, by less than a second.
            Duration::from_secs(seconds.map_or(0, |seconds| seconds.saturating_add(1)))
        });
        sleep(wait.min(WAIT_TIME_MAX));
    }
}
