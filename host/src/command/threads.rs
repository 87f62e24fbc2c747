//! The traits of commands, over a tenant and the project around it.
//!
//! `Self::open(self)` and its like are the methods of the type itself, which come before those of a
//! trait.

use super::convert::{ConvertRecord, to_contract};
use super::session::{CommandProject, CommandSession};
use super::temporary::TemporaryDirectory;
use super::{drive, fault};
use std::io::{BufRead, stdin};
use std::path::Path;
use std::time::Duration;
use threadkeep::authority::{self, HolderState, ProjectDir};
use threadkeep::blobs::BlobName;
use threadkeep::documents;
use threadkeep::storage::StorageError;
use threadkeep::tenant;
use threadkeep_cli::contract::{
    AccountRecord, CallBill, CallError, CallRefusal, ChangeSet, ChargePage, CommittedChange,
    CostEstimate, EntryPage, ExpectedVersion, HeldMoney, ListPage, OpenedThread, RunLease,
    SignalContent, Thread, ThreadDraft, ThreadFilter, ThreadSnapshot, TranscriptPiece, TreePage,
    UnixTime, UnreadableThread,
};
use threadkeep_cli::exit::CommandFault;
use threadkeep_cli::screen::OutputScreen;
use threadkeep_cli::threads::{
    CallResult, CommandHost, HeadMark, HolderLife, PerformedRun, ProjectThreads, RecoveredRuns,
    RunOrder, ThreadRuns,
};

impl CommandHost for CommandSession {
    type OpenProject = CommandProject;
    type DemoDirectory = TemporaryDirectory;

    fn open(&self) -> Result<CommandProject, CommandFault> {
        Self::open(self)
    }

    fn open_to_read(&self, screen: &mut OutputScreen) -> Result<CommandProject, CommandFault> {
        Self::open_to_read(self, screen)
    }

    fn open_or_create(&self) -> Result<CommandProject, CommandFault> {
        Self::open_or_create(self)
    }

    fn open_rehearsal(&self) -> Result<Option<CommandProject>, CommandFault> {
        Self::open_rehearsal(self).map(Some)
    }

    fn read_file(&self, path: &Path, bytes_max: u64) -> Result<Vec<u8>, CommandFault> {
        let bytes = authority::read_ambient(path, bytes_max);
        bytes.map_err(|error| fault::from_authority(&error))
    }

    fn create_demo(&self, files: &[(&str, &str)]) -> Result<TemporaryDirectory, CommandFault> {
        let common = self.common();
        for (given, option) in [
            (common.project.is_some(), "--project"),
            (common.store.is_some(), "--store"),
            (common.provider.is_some(), "--provider"),
        ] {
            if given {
                let message = format!(
                    "demo brings its own project, store and answers: {option} cannot be given"
                );
                return Err(CommandFault::usage(message).with_hint("threadkeep demo"));
            }
        }
        let temporary = TemporaryDirectory::create(self, "demo")?;
        for (path, text) in files {
            temporary.write(path, text)?;
        }
        Ok(temporary)
    }

    fn describe_demo(&self, demo: &TemporaryDirectory) -> String {
        format!("{} and is removed at the end.", demo.path().display())
    }

    fn open_demo(&self, demo: &TemporaryDirectory) -> Result<CommandProject, CommandFault> {
        self.open_directory(&ProjectDir::from_dir(demo.clone_dir()?))
    }

    fn remove_demo(&self, demo: TemporaryDirectory, screen: &mut OutputScreen) {
        demo.remove(screen);
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.environment().get(name).map(str::to_owned)
    }

    fn input(&self) -> Box<dyn BufRead> {
        Box::new(stdin().lock())
    }
}

fn to_mark(mark: tenant::HeadMark) -> HeadMark {
    HeadMark {
        thread: mark.thread,
        digest: mark.digest,
    }
}

/// Defines the methods that are calls of a tenant: each argument is converted to the bindings, and
/// the answer from them.
macro_rules! forward_calls {
    ($(fn $name:ident($($arg:ident: $type:ty $(= $passed:expr)?),*) -> $answer:ty;)*) => {$(
        async fn $name(&self, $($arg: $type),*) -> CallResult<$answer> {
            let called = self.tenant().$name($(forward_calls!(@ $arg $($passed)?)),*).await;
            match called {
                Ok(answer) => Ok(answer.convert()),
                Err(error) => Err(to_contract(&error)),
            }
        }
    )*};
    (@ $arg:ident) => { $arg };
    (@ $arg:ident $passed:expr) => { $passed };
}

impl ProjectThreads for CommandProject {
    forward_calls! {
        fn create(draft: ThreadDraft = draft.convert()) -> Thread;
        fn get(thread: &str) -> Thread;
        fn list(
            filter: ThreadFilter = filter.convert(),
            limit: u32,
            cursor: Option<String>
        ) -> ListPage;
        fn set_title(thread: &str, title: Option<String>) -> Thread;
        fn load(thread: &str, version: Option<u64>) -> ThreadSnapshot;
        fn entries(thread: &str, after: u64, limit: u32, cursor: Option<String>) -> EntryPage;
        fn open_thread(
            thread: &str,
            holder: &str,
            deadline: UnixTime = deadline.convert()
        ) -> OpenedThread;
        fn append_change(
            thread: &str,
            token: Option<u64>,
            expected: ExpectedVersion = expected.convert(),
            change: ChangeSet = change.convert()
        ) -> CommittedChange;
        fn close_thread(
            thread: &str,
            token: u64,
            outcome: &str,
            result: Option<String>
        ) -> CommittedChange;
        fn fork_at(thread: &str, version: u64, change: Option<String>) -> Thread;
        fn account(thread: &str) -> AccountRecord;
        fn tree(thread: &str, cursor: Option<String>) -> TreePage;
        fn charges(thread: &str, after: u64, cursor: Option<String>) -> ChargePage;
        fn hold(
            thread: &str,
            token: u64,
            key: &str,
            estimate: CostEstimate = estimate.convert(),
            deadline: UnixTime = deadline.convert()
        ) -> HeldMoney;
        fn settle(thread: &str, version: u64, bill: CallBill = bill.convert()) -> u64;
        fn release(thread: &str, version: u64) -> u64;
        fn chain(thread: &str, cursor: Option<String>) -> String;
        fn render(
            thread: &str,
            what: &str,
            at: Option<u64>,
            after: u64,
            cursor: Option<String>
        ) -> TranscriptPiece;
        fn signal(thread: &str, key: &str, what: SignalContent = what.convert()) -> u64;
    }

    /// The store has the ids in their order.
    async fn find_ids(&self, beginning: &str, limit: usize) -> CallResult<Vec<String>> {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let found = self.tenant().find_ids(beginning, limit).await;
        found.map_err(|error| CallError::Failed(fault::from_store(error)))
    }

    /// One read of the store, where the component needs two calls.
    async fn own_entries(&self, thread: &str, position: u64) -> CallResult<Vec<String>> {
        let read = self.tenant().own_entries(thread, position).await;
        read.map_err(|error| match error {
            StorageError::Corrupt { .. } => CallError::Refused(CallRefusal::from_record(
                ("corrupt", "entry".to_owned()),
                (error.to_string(), String::new()),
                Some(thread.to_owned()),
                "{}",
            )),
            error => CallError::Failed(fault::from_store(error)),
        })
    }

    async fn head_marks(&self) -> CallResult<Option<Vec<HeadMark>>> {
        let marks = self.tenant().read_head_marks();
        let marks = marks.map_err(|error| CallError::Failed(fault::from_store(error)))?;
        Ok(Some(marks.into_iter().map(to_mark).collect()))
    }

    async fn head_mark(&self, thread: &str) -> CallResult<Option<HeadMark>> {
        let mark = self.tenant().head_mark(thread).await;
        let mark = mark.map_err(|error| CallError::Failed(fault::from_store(error)))?;
        Ok(mark.map(to_mark))
    }

    fn read_usage_cache(&self) -> Option<Vec<u8>> {
        let read = documents::read_usage_cache(self.project().threads()?);
        read.unwrap_or_else(|error| {
            tracing::debug!(%error, "the cache of usage is not read");
            None
        })
    }

    fn write_usage_cache(&self, content: &[u8]) {
        let Some(threads) = self.project().threads() else {
            return;
        };
        if let Err(error) = documents::write_usage_cache(threads, content) {
            tracing::debug!(%error, "the cache of usage is not written");
        }
    }

    async fn pause(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    fn documents_path(&self, thread: &str) -> Option<String> {
        let threads = self.project().threads()?;
        let found = threads.metadata(thread).ok()?;
        found.is_dir().then(|| format!(".ai/threads/{thread}"))
    }

    async fn sweep_all(&self, under: Option<&str>) -> CallResult<Vec<UnreadableThread>> {
        match self.tenant().sweep_all(under).await {
            Ok(swept) => Ok(swept.unreadable.convert()),
            Err(error) => Err(to_contract(&error)),
        }
    }

    async fn store_image(&self, thread: &str, bytes: Vec<u8>) -> Result<BlobName, CommandFault> {
        let stored = self.tenant().store_image(thread, bytes).await;
        stored.map_err(|error| fault::from_blob(self, thread, &error))
    }

    fn takes_images(&self, model: &str) -> bool {
        self.project().takes_images(model)
    }

    fn library_names(&self, kind: &str) -> Vec<String> {
        let library = &self.tenant().context().library;
        library.names(kind).unwrap_or_default()
    }

    fn policy_cap(&self, cap: &str) -> Option<u64> {
        self.project().library().policy().cap(cap)
    }

    /// Only the lock file of a native holder tells.
    fn holder_life(&self, lease: &RunLease) -> HolderLife {
        let threads = self.project().threads();
        let life = threads.map(|threads| authority::holder_state(threads, &lease.holder));
        match life {
            Some(Ok(HolderState::Dead)) => HolderLife::Dead,
            Some(Ok(HolderState::Lives)) => {
                HolderLife::Lives(authority::lock_file_place(&lease.holder))
            }
            Some(Ok(HolderState::Unknown) | Err(_)) | None => HolderLife::Unknown,
        }
    }

    fn is_empty(&self) -> bool {
        self.project().threads().is_none()
    }

    fn is_memory_only(&self) -> bool {
        Self::is_memory_only(self)
    }

    fn now(&self) -> UnixTime {
        let now = self.tenant().context().clock.now();
        UnixTime {
            seconds: now.seconds,
            nanos: now.nanos,
        }
    }

    fn random_digits(&self) -> String {
        let mut bytes = [0_u8; 8];
        // The component needs random numbers as well; a repeated id with the same content is
        // harmless.
        let _ = getrandom::fill(&mut bytes);
        format!("{:016x}", u64::from_be_bytes(bytes))
    }

    async fn refresh_documents(&self, thread: &str, screen: &mut OutputScreen) {
        Self::refresh_documents(self, thread, screen).await;
    }
}

impl ThreadRuns for CommandProject {
    fn check_settings(&self) -> Result<(), CommandFault> {
        let checked = self.project().check_settings();
        checked
            .map(drop)
            .map_err(|error| fault::from_settings(&error))
    }

    fn check_room(&self) -> Result<(), CommandFault> {
        match self.project().guard().admit_run() {
            Ok(_) => Ok(()),
            Err(refusal) => Err(fault::from_refusal(&refusal)),
        }
    }

    fn check_model(&self, model: &str) -> Result<(), CommandFault> {
        let checked = self.project().check_model(model);
        checked.map_err(|failure| fault::from_provider(&failure))
    }

    async fn recover_runs(&self, dead: &[String]) -> Result<RecoveredRuns, CommandFault> {
        match self.project().recover_runs(dead).await {
            Ok(recovered) => Ok(RecoveredRuns {
                closed: recovered.closed,
                unreadable: recovered.unreadable.convert(),
            }),
            Err(error) => Err(fault::from_recovery(&error)),
        }
    }

    async fn catch_up(&self, screen: &mut OutputScreen) {
        Self::catch_up(self, screen).await;
    }

    async fn perform(
        &self,
        order: RunOrder,
        screen: &mut OutputScreen,
    ) -> Result<PerformedRun, CommandFault> {
        drive::perform(self, order, screen).await
    }
}
