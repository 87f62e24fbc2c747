//! The documents of threads and the usage log, written as the native host writes them: the shared
//! code over the component's interfaces. WASI has no locks, so files are replaced as a whole.

use crate::calls::{
    bundle_host, call, call_plain, clock, library, random, registry, runner, transcript,
};
use std::fmt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};
use threadkeep_adapters::library::{LibraryError, TenantLibrary};
use threadkeep_adapters::thread_files::{
    CHECKPOINT_FAILED, CheckpointSettings, DocumentFiles, DocumentPiece, DocumentRecords,
    DocumentedThread, LoggedReply, PieceRequest, ReplyEvent, SETTINGS_NAME, SaveOccasion,
    ThreadFileError, WrittenCheckpoint, append_usage_line, describe_checkpoint_failure,
    triggers_of_stop, usage_lines,
};
use threadkeep_cli::contract::{CallError, Thread};
use threadkeep_cli::exit::CommandFault;
use threadkeep_storage::directory::{DescriptorTree, DirectoryTree, open_child_tree};
use threadkeep_units::status::has_ended;
use threadkeep_units::thread_path::{PathPart, ThreadPath};

/// Random bytes of the name of a writer.
const WRITER_BYTES: u32 = 8;
/// Least time between two saves of a thread whose run goes on.
const SAVE_GAP: Duration = Duration::from_secs(1);

/// Reason why a document is not written. The records are unchanged.
#[derive(Debug)]
pub enum DocumentFault {
    /// A call of the component failed.
    Call(CallError),
    /// A directory or file cannot be used.
    File(ThreadFileError),
    /// The settings of checkpoints are not valid, or cannot be read.
    Settings(LibraryError),
    /// An event of a history is not what it should be.
    Event(serde_json::Error),
}

impl fmt::Display for DocumentFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(error) => write!(f, "{error}"),
            Self::File(error) => write!(f, "a document cannot be had: {error}"),
            Self::Settings(error) => write!(f, "checkpoints are not saved: {error}"),
            Self::Event(error) => write!(f, "an event cannot be read: {error}"),
        }
    }
}

impl std::error::Error for DocumentFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File(error) => error.source(),
            Self::Call(_) | Self::Settings(_) | Self::Event(_) => None,
        }
    }
}

impl From<ThreadFileError> for DocumentFault {
    fn from(error: ThreadFileError) -> Self {
        Self::File(error)
    }
}

impl From<CallError> for DocumentFault {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// The records of the component.
struct ComponentRecords;

impl DocumentRecords for ComponentRecords {
    type RecordError = DocumentFault;

    fn read_thread(&self, thread: &str) -> Result<DocumentedThread, DocumentFault> {
        let found: Thread = call(|| registry::get(thread))?;
        let base = found.base.as_ref();
        let parts = base.iter().flat_map(|base| &base.parts);
        let parts = parts.map(|part| PathPart {
            thread: part.thread.clone(),
            first: part.first,
            last: part.last,
        });
        let newest = (found.id.as_str(), found.version);
        let path = ThreadPath::new(newest, base.map_or(0, |base| base.length), parts);
        Ok(DocumentedThread {
            path,
            status: found.status,
            cause: found.cause.map(|cause| cause.reason),
            version: found.version,
            updated: (found.updated.seconds, found.updated.nanos),
            id: found.id,
        })
    }

    fn render_piece(&self, asked: PieceRequest<'_>) -> Result<DocumentPiece, DocumentFault> {
        let PieceRequest {
            thread,
            document,
            at,
            after,
            cursor,
        } = asked;
        let piece = call_plain(|| transcript::render(thread, document, at, after, cursor))?;
        Ok(DocumentPiece {
            text: piece.text,
            version: piece.version,
            cursor: piece.cursor,
        })
    }

    fn read_blob(&self, chain: &str, hash: &str) -> Option<Vec<u8>> {
        bundle_host::read_blob(chain, hash)
    }

    fn now(&self) -> SystemTime {
        let now = clock::now();
        let since = Duration::new(u64::try_from(now.seconds).unwrap_or(0), now.nanos);
        let now = SystemTime::UNIX_EPOCH.checked_add(since);
        now.unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

/// The library of the component, for the settings of checkpoints.
struct ComponentLibrary;

impl TenantLibrary for ComponentLibrary {
    fn document(&self, kind: &str, name: &str) -> Result<Option<String>, LibraryError> {
        let found = library::get(kind, &[name.to_owned()]);
        let mut found = found.map_err(to_library_error)?;
        Ok(found.pop().flatten())
    }

    fn names(&self, kind: &str) -> Result<Vec<String>, LibraryError> {
        library::names(kind).map_err(to_library_error)
    }
}

/// Refuses settings of checkpoints that would not take effect.
///
/// # Errors
/// The file of settings that is malformed, or the key that is not valid.
pub fn check_checkpoint_settings() -> Result<(), CommandFault> {
    match CheckpointSettings::load(&ComponentLibrary) {
        Ok(_) => Ok(()),
        Err(error) => {
            let message = format!(".ai/config/{SETTINGS_NAME}.yaml: {error}");
            Err(CommandFault::new("invalid", message)
                .with_hint("docs/checkpoints.md has every key"))
        }
    }
}

fn to_library_error(error: library::LibraryError) -> LibraryError {
    match error {
        library::LibraryError::Invalid(file) => LibraryError::Invalid {
            place: file.field,
            value: file.value,
            problem: file.problem,
            nearest: file.nearest,
        },
        library::LibraryError::Unavailable(failure) => LibraryError::Unavailable {
            message: failure.message,
        },
        library::LibraryError::Other(failure) => LibraryError::Other {
            code: SETTINGS_NAME,
            message: failure.message,
        },
    }
}

/// The documents of a project.
pub struct BundleDocuments {
    threads: Box<dyn DirectoryTree>,
    writer: String,
    /// The time of the last save of a thread whose run goes on.
    saved: Option<(String, Instant)>,
}

impl BundleDocuments {
    /// The documents below the directory that is granted under this path.
    ///
    /// # Errors
    /// If a directory on the way is none, or cannot be opened.
    pub fn open(root: &Path) -> Result<Self, DocumentFault> {
        let failed = |error| DocumentFault::File(ThreadFileError::Authority(error));
        let granted = DescriptorTree::writable(&root.to_string_lossy());
        let granted = granted.ok_or(ThreadFileError::Vanished)?;
        let ai = open_child_tree(&granted, ".ai").map_err(failed)?;
        Ok(Self {
            threads: open_child_tree(&*ai, "threads").map_err(failed)?,
            writer: random::bytes(WRITER_BYTES),
            saved: None,
        })
    }

    fn files(&self) -> DocumentFiles<'_, ComponentRecords> {
        DocumentFiles {
            records: &ComponentRecords,
            threads: &*self.threads,
            writer: &self.writer,
            fault: None,
        }
    }

    /// Brings the documents of a thread up to date; of one that is suspended or has ended its
    /// checkpoint, too.
    pub fn refresh(&self, thread: &str) -> Result<(), DocumentFault> {
        self.files().refresh(thread, false)?;
        let record = ComponentRecords.read_thread(thread)?;
        match record.status == "suspended" || has_ended(&record.status) {
            true => self.save_stopped(&record),
            false => Ok(()),
        }
    }

    /// As [`BundleDocuments::refresh`], of a thread that this process has run: one whose checkpoint
    /// must be saved and cannot be ends by an error.
    pub fn refresh_after_run(&self, thread: &str) -> Result<(), DocumentFault> {
        self.files().refresh(thread, false)?;
        let record = ComponentRecords.read_thread(thread)?;
        let settings = CheckpointSettings::load(&ComponentLibrary);
        let error = match self.save_stopped(&record) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let triggers = triggers_of_stop(&record.status, record.cause.as_deref());
        let is_required = settings.is_ok_and(|settings| triggers.meets(settings.required));
        if is_required && matches!(error, DocumentFault::File(_)) {
            let signal = runner::SignalKind::Fail(describe_checkpoint_failure(&error));
            let key = format!("{CHECKPOINT_FAILED}-{}", record.version);
            // One that has ended already stays as it is.
            if call_plain(|| runner::signal(thread, &key, &signal)).is_ok() {
                self.files().refresh(thread, false)?;
            }
        }
        Err(error)
    }

    /// Saves the checkpoint of a thread whose run goes on, if the settings ask for it and the last
    /// one is not too young.
    pub fn save_step(&mut self, thread: &Thread) -> Result<(), DocumentFault> {
        let is_young = |(id, at): &(String, Instant)| *id == thread.id && at.elapsed() < SAVE_GAP;
        if self.saved.as_ref().is_some_and(is_young) {
            return Ok(());
        }
        // The reason of the newest commit is not read: the step alone tells, as natively where the
        // settings do not tell reasons apart.
        let SaveOccasion::Step(triggers) =
            SaveOccasion::of_commit(None, thread.run.step.as_deref())
        else {
            return Ok(());
        };
        let settings = CheckpointSettings::load(&ComponentLibrary);
        let settings = settings.map_err(DocumentFault::Settings)?;
        if !triggers.meets(settings.enabled) {
            return Ok(());
        }
        self.saved = Some((thread.id.clone(), Instant::now()));
        self.save(&thread.id, &settings)
    }

    fn save_stopped(&self, thread: &DocumentedThread) -> Result<(), DocumentFault> {
        let settings = CheckpointSettings::load(&ComponentLibrary);
        let settings = settings.map_err(DocumentFault::Settings)?;
        self.save(&thread.id, &settings)
    }

    /// Saves a checkpoint, as often as the settings let a save that fails be tried.
    fn save(&self, thread: &str, settings: &CheckpointSettings) -> Result<(), DocumentFault> {
        let mut attempt = 1;
        loop {
            match self.files().save_checkpoint(thread, settings) {
                Ok(WrittenCheckpoint { copies_problem, .. }) => {
                    return copies_problem.map_or(Ok(()), |problem| Err(problem.into()));
                }
                Err(error) if attempt >= settings.attempts_max => return Err(error),
                Err(_) => {}
            }
            sleep(settings.backoff.pause(attempt));
            attempt += 1;
        }
    }

    /// Writes the usage of the replies since the last call to the log.
    pub fn log_replies(&self) -> Result<(), DocumentFault> {
        let mut done = Ok(());
        for reply in bundle_host::take_replies() {
            let logged = self.log_reply(&reply);
            done = done.and(logged);
        }
        done
    }

    fn log_reply(&self, reply: &bundle_host::Reply) -> Result<(), DocumentFault> {
        let thread: Thread = call(|| registry::get(&reply.thread))?;
        let page = call_plain(|| transcript::events(&reply.thread, reply.attempt, 1, None))?;
        let events = page.events.into_iter().map(|event| ReplyEvent {
            version: event.version,
            kind: event.kind,
            time: (event.time.seconds, event.time.nanos),
            body: event.body,
        });
        let logged = LoggedReply {
            thread: &thread.id,
            agent: thread.agent.as_deref(),
            // No other holder writes between a step and its result.
            version: reply.attempt + 1,
        };
        let lines = usage_lines(logged, &events.collect::<Vec<_>>());
        for line in lines.map_err(DocumentFault::Event)? {
            let appended = append_usage_line(&*self.threads, &line);
            appended.map_err(|error| DocumentFault::File(error.into()))?;
        }
        Ok(())
    }
}
