//! From the options of the command line to an engine and an open project.

use super::fault;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use threadkeep::authority::{self, Environment, Project};
use threadkeep::ceilings::FileBook;
use threadkeep::documents::{DocumentWriter, Documents};
use threadkeep::engine::{CodeCache, Engine};
use threadkeep::library::files::SCRIPT_BYTES_MAX;
use threadkeep::limits::Limits;
use threadkeep::models::scripted::Scripted;
use threadkeep::policy::{Policy, TEXT_BYTES_MAX, file_name};
use threadkeep::project::{OpenProject, ProjectOptions};
use threadkeep::storage::{Quota, Storage, memory::MemoryStore};
use threadkeep::tenant::Tenant;
use threadkeep_cli::args::{Common, Provider, Store};
use threadkeep_cli::exit::Fault;
use threadkeep_cli::screen::Screen;

/// The preset whose limits hold on a person's own machine.
pub const PRESET: &str = "local";

/// What holds for one command: its common options and the process's environment.
pub struct Session {
    common: Common,
    environment: Environment,
}

/// An open project, and the documents of its threads if there are any.
pub struct Opened {
    project: OpenProject,
    /// None in memory: documents would outlive what they are made from.
    documents: Option<Documents>,
}

impl Session {
    /// A session.
    pub fn new(common: Common, environment: Environment) -> Self {
        Self {
            common,
            environment,
        }
    }

    /// The options of every command.
    pub fn common(&self) -> &Common {
        &self.common
    }

    /// The process's environment.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// The project's path, and where it comes from.
    pub fn path(&self) -> (&Path, &'static str) {
        match &self.common.project {
            Some(path) => (path, "--project"),
            None => (Path::new("."), "the default"),
        }
    }

    /// The project's directory.
    pub fn directory(&self) -> Result<Project, Fault> {
        let (path, _) = self.path();
        Project::open_ambient(path).map_err(|error| {
            fault::authority(&error).hint("name the directory of a project with --project DIR")
        })
    }

    /// What the operator allows: the file of `--policy`, which no project may hold, or the preset of a person's own
    /// machine.
    pub fn policy(&self) -> Result<Policy, Fault> {
        let Some(path) = &self.common.policy else {
            return Ok(Policy::preset(PRESET));
        };
        let bad = |problem: String| {
            Fault::new("bad-policy", problem).hint("docs/policy.md has an example with every key")
        };
        let bytes = authority::read_ambient(path, TEXT_BYTES_MAX).map_err(|error| {
            fault::authority(&error).hint("--policy FILE names the operator's policy")
        })?;
        let (project, _) = self.path();
        if authority::lies_within_ambient(path, project) {
            let problem = format!("the policy {} lies inside the project", path.display());
            return Err(bad(problem).hint("keep it where no tenant and no tool can write"));
        }
        let name = file_name(path);
        let text = String::from_utf8(bytes).map_err(|_| bad(format!("{name} is not UTF-8")))?;
        Policy::parse(&text, &name).map_err(|error| bad(error.to_string()))
    }

    /// The book that a policy names, beside its file.
    fn book(&self, policy: &Policy) -> Result<Option<FileBook>, Fault> {
        let (Some(path), Some(name)) = (&self.common.policy, &policy.book) else {
            return Ok(None);
        };
        let dir = authority::parent_ambient(path).map_err(|error| fault::authority(&error))?;
        Ok(Some(FileBook::new(dir, name)))
    }

    /// An engine with the operator's cache of native code, or without one.
    pub fn engine(&self) -> Result<Engine, Fault> {
        let cache = self.cache_path().and_then(|(path, _)| cache(&path).ok());
        Engine::new(Limits::local(), cache.as_ref())
            .map_err(|error| Fault::new("engine", error.to_string()))
    }

    /// Where native code is kept between processes, and which variable says so.
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

    /// The answers that `--provider` names.
    pub fn script(&self) -> Result<Option<Scripted>, Fault> {
        let Some(Provider::Scripted(path)) = &self.common.provider else {
            return Ok(None);
        };
        let bytes = authority::read_ambient(path, SCRIPT_BYTES_MAX).map_err(|error| {
            fault::authority(&error).hint("--provider scripted:FILE names a file of answers")
        })?;
        let wrong = |problem: String| {
            Fault::new("bad-script", format!("{}: {problem}", path.display()))
                .hint("a script is a JSON list of replies, such as [{\"text\": \"Hello.\"}]")
        };
        let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
        Scripted::parse(&text)
            .map(Some)
            .map_err(|error| wrong(error.to_string()))
    }

    /// The project, ready for every command. A directory without `.ai` is none, and nothing is made in it.
    pub fn open(&self) -> Result<Opened, Fault> {
        let script = self.script()?;
        let directory = self.directory()?;
        if directory
            .ai()
            .map_err(|error| fault::authority(&error))?
            .is_none()
        {
            let (path, _) = self.path();
            let message = format!("{} is no project: it has no directory .ai", path.display());
            return Err(Fault::new("no-project", message).hint(
                "write .ai/directives/NAME.md there, or name another with --project DIR; `threadkeep demo` shows one",
            ));
        }
        self.open_directory(&directory, script)
    }

    /// A project in a directory that is held open already.
    pub fn open_directory(
        &self,
        directory: &Project,
        script: Option<Scripted>,
    ) -> Result<Opened, Fault> {
        let memory = self.common.store == Some(Store::Memory);
        let policy = self.policy()?;
        let book = self.book(&policy)?;
        let store = memory.then(|| in_memory(&policy));
        let options = ProjectOptions {
            environment: self.environment.for_providers(),
            script,
            store,
            ..ProjectOptions::new(policy)
        };
        let project = OpenProject::open(self.engine()?, directory, options)
            .map_err(|error| fault::project(&error))?;
        let project = match book {
            Some(book) => project.counted_in(Box::new(book)),
            None => project,
        };
        let documents = match memory {
            true => None,
            false => {
                let threads = project.threads().try_clone().map_err(|error| {
                    Fault::new("io", format!(".ai/threads cannot be opened: {error}"))
                })?;
                Some(Documents::new(project.tenant().clone(), threads))
            }
        };
        Ok(Opened { project, documents })
    }
}

/// A store that ends with the command, bounded as the policy says.
fn in_memory(policy: &Policy) -> Arc<dyn Storage> {
    let store = MemoryStore::new();
    store.set_quota(policy.quota_bytes.map(|limit_bytes| Quota {
        limit_bytes,
        closing_margin_bytes: Quota::CLOSING_MARGIN_BYTES,
    }));
    Arc::new(store)
}

/// A cache of native code in a directory of the operator's own.
pub fn cache(path: &Path) -> Result<CodeCache, authority::AuthorityError> {
    authority::private_dir_ambient(path).map(CodeCache::new)
}

impl Opened {
    /// The project.
    pub fn project(&self) -> &OpenProject {
        &self.project
    }

    /// Its tenant.
    pub fn tenant(&self) -> &Tenant {
        self.project.tenant()
    }

    /// Its documents.
    pub fn documents(&self) -> Option<&Documents> {
        self.documents.as_ref()
    }

    /// A writer that follows commits.
    pub fn writer(&self) -> Option<Arc<DocumentWriter>> {
        let documents = self.documents.clone()?;
        Some(Arc::new(DocumentWriter::new(documents)))
    }

    /// Bring the documents of a thread up to date. A failure is a warning: the records are what counts.
    pub async fn refresh(&self, thread: &str, screen: &mut Screen) {
        if let Some(documents) = &self.documents
            && let Err(error) = documents.refresh(thread).await
        {
            stale(thread, &error.to_string(), screen);
        }
    }
}

/// Say that the documents of a thread are old.
pub fn stale(thread: &str, error: &str, screen: &mut Screen) {
    screen.warn(&format!(
        "the documents of {thread} are not up to date: {error}; `threadkeep repair {thread}` writes them anew"
    ));
}
