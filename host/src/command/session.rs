//! Opens an engine and a project from the options of the command line.

use super::temporary::TemporaryDirectory;
use super::{catch_up, fault, store_copy};
use cap_std::fs::Dir;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use threadkeep::authority::{self, EnvironmentSnapshot, ProjectDir};
use threadkeep::ceilings::FileBook;
use threadkeep::documents::{DocumentError, DocumentWriter, ThreadDocuments};
use threadkeep::engine::{CodeCache, Engine};
use threadkeep::library::files::SCRIPT_BYTES_MAX;
use threadkeep::limits::EngineLimits;
use threadkeep::models::scripted::ScriptedProvider;
use threadkeep::policy::{Policy, PolicyPreset, TEXT_BYTES_MAX, file_name};
use threadkeep::project::{
    FILES_STORE, OpenProject, ProjectError, ProjectOptions, ProjectStore, SQLITE_STORE,
};
use threadkeep::storage::{StorageBackend, StorageError};
use threadkeep::tenant::Tenant;
use threadkeep_cli::args::{CommonArgs, ProviderOverride, StoreKind};
use threadkeep_cli::command;
use threadkeep_cli::exit::CommandFault;
use threadkeep_cli::screen::OutputScreen;

/// The context of one command: its common options and the environment of the process.
pub struct CommandSession {
    common: CommonArgs,
    environment: EnvironmentSnapshot,
    /// Created at first use: the component is compiled once.
    engine: OnceLock<Engine>,
    /// The directory of the project and the origin of that path, searched for at first use.
    place: OnceLock<(PathBuf, &'static str)>,
    /// True if a directory without `.ai` is taken, in which the first thread makes it.
    begins_project: bool,
}

/// An open project, and the documents of its threads if it has any.
pub struct CommandProject {
    project: OpenProject,
    /// None for a store in memory: documents would outlive the records they are made from.
    documents: Option<ThreadDocuments>,
    /// True once the documents of dead processes were brought up to date.
    caught_up: AtomicBool,
    /// True if the user chose a store in memory: threads are lost when the command ends.
    is_memory_only: bool,
    /// The copy in which the store is read; the store is closed before the copy is removed.
    _copy: Option<TemporaryDirectory>,
}

impl CommandSession {
    /// A session with these options.
    pub fn new(common: CommonArgs, environment: EnvironmentSnapshot) -> Self {
        Self {
            common,
            environment,
            engine: OnceLock::new(),
            place: OnceLock::new(),
            begins_project: false,
        }
    }

    /// The same session, which takes a directory without `.ai` where no project is found: the first
    /// thread makes it.
    #[must_use]
    pub fn beginning_project(mut self) -> Self {
        self.begins_project = true;
        self
    }

    /// The options of every command.
    pub fn common(&self) -> &CommonArgs {
        &self.common
    }

    /// The environment of the process.
    pub fn environment(&self) -> &EnvironmentSnapshot {
        &self.environment
    }

    /// Returns true if a project is begun here, and there is none to be found.
    pub fn finds_no_project(&self) -> bool {
        let is_missing = || {
            self.directory()
                .is_ok_and(|dir| matches!(dir.ai_dir(), Ok(None)))
        };
        self.begins_project && is_missing()
    }

    /// The project's path, and the origin of that path. Where none is named, `.ai` is looked for
    /// from the working directory upwards.
    pub fn path(&self) -> (&Path, &'static str) {
        if let Some(path) = &self.common.project {
            return (path, "--project");
        }
        let search = || match authority::find_project_ambient() {
            Some(path) if path.is_absolute() => (path, ABOVE),
            Some(path) => (path, "the working directory"),
            None => (PathBuf::from("."), "the default"),
        };
        let (path, origin) = self.place.get_or_init(search);
        (path, origin)
    }

    /// Opens the project's directory. One that was found and not named is refused if its `.ai` is
    /// another user's: whoever can write to a directory above could hand out directives otherwise,
    /// with the keys of all who work below.
    pub fn directory(&self) -> Result<ProjectDir, CommandFault> {
        let (path, origin) = self.path();
        let directory = open_directory(path)?;
        if origin == "--project" {
            return Ok(directory);
        }
        match directory.foreign_owner() {
            // What else is wrong with it is told where it is opened.
            Ok(None) | Err(_) => Ok(directory),
            Ok(Some(owner)) if self.is_owner_of_sudo(owner) => Ok(directory),
            Ok(Some(owner)) => {
                let shown = path.display();
                let message = format!("{shown}/.ai belongs to another user (number {owner})");
                let hint = format!("if you trust what stands in it, name it: --project {shown}");
                Err(CommandFault::new("foreign-project", message).with_hint(hint))
            }
        }
    }

    /// Opens the directory in which `init` begins a project: the named one, or the working
    /// directory.
    pub fn directory_to_begin(&self) -> Result<ProjectDir, CommandFault> {
        open_directory(self.common.project.as_deref().unwrap_or(Path::new(".")))
    }

    /// Returns true if `sudo` was called by this user, whose own project it then works on.
    #[cfg(unix)]
    fn is_owner_of_sudo(&self, owner: u32) -> bool {
        let caller = self.environment.get("SUDO_UID");
        authority::is_superuser() && caller == Some(owner.to_string().as_str())
    }

    #[cfg(not(unix))]
    fn is_owner_of_sudo(&self, _: u32) -> bool {
        false
    }

    /// Reads the operator's policy: the file of `--policy`, which must lie outside the project, or
    /// else the preset for a local machine.
    pub fn policy(&self) -> Result<Policy, CommandFault> {
        let Some(path) = &self.common.policy else {
            return Ok(Policy::preset(PolicyPreset::Local));
        };
        let bad = |problem: String| {
            CommandFault::new("bad-policy", problem)
                .with_hint("docs/policy.md has an example with every key")
        };
        let bytes = authority::read_trusted_ambient(path, TEXT_BYTES_MAX).map_err(|error| {
            fault::from_authority(&error).with_hint("--policy FILE names the operator's policy")
        })?;
        let (project, _) = self.path();
        if authority::passes_through_ambient(path, project) {
            let problem = format!(
                "the policy {} lies inside the project, or is reached through it",
                path.display()
            );
            return Err(bad(problem).with_hint("keep it where no tenant and no tool can write"));
        }
        let name = file_name(path);
        let text = String::from_utf8(bytes).map_err(|_| bad(format!("{name} is not UTF-8")))?;
        Policy::parse(&text, &name).map_err(|error| bad(error.to_string()))
    }

    /// Opens the book that a policy names, in the directory of the policy file.
    pub fn open_book(&self, policy: &Policy) -> Result<Option<FileBook>, CommandFault> {
        let (Some(path), Some(name)) = (&self.common.policy, &policy.book) else {
            return Ok(None);
        };
        let dir =
            authority::open_parent_ambient(path).map_err(|error| fault::from_authority(&error))?;
        Ok(Some(FileBook::new(dir, name)))
    }

    /// Returns an engine, with the operator's cache of native code if there is one.
    pub fn engine(&self) -> Result<Engine, CommandFault> {
        if let Some(engine) = self.engine.get() {
            return Ok(engine.clone());
        }
        let cache = self
            .cache_path()
            .and_then(|(path, _)| open_code_cache(&path).ok());
        let engine = Engine::new(EngineLimits::local(), cache.as_ref())
            .map_err(|error| CommandFault::new("engine", error.to_string()))?;
        Ok(self.engine.get_or_init(|| engine).clone())
    }

    /// Returns the directory that keeps native code between processes, and the variable that names
    /// it.
    pub fn cache_path(&self) -> Option<(PathBuf, &'static str)> {
        let from = |name: &'static str, below: &str| {
            let value = PathBuf::from(self.environment.get(name)?);
            let path = if below.is_empty() {
                value
            } else {
                value.join(below)
            };
            path.is_absolute().then_some((path, name))
        };
        from("THREADKEEP_CACHE", "")
            .or_else(|| from("XDG_CACHE_HOME", "threadkeep"))
            .or_else(|| from("HOME", ".cache/threadkeep"))
    }

    /// Reads the script of answers that `--provider` names.
    pub fn script(&self) -> Result<Option<ScriptedProvider>, CommandFault> {
        let Some(ProviderOverride::Scripted(path)) = &self.common.provider else {
            return Ok(None);
        };
        let bytes = authority::read_ambient(path, SCRIPT_BYTES_MAX).map_err(|error| {
            fault::from_authority(&error)
                .with_hint("--provider scripted:FILE names a file of answers")
        })?;
        let wrong = |problem: String| {
            CommandFault::new("bad-script", format!("{}: {problem}", path.display()))
                .with_hint("a script is a JSON list of replies, such as [{\"text\": \"Hello.\"}]")
        };
        let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
        ScriptedProvider::parse(&text)
            .map(Some)
            .map_err(|error| wrong(error.to_string()))
    }

    /// Opens the project with its store. Creates nothing: a project without a store opens over an
    /// empty one.
    pub fn open(&self) -> Result<CommandProject, CommandFault> {
        let directory = self.project_directory()?;
        let threads = directory.threads_dir();
        let threads = threads.map_err(|error| fault::from_authority(&error))?;
        let is_there = threads.is_some_and(|threads| has_store(&threads));
        match is_there && !self.is_memory_store() {
            true => self.open_store(&directory),
            false => self.open_empty(&directory, self.policy()?),
        }
    }

    /// Opens the project for a command that writes nothing: a store that cannot be written can be
    /// read.
    pub fn open_to_read(&self, screen: &mut OutputScreen) -> Result<CommandProject, CommandFault> {
        let directory = self.project_directory()?;
        let threads = directory.threads_dir();
        let threads = threads.map_err(|error| fault::from_authority(&error))?;
        match threads.filter(|threads| has_store(threads) && !self.is_memory_store()) {
            Some(threads) => self.open_store_to_read(&directory, &threads, screen),
            None => self.open_empty(&directory, self.policy()?),
        }
    }

    fn open_store_to_read(
        &self,
        directory: &ProjectDir,
        threads: &Dir,
        screen: &mut OutputScreen,
    ) -> Result<CommandProject, CommandFault> {
        let policy = self.policy()?;
        let mut options = self.project_options(policy.clone())?;
        // Each takes a third of a short command's time.
        let (engine, store) = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new();
            let engine = thread.spawn_scoped(scope, || self.engine());
            let store = OpenProject::open_store_to_read(directory, &options);
            (engine.map(|engine| engine.join()), store)
        });
        let engine = match engine {
            Ok(prepared) => prepared.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?,
            // No thread can be had.
            Err(_) => self.engine()?,
        };
        match store {
            Ok(store) => {
                options.store = Some(store);
                let project = OpenProject::open_to_read(engine, directory, options);
                with_documents(project.map_err(|error| fault::from_project(&error))?, None)
            }
            Err(ProjectError::Store(StorageError::Unavailable { .. }))
                if store_copy::is_needed(threads) =>
            {
                let copied = store_copy::copy_store(self, threads)?;
                screen.note(&store_copy::notice(&copied));
                let mut options = self.project_options(policy)?;
                options.store = Some(store_in(copied.dir()?)?);
                let project = OpenProject::open_to_read(engine, directory, options);
                with_documents(
                    project.map_err(|error| fault::from_project(&error))?,
                    Some(copied),
                )
            }
            Err(error) => Err(fault::from_project(&error)),
        }
    }

    /// Opens the project over an empty store in memory: nothing tried there is written. The quota
    /// is left to the real store, which knows how much it holds.
    pub fn open_rehearsal(&self) -> Result<CommandProject, CommandFault> {
        let policy = Policy {
            quota_bytes: None,
            ..self.policy()?
        };
        self.open_empty(&self.project_directory()?, policy)
    }

    /// Opens the project for a command that creates a thread: creates a missing store.
    pub fn open_or_create(&self) -> Result<CommandProject, CommandFault> {
        self.open_directory(&self.project_directory()?)
    }

    /// Opens the project in a directory that is open already; creates a missing store.
    pub fn open_directory(&self, directory: &ProjectDir) -> Result<CommandProject, CommandFault> {
        match self.is_memory_store() {
            true => self.open_empty(directory, self.policy()?),
            false => self.open_store(directory),
        }
    }

    fn is_memory_store(&self) -> bool {
        self.common.store == Some(StoreKind::Memory)
    }

    /// Opens the project's directory. Refuses a directory without `.ai`, and creates nothing in it.
    pub fn project_directory(&self) -> Result<ProjectDir, CommandFault> {
        let directory = self.directory()?;
        let ai = directory
            .ai_dir()
            .map_err(|error| fault::from_authority(&error))?;
        if ai.is_none() && !self.begins_project {
            let message = match &self.common.project {
                Some(path) => {
                    format!("{} is no project: it has no directory .ai", path.display())
                }
                None => "there is no project here: no directory .ai, nor in one above".to_owned(),
            };
            return Err(CommandFault::new("no-project", message).with_hint(
                "`threadkeep init` makes one, --project DIR names another; `threadkeep demo` needs \
                 none",
            ));
        }
        Ok(directory)
    }

    fn project_options(&self, policy: Policy) -> Result<ProjectOptions, CommandFault> {
        Ok(ProjectOptions {
            environment: self.environment.for_providers(),
            script: self.script()?,
            backend: match self.common.store {
                Some(StoreKind::Sqlite) => Some(ProjectStore::Sqlite),
                Some(StoreKind::Files) => Some(ProjectStore::Files),
                Some(StoreKind::Memory) | None => None,
            },
            ..ProjectOptions::new(policy)
        })
    }

    fn open_empty(
        &self,
        directory: &ProjectDir,
        policy: Policy,
    ) -> Result<CommandProject, CommandFault> {
        let book = self.open_book(&policy)?;
        let project =
            OpenProject::open_empty(self.engine()?, directory, self.project_options(policy)?);
        Ok(CommandProject {
            project: count_in_book(project.map_err(|error| fault::from_project(&error))?, book),
            documents: None,
            caught_up: AtomicBool::new(true),
            is_memory_only: self.is_memory_store(),
            _copy: None,
        })
    }

    fn open_store(&self, directory: &ProjectDir) -> Result<CommandProject, CommandFault> {
        let policy = self.policy()?;
        let book = self.open_book(&policy)?;
        let project = OpenProject::open(self.engine()?, directory, self.project_options(policy)?);
        let project = count_in_book(project.map_err(|error| fault::from_project(&error))?, book);
        with_documents(project, None)
    }
}

/// The origin of a project that was found above the working directory.
const ABOVE: &str = "found above the working directory";

fn open_directory(path: &Path) -> Result<ProjectDir, CommandFault> {
    ProjectDir::open_ambient(path).map_err(|error| {
        fault::from_authority(&error)
            .with_hint("name the directory of a project with --project DIR")
    })
}

fn with_documents(
    project: OpenProject,
    copy: Option<TemporaryDirectory>,
) -> Result<CommandProject, CommandFault> {
    let threads = project.threads().map(Dir::try_clone).transpose();
    let threads = threads.map_err(|error| {
        CommandFault::new("io", format!(".ai/threads cannot be opened: {error}"))
    })?;
    let documents = threads.map(|threads| ThreadDocuments::new(project.tenant().clone(), threads));
    Ok(CommandProject {
        project,
        documents,
        caught_up: AtomicBool::new(false),
        is_memory_only: false,
        _copy: copy,
    })
}

/// Opens the store in this directory.
#[cfg(feature = "sqlite")]
pub fn store_in(dir: &Dir) -> Result<Arc<dyn StorageBackend>, CommandFault> {
    use threadkeep::storage::sqlite::{SqliteOptions, SqliteStore};
    let store = SqliteStore::open(dir, SQLITE_STORE, SqliteOptions::local());
    let store = store.map_err(|error| fault::from_project(&ProjectError::Store(error)))?;
    Ok(Arc::new(store))
}

#[cfg(not(feature = "sqlite"))]
pub fn store_in(_: &Dir) -> Result<Arc<dyn StorageBackend>, CommandFault> {
    Err(CommandFault::new("store", "this build has no sqlite"))
}

fn count_in_book(project: OpenProject, book: Option<FileBook>) -> OpenProject {
    match book {
        Some(book) => project.with_book(Box::new(book)),
        None => project,
    }
}

/// Returns true if anything exists at the store's name. A link or a pipe is no store, and opening
/// it reports that.
pub fn has_store(threads: &Dir) -> bool {
    [SQLITE_STORE, FILES_STORE].iter().any(|name| {
        let found = threads.symlink_metadata(name);
        !matches!(found, Err(error) if error.kind() == ErrorKind::NotFound)
    })
}

/// Opens a cache of native code in a private directory of the operator.
pub fn open_code_cache(path: &Path) -> Result<CodeCache, authority::AuthorityError> {
    authority::open_private_dir_ambient(path).map(CodeCache::new)
}

impl CommandProject {
    /// The project.
    pub fn project(&self) -> &OpenProject {
        &self.project
    }

    /// The tenant of the project.
    pub fn tenant(&self) -> &Tenant {
        self.project.tenant()
    }

    /// Returns true if threads made here are lost when the command ends.
    pub fn is_memory_only(&self) -> bool {
        self.is_memory_only
    }

    /// Tells the user that the project is empty: this may be the wrong directory.
    pub fn note_if_empty(&self, screen: &mut OutputScreen) {
        command::note_if_empty(self, screen);
    }

    /// Brings the documents that dead processes left behind up to date, at most once.
    pub async fn catch_up(&self, screen: &mut OutputScreen) {
        if !self.caught_up.swap(true, Ordering::Relaxed) {
            catch_up::catch_up(self, screen).await;
        }
    }

    /// The documents of its threads.
    pub fn documents(&self) -> Option<&ThreadDocuments> {
        self.documents.as_ref()
    }

    /// Creates a writer that updates documents after each commit.
    pub fn document_writer(&self) -> Option<Arc<DocumentWriter>> {
        let documents = self.documents.clone()?;
        Some(Arc::new(DocumentWriter::new(documents)))
    }

    /// Brings the documents of a thread up to date, and those that dead processes left behind. A
    /// failure is a warning: the records are what counts.
    pub async fn refresh_documents(&self, thread: &str, screen: &mut OutputScreen) {
        self.catch_up(screen).await;
        let Some(documents) = &self.documents else {
            return;
        };
        if let Err(error) = documents.refresh(thread).await {
            return warn_unwritten(thread, &error, screen);
        }
        if let Err(error) = documents.save_stopped(thread).await {
            warn_unwritten(thread, &error, screen);
        }
    }
}

/// Warns that the documents of a thread could not be brought up to date, with what mends it.
pub fn warn_unwritten(thread: &str, error: &DocumentError, screen: &mut OutputScreen) {
    match fault::is_of_records(error) {
        true => screen.warn(&format!(
            "the documents of {thread} are not up to date: {error}; {}",
            fault::RECORDS_HINT
        )),
        false => warn_stale(thread, &error.to_string(), screen),
    }
}

/// Warns that the documents of a thread are out of date.
pub fn warn_stale(thread: &str, error: &str, screen: &mut OutputScreen) {
    screen.warn(&format!(
        "the documents of {thread} are not up to date: {error}; `threadkeep repair {thread}` \
         writes them anew"
    ));
}
