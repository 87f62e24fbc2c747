//! `import`: makes a thread from a `state.json`.

use super::convert::ConvertRecord;
use super::fault;
use super::imported_parts::{BegunImport, ImportedParts};
use super::session::{CommandProject, CommandSession};
use std::path::Path;
use std::time::Duration;
use threadkeep::authority::{self, HolderLock};
use threadkeep::blobs::{BlobName, IMAGE_BYTES_MAX, image_type};
use threadkeep::documents::checkpoints::{
    ImportedHistory, STATE_BYTES_MAX, StateFile, StateFileError,
};
use threadkeep::documents::{BLOBS_DIR, blob_file_name};
use threadkeep::library::TenantLibrary;
use threadkeep::library::files::is_document_name;
use threadkeep::wit::history::{ChangeSet, Expected};
use threadkeep_cli::answer::ImportAnswer;
use threadkeep_cli::args;
use threadkeep_cli::command::external_loop::deadline_after;
use threadkeep_cli::command::{fresh_id, run, view};
use threadkeep_cli::contract::ThreadDraft;
use threadkeep_cli::exit::{CommandExit, CommandFault};
use threadkeep_cli::money;
use threadkeep_cli::screen::OutputScreen;

/// Time for which the new thread is held while its history is appended.
const LEASE_TIME: Duration = Duration::from_secs(600);

/// Makes a thread whose history has the messages of the file. The file is checked as a whole before
/// anything is created.
pub async fn import(
    session: &CommandSession,
    asked: args::ImportArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let file = read_state_file(&asked.state)?;
    let directive = {
        let rehearsal = session.open_rehearsal()?;
        find_directive(&rehearsal, &file)?
    };
    let images = CarriedImages::read(&asked.state, &file);
    let history = file.to_history(directive.is_some(), &images.names());
    let history = history.map_err(|error| from_state_file(&asked.state, &error))?;
    let draft = new_draft(&file, directive, asked)?;
    run::rehearse(session, &draft, None).await?;
    // In memory first: a history that the component refuses makes no thread.
    let rehearsal = session.open_rehearsal()?;
    let tried = run::create_thread(&rehearsal, draft.clone()).await?;
    images.store(&rehearsal, &tried).await?;
    append_history(&rehearsal, &tried, history.clone(), 0).await?;
    let opened = session.open_or_create()?;
    let imported = ImportedParts {
        rehearsal: &rehearsal,
        tried: &tried,
        batches: &history.batches,
    };
    let (thread, parts) = match imported
        .find_begun(&opened, draft.id.as_deref(), screen)
        .await?
    {
        BegunImport::None => (run::create_thread(&opened, draft).await?, Some(0)),
        BegunImport::Parts(thread, parts) => (thread, Some(parts)),
        BegunImport::Whole(thread) => (thread, None),
    };
    if let Some(parts) = parts {
        let done = match images.store(&opened, &thread).await {
            Ok(()) => append_history(&opened, &thread, history, parts).await,
            stored => stored,
        };
        opened.refresh_documents(&thread, screen).await;
        done.map_err(|fault| run::with_created_hint(&opened, fault, &thread))?;
    }
    let made = opened.tenant().get(&thread).await;
    let made = made.map_err(|error| fault::from_thread_call(&opened, &thread, &error))?;
    Ok(screen.print_answer(&ImportAnswer {
        imported_from: file.thread_id().to_owned(),
        status_then: file.status().map(str::to_owned),
        messages: file.message_count() as u64,
        images: images.0.len() as u64,
        images_left_out: (file.images().len() - images.0.len()) as u64,
        thread: view::thread(&made.convert()),
        exit: CommandExit::Done,
    }))
}

/// Images that lie beside a `state.json`, in `blobs.d` of its thread: the import carries them.
struct CarriedImages(Vec<(BlobName, Vec<u8>)>);

impl CarriedImages {
    /// Reads those that the file names. One that is not there, or is not what its name says, is
    /// left out.
    fn read(path: &Path, file: &StateFile) -> Self {
        let beside = path.parent().unwrap_or(Path::new(""));
        // A copy lies in a directory of its own in that of the thread.
        let inner = beside.extension().is_some_and(|end| end == "d");
        let thread = beside.parent().filter(|_| inner).unwrap_or(beside);
        let read = |name: BlobName| {
            let file = thread.join(BLOBS_DIR).join(blob_file_name(&name));
            let bytes = authority::read_ambient(&file, IMAGE_BYTES_MAX as u64).ok()?;
            let media = image_type(&bytes)?;
            (BlobName::of(&bytes, media) == name).then_some((name, bytes))
        };
        Self(file.images().into_iter().filter_map(read).collect())
    }

    fn names(&self) -> Vec<BlobName> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Stores them for a thread.
    async fn store(&self, opened: &CommandProject, thread: &str) -> Result<(), CommandFault> {
        for (_, bytes) in &self.0 {
            let stored = opened.tenant().store_image(thread, bytes.clone()).await;
            stored.map_err(|error| fault::from_blob(opened, thread, &error))?;
        }
        Ok(())
    }
}

fn read_state_file(path: &Path) -> Result<StateFile, CommandFault> {
    let bytes = authority::read_ambient(path, STATE_BYTES_MAX);
    let bytes = bytes.map_err(|error| fault::from_authority(&error))?;
    let dir = authority::open_parent_ambient(path);
    let dir = dir.map_err(|error| fault::from_authority(&error))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    StateFile::from_bytes(&bytes, &name, &dir).map_err(|error| from_state_file(path, &error))
}

fn from_state_file(path: &Path, error: &StateFileError) -> CommandFault {
    let code = match error {
        StateFileError::Authority(error) => return fault::from_authority(error),
        StateFileError::Torn(_) => "torn-state",
        StateFileError::Newer(_) => "newer-state",
        StateFileError::Edited => "edited-state",
        _ => "invalid",
    };
    let fault = CommandFault::new(code, format!("{}: {error}", path.display()));
    match error {
        StateFileError::Edited => {
            fault.with_hint("to import it as it is now, remove the field messages_hash from it")
        }
        StateFileError::Newer(version) if version.as_str() > "1.1.0" => {
            fault.with_hint("import it with a newer threadkeep")
        }
        _ => fault.with_hint("docs/state.schema.json is the JSON Schema of such a file"),
    }
}

/// Returns the directive of the file, if the project has it.
fn find_directive(
    opened: &CommandProject,
    file: &StateFile,
) -> Result<Option<String>, CommandFault> {
    let Some(name) = file.directive() else {
        return Ok(None);
    };
    // A name that no directive can have is one that the project does not have.
    if !is_document_name(name) {
        return Ok(None);
    }
    let found = opened.project().library().document("directive", name);
    let found = found.map_err(|error| fault::from_settings(&error.into()))?;
    Ok(found.map(|_| name.to_owned()))
}

/// Builds the draft of the new thread: caps are those of the file where the command names none.
fn new_draft(
    file: &StateFile,
    directive: Option<String>,
    asked: args::ImportArgs,
) -> Result<ThreadDraft, CommandFault> {
    let mut new = asked.thread;
    let caps = &mut new.caps;
    let count = |name| file.cap(name).and_then(|cap| u32::try_from(cap).ok());
    caps.turns = caps.turns.or_else(|| count("turns"));
    caps.tokens = caps.tokens.or_else(|| file.cap("tokens"));
    caps.spawns = caps.spawns.or_else(|| count("spawns"));
    caps.depth = caps.depth.or_else(|| count("depth"));
    if let (None, Some(text)) = (caps.spend, file.spend_cap()) {
        let spend = money::parse(&text).map_err(|problem| {
            CommandFault::new("invalid", format!("limits.spend is {text}: {problem}"))
        })?;
        caps.spend = Some(spend);
    }
    caps.duration = caps.duration.or_else(|| file.duration_cap());
    let capabilities = match (&directive, asked.capability.is_empty()) {
        (Some(_), _) => Vec::new(),
        (None, true) => file.capabilities(),
        (None, false) => asked.capability,
    };
    let inputs = directive.as_ref().and_then(|_| file.inputs());
    let inputs = inputs.unwrap_or_default();
    Ok(ThreadDraft {
        approvals: file.approvals(),
        incomplete: true,
        ..run::new_draft(directive, inputs, capabilities, new)
    })
}

/// Appends the history without its first `parts` under a lease of this process, and leaves the
/// thread idle. Until then the thread is incomplete: if this process is killed, only the same
/// import goes on with it.
async fn append_history(
    opened: &CommandProject,
    thread: &str,
    history: ImportedHistory,
    parts: usize,
) -> Result<(), CommandFault> {
    let failed = |error| fault::from_thread_call(opened, thread, &error);
    let tenant = opened.tenant();
    // The lock tells others whether this process lives. A project in memory has no others.
    let threads = opened.project().threads();
    let lock = threads.map(HolderLock::acquire).transpose();
    let lock = lock.map_err(|error| fault::from_authority(&error))?;
    let holder = match &lock {
        Some(lock) => lock.holder_name(1),
        None => format!("{}/1", fresh_id(opened)),
    };
    let deadline = deadline_after(opened, LEASE_TIME).convert();
    let held = tenant.open_thread(thread, &holder, deadline).await;
    let held = held.map_err(failed)?;
    // The snapshot stands in the first part.
    let (mut version, mut snapshot) = (held.version, history.snapshot.filter(|_| parts == 0));
    for events in history.batches.into_iter().skip(parts) {
        let mut change = ChangeSet::of_events(events);
        change.snapshot = snapshot.take();
        let appended = tenant
            .append_change(thread, Some(held.token), Expected::Exact(version), change)
            .await;
        match appended {
            Ok(written) => version = written.version,
            Err(error) => {
                // Nobody is to wait for the end of the lease. The first error is the one to tell.
                let why = serde_json::json!({
                    "code": "import_failed",
                    "message": "its history could not be imported as a whole",
                });
                let why = Some(why.to_string());
                let closed = tenant.close_thread(thread, held.token, "error", why).await;
                abandon_unless(closed.is_ok(), lock);
                return Err(failed(error));
            }
        }
    }
    let closed = tenant.close_thread(thread, held.token, "idle", None).await;
    abandon_unless(closed.is_ok(), lock);
    closed.map(drop).map_err(failed)
}

/// Releases the lock. Unless the thread was closed it may be held still, and a recovery has to find
/// that its holder is gone.
fn abandon_unless(closed: bool, lock: Option<HolderLock>) {
    if let (false, Some(lock)) = (closed, lock) {
        lock.abandon();
    }
}
