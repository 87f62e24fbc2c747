//! Rules of the contract that a host in another language cannot know, held through the component.

mod error_kinds;
mod reads;
mod refusals;
mod repeats;
mod states;
mod steps;

use super::fixture::tenant;
use std::collections::BTreeMap;
use std::sync::Arc;
use threadkeep::error::CallError;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{COLLECTIONS, StorageBackend};
use threadkeep::tenant::Tenant;
use threadkeep::wit::{self, history, registry};
use threadkeep_tests::fixture::draft;

const THREAD: &str = "one";

/// A tenant with one thread of the directive `work`.
struct ContractTenant {
    store: Arc<MemoryStore>,
    tenant: Tenant,
}

impl ContractTenant {
    async fn new() -> Self {
        let store = Arc::new(MemoryStore::new());
        let tenant = tenant(Arc::clone(&store) as Arc<dyn StorageBackend>);
        tenant.create(draft_of(THREAD)).await.unwrap();
        Self { store, tenant }
    }

    /// Appends events to the thread, whatever its version.
    async fn append(&self, events: &[&str]) -> history::Written {
        let events = events.iter().map(|event| (*event).to_owned()).collect();
        let change = history::ChangeSet::of_events(events);
        let any = history::Expected::Any;
        let written = self.tenant.append_change(THREAD, None, any, change);
        written.await.unwrap()
    }

    fn records(&self) -> BTreeMap<(String, String), String> {
        let mut records = BTreeMap::new();
        for (collection, _) in COLLECTIONS {
            let page = self.store.scan(collection, "", "", 500, false).unwrap();
            for item in page.items {
                records.insert((collection.to_owned(), item.key.name), item.value);
            }
        }
        records
    }
}

fn draft_of(id: &str) -> registry::Draft {
    registry::Draft {
        id: Some(id.to_owned()),
        ..draft(Some("work"))
    }
}

const HELLO: &str = r#"{"type":"message","role":"user","content":"hello"}"#;
const NOTE: &str = r#"{"type":"note","name":"acme.step","body":{"n":0.10}}"#;

/// The case of a refusal, and its field, code or thread.
#[track_caller]
fn refusal<T: std::fmt::Debug>(answer: Result<T, CallError>) -> (&'static str, String) {
    match answer {
        Err(CallError::Refused(error)) => match error {
            wit::Error::Invalid(e) => ("invalid", e.field),
            wit::Error::NotFound(e) => ("not-found", e.name),
            wit::Error::Exists(e) => ("exists", e.thread),
            wit::Error::Conflict(e) => ("conflict", e.field),
            wit::Error::Fenced(e) => ("fenced", e.field),
            wit::Error::Exceeded(e) => ("exceeded", e.code),
            wit::Error::Corrupt(e) => ("corrupt", e.thread.unwrap_or_default()),
            wit::Error::Other(e) => ("other", format!("{}: {}", e.code, e.message)),
            error => panic!("{error:?}"),
        },
        other => panic!("it is not refused: {other:?}"),
    }
}
