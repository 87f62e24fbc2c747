//! Threadkeep in an existing engine: its imports beside the embedder's own, its exports called by
//! hand.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use threadkeep::authority::{EnvironmentSnapshot, ProjectDir};
use threadkeep::component::{
    CallMeter, ImportView, TenantContext, Threads, ThreadsPre, add_to_linker,
};
use threadkeep::engine::COMPONENT;
use threadkeep::library::GrantedLibrary;
use threadkeep::limits::EngineLimits;
use threadkeep::policy::{Policy, PolicyPreset};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::wit::llm::Completion;
use threadkeep::wit::registry::Draft;
use threadkeep::wit::runner::Outcome;
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Engine, Store, StoreContextMut, StoreLimits, StoreLimitsBuilder};

/// Ticks of the embedder's own epoch that a call may last.
const CALL_EPOCHS: u64 = 1_000;

/// The embedder's data in each store; one tenant's context is a part of it.
struct EmbedderData {
    limits: StoreLimits,
    log: Vec<String>,
    threads: TenantContext,
    meter: CallMeter,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut config = Config::new();
    config.epoch_interruption(true);
    let engine = Engine::new(&config)?;
    let pre = link(&engine)?;

    let mut store = Store::new(&engine, new_data()?);
    store.limiter(|host| &mut host.limits);
    store.set_epoch_deadline(CALL_EPOCHS);
    let threads = pre.instantiate(&mut store)?;
    let id = run(&threads, &mut store)?;

    let registry = threads.threadkeep_threads_registry();
    let thread = registry.call_get(&mut store, &id)??;
    println!("status  {}", thread.status);
    println!("result  {}", thread.result.unwrap_or_default());
    Ok(())
}

/// Links the embedder's own imports and Threadkeep's.
fn link(engine: &Engine) -> Result<ThreadsPre<EmbedderData>, wasmtime::Error> {
    let mut linker = Linker::<EmbedderData>::new(engine);
    let write = |mut store: StoreContextMut<'_, EmbedderData>, (line,): (String,)| {
        store.data_mut().log.push(line);
        Ok(())
    };
    linker
        .instance("acme:desk/log@1.0.0")?
        .func_wrap("write", write)?;
    add_to_linker(&mut linker, |host: &mut EmbedderData| ImportView {
        context: &host.threads,
        meter: &mut host.meter,
    })?;
    let component = Component::new(engine, COMPONENT)?;
    ThreadsPre::new(linker.instantiate_pre(&component)?)
}

fn new_data() -> Result<EmbedderData, Box<dyn Error>> {
    let project = ProjectDir::open_ambient(Path::new("project"))?;
    let library = GrantedLibrary::open(
        project.ai_dir()?,
        Policy::preset(PolicyPreset::Strict),
        Vec::new(),
        EnvironmentSnapshot::default(),
    );
    Ok(EmbedderData {
        limits: StoreLimitsBuilder::new().memory_size(64 << 20).build(),
        log: Vec::new(),
        threads: TenantContext::new(Arc::new(MemoryStore::new()), Arc::new(library)),
        meter: CallMeter::new(&EngineLimits::strict()),
    })
}

/// Creates a thread and runs it to its end, step by step; returns its id.
fn run(threads: &Threads, store: &mut Store<EmbedderData>) -> Result<String, Box<dyn Error>> {
    let draft = Draft {
        inputs: Some(r#"{"file": "notes.txt"}"#.to_owned()),
        ..Draft::for_directive("describe")
    };
    let registry = threads.threadkeep_threads_registry();
    let id = registry.call_create(&mut *store, &draft, "desk-1")??.id;

    let runner = threads.threadkeep_threads_runner();
    let holder = "desk-1/1";
    let handle = runner.call_start(&mut *store, &id, None, holder, holder, None)??;
    let (token, mut step) = (handle.token, handle.step);
    while step.kind != "finished" {
        println!("step    {} of version {}", step.kind, step.version);
        let outcome = match &step.request {
            Some(request) => Outcome::Completion(answer(&request.system)),
            None => Outcome::Waited,
        };
        // Each call gets its share anew: of imports, and of the epochs that the embedder's own
        // ticker advances.
        store.data_mut().meter.begin_call();
        store.set_epoch_deadline(CALL_EPOCHS);
        step = runner.call_submit(&mut *store, &id, token, step.version, &outcome, 0)??;
    }
    Ok(id)
}

/// Stands for the model call of a real host.
fn answer(prompt: &str) -> Completion {
    let text = format!("I was told: {}", prompt.trim());
    Completion {
        blocks: serde_json::json!([{"type": "text", "text": text}]).to_string(),
        finish: "stop".to_owned(),
        usage: None,
        session: None,
        id: None,
        model: None,
    }
}
