//! A project directory as one tenant: store, library, models, tools and lock, built from its
//! contents.

mod read_only;
mod recovery;
mod store;
mod store_choice;
mod transfer;
mod transfer_leftovers;

pub use recovery::RecoverError;
pub use store::{FILES_STORE, ProjectStore, SQLITE_STORE, open_files_store};
pub use transfer::{
    REPLACED_DIRECTORY, StoreTransfer, TransferError, TransferStep, transfer_store,
};
pub use transfer_leftovers::{LeftoverStore, TransferLeftovers};

use crate::authority::{self, AuthorityError, EnvironmentSnapshot, HolderLock, ProjectDir};
use crate::ceilings::{CeilingGuard, UsageBook};
use crate::clock::SystemClock;
use crate::component::TenantContext;
use crate::documents::UsageLog;
use crate::documents::checkpoints::{CheckpointSettings, SETTINGS_NAME};
use crate::driver::{self, Driver, ModelProviders, PostRunWork};
use crate::engine::Engine;
use crate::library::GrantedLibrary;
use crate::library::models::{ModelTable, ProviderSpec, WireProtocol};
use crate::library::{LibraryError, TenantLibrary};
use crate::models::{FailureKind, ModelFailure, ModelProvider, scripted::ScriptedProvider};
use crate::policy::Policy;
use crate::probe::{self, ProbeReport};
#[cfg(feature = "sqlite")]
use crate::storage::sqlite::StorePool;
use crate::storage::{StorageBackend, StorageError};
use crate::tenant::Tenant;
use crate::tools::{JoinedTools, ToolSet, files::FilesTools};
use cap_std::fs::Dir;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use store::open_store;
use threadkeep_storage::locks::SleepingMutex;
use threadkeep_units::project_layout::TWO_STORES;

/// Reason why a project cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProjectError {
    /// A directory or file cannot be opened.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The store cannot be opened.
    #[error("the store .ai/threads/{SQLITE_STORE} cannot be opened: {0}")]
    Store(#[from] StorageError),
    /// The store of files cannot be opened.
    #[error("the store .ai/threads/{FILES_STORE} cannot be opened: {0}")]
    FilesStore(StorageError),
    /// The project has another store than the one that was asked for.
    #[error(
        "the store {} was asked for, and the project keeps its threads in .ai/threads/{}",
        .asked.word(), .there.place()
    )]
    OtherStore {
        /// The store that was asked for.
        asked: ProjectStore,
        /// The store that is there.
        there: ProjectStore,
    },
    /// The project has two stores, and nobody said which counts.
    #[error("{TWO_STORES}")]
    TwoStores,
    /// Another process copies the store.
    #[error("the store is being copied by the process {copier}")]
    BeingCopied {
        /// The nonce of the process, which names its lock file.
        copier: String,
    },
}

/// Reason why the settings of a project are refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A file exists and is malformed, or cannot be read.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// A key of the settings of checkpoints is unknown, or has a value that it may not have.
    #[error("{place}: {error}")]
    Checkpoints {
        /// The file, such as `.ai/config/state_persistence.yaml`.
        place: String,
        /// The key, and what is wrong with it.
        error: LibraryError,
    },
}

/// A project directory, opened for one process.
pub struct OpenProject {
    tenant: Tenant,
    library: Arc<GrantedLibrary>,
    models: Arc<ProjectModels>,
    tools: Arc<dyn ToolSet>,
    guard: Arc<CeilingGuard>,
    /// `None` over an empty store in memory.
    threads: Option<Dir>,
    /// Log of the usage of models; `None` over an empty store in memory.
    usage: Option<Arc<PostRunWork>>,
    /// State that all its drivers share: no two runs of this process have the same holder name, and
    /// all are under one lock file.
    driver_shared: Arc<driver::DriverShared>,
}

/// Options for opening a project.
pub struct ProjectOptions {
    /// The operator's policy.
    pub policy: Policy,
    /// The variables that providers' addresses and keys may name.
    pub environment: EnvironmentSnapshot,
    /// A script that answers for every model instead of its provider.
    pub script: Option<ScriptedProvider>,
    /// The store; `None` is one in `.ai/threads`.
    pub store: Option<Arc<dyn StorageBackend>>,
    /// The kind of the store in `.ai/threads`; `None` is the one that is there, SQLite in a new
    /// project.
    pub backend: Option<ProjectStore>,
    /// The stores of the process, where it has many projects. This project's store then opens on
    /// first use and closes when idle, and the calls that need it report its errors. Without it,
    /// the store is open as long as the project.
    #[cfg(feature = "sqlite")]
    pub stores: Option<StorePool>,
    /// Tools of the host beside the project's file tools.
    pub tools: Vec<Arc<dyn ToolSet>>,
}

impl ProjectOptions {
    /// A policy with defaults: no variables, the project's own models, SQLite, only file tools.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            environment: EnvironmentSnapshot::default(),
            script: None,
            store: None,
            backend: None,
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
        project: &ProjectDir,
        options: ProjectOptions,
    ) -> Result<Self, ProjectError> {
        let threads = project.threads_dir_or_create()?;
        let lock = HolderLock::acquire(&threads)?;
        store_choice::check_no_copy(&threads, Some(&lock))?;
        let storage = match &options.store {
            Some(store) => Arc::clone(store),
            None => open_store(&threads, &options)?,
        };
        Self::with_storage(
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
        project: &ProjectDir,
        options: ProjectOptions,
    ) -> Result<Self, ProjectError> {
        let storage = read_only::in_memory(options.policy.quota_bytes);
        Self::with_storage(engine, project, options, storage, None)
    }

    fn with_storage(
        engine: Engine,
        project: &ProjectDir,
        options: ProjectOptions,
        storage: Arc<dyn StorageBackend>,
        place: Option<(Dir, Option<HolderLock>)>,
    ) -> Result<Self, ProjectError> {
        let files = FilesTools::with_pool(project.tool_grant(".")?, engine.file_pool());
        let files: Arc<dyn ToolSet> = Arc::new(files);
        let tools: Arc<dyn ToolSet> = match options.tools.is_empty() {
            true => files,
            false => Arc::new(JoinedTools::new([vec![files], options.tools].concat())),
        };
        let policy = options.policy;
        let guard = Arc::new(CeilingGuard::new(policy.clone(), Arc::new(SystemClock)));
        let library = Arc::new(GrantedLibrary::open(
            project.ai_dir()?,
            policy,
            tools.catalog(),
            options.environment,
        ));
        let context = TenantContext::new(storage, Arc::<GrantedLibrary>::clone(&library));
        let script = options
            .script
            .map(|script| Arc::new(script) as Arc<dyn ModelProvider>);
        let models = Arc::new(ProjectModels {
            library: Arc::clone(&library),
            script,
            cache: SleepingMutex::default(),
        });
        let (threads, lock) = place.unzip();
        let lock = lock.flatten();
        let tenant = Tenant::new(engine, context);
        let usage = threads
            .as_ref()
            .map(|threads| usage_log(&tenant, threads))
            .transpose()?;
        Ok(Self {
            tenant,
            usage,
            library,
            models,
            tools,
            driver_shared: lock.map_or_else(
                || driver::DriverShared::new("no-lock"),
                driver::DriverShared::with_holder_lock,
            ),
            threads,
            guard,
        })
    }

    /// Counts the used totals in this book, instead of one that begins and ends with this value. To
    /// be called before any driver is made.
    #[must_use]
    pub fn with_book(mut self, book: Box<dyn UsageBook>) -> Self {
        let policy = self.library.policy().clone();
        self.guard = Arc::new(CeilingGuard::with_book(policy, Arc::new(SystemClock), book));
        self
    }

    /// The guard that holds all runs of the project to the policy's ceilings, whatever driver
    /// performs them.
    pub fn guard(&self) -> &Arc<CeilingGuard> {
        &self.guard
    }

    /// The tenant of the project.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// The files of the project.
    pub fn library(&self) -> &GrantedLibrary {
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
    pub fn check_model(&self, model: &str) -> Result<(), ModelFailure> {
        self.models.provider(model).map(drop)
    }

    /// Returns true if this model or tier takes images, as its entry says.
    pub fn takes_images(&self, model: &str) -> bool {
        let table = self.library.models();
        table.is_ok_and(|table| table.takes_images(model))
    }

    /// Asks a model for one word, within the policy's ceilings: one small request.
    ///
    /// # Errors
    /// The failure that a run would suspend with.
    pub async fn probe_model(&self, model: &str) -> Result<ProbeReport, ModelFailure> {
        probe::probe_model(&*self.models, &self.guard, model).await
    }

    /// Checks the settings that the host reads itself: those of checkpoints on disk.
    ///
    /// # Errors
    /// The file of settings that is malformed, or the key that is not valid.
    pub fn check_settings(&self) -> Result<CheckpointSettings, SettingsError> {
        let library: &dyn TenantLibrary = &*self.library;
        let text = library.document("settings", SETTINGS_NAME)?;
        CheckpointSettings::parse(text.as_deref()).map_err(|error| SettingsError::Checkpoints {
            place: format!(".ai/config/{SETTINGS_NAME}.yaml"),
            error,
        })
    }

    /// A driver for the project's threads, under this process's lock.
    pub fn driver(&self) -> Driver {
        let models: Arc<ProjectModels> = Arc::clone(&self.models);
        self.driver_with_models(models)
    }

    /// A driver with other providers than the project's.
    pub fn driver_with_models(&self, models: Arc<dyn ModelProviders>) -> Driver {
        let (tools, shared) = (Arc::clone(&self.tools), Arc::clone(&self.driver_shared));
        let driver = Driver::with_shared_state(self.tenant.clone(), models, tools, shared);
        let driver = driver.with_guard(Arc::clone(&self.guard));
        match &self.usage {
            Some(usage) => driver.with_post_run_work(Arc::clone(usage)),
            None => driver,
        }
    }

    /// Waits until the usage of models so far is written to `.ai/threads/usage.jsonl`, or could not
    /// be.
    pub async fn wait_for_usage_log(&self) {
        if let Some(usage) = &self.usage {
            usage.flush().await;
        }
    }
}

/// Longest time for writing one line of the usage log.
const USAGE_TIME_MAX: Duration = Duration::from_secs(10);

fn usage_log(tenant: &Tenant, threads: &Dir) -> Result<Arc<PostRunWork>, AuthorityError> {
    let threads = threads.try_clone();
    let threads =
        threads.map_err(|error| AuthorityError::from_io(authority::THREADS_PATH, error))?;
    let log = Arc::new(UsageLog::new(tenant.clone(), threads));
    Ok(Arc::new(PostRunWork::new(log, USAGE_TIME_MAX)))
}

/// Most models that are kept: far more than a table has at once, for a process that outlives
/// several tables.
const MODELS_KEPT_MAX: usize = 10_000;

/// Providers by the project's own `models.yaml`, made at first use and kept: a file that changes
/// while a thread runs changes nothing for a model that was used before.
struct ProjectModels {
    library: Arc<GrantedLibrary>,
    script: Option<Arc<dyn ModelProvider>>,
    cache: SleepingMutex<ProviderCache>,
}

/// Providers made so far in this process.
#[derive(Default)]
struct ProviderCache {
    /// By the requested model or tier: its provider, and its name there.
    models: BTreeMap<String, (Arc<dyn ModelProvider>, String)>,
    /// By name: the models of one provider share it.
    providers: BTreeMap<String, Arc<dyn ModelProvider>>,
}

impl ModelProviders for ProjectModels {
    fn provider(&self, model: &str) -> Result<(Arc<dyn ModelProvider>, String), ModelFailure> {
        if let Some(script) = &self.script {
            return Ok((Arc::clone(script), model.to_owned()));
        }
        let mut kept = self.cache.lock();
        if let Some((provider, name)) = kept.models.get(model) {
            return Ok((Arc::clone(provider), name.clone()));
        }
        let found = self.find_model(model, &mut kept.providers)?;
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
    fn find_model(
        &self,
        model: &str,
        providers: &mut BTreeMap<String, Arc<dyn ModelProvider>>,
    ) -> Result<(Arc<dyn ModelProvider>, String), ModelFailure> {
        let table = self
            .library
            .models()
            .map_err(|error| provider_failure("models", &error))?;
        let spec = table.resolve(model).ok_or_else(|| {
            let policy = &self.library.policy().name;
            permanent_failure(
                "unknown_model",
                format!(
                    "there is no model {model} in .ai/config/models.yaml, or {policy} does not \
                     grant it"
                ),
            )
        })?;
        if let Some(found) = providers.get(&spec.provider) {
            return Ok((Arc::clone(found), spec.name.clone()));
        }
        let made = self.make_provider(&table, &spec.provider)?;
        if providers.len() < MODELS_KEPT_MAX {
            providers.insert(spec.provider.clone(), Arc::clone(&made));
        }
        Ok((made, spec.name.clone()))
    }

    fn make_provider(
        &self,
        table: &ModelTable,
        provider: &str,
    ) -> Result<Arc<dyn ModelProvider>, ModelFailure> {
        let spec = table
            .provider(provider)
            .map_err(|error| provider_failure(provider, &error))?;
        match spec.wire {
            WireProtocol::OpenAi | WireProtocol::Anthropic => over_http(&spec),
            WireProtocol::Scripted => {
                let file = spec.file.clone().unwrap_or_default();
                let text = self
                    .library
                    .read_script(&file)
                    .map_err(|error| provider_failure(provider, &error))?;
                let script = ScriptedProvider::parse(&text)
                    .map_err(|error| permanent_failure("bad_script", error.to_string()))?;
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
pub fn check_provider(spec: &ProviderSpec) -> Result<(), ModelFailure> {
    over_http(spec).map(drop)
}

#[cfg(feature = "http")]
fn over_http(spec: &ProviderSpec) -> Result<Arc<dyn ModelProvider>, ModelFailure> {
    use crate::models::ProviderOptions;
    use crate::models::anthropic::AnthropicProvider;
    use crate::models::openai::OpenAiProvider;
    let options = ProviderOptions::for_provider(spec);
    let made = match spec.wire {
        WireProtocol::Anthropic => AnthropicProvider::new(options).map(|made| Arc::new(made) as _),
        WireProtocol::OpenAi | WireProtocol::Scripted => {
            OpenAiProvider::new(options).map(|made| Arc::new(made) as _)
        }
    };
    made.map_err(|error| {
        permanent_failure(
            "provider_setup",
            format!("the provider {} cannot be used: {error}", spec.name),
        )
    })
}

#[cfg(not(feature = "http"))]
fn over_http(spec: &ProviderSpec) -> Result<Arc<dyn ModelProvider>, ModelFailure> {
    Err(permanent_failure(
        "no_http",
        format!(
            "the provider {} needs HTTP, which this build does not have",
            spec.name
        ),
    ))
}

fn provider_failure(what: &str, error: &LibraryError) -> ModelFailure {
    permanent_failure("provider_setup", format!("{what}: {error}"))
}

fn permanent_failure(code: &str, message: String) -> ModelFailure {
    ModelFailure::new(FailureKind::Permanent, code, message).not_sent()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::PolicyPreset;
    use std::io::Write;

    const TABLE: &str =
        "providers: {p: {wire: scripted, file: s.json}}\nmodels:\n  m: {provider: p}\n";

    fn write_file(ai: &Dir, path: &str, text: &str) {
        let mut file = ai.create(path).expect("made");
        file.write_all(text.as_bytes()).expect("written");
    }

    /// Symptom: a run changed its provider when the file was edited. Cause: the table was read for
    /// every call. Fix: a model's provider is resolved once in a process.
    #[test]
    fn changed_table_keeps_models_in_use() {
        let temp = tempfile::TempDir::new().expect("a temporary directory");
        let project = ProjectDir::open_ambient(temp.path()).expect("it opens");
        let ai = project.ai_dir_or_create().expect("made");
        ai.create_dir("config").expect("made");
        write_file(&ai, "config/models.yaml", TABLE);
        write_file(&ai, "s.json", "[{\"text\": \"x\"}]");
        let models = ProjectModels {
            library: Arc::new(GrantedLibrary::open(
                Some(ai.try_clone().expect("cloned")),
                Policy::preset(PolicyPreset::Local),
                Vec::new(),
                EnvironmentSnapshot::default(),
            )),
            script: None,
            cache: SleepingMutex::default(),
        };
        let failed = |model| models.provider(model).err().map(|failure| failure.code);
        assert_eq!(failed("other"), Some("unknown_model".to_owned()));
        let (first, name) = models.provider("m").expect("it is in the table");
        assert_eq!(name, "m");
        let anthropic = TABLE.replace("scripted, file: s.json", "anthropic");
        let changed = [anthropic.as_str(), "models: {}", "no: [table"];
        for text in changed {
            write_file(&ai, "config/models.yaml", text);
            let (again, _) = models.provider("m").expect("it was found before");
            assert!(Arc::ptr_eq(&first, &again), "{text}");
        }
        assert_eq!(failed("other"), Some("provider_setup".to_owned()));
    }
}
