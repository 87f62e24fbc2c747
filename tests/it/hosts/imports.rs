//! The imports of the native host under a scenario: the host's own memory store, a clock that is
//! set, a library of documents, and faults that are asked for.

use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use threadkeep::clock::{ClockTime, HostClock, ManualClock};
use threadkeep::library::{LibraryError, TenantLibrary};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{StorageBackend, StorageError};

/// A failure of the host's own in the middle of an import, which unwinds through the component.
pub struct ThrownImport(pub &'static str);

/// The message of a store that cannot be reached, the same in each of the hosts.
const AWAY: &str = "away";

/// A fault of an import: it throws, or answers that nobody knows what it did.
enum ImportFault {
    Throw,
    LateThrow,
    Unknown,
    Lost,
}

/// The imports, and the faults of the next call.
pub struct ScenarioImports {
    store: MemoryStore,
    pub clock: ManualClock,
    library: Mutex<Map<String, Value>>,
    faults: Mutex<Map<String, Value>>,
    script: Mutex<ImportScript>,
    drawn: AtomicU64,
}

/// The answers of `llm` and `tools` during a call, and what they were asked.
#[derive(Default)]
pub struct ImportScript {
    pub replies: VecDeque<Value>,
    pub tools: Value,
    pub asked: Vec<Value>,
}

impl ScenarioImports {
    pub fn new() -> Self {
        Self {
            store: MemoryStore::new(),
            clock: ManualClock::default(),
            library: Mutex::default(),
            faults: Mutex::default(),
            script: Mutex::default(),
            drawn: AtomicU64::new(0),
        }
    }

    /// The script of the imports `llm` and `tools`.
    pub fn script(&self) -> MutexGuard<'_, ImportScript> {
        self.script.lock().unwrap()
    }

    /// The faults of the next call, by the name of an import.
    pub fn faults(&self) -> MutexGuard<'_, Map<String, Value>> {
        self.faults.lock().unwrap()
    }

    /// The documents by kind and name.
    pub fn library(&self) -> MutexGuard<'_, Map<String, Value>> {
        self.library.lock().unwrap()
    }

    /// Takes the fault of an import; throws at once where it says so.
    fn take_fault(&self, name: &'static str) -> Option<ImportFault> {
        let fault = match self.faults().remove(name)?.as_str() {
            Some("throw") => ImportFault::Throw,
            Some("late") => ImportFault::LateThrow,
            Some("unknown") => ImportFault::Unknown,
            Some("lost") => ImportFault::Lost,
            other => panic!("{name} has no fault {other:?}"),
        };
        if matches!(fault, ImportFault::Throw) {
            resume_unwind(Box::new(ThrownImport(name)));
        }
        Some(fault)
    }

    /// Serves an import of the store.
    fn serve<T>(
        &self,
        name: &'static str,
        import: impl FnOnce(&MemoryStore) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let fault = self.take_fault(name);
        if self.faults().contains_key("lost") {
            let message = AWAY.to_owned();
            return Err(StorageError::Unavailable { message });
        }
        let answer = import(&self.store)?;
        let fault = match fault {
            None => return Ok(answer),
            Some(ImportFault::Throw | ImportFault::LateThrow) => {
                resume_unwind(Box::new(ThrownImport(name)))
            }
            Some(ImportFault::Unknown) => "unknown",
            Some(ImportFault::Lost) => "lost",
        };
        self.faults().insert(fault.to_owned(), true.into());
        let message = AWAY.to_owned();
        Err(StorageError::OutcomeUnknown { message })
    }

    /// Answers `random.bytes`: counts, unless the fault `random` says what to answer.
    pub fn random_text(&self, count: u32) -> String {
        self.take_fault("random.bytes");
        let n = self.drawn.fetch_add(1, Ordering::SeqCst) + 1;
        let counted = format!("{n:0width$x}", width = 2 * count as usize);
        let faults = self.faults();
        let asked = faults.get("random").and_then(Value::as_str);
        asked.map_or(counted, str::to_owned)
    }
}

impl StorageBackend for ScenarioImports {
    threadkeep_tests::delegate_calls!(through serve: get, scan, read_log, commit);
}

impl HostClock for ScenarioImports {
    fn now(&self) -> ClockTime {
        self.take_fault("clock.now");
        self.clock.now()
    }
}

impl TenantLibrary for ScenarioImports {
    fn document(&self, kind: &str, name: &str) -> Result<Option<String>, LibraryError> {
        let library = self.library();
        let document = library.get(kind).and_then(|documents| documents.get(name));
        Ok(document.map(Value::to_string))
    }

    fn documents(&self, kind: &str, names: &[String]) -> Result<Vec<Option<String>>, LibraryError> {
        self.take_fault("library.get");
        let all = self.names(kind)?;
        let names = if names.is_empty() { &all } else { names };
        names.iter().map(|name| self.document(kind, name)).collect()
    }

    fn names(&self, kind: &str) -> Result<Vec<String>, LibraryError> {
        let library = self.library();
        let documents = library.get(kind).and_then(Value::as_object);
        Ok(documents.map_or(Vec::new(), |documents| documents.keys().cloned().collect()))
    }
}
