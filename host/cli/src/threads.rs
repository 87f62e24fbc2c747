//! The host of commands: traits that the native host implements over its tenant, and the bundle
//! over the component's interfaces.
//!
//! Dispatch is static, and no command is sent to another thread, so the futures need not be `Send`.
//! A host whose calls block answers with futures that are ready at once ([`block_on`]).

use crate::answer::RunAnswer;
use crate::command::thread_names;
use crate::contract::{
    AccountRecord, CallBill, CallError, ChangeSet, ChargePage, CommittedChange, CostEstimate,
    EntryPage, ExpectedVersion, HeldMoney, ListPage, OpenedThread, RefusalKind, RunLease,
    SignalContent, Thread, ThreadDraft, ThreadFilter, ThreadSnapshot, TranscriptPiece, TreePage,
    UnixTime, UnreadableThread,
};
use crate::exit::CommandFault;
use crate::screen::OutputScreen;
use std::io::BufRead;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use threadkeep_adapters::blobs::BlobName;

/// Most threads of one page of a list: the component's bound.
pub const PAGE_THREADS_MAX: u32 = 100;
/// Most entries of one page of a history: the component's bound.
pub const PAGE_ENTRIES_MAX: u32 = 500;
/// Most times that one call follows a chain that goes on meanwhile.
const FOLLOWED_MAX: u32 = 16;

/// The result of a call of the component.
pub type CallResult<T> = Result<T, CallError>;

/// The life of the process of a holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HolderLife {
    /// It is dead.
    Dead,
    /// It lives: this lock file is locked.
    Lives(String),
    /// Nothing tells.
    Unknown,
}

/// The mark of a thread's head: while it is the same, the thread has the same own entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadMark {
    /// The id in lower case.
    pub thread: String,
    /// A digest of the head; `None` for one that cannot be read.
    pub digest: Option<[u64; 2]>,
}

/// Opens projects for commands.
pub trait CommandHost {
    /// An open project.
    type OpenProject: ThreadRuns;
    /// The directory of `demo`.
    type DemoDirectory;

    /// Opens the project. Creates nothing: a project without a store opens over an empty one.
    fn open(&self) -> Result<Self::OpenProject, CommandFault>;

    /// Opens the project for a command that writes nothing: a store that cannot be written can be
    /// read.
    fn open_to_read(&self, screen: &mut OutputScreen) -> Result<Self::OpenProject, CommandFault>;

    /// Opens the project for a command that creates a thread: creates a missing store.
    fn open_or_create(&self) -> Result<Self::OpenProject, CommandFault>;

    /// Opens the project over an empty store in memory: nothing that is tried there is written.
    /// None for a host that has no such store.
    fn open_rehearsal(&self) -> Result<Option<Self::OpenProject>, CommandFault>;

    /// Reads a file that the person who runs the command names, of at most `bytes_max` bytes. Links
    /// are followed as far as the host lets them lead.
    fn read_file(&self, path: &Path, bytes_max: u64) -> Result<Vec<u8>, CommandFault>;

    /// Makes the project of `demo`, with these files.
    fn create_demo(&self, files: &[(&str, &str)]) -> Result<Self::DemoDirectory, CommandFault>;

    /// Returns the end of the sentence "This one is in": the place, and what becomes of it.
    fn describe_demo(&self, demo: &Self::DemoDirectory) -> String;

    /// Opens the project of `demo`; creates its store.
    fn open_demo(&self, demo: &Self::DemoDirectory) -> Result<Self::OpenProject, CommandFault>;

    /// Ends `demo`.
    fn remove_demo(&self, demo: Self::DemoDirectory, screen: &mut OutputScreen);

    /// Returns a variable of the process's environment.
    fn variable(&self, name: &str) -> Option<String>;

    /// Returns standard input.
    fn input(&self) -> Box<dyn BufRead>;
}

/// An open project: the calls of the component, and what the host around it knows. Contracts,
/// limits and errors of the calls are those of `wit/`.
#[expect(
    async_fn_in_trait,
    reason = "static dispatch, and no command is sent to another thread"
)]
pub trait ProjectThreads {
    /// `registry.create`, as a request of its own.
    async fn create(&self, draft: ThreadDraft) -> CallResult<Thread>;

    /// `registry.get`.
    async fn get(&self, thread: &str) -> CallResult<Thread>;

    /// `registry.list`.
    async fn list(
        &self,
        filter: ThreadFilter,
        limit: u32,
        cursor: Option<String>,
    ) -> CallResult<ListPage>;

    /// Returns the ids of threads that begin with a text, whatever its case, in their order and at
    /// most `limit`. A host that can look at its store walks no list.
    async fn find_ids(&self, beginning: &str, limit: usize) -> CallResult<Vec<String>> {
        thread_names::find_listed_ids(self, beginning, limit).await
    }

    /// `registry.set-title`.
    async fn set_title(&self, thread: &str, title: Option<String>) -> CallResult<Thread>;

    /// `history.load`.
    async fn load(&self, thread: &str, version: Option<u64>) -> CallResult<ThreadSnapshot>;

    /// `history.entries`.
    async fn entries(
        &self,
        thread: &str,
        after: u64,
        limit: u32,
        cursor: Option<String>,
    ) -> CallResult<EntryPage>;

    /// Returns a page of a thread's own entries as they are stored, from a position (1: the first)
    /// on; none at the end. A host that can look at its store makes no call of the component.
    async fn own_entries(&self, thread: &str, position: u64) -> CallResult<Vec<String>> {
        let record = self.get(thread).await?;
        let before = record.base.map_or(0, |base| base.length) + position - 1;
        if before >= record.version {
            return Ok(Vec::new());
        }
        let page = self.entries(thread, before, PAGE_ENTRIES_MAX, None).await?;
        Ok(page.entries.into_iter().map(|entry| entry.body).collect())
    }

    /// Returns a mark of the head of each thread, in the order of their ids in lower case. `None`
    /// for a host that cannot look at its store.
    async fn head_marks(&self) -> CallResult<Option<Vec<HeadMark>>> {
        Ok(None)
    }

    /// Returns the mark of one head, as [`Self::head_marks`]; `None` if there is none.
    async fn head_mark(&self, _thread: &str) -> CallResult<Option<HeadMark>> {
        Ok(None)
    }

    /// Returns what [`Self::write_usage_cache`] has written, or whatever else stands there.
    fn read_usage_cache(&self) -> Option<Vec<u8>> {
        None
    }

    /// Keeps the sums of `usage` for the next process. A failure costs time alone.
    fn write_usage_cache(&self, _content: &[u8]) {}

    /// `history.open`.
    async fn open_thread(
        &self,
        thread: &str,
        holder: &str,
        deadline: UnixTime,
    ) -> CallResult<OpenedThread>;

    /// `history.append`.
    async fn append_change(
        &self,
        thread: &str,
        token: Option<u64>,
        expected: ExpectedVersion,
        change: ChangeSet,
    ) -> CallResult<CommittedChange>;

    /// `history.close`.
    async fn close_thread(
        &self,
        thread: &str,
        token: u64,
        outcome: &str,
        result: Option<String>,
    ) -> CallResult<CommittedChange>;

    /// `history.fork`, as a request of its own.
    async fn fork_at(
        &self,
        thread: &str,
        version: u64,
        change: Option<String>,
    ) -> CallResult<Thread>;

    /// `ledger.account`.
    async fn account(&self, thread: &str) -> CallResult<AccountRecord>;

    /// `ledger.tree`.
    async fn tree(&self, thread: &str, cursor: Option<String>) -> CallResult<TreePage>;

    /// `ledger.charges`.
    async fn charges(
        &self,
        thread: &str,
        after: u64,
        cursor: Option<String>,
    ) -> CallResult<ChargePage>;

    /// `ledger.hold`.
    async fn hold(
        &self,
        thread: &str,
        token: u64,
        key: &str,
        estimate: CostEstimate,
        deadline: UnixTime,
    ) -> CallResult<HeldMoney>;

    /// `ledger.settle`.
    async fn settle(&self, thread: &str, version: u64, bill: CallBill) -> CallResult<u64>;

    /// `ledger.release`.
    async fn release(&self, thread: &str, version: u64) -> CallResult<u64>;

    /// `continuation.chain`.
    async fn chain(&self, thread: &str, cursor: Option<String>) -> CallResult<String>;

    /// `transcript.render`.
    async fn render(
        &self,
        thread: &str,
        what: &str,
        at: Option<u64>,
        after: u64,
        cursor: Option<String>,
    ) -> CallResult<TranscriptPiece>;

    /// `runner.signal`.
    async fn signal(&self, thread: &str, key: &str, what: SignalContent) -> CallResult<u64>;

    /// Passes the ends of threads on to those that they spawned, in the tree under one thread or in
    /// all, until only those to unreadable threads are left, which it returns.
    async fn sweep_all(&self, under: Option<&str>) -> CallResult<Vec<UnreadableThread>>;

    /// Stores an image for a thread; returns its name, which a message says.
    async fn store_image(&self, thread: &str, bytes: Vec<u8>) -> Result<BlobName, CommandFault>;

    /// Returns true if a model takes images.
    fn takes_images(&self, model: &str) -> bool;

    /// Returns the names of this kind in the library, as far as it can be read.
    fn library_names(&self, kind: &str) -> Vec<String>;

    /// Returns the operator's cap of this name.
    fn policy_cap(&self, cap: &str) -> Option<u64>;

    /// Returns whether the process of a lease lives.
    fn holder_life(&self, lease: &RunLease) -> HolderLife;

    /// Returns when this time has passed.
    async fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// Returns the path of the documents of a thread within the project, if there are any.
    fn documents_path(&self, _thread: &str) -> Option<String> {
        None
    }

    /// Returns true if the project has never kept a thread.
    fn is_empty(&self) -> bool;

    /// Returns true if threads made here are lost when the command ends.
    fn is_memory_only(&self) -> bool;

    /// Returns the time of the host's clock.
    fn now(&self) -> UnixTime;

    /// Returns random hexadecimal digits for an id; zeros without random numbers.
    fn random_digits(&self) -> String;

    /// Brings the documents of a thread up to date. A failure is a warning on the screen.
    async fn refresh_documents(&self, thread: &str, screen: &mut OutputScreen);

    /// Reads the tip of the chain of a thread; no link between them is read.
    async fn get_tip(&self, thread: &str) -> CallResult<Thread> {
        let mut found = self.get(thread).await?;
        for _ in 0..FOLLOWED_MAX {
            let Some(tip) = find_other_tip(&found) else {
                break;
            };
            found = self.get(&tip).await?;
        }
        Ok(found)
    }

    /// Sends a signal to a tip. If it was continued meanwhile, `tip` becomes the thread that the
    /// signal was sent to.
    async fn signal_tip(
        &self,
        tip: &mut String,
        key: &str,
        what: SignalContent,
    ) -> CallResult<u64> {
        let mut followed = 0;
        loop {
            match self.signal(tip, key, what.clone()).await {
                Err(error) => follow_tip(self, tip, &mut followed, error).await?,
                sent => return sent,
            }
        }
    }

    /// Sets or removes the title of a tip. If it was continued meanwhile, that of the new tip.
    async fn set_tip_title(&self, tip: &mut String, title: Option<String>) -> CallResult<Thread> {
        let mut followed = 0;
        loop {
            match self.set_title(tip, title.clone()).await {
                Err(error) => follow_tip(self, tip, &mut followed, error).await?,
                titled => return titled,
            }
        }
    }
}

/// A run that this process is asked to perform.
#[derive(Debug, Clone, Default)]
pub struct RunOrder {
    /// The thread, or with `resumes` any link of its chain.
    pub thread: String,
    /// JSON: a user's message.
    pub input: Option<String>,
    /// The status of the tip, if it may have ended and is then to go on in a successor.
    pub resumes: Option<String>,
    /// True if the thoughts of the model are shown.
    pub shows_thinking: bool,
}

/// A run that this process performs no longer.
#[derive(Debug)]
pub struct PerformedRun {
    /// The answer about it.
    pub answer: RunAnswer,
    /// The successor that it began in, if the thread had ended.
    pub resumption: Option<RunResumption>,
}

/// A thread that had ended and went on in a successor.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub struct RunResumption {
    /// The link of the chain that had ended.
    pub old_thread_id: String,
    /// Its successor.
    pub new_thread_id: String,
    /// Model replies that are sent again.
    pub reconstructed_turns: u64,
}

/// Runs that a recovery has closed.
#[derive(Debug, Clone, Default)]
pub struct RecoveredRuns {
    /// Ids of their threads.
    pub closed: Vec<String>,
    /// Threads with a lease that cannot be read.
    pub unreadable: Vec<UnreadableThread>,
}

/// An open project in which this process can perform runs.
#[expect(
    async_fn_in_trait,
    reason = "static dispatch, and no command is sent to another thread"
)]
pub trait ThreadRuns: ProjectThreads {
    /// Refuses settings that would not take effect.
    fn check_settings(&self) -> Result<(), CommandFault>;

    /// Refuses another run that the operator's policy has no room for.
    fn check_room(&self) -> Result<(), CommandFault>;

    /// Refuses a model whose provider cannot be created.
    fn check_model(&self, model: &str) -> Result<(), CommandFault>;

    /// Closes the runs of holders that are dead, and of those that are named as such.
    async fn recover_runs(&self, dead: &[String]) -> Result<RecoveredRuns, CommandFault>;

    /// Brings the documents that dead processes left behind up to date.
    async fn catch_up(&self, screen: &mut OutputScreen);

    /// Performs a run to its end, with all that it spawns, and shows it on the screen.
    async fn perform(
        &self,
        order: RunOrder,
        screen: &mut OutputScreen,
    ) -> Result<PerformedRun, CommandFault>;
}

/// Returns the tip of the chain of a thread, if that is another thread.
pub fn find_other_tip(thread: &Thread) -> Option<String> {
    let more = serde_json::from_str::<serde_json::Value>(&thread.more).ok()?;
    let tip = more["tip"].as_str()?;
    (thread.next.is_some() && tip != thread.id).then(|| tip.to_owned())
}

/// Puts the tip of now in the place of one that was continued. Any other error is returned.
async fn follow_tip<T: ProjectThreads + ?Sized>(
    threads: &T,
    tip: &mut String,
    followed: &mut u32,
    error: CallError,
) -> CallResult<()> {
    let next = match error.refusal() {
        Some(refusal) if refusal.kind == RefusalKind::Continued => refusal.text("next"),
        _ => None,
    };
    let Some(next) = next.filter(|_| *followed < FOLLOWED_MAX) else {
        return Err(error);
    };
    *followed += 1;
    *tip = threads.get_tip(next).await?.id;
    Ok(())
}

/// Runs a future that is ready whenever it is polled: that of a host whose calls block.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
        std::thread::yield_now();
    }
}
