//! Guarantees to embedders: `Send` and `Sync` bounds, several engines in a process, an end with
//! calls in flight, panics in the embedder's code, engines and tools of the embedder's own.

use super::project::{engine, engine_with, open, project_dir};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use threadkeep::component::{CallMeter, ImportView, TenantContext, ThreadsPre, add_to_linker};
use threadkeep::driver::{Driver, EventSink, StopReceiver};
use threadkeep::engine::{COMPONENT, Engine};
use threadkeep::error::CallError;
use threadkeep::limits::EngineLimits;
use threadkeep::models::BoxFuture;
use threadkeep::project::{OpenProject, ProjectOptions};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{CommitOp, CommitOutcome, StorageBackend, StorageError};
use threadkeep::tenant::Tenant;
use threadkeep::tools::{ToolEntry, ToolResult, ToolSet};
use threadkeep::wit::registry::{Draft, Filter};
use threadkeep_tests::fixture::MapLibrary;
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Store};

/// A store that calls a function before each commit.
pub struct HookedStore<F>(pub MemoryStore, pub F);

impl<F: Fn(&[CommitOp]) + Send + Sync> StorageBackend for HookedStore<F> {
    threadkeep_tests::delegate_calls!(0: get, scan, read_log);

    fn commit(&self, ops: &[CommitOp], closing: bool) -> Result<CommitOutcome, StorageError> {
        self.1(ops);
        self.0.commit(ops, closing)
    }
}

fn tenant(engine: Engine, storage: Arc<dyn StorageBackend>) -> Tenant {
    Tenant::new(
        engine,
        TenantContext::new(storage, Arc::new(MapLibrary::small())),
    )
}

async fn count(tenant: &Tenant) -> usize {
    let page = tenant.list(Filter::default(), 100, None).await;
    page.unwrap().threads.len()
}

#[test]
fn embedder_types_are_send_and_sync() {
    fn assert_shareable<T: Clone + Send + Sync + 'static>() {}
    fn assert_send<T: Send>(_: &T) {}
    assert_shareable::<Engine>();
    assert_shareable::<Tenant>();
    assert_shareable::<Driver>();
    let (_temporary, dir) = project_dir("");
    let project = open(dir, None, &[]);
    let (driver, sink, stop) = (project.driver(), EventSink::none(), StopReceiver::never());
    assert_send(&driver.run("x", None, &sink, &stop));
    assert_send(&project.tenant().create(Draft::default()));
    assert_send(&project.recover(&[]));
}

#[tokio::test]
async fn engines_of_one_process_share_nothing() {
    let store = Arc::new(MemoryStore::new());
    let strict = engine_with(EngineLimits::strict());
    let other = tenant(strict.clone(), Arc::<MemoryStore>::clone(&store));
    let one = tenant(engine(), Arc::<MemoryStore>::clone(&store));
    other.create(Draft::for_directive("work")).await.unwrap();
    drop((strict, other));
    one.create(Draft::for_directive("work")).await.unwrap();
    assert_eq!(count(&one).await, 2);
}

/// Dropping waits for no call that has begun; such calls end by themselves, and nothing of the
/// tenant is kept after them.
#[tokio::test(flavor = "multi_thread")]
async fn calls_in_flight_outlive_what_the_embedder_drops() {
    let gate = Arc::new((Mutex::new((false, false)), Condvar::new()));
    let own = Arc::clone(&gate);
    let wait = move |_: &[CommitOp]| {
        let (state, moved) = &*own;
        let mut state = state.lock().unwrap();
        state.0 = true;
        moved.notify_all();
        let _open = moved.wait_while(state, |(_, open)| !*open).unwrap();
    };
    let store: Arc<dyn StorageBackend> = Arc::new(HookedStore(MemoryStore::new(), wait));
    let tenant = tenant(engine_with(EngineLimits::local()), Arc::clone(&store));
    let call = tokio::spawn(async move { tenant.create(Draft::for_directive("work")).await });
    let (state, moved) = &*gate;
    let begun = moved.wait_while(state.lock().unwrap(), |(begun, _)| !*begun);
    drop(begun.unwrap());
    // The future is dropped, and with it the embedder's last tenant and engine.
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    state.lock().unwrap().1 = true;
    moved.notify_all();
    while Arc::strong_count(&store) > 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let threads = store.scan("thread", "", "", 10, false).unwrap().items;
    assert_eq!(threads.len(), 1, "the call that had begun came to its end");
}

#[tokio::test]
async fn a_panic_in_an_embedders_store_ends_its_call_alone() {
    let bad = Arc::new(AtomicBool::new(true));
    let own = Arc::clone(&bad);
    let panics = move |_: &[CommitOp]| assert!(!own.load(Ordering::SeqCst), "on purpose");
    let tenant = tenant(engine(), Arc::new(HookedStore(MemoryStore::new(), panics)));
    let answer = tenant.create(Draft::for_directive("work")).await;
    assert!(matches!(answer, Err(CallError::Abandoned)), "{answer:?}");
    bad.store(false, Ordering::SeqCst);
    tenant.create(Draft::for_directive("work")).await.unwrap();
    assert_eq!(count(&tenant).await, 1);
}

/// The embedder's own data in the stores of an engine of its own.
struct EmbedderState {
    tenant: TenantContext,
    meter: CallMeter,
    said: Vec<String>,
}

#[test]
fn the_component_works_in_an_embedders_own_engine() {
    let mut metered = Config::new();
    metered.epoch_interruption(true).consume_fuel(true);
    metered.wasm_memory64(false).wasm_multi_memory(false);
    metered.wasm_tail_call(false).wasm_relaxed_simd(false);
    metered.concurrency_support(false);
    for (name, config, fuel) in [
        ("as wasmtime is", Config::new(), false),
        ("metered", metered, true),
    ] {
        let engine = wasmtime::Engine::new(&config).unwrap();
        let mut linker = Linker::<EmbedderState>::new(&engine);
        let say = |mut store: wasmtime::StoreContextMut<'_, EmbedderState>, (line,): (String,)| {
            store.data_mut().said.push(line);
            Ok(())
        };
        linker.root().func_wrap("say", say).unwrap();
        add_to_linker(&mut linker, |host: &mut EmbedderState| ImportView {
            context: &host.tenant,
            meter: &mut host.meter,
        })
        .unwrap();
        let component = Component::new(&engine, COMPONENT).unwrap();
        let pre = ThreadsPre::new(linker.instantiate_pre(&component).unwrap()).unwrap();
        let tenant =
            TenantContext::new(Arc::new(MemoryStore::new()), Arc::new(MapLibrary::small()));
        let mut store = Store::new(
            &engine,
            EmbedderState {
                tenant,
                meter: CallMeter::new(&EngineLimits::strict()),
                said: Vec::new(),
            },
        );
        if fuel {
            store.set_epoch_deadline(1);
            store.set_fuel(u64::MAX).unwrap();
        }
        let threads = pre.instantiate(&mut store).unwrap();
        let registry = threads.threadkeep_threads_registry();
        let made = registry
            .call_create(&mut store, &Draft::for_directive("work"), "1")
            .unwrap()
            .unwrap();
        let got = registry.call_get(&mut store, &made.id).unwrap().unwrap();
        assert_eq!(got.id, made.id, "{name}");
        // The component itself cannot reach the embedder's other imports.
        assert_eq!(store.data().said.len(), 0, "{name}");
    }
}

/// A tool that returns its name and arguments.
struct BellTool;

impl ToolSet for BellTool {
    fn catalog(&self) -> Vec<ToolEntry> {
        let schema = r#"{"type": "object"}"#;
        let time = Duration::from_secs(5);
        vec![ToolEntry::new("ring", "Rings a bell.", schema, time)]
    }

    fn call<'a>(&'a self, name: &'a str, arguments: &'a str) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move { ToolResult::ok(format!("{name} {arguments}")) })
    }
}

#[tokio::test]
async fn a_project_takes_tools_of_its_host_beside_its_files() {
    let models = "providers: {s: {wire: scripted, file: s.json}}\nmodels:\n  m: \
                  {provider: s, window: 8000, output: 100, \
                  prices: {input: \"1\", output: \"1\"}}\ntiers: {default: m}\n";
    let (_temporary, dir) = project_dir(models);
    let script = r#"[{"calls": [{"name": "ring", "arguments": {"loud": true}}, {"name": "read_file",
        "arguments": {"path": "notes.txt"}}]}, {"text": "both"}]"#;
    dir.write(".ai/s.json", script).unwrap();
    let options = ProjectOptions {
        tools: vec![Arc::new(BellTool)],
        ..ProjectOptions::new(threadkeep::policy::Policy::preset(
            threadkeep::policy::PolicyPreset::Local,
        ))
    };
    let directory = threadkeep::authority::ProjectDir::from_dir(dir);
    let project = OpenProject::open(engine(), &directory, options).unwrap();
    let draft = Draft {
        capabilities: vec!["execute.tool.*".to_owned()],
        ..Draft::default()
    };
    let thread = project.tenant().create(draft).await.unwrap().id;
    let input = threadkeep::models::user_message("Ring, and read.");
    let run = project
        .driver()
        .run(
            &thread,
            Some(input),
            &EventSink::none(),
            &StopReceiver::never(),
        )
        .await;
    assert_eq!(run.unwrap().status, "idle");
    let events = project
        .tenant()
        .events(&thread, 0, 100, None)
        .await
        .unwrap()
        .events;
    let results: Vec<&str> = events
        .iter()
        .filter(|event| event.kind == "tool_result")
        .map(|event| event.body.as_str())
        .collect();
    assert_eq!(results.len(), 2);
    assert!(
        results[0].contains(r#"ring {\"loud\":true}"#),
        "{}",
        results[0]
    );
    assert!(results[1].contains("remember the milk"), "{}", results[1]);
}
