//! The import `library`: the number of its calls, and answers that its contract does not allow.

use super::foreign_host::{ForeignHost, failure, success};
use super::project::engine;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use threadkeep::component::TenantContext;
use threadkeep::library::{LibraryError, TenantLibrary};
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tenant::Tenant;
use threadkeep::wit::registry::Draft;
use threadkeep_tests::fixture::MapLibrary;
use wasmtime::component::Val;

/// Calls of the library that a call of the component may make: directive, model, tools, settings.
const LIBRARY_CALLS_MAX: u64 = 4;

/// A library that counts the calls of the component.
struct CountedLibrary {
    library: MapLibrary,
    calls: AtomicU64,
}

impl TenantLibrary for CountedLibrary {
    fn document(&self, kind: &str, name: &str) -> Result<Option<String>, LibraryError> {
        self.library.document(kind, name)
    }

    fn names(&self, kind: &str) -> Result<Vec<String>, LibraryError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.library.names(kind)
    }

    fn documents(&self, kind: &str, names: &[String]) -> Result<Vec<Option<String>>, LibraryError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.library.documents(kind, names)
    }
}

fn library_with_tools(tools: usize) -> MapLibrary {
    let mut library = MapLibrary::small();
    // `small` has three.
    for number in 3..tools {
        let name = format!("tool_{number}");
        let tool = json!({"name": name, "description": "a tool", "schema": {"type": "object"},
            "idempotent": true, "consent": false, "timeout": 5_000});
        library = library.with("tool", &name, &tool.to_string());
    }
    library
}

/// Symptom: `create` called the library 36 times with 31 tools, and `start` 37 times. Cause: each
/// call asked for one name. Fix: `library.get` takes names. Kind: an import that a call makes once
/// for each thing of a list.
#[tokio::test]
async fn library_is_called_as_often_with_31_tools_as_with_3() {
    for directive in [None, Some("work"), Some("boss")] {
        for tools in [3, 31] {
            let library = Arc::new(CountedLibrary {
                library: library_with_tools(tools),
                calls: AtomicU64::new(0),
            });
            let context = TenantContext::new(
                Arc::new(MemoryStore::new()),
                Arc::<CountedLibrary>::clone(&library),
            );
            let tenant = Tenant::new(engine(), context);
            let draft = Draft {
                directive: directive.map(str::to_owned),
                ..Draft::default()
            };
            let thread = tenant.create(draft).await.unwrap();
            let created = library.calls.swap(0, Ordering::SeqCst);
            assert!(created <= LIBRARY_CALLS_MAX, "create, {tools}: {created}");
            let input = super::fixture::message("go");
            let started = tenant
                .start(&thread.id, Some(input), "p/1", "k", None)
                .await;
            let handle = started.unwrap();
            let started = library.calls.swap(0, Ordering::SeqCst);
            assert!(started <= LIBRARY_CALLS_MAX, "start, {tools}: {started}");
            if directive == Some("boss") {
                let offered = handle.step.request.unwrap().tools.len();
                assert!(offered >= tools - 1, "{offered} of {tools} tools");
            }
        }
    }
}

fn texts(texts: &[Option<&str>]) -> Val {
    let document =
        |text: &Option<&str>| Val::Option(text.map(|text| Box::new(Val::String(text.to_owned()))));
    Val::List(texts.iter().map(document).collect())
}

/// The caller gets a typed error and nothing is written.
#[test]
fn bad_answers_of_the_library_are_typed_errors_and_write_nothing() {
    let cases = [
        ("too few", success(texts(&[])), ("other", "bad-answer")),
        (
            "too many",
            success(texts(&[None; 3])),
            ("other", "bad-answer"),
        ),
        ("failure", failure("other", "disk"), ("other", "disk")),
        (
            "unavailable",
            failure("unavailable", "network"),
            ("unavailable", "network"),
        ),
    ];
    for (name, answer, expected) in cases {
        let records = Arc::new(MemoryStore::new());
        let mut host = ForeignHost::answering(&records, "library", "get", answer);
        let registry = host.threads.threadkeep_threads_registry();
        let created = registry
            .call_create(&mut host.store, &Draft::for_directive("work"), "1")
            .unwrap();
        let error = created.expect_err(name);
        assert_eq!((&*error.kind, &*error.code), expected, "{name}");
        let threads = records.scan("thread", "", "", 10, false).unwrap();
        assert!(threads.items.is_empty(), "{name}");
    }
}
