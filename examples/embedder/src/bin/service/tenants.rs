//! The tenants of the service: one directory each, with the operator's policy over its own files.
//! Its store opens on first use. A tenant that cannot be served does not affect the others.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use threadkeep::authority::Project;
use threadkeep::cap_std::ambient_authority;
use threadkeep::cap_std::fs::Dir;
use threadkeep::documents::{DocumentWriter, Documents};
use threadkeep::driver::{DriveError, Driver, Ended, Sink, Stop};
use threadkeep::engine::Engine;
use threadkeep::policy::Policy;
use threadkeep::project::{OpenProject, ProjectOptions, RecoverError};
use threadkeep::storage::sqlite::Stores;
use threadkeep::wit::registry::Draft;
use tokio::sync::{OnceCell, Semaphore};

/// Most tenants of one process.
const TENANTS_MAX: usize = 1_000;
/// Runs of one tenant at the same time: one tenant's flood does not hold up the others.
const RUNS_MAX: usize = 4;
/// Runs of one tenant that wait for a permit; more are refused at once.
const WAITING_MAX: usize = 64;

/// The parts that all tenants share.
pub struct House {
    /// The engine.
    pub engine: Engine,
    /// The operator's policy for each of them.
    pub policy: Policy,
    /// Their stores, of which few are open.
    pub stores: Stores,
    /// Raised when the service shuts down.
    pub stop: Stop,
}

/// The tenants by the names of their directories, or the reason why one cannot be served.
pub type Tenants = BTreeMap<String, Result<Tenant, String>>;

/// One tenant.
pub struct Tenant {
    name: String,
    /// Set once the runs of dead processes are closed.
    ready: OnceCell<()>,
    project: OpenProject,
    driver: Driver,
    documents: Arc<DocumentWriter>,
    stop: Stop,
    /// Permits for runs, and for runs with those that wait.
    running: Semaphore,
    admitted: Semaphore,
}

/// Opens every directory below `root`. No path of a tenant's choice is used.
pub fn open_all(house: &House, root: &Path) -> Result<Tenants, Box<dyn Error>> {
    let root = Dir::open_ambient_dir(root, ambient_authority())?;
    let mut tenants = Tenants::new();
    for entry in root.entries()?.take(TENANTS_MAX) {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let tenant = entry.open_dir().map_err(Into::into);
            let tenant = tenant.and_then(|dir| Tenant::open(house, &name, dir));
            tenants.insert(name, tenant.map_err(|error| error.to_string()));
        }
    }
    Ok(tenants)
}

impl Tenant {
    fn open(house: &House, name: &str, dir: Dir) -> Result<Self, Box<dyn Error>> {
        let options = ProjectOptions {
            stores: Some(house.stores.clone()),
            ..ProjectOptions::new(house.policy.clone())
        };
        let project = OpenProject::open(house.engine.clone(), &Project::from_dir(dir), options)?;
        let threads = project.threads().ok_or("it has no directory")?;
        let documents = Documents::new(project.tenant().clone(), threads.try_clone()?);
        let documents = Arc::new(DocumentWriter::new(documents));
        Ok(Self {
            name: name.to_owned(),
            ready: OnceCell::new(),
            driver: project.driver().observed(documents.clone()),
            project,
            documents,
            stop: house.stop.clone(),
            running: Semaphore::new(RUNS_MAX),
            admitted: Semaphore::new(RUNS_MAX + WAITING_MAX),
        })
    }

    /// Closes the runs of dead processes, once: in the first call that succeeds.
    pub async fn ready(&self) -> Result<(), RecoverError> {
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
            inputs: inputs.to_owned(),
            ..Draft::of(directive)
        };
        match self.project.tenant().create(draft).await {
            Ok(thread) => self.carry_on(&thread.id).await,
            Err(error) => refusal(&error.to_string()),
        }
    }

    /// Resumes a thread that was stopped, recovered or suspended.
    pub async fn carry_on(&self, thread: &str) -> Value {
        let Ok(_admitted) = self.admitted.try_acquire() else {
            return refusal("too many runs of this tenant wait: try again later");
        };
        let Ok(_turn) = self.running.acquire().await else {
            return refusal("the service is shutting down");
        };
        match self
            .driver
            .run(thread, None, &Sink::none(), &self.stop)
            .await
        {
            Ok(ended) => answer(&ended),
            Err(DriveError::Call(error)) => refusal(&error.to_string()),
            Err(error) => refusal(&error.to_string()),
        }
    }
}

fn answer(ended: &Ended) -> Value {
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
pub fn refusal(message: &str) -> Value {
    json!({"error": message})
}
