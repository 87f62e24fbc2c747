//! A project directory as one tenant: store, library, models, tools and lock, put together from what it holds.

use crate::authority::{AuthorityError, Environment, HolderLock, Project, is_dead};
use crate::clock::SystemClock;
use crate::component::{Context, SystemRandom};
use crate::driver::{Driver, Models};
use crate::engine::Engine;
use crate::error::CallError;
use crate::library::LibraryError;
use crate::library::files::{FilesLibrary, Policy};
use crate::library::models::Wire;
use crate::models::{Failure, FailureKind, Llm, scripted::Scripted};
use crate::storage::{Storage, StorageError};
use crate::tenant::Tenant;
use crate::tools::{Tools, files::FilesTools};
use cap_std::fs::Dir;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The file of the SQLite store, in `.ai/threads`.
pub const STORE: &str = "registry.db";

/// Why a project cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// A directory or file cannot be had.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The store cannot be opened.
    #[error("the store .ai/threads/{STORE} cannot be opened: {0}")]
    Store(#[from] StorageError),
}

/// A directory, opened for one process.
pub struct OpenProject {
    tenant: Tenant,
    library: Arc<FilesLibrary>,
    models: Arc<ProjectModels>,
    tools: Arc<dyn Tools>,
    threads: Dir,
    lock: Arc<HolderLock>,
}

/// How to open it.
pub struct ProjectOptions {
    /// The operator's policy.
    pub policy: Policy,
    /// The variables that providers' addresses and keys may name.
    pub environment: Environment,
    /// Answers for every model from this script instead of its provider.
    pub script: Option<Scripted>,
    /// The store; `None` is SQLite in `.ai/threads`.
    pub store: Option<Arc<dyn Storage>>,
}

impl OpenProject {
    /// Open a project: `.ai` and its store are made if they are missing.
    ///
    /// # Errors
    /// If the directory or the store cannot be had.
    pub fn open(
        engine: Engine,
        project: &Project,
        options: ProjectOptions,
    ) -> Result<Self, ProjectError> {
        let threads = project.threads()?;
        let tools: Arc<dyn Tools> = Arc::new(FilesTools::new(project.tool_grant(".")?));
        let library = Arc::new(FilesLibrary::open(
            project.ai()?,
            options.policy,
            tools.catalog(),
            options.environment,
        ));
        let storage = match options.store {
            Some(store) => store,
            None => open_store(&threads)?,
        };
        let lock = Arc::new(HolderLock::take(&threads)?);
        let context = Context {
            storage,
            library: Arc::<FilesLibrary>::clone(&library),
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
        };
        let script = options
            .script
            .map(|script| Arc::new(script) as Arc<dyn Llm>);
        let models = Arc::new(ProjectModels {
            library: Arc::clone(&library),
            script,
            cache: Mutex::default(),
        });
        Ok(Self {
            tenant: Tenant::new(engine, context),
            library,
            models,
            tools,
            threads,
            lock,
        })
    }

    /// The tenant.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Its files.
    pub fn library(&self) -> &FilesLibrary {
        &self.library
    }

    /// `.ai/threads`.
    pub fn threads(&self) -> &Dir {
        &self.threads
    }

    /// A driver for its threads, under this process's lock.
    pub fn driver(&self) -> Driver {
        self.driver_with(Arc::<ProjectModels>::clone(&self.models) as Arc<dyn Models>)
    }

    /// A driver that finds its providers elsewhere.
    pub fn driver_with(&self, models: Arc<dyn Models>) -> Driver {
        Driver::new(
            self.tenant.clone(),
            models,
            Arc::clone(&self.tools),
            self.lock.nonce(),
        )
    }

    /// Close the runs of holders whose process is dead; the ids of their threads.
    ///
    /// # Errors
    /// If the component or the locks give no answer.
    pub async fn recover(&self, also_dead: &[String]) -> Result<Vec<String>, RecoverError> {
        let mut dead: Vec<String> = also_dead.to_vec();
        let mut cursor = None;
        loop {
            let page = self.tenant.recover(Vec::new(), cursor).await?;
            for lease in &page.held {
                if !dead.contains(&lease.holder) && is_dead(&self.threads, &lease.holder)? {
                    dead.push(lease.holder.clone());
                }
            }
            cursor = page.cursor;
            if cursor.is_none() {
                break;
            }
        }
        let mut closed = Vec::new();
        for some in dead.chunks(DEAD_AT_ONCE) {
            let mut cursor = None;
            loop {
                let page = self.tenant.recover(some.to_vec(), cursor).await?;
                closed.extend(page.closed);
                cursor = page.cursor;
                if cursor.is_none() {
                    break;
                }
            }
        }
        Ok(closed)
    }
}

/// Holders named in one call of `recover`.
const DEAD_AT_ONCE: usize = 500;

/// Why a recovery stopped. What it had closed is closed.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The component gave no answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A lock file cannot be looked at.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}

#[cfg(feature = "sqlite")]
fn open_store(threads: &Dir) -> Result<Arc<dyn Storage>, ProjectError> {
    use crate::storage::sqlite::{SqliteOptions, SqliteStore};
    Ok(Arc::new(SqliteStore::open(
        threads,
        STORE,
        SqliteOptions::local(),
    )?))
}

#[cfg(not(feature = "sqlite"))]
fn open_store(_: &Dir) -> Result<Arc<dyn Storage>, ProjectError> {
    let message = "this build has no sqlite: give a store".to_owned();
    Err(StorageError::Other {
        code: "no-sqlite",
        message,
    }
    .into())
}

/// Providers by the project's own `models.yaml`, made at first use and kept.
struct ProjectModels {
    library: Arc<FilesLibrary>,
    script: Option<Arc<dyn Llm>>,
    cache: Mutex<BTreeMap<String, Arc<dyn Llm>>>,
}

impl Models for ProjectModels {
    fn provider(&self, model: &str) -> Result<(Arc<dyn Llm>, String), Failure> {
        if let Some(script) = &self.script {
            return Ok((Arc::clone(script), model.to_owned()));
        }
        let table = self
            .library
            .models()
            .map_err(|error| unusable("models", &error))?;
        let spec = table.resolve(model).ok_or_else(|| {
            permanent(
                "unknown_model",
                format!("the model {model} is no longer in .ai/config/models.yaml"),
            )
        })?;
        let (name, provider) = (spec.name.clone(), spec.provider.clone());
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = cache.get(&provider) {
            return Ok((Arc::clone(found), name));
        }
        let spec = table
            .provider(&provider)
            .map_err(|error| unusable(&provider, &error))?;
        let made: Arc<dyn Llm> = match spec.wire {
            Wire::OpenAi => open_ai(&spec)?,
            Wire::Scripted => {
                let file = spec.file.clone().unwrap_or_default();
                let text = self
                    .library
                    .script(&file)
                    .map_err(|error| unusable(&provider, &error))?;
                let script = Scripted::parse(&text)
                    .map_err(|error| permanent("bad_script", error.to_string()))?;
                Arc::new(script)
            }
            Wire::Anthropic => {
                let message = format!(
                    "the provider {provider} speaks the anthropic wire, which this version cannot yet"
                );
                return Err(permanent("unsupported_wire", message));
            }
        };
        cache.insert(provider, Arc::clone(&made));
        Ok((made, name))
    }
}

#[cfg(feature = "http")]
fn open_ai(spec: &crate::library::models::ProviderSpec) -> Result<Arc<dyn Llm>, Failure> {
    use crate::models::openai::{OpenAi, OpenAiOptions};
    let options = OpenAiOptions {
        key: spec.key.clone(),
        ..OpenAiOptions::new(&spec.base_url)
    };
    match OpenAi::new(options) {
        Ok(client) => Ok(Arc::new(client)),
        Err(error) => Err(permanent(
            "provider_setup",
            format!("the provider {} cannot be used: {error}", spec.name),
        )),
    }
}

#[cfg(not(feature = "http"))]
fn open_ai(spec: &crate::library::models::ProviderSpec) -> Result<Arc<dyn Llm>, Failure> {
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
    Failure {
        kind: FailureKind::Permanent,
        code: code.to_owned(),
        message,
        retry_after: None,
        sent: false,
        usage: None,
        partial: String::new(),
    }
}
