//! The tenants of the service: one directory each, with the operator's policy over its own files.
//! Its store opens on first use. A tenant that cannot be served does not affect the others.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use threadkeep::authority::ProjectDir;
use threadkeep::cap_std::ambient_authority;
use threadkeep::cap_std::fs::Dir;
use threadkeep::documents::{DocumentWriter, ThreadDocuments};
use threadkeep::driver::{DriveError, Driver, EndedRun, EventSink, StopReceiver};
use threadkeep::engine::Engine;
use threadkeep::policy::Policy;
use threadkeep::project::{OpenProject, ProjectOptions, RecoverError};
use threadkeep::storage::sqlite::StorePool;
use threadkeep::wit::registry::Draft;
use tokio::sync::{OnceCell, Semaphore};

/// Most tenants of one process.
const TENANTS_MAX: usize = 1_000;
/// Runs of one tenant at the same time: one tenant's flood does not hold up the others.
const RUNS_MAX: usize = 4;
/// Runs of one tenant that wait for a permit; more are refused at once.
const WAITING_MAX: usize = 64;

/// The parts that all tenants share.
pub struct ServiceParts {
    /// The engine.
    pub engine: Engine,
    /// The operator's policy for each of them.
    pub policy: Policy,
    /// Their stores, of which few are open.
    pub stores: StorePool,
    /// Raised when the service shuts down.
    pub stop: StopReceiver,
}

/// The tenants by the names of their directories, or the reason why one cannot be served.
pub type TenantMap = BTreeMap<String, Result<ServiceTenant, String>>;

/// One tenant.
pub struct ServiceTenant {
    name: String,
    /// Set once the runs of dead processes are closed.
    ready: OnceCell<()>,
    project: OpenProject,
    driver: Driver,
    documents: Arc<DocumentWriter>,
    stop: StopReceiver,
    /// Permits for runs, and for runs with those that wait.
    running: Semaphore,
    admitted: Semaphore,
}

/// Opens every directory below `root`. No path of a tenant's choice is used.
pub fn open_all(house: &ServiceParts, root: &Path) -> Result<TenantMap, Box<dyn Error>> {
    let root = Dir::open_ambient_dir(root, ambient_authority())?;
    let mut tenants = TenantMap::new();
    for entry in root.entries()?.take(TENANTS_MAX) {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let tenant = entry.open_dir().map_err(Into::into);
            let tenant = tenant.and_then(|dir| ServiceTenant::open(house, &name, dir));
            tenants.insert(name, tenant.map_err(|error| error.to_string()));
        }
    }
    Ok(tenants)
}

impl ServiceTenant {
    fn open(house: &ServiceParts, name: &str, dir: Dir) -> Result<Self, Box<dyn Error>> {
        let options = ProjectOptions {
            stores: Some(house.stores.clone()),
            ..ProjectOptions::new(house.policy.clone())
        };
        let project = OpenProject::open(house.engine.clone(), &ProjectDir::from_dir(dir), options)?;
        let threads = project.threads().ok_or("it has no directory")?;
        let documents = ThreadDocuments::new(project.tenant().clone(), threads.try_clone()?);
        let documents = Arc::new(DocumentWriter::new(documents));
        Ok(Self {
            name: name.to_owned(),
            ready: OnceCell::new(),
            driver: project.driver().with_observer(documents.clone()),
            project,
            documents,
            stop: house.stop.clone(),
            running: Semaphore::new(RUNS_MAX),
            admitted: Semaphore::new(RUNS_MAX + WAITING_MAX),
        })
    }

    /// Closes the runs of dead processes, once: in the first call that succeeds.
    pub async fn ensure_recovered(&self) -> Result<(), RecoverError> {
        let recover = async {
            for thread in self.project.recover(&[]).await? {
                println!("recovered {}/{thread}", self.name);
            }
            Ok(())
        };
        self.ready.get_or_try_init(|| recover).await.copied()
    }

    /// Writes the documents that are not yet up to date.
    pub async fn flush(&self) {
        for (thread, error) in self.documents.flush().await.failed {
            eprintln!("the documents of {}/{thread} are old: {error}", self.name);
        }
    }

    /// Creates a thread of a directive and runs it to its end.
    pub async fn run(&self, directive: &str, inputs: &str) -> Value {
        let draft = Draft {
            inputs: Some(inputs.to_owned()).filter(|text| !text.is_empty()),
            ..Draft::for_directive(directive)
        };
        match self.project.tenant().create(draft).await {
            Ok(thread) => self.resume(&thread.id).await,
            Err(error) => error_answer(&error.to_string()),
        }
    }

    /// Resumes a thread that was stopped, recovered or suspended.
    pub async fn resume(&self, thread: &str) -> Value {
        let Ok(_admitted) = self.admitted.try_acquire() else {
            return error_answer("too many runs of this tenant wait: try again later");
        };
        let Ok(_turn) = self.running.acquire().await else {
            return error_answer("the service is shutting down");
        };
        match self
            .driver
            .run(thread, None, &EventSink::none(), &self.stop)
            .await
        {
            Ok(ended) => run_answer(&ended),
            Err(DriveError::Call(error)) => error_answer(&error.to_string()),
            Err(error) => error_answer(&error.to_string()),
        }
    }
}

fn run_answer(ended: &EndedRun) -> Value {
    let result = ended.result.as_deref().map(serde_json::from_str::<Value>);
    json!({
        "thread": ended.thread,
        "status": ended.status,
        "code": ended.cause.as_ref().map(|cause| &cause.code),
        "result": result.and_then(Result::ok),
        "spend": ended.costs.spend_nanos,
    })
}

/// Formats an error as an answer.
pub fn error_answer(message: &str) -> Value {
    json!({"error": message})
}
