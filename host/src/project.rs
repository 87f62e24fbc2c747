//! A project directory as one tenant: store, library, models, tools and lock, built from its
//! contents.

mod reading;
mod recovery;

pub use recovery::RecoverError;

use crate::authority::{self, AuthorityError, Environment, HolderLock, Project};
use crate::ceilings::{Book, Guard};
use crate::clock::SystemClock;
use crate::component::Context;
use crate::documents::UsageLog;
use crate::driver::{self, Driver, Models, Work};
use crate::engine::Engine;
use crate::library::LibraryError;
use crate::library::files::{FilesLibrary, Policy};
use crate::library::models::{ModelTable, ProviderSpec, Wire};
use crate::models::{Failure, FailureKind, Llm, scripted::Scripted};
use crate::probe::{self, Probe};
#[cfg(feature = "sqlite")]
use crate::storage::sqlite::{SqliteOptions, SqliteStore, Stores};
use crate::storage::{Storage, StorageError};
use crate::tenant::Tenant;
use crate::tools::{Joined, Tools, files::FilesTools};
use cap_std::fs::Dir;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The file of the SQLite store, in `.ai/threads`.
pub const STORE: &str = "registry.db";

/// Reason why a project cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProjectError {
    /// A directory or file cannot be opened.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The store cannot be opened.
    #[error("the store .ai/threads/{STORE} cannot be opened: {0}")]
    Store(#[from] StorageError),
}

/// Reason why the settings of a project are refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A file exists and is malformed, or cannot be read.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The file is well formed, but this version would ignore it.
    #[error("{place} is not read by this version yet")]
    Unread {
        /// The file, such as `.ai/config/coordination.yaml`.
        place: String,
    },
}

/// A project directory, opened for one process.
pub struct OpenProject {
    tenant: Tenant,
    library: Arc<FilesLibrary>,
    models: Arc<ProjectModels>,
    tools: Arc<dyn Tools>,
    guard: Arc<Guard>,
    /// `None` over an empty store in memory.
    threads: Option<Dir>,
    /// Log of the usage of models; `None` over an empty store in memory.
    usage: Option<Arc<Work>>,
    /// State that all its drivers share: no two runs of this process have the same holder name, and
    /// all are under one lock file.
    shared: Arc<driver::Shared>,
}

/// Options for opening a project.
pub struct ProjectOptions {
    /// The operator's policy.
    pub policy: Policy,
    /// The variables that providers' addresses and keys may name.
    pub environment: Environment,
    /// A script that answers for every model instead of its provider.
    pub script: Option<Scripted>,
    /// The store; `None` is SQLite in `.ai/threads`.
    pub store: Option<Arc<dyn Storage>>,
    /// The stores of the process, where it has many projects. This project's store then opens on
    /// first use and closes when idle, and the calls that need it report its errors. Without it,
    /// the store is open as long as the project.
    #[cfg(feature = "sqlite")]
    pub stores: Option<Stores>,
    /// Tools of the host beside the project's file tools.
    pub tools: Vec<Arc<dyn Tools>>,
}

impl ProjectOptions {
    /// A policy with defaults: no variables, the project's own models, SQLite, only file tools.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            environment: Environment::default(),
            script: None,
            store: None,
            #[cfg(feature = "sqlite")]
            stores: None,
            tools: Vec::new(),
        }
    }
}

impl OpenProject {
    /// Opens a project: `.ai` and its store are made if they are missing.
    ///
    /// # Errors
    /// If the directory or the store cannot be opened.
    pub fn open(
        engine: Engine,
        project: &Project,
        options: ProjectOptions,
    ) -> Result<Self, ProjectError> {
        let threads = project.threads()?;
        let storage = match &options.store {
            Some(store) => Arc::clone(store),
            None => open_store(&threads, &options)?,
        };
        let lock = HolderLock::take(&threads)?;
        Self::over(
            engine,
            project,
            options,
            storage,
            Some((threads, Some(lock))),
        )
    }

    /// Opens a project over an empty store in memory; nothing is made in its directory. Creating a
    /// thread in it shows what the component would make of a draft.
    ///
    /// # Errors
    /// If the directory cannot be opened.
    pub fn open_empty(
        engine: Engine,
        project: &Project,
        options: ProjectOptions,
    ) -> Result<Self, ProjectError> {
        let storage = reading::in_memory(options.policy.quota_bytes);
        Self::over(engine, project, options, storage, None)
    }

    fn over(
        engine: Engine,
        project: &Project,
        options: ProjectOptions,
        storage: Arc<dyn Storage>,
        place: Option<(Dir, Option<HolderLock>)>,
    ) -> Result<Self, ProjectError> {
        let files = FilesTools::within(project.tool_grant(".")?, engine.file_pool());
        let files: Arc<dyn Tools> = Arc::new(files);
        let tools: Arc<dyn Tools> = match options.tools.is_empty() {
            true => files,
            false => Arc::new(Joined::new([vec![files], options.tools].concat())),
        };
        let policy = options.policy;
        let guard = Arc::new(Guard::new(policy.clone(), Arc::new(SystemClock)));
        let library = Arc::new(FilesLibrary::open(
            project.ai()?,
            policy,
            tools.catalog(),
            options.environment,
        ));
        let context = Context::new(storage, Arc::<FilesLibrary>::clone(&library));
        let script = options
            .script
            .map(|script| Arc::new(script) as Arc<dyn Llm>);
        let models = Arc::new(ProjectModels {
            library: Arc::clone(&library),
            script,
            kept: Mutex::default(),
        });
        let (threads, lock) = place.unzip();
        let lock = lock.flatten();
        let tenant = Tenant::new(engine, context);
        let usage = threads
            .as_ref()
            .map(|threads| log_of(&tenant, threads))
            .transpose()?;
        Ok(Self {
            tenant,
            usage,
            library,
            models,
            tools,
            shared: lock.map_or_else(|| driver::Shared::new("no-lock"), driver::Shared::under),
            threads,
            guard,
        })
    }

    /// Counts the used totals in this book, instead of one that begins and ends with this value. To
    /// be called before any driver is made.
    #[must_use]
    pub fn counted_in(mut self, book: Box<dyn Book>) -> Self {
        let policy = self.library.policy().clone();
        self.guard = Arc::new(Guard::over(policy, Arc::new(SystemClock), book));
        self
    }

    /// The guard that holds all runs of the project to the policy's ceilings, whatever driver
    /// performs them.
    pub fn guard(&self) -> &Arc<Guard> {
        &self.guard
    }

    /// The tenant of the project.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// The files of the project.
    pub fn library(&self) -> &FilesLibrary {
        &self.library
    }

    /// `.ai/threads`; `None` over an empty store in memory.
    pub fn threads(&self) -> Option<&Dir> {
        self.threads.as_ref()
    }

    /// Makes the provider of this model or tier, without calling it.
    ///
    /// # Errors
    /// The failure that a run would suspend with: an unknown model or provider, a key that is not
    /// set, a protocol that this version does not support.
    pub fn check_model(&self, model: &str) -> Result<(), Failure> {
        self.models.provider(model).map(drop)
    }

    /// Asks a model for one word, within the policy's ceilings: one small request.
    ///
    /// # Errors
    /// The failure that a run would suspend with.
    pub async fn probe(&self, model: &str) -> Result<Probe, Failure> {
        probe::probe(&*self.models, &self.guard, model).await
    }

    /// Refuses settings that this version would ignore.
    ///
    /// # Errors
    /// The first file of settings that is not empty, or that is malformed.
    pub fn check_settings(&self) -> Result<(), SettingsError> {
        match self.library.settings_present()?.into_iter().next() {
            Some(place) => Err(SettingsError::Unread { place }),
            None => Ok(()),
        }
    }

    /// A driver for the project's threads, under this process's lock.
    pub fn driver(&self) -> Driver {
        self.driver_with(Arc::<ProjectModels>::clone(&self.models) as Arc<dyn Models>)
    }

    /// A driver with other providers than the project's.
    pub fn driver_with(&self, models: Arc<dyn Models>) -> Driver {
        let (tools, shared) = (Arc::clone(&self.tools), Arc::clone(&self.shared));
        let driver = Driver::sharing(self.tenant.clone(), models, tools, shared);
        let driver = driver.within(Arc::clone(&self.guard));
        match &self.usage {
            Some(usage) => driver.doing(Arc::clone(usage)),
            None => driver,
        }
    }

    /// Waits until the usage of models so far is written to `.ai/threads/usage.jsonl`, or could not
    /// be.
    pub async fn usage_noted(&self) {
        if let Some(usage) = &self.usage {
            usage.flush().await;
        }
    }
}

/// Longest time for writing one line of the usage log.
const USAGE_TIME_MAX: Duration = Duration::from_secs(10);

fn log_of(tenant: &Tenant, threads: &Dir) -> Result<Arc<Work>, AuthorityError> {
    let threads = threads.try_clone();
    let threads = threads.map_err(|error| AuthorityError::from_io(authority::THREADS, error))?;
    let log = Arc::new(UsageLog::new(tenant.clone(), threads));
    Ok(Arc::new(Work::new(log, USAGE_TIME_MAX)))
}

#[cfg(feature = "sqlite")]
fn open_store(threads: &Dir, options: &ProjectOptions) -> Result<Arc<dyn Storage>, ProjectError> {
    let own = SqliteOptions {
        quota_bytes: options.policy.quota_bytes,
        ..SqliteOptions::local()
    };
    let Some(stores) = &options.stores else {
        return Ok(Arc::new(SqliteStore::open(threads, STORE, own)?));
    };
    let threads = threads.try_clone();
    let threads = threads.map_err(|error| AuthorityError::from_io(authority::THREADS, error))?;
    Ok(Arc::new(stores.store(
        move || threads.try_clone(),
        STORE,
        own,
    )))
}

#[cfg(not(feature = "sqlite"))]
fn open_store(_: &Dir, _: &ProjectOptions) -> Result<Arc<dyn Storage>, ProjectError> {
    let message = "this build has no sqlite: give a store".to_owned();
    Err(StorageError::Other {
        code: "no-sqlite",
        message,
    }
    .into())
}

/// Most models that are kept: far more than a table has at once, for a process that outlives
/// several tables.
const MODELS_KEPT_MAX: usize = 10_000;

/// Providers by the project's own `models.yaml`, made at first use and kept: a file that changes
/// while a thread runs changes nothing for a model that was used before.
struct ProjectModels {
    library: Arc<FilesLibrary>,
    script: Option<Arc<dyn Llm>>,
    kept: Mutex<Kept>,
}

/// Providers made so far in this process.
#[derive(Default)]
struct Kept {
    /// By the requested model or tier: its provider, and its name there.
    models: BTreeMap<String, (Arc<dyn Llm>, String)>,
    /// By name: the models of one provider share it.
    providers: BTreeMap<String, Arc<dyn Llm>>,
}

impl Models for ProjectModels {
    fn provider(&self, model: &str) -> Result<(Arc<dyn Llm>, String), Failure> {
        if let Some(script) = &self.script {
            return Ok((Arc::clone(script), model.to_owned()));
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((provider, name)) = kept.models.get(model) {
            return Ok((Arc::clone(provider), name.clone()));
        }
        let found = self.find(model, &mut kept.providers)?;
        if kept.models.len() < MODELS_KEPT_MAX {
            let (provider, name) = &found;
            let entry = (Arc::clone(provider), name.clone());
            kept.models.insert(model.to_owned(), entry);
        }
        Ok(found)
    }
}

impl ProjectModels {
    /// Resolves a model by the file as it is now.
    fn find(
        &self,
        model: &str,
        providers: &mut BTreeMap<String, Arc<dyn Llm>>,
    ) -> Result<(Arc<dyn Llm>, String), Failure> {
        let table = self
            .library
            .models()
            .map_err(|error| unusable("models", &error))?;
        let spec = table.resolve(model).ok_or_else(|| {
            let policy = &self.library.policy().name;
            permanent(
                "unknown_model",
                format!(
                    "there is no model {model} in .ai/config/models.yaml, or {policy} does not grant it"
                ),
            )
        })?;
        if let Some(found) = providers.get(&spec.provider) {
            return Ok((Arc::clone(found), spec.name.clone()));
        }
        let made = self.make(&table, &spec.provider)?;
        if providers.len() < MODELS_KEPT_MAX {
            providers.insert(spec.provider.clone(), Arc::clone(&made));
        }
        Ok((made, spec.name.clone()))
    }

    fn make(&self, table: &ModelTable, provider: &str) -> Result<Arc<dyn Llm>, Failure> {
        let spec = table
            .provider(provider)
            .map_err(|error| unusable(provider, &error))?;
        match spec.wire {
            Wire::OpenAi | Wire::Anthropic => over_http(&spec),
            Wire::Scripted => {
                let file = spec.file.clone().unwrap_or_default();
                let text = self
                    .library
                    .script(&file)
                    .map_err(|error| unusable(provider, &error))?;
                let script = Scripted::parse(&text)
                    .map_err(|error| permanent("bad_script", error.to_string()))?;
                Ok(Arc::new(script))
            }
        }
    }
}

/// Makes the adapter of a provider over HTTP, to check that its entry can be used. Connects to
/// nothing.
///
/// # Errors
/// The failure that a run would suspend with.
pub fn check_provider(spec: &ProviderSpec) -> Result<(), Failure> {
    over_http(spec).map(drop)
}

#[cfg(feature = "http")]
fn over_http(spec: &ProviderSpec) -> Result<Arc<dyn Llm>, Failure> {
    use crate::models::anthropic::Anthropic;
    use crate::models::openai::OpenAi;
    use crate::models::{ProviderOptions, Times};
    let (times, default) = (spec.settings.times, Times::default());
    let options = ProviderOptions {
        name: spec.name.clone(),
        shown_url: Some(spec.shown_url.clone()),
        key: spec.key.clone(),
        reach: spec.reach,
        times: Times {
            connect: times.connect.unwrap_or(default.connect),
            answer: times.answer.unwrap_or(default.answer),
            idle: times.idle.unwrap_or(default.idle),
        },
        dialect: spec.settings.dialect(spec.wire, &spec.base_url),
        headers: spec.headers.clone(),
        query: spec.settings.query.clone(),
        model_options: spec.model_options.clone(),
        ..ProviderOptions::openai(&spec.base_url)
    };
    let made = match spec.wire {
        Wire::Anthropic => Anthropic::new(options).map(|made| Arc::new(made) as _),
        Wire::OpenAi | Wire::Scripted => OpenAi::new(options).map(|made| Arc::new(made) as _),
    };
    made.map_err(|error| {
        permanent(
            "provider_setup",
            format!("the provider {} cannot be used: {error}", spec.name),
        )
    })
}

#[cfg(not(feature = "http"))]
fn over_http(spec: &ProviderSpec) -> Result<Arc<dyn Llm>, Failure> {
    Err(permanent(
        "no_http",
        format!(
            "the provider {} needs HTTP, which this build does not have",
            spec.name
        ),
    ))
}

fn unusable(what: &str, error: &LibraryError) -> Failure {
    permanent("provider_setup", format!("{what}: {error}"))
}

fn permanent(code: &str, message: String) -> Failure {
    Failure::new(FailureKind::Permanent, code, message).not_sent()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Preset;
    use std::io::Write;

    const TABLE: &str =
        "providers: {p: {wire: scripted, file: s.json}}\nmodels:\n  m: {provider: p}\n";

    fn written(ai: &Dir, path: &str, text: &str) {
        let mut file = ai.create(path).expect("made");
        file.write_all(text.as_bytes()).expect("written");
    }

    /// Symptom: a run changed its provider when the file was edited. Cause: the table was read for
    /// every call. Fix: a model's provider is resolved once in a process.
    #[test]
    fn a_table_that_changes_changes_nothing_for_a_model_in_use() {
        let temp = tempfile::TempDir::new().expect("a temporary directory");
        let project = Project::open_ambient(temp.path()).expect("it opens");
        let ai = project.ai_or_create().expect("made");
        ai.create_dir("config").expect("made");
        written(&ai, "config/models.yaml", TABLE);
        written(&ai, "s.json", "[{\"text\": \"x\"}]");
        let models = ProjectModels {
            library: Arc::new(FilesLibrary::open(
                Some(ai.try_clone().expect("cloned")),
                Policy::preset(Preset::Local),
                Vec::new(),
                Environment::default(),
            )),
            script: None,
            kept: Mutex::default(),
        };
        let failed = |model| models.provider(model).err().map(|failure| failure.code);
        assert_eq!(failed("other"), Some("unknown_model".to_owned()));
        let (first, name) = models.provider("m").expect("it is in the table");
        assert_eq!(name, "m");
        let anthropic = TABLE.replace("scripted, file: s.json", "anthropic");
        let changed = [anthropic.as_str(), "models: {}", "no: [table"];
        for text in changed {
            written(&ai, "config/models.yaml", text);
            let (again, _) = models.provider("m").expect("it was found before");
            assert!(Arc::ptr_eq(&first, &again), "{text}");
        }
        assert_eq!(failed("other"), Some("provider_setup".to_owned()));
    }
}
