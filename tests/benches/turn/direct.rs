//! Calls the component on the caller's thread: wasmtime as the host uses it, without tenant and
//! pool.

use super::tenant::{draft, outcome};
use super::world::BenchCandidate;
use super::world::{self, HOLDER};
use std::sync::Arc;
use threadkeep::component::{CallMeter, ImportView, TenantContext, add_to_linker};
use threadkeep::engine::COMPONENT;
use threadkeep::limits::EngineLimits;
use threadkeep::storage::StorageBackend;
use threadkeep::wit::{self, registry, runner};
use wasmtime::component::{Component, InstancePre, Linker, TypedFunc};
use wasmtime::{
    Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, ProfilingStrategy, Store,
};

type CreateFunction =
    TypedFunc<(registry::Draft, String), (Result<wit::Thread, wit::ErrorRecord>,)>;
type StartArguments = (String, Option<String>, String, String, Option<String>);
type StartFunction = TypedFunc<StartArguments, (Result<runner::Handle, wit::ErrorRecord>,)>;
type SubmitFunction =
    TypedFunc<(String, u64, u64, runner::Outcome, u64), (Result<runner::Step, wit::ErrorRecord>,)>;

/// The data of a wasmtime store, as in the host.
pub struct HostStoreData {
    context: TenantContext,
    meter: CallMeter,
}

impl HostStoreData {
    pub fn new(context: TenantContext) -> Self {
        let meter = CallMeter::new(&EngineLimits::local());
        Self { context, meter }
    }
}

/// Epochs of a call: more than any call takes.
const EPOCHS: u64 = 1 << 40;

/// Creates an engine with the host's configuration.
pub fn engine() -> Engine {
    Engine::new(&config()).expect("an engine")
}

/// Creates an engine that counts the instructions of the guest.
fn counting_engine() -> Engine {
    let mut config = config();
    config.consume_fuel(true);
    Engine::new(&config).expect("an engine")
}

/// Creates an engine with wasmtime's pool of memories and tables, where the address space has room
/// for one.
pub fn pooled_engine() -> Option<Engine> {
    const INSTANCES: u32 = 64;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(INSTANCES)
        .total_core_instances(4 * INSTANCES)
        .total_memories(INSTANCES)
        .total_tables(4 * INSTANCES)
        .max_memory_size(EngineLimits::strict().memory_bytes_max)
        .linear_memory_keep_resident(2 << 20)
        .table_keep_resident(64 << 10);
    let mut config = config();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    Engine::new(&config).ok()
}

fn config() -> Config {
    let mut config = Config::new();
    config.epoch_interruption(true);
    config.concurrency_support(false);
    // Then `perf report` names the functions of a build with names.
    if std::env::var_os("THREADKEEP_BENCH_PERFMAP").is_some() {
        config.profiler(ProfilingStrategy::PerfMap);
    }
    config
}

/// Compiles and links the component.
pub fn prepare(engine: &Engine) -> InstancePre<HostStoreData> {
    prepare_build(engine, COMPONENT)
}

/// Compiles and links another build of the component.
fn prepare_build(engine: &Engine, build: &[u8]) -> InstancePre<HostStoreData> {
    let component = Component::new(engine, build).expect("the component compiles");
    let mut linker = Linker::new(engine);
    add_to_linker(&mut linker, |state: &mut HostStoreData| ImportView {
        context: &state.context,
        meter: &mut state.meter,
    })
    .expect("linked");
    linker.instantiate_pre(&component).expect("prepared")
}

/// Returns another build of the component, if the variable `THREADKEEP_BENCH_BUILD` names its file:
/// an earlier one to compare, or one with names (`cargo xtask component --names FILE`).
pub fn other_build() -> Option<Vec<u8>> {
    let file = std::env::var_os("THREADKEEP_BENCH_BUILD")?;
    Some(std::fs::read(file).expect("a component"))
}

/// Creates a store that no epoch ends.
pub fn store<T>(engine: &Engine, data: T) -> Store<T> {
    let mut store = Store::new(engine, data);
    store.set_epoch_deadline(EPOCHS);
    store
}

/// A run on its own thread.
pub struct DirectRun {
    store: Store<HostStoreData>,
    submit: SubmitFunction,
    thread: String,
    token: u64,
    version: u64,
    calls: Vec<wit::ToolCall>,
}

impl DirectRun {
    /// Starts a run in the component, or in the build that a profiler is to see.
    pub fn start(storage: &Arc<dyn StorageBackend>) -> Self {
        match other_build() {
            None => Self::start_build(storage, COMPONENT),
            Some(build) => Self::start_build(storage, &build),
        }
    }

    /// Starts a run in another build of the component.
    pub fn start_build(storage: &Arc<dyn StorageBackend>, build: &[u8]) -> Self {
        let engine = engine();
        let store = store(&engine, HostStoreData::new(world::context(storage)));
        Self::start_in(store, build)
    }

    /// Starts a run whose instructions are counted: see [`DirectRun::instructions_left`].
    pub fn start_counted(storage: &Arc<dyn StorageBackend>, build: &[u8]) -> Self {
        let engine = counting_engine();
        let mut store = store(&engine, HostStoreData::new(world::context(storage)));
        store.set_fuel(u64::MAX).expect("it counts");
        Self::start_in(store, build)
    }

    /// Returns the instructions that a run which counts them may still make: the difference between
    /// two steps is what the step took in the guest.
    pub fn instructions_left(&self) -> u64 {
        self.store.get_fuel().expect("it counts")
    }

    /// Returns the number of imports that the last step has called.
    pub fn host_calls(&self) -> u32 {
        self.store.data().meter.host_calls()
    }

    fn start_in(mut store: Store<HostStoreData>, build: &[u8]) -> Self {
        let pre = prepare_build(store.engine(), build);
        let instance = pre.instantiate(&mut store).expect("an instance");
        let mut export = |interface: &str, name: &str| {
            let interface = format!("threadkeep:threads/{interface}@0.1.0");
            let interface = instance.get_export_index(&mut store, None, &interface);
            let place = instance.get_export_index(&mut store, interface.as_ref(), name);
            instance
                .get_func(&mut store, place.expect("exported"))
                .expect("a function")
        };
        let (create, start, submit) = (
            export("registry", "create"),
            export("runner", "start"),
            export("runner", "submit"),
        );
        let create: CreateFunction = create.typed(&store).expect("its type");
        let start: StartFunction = start.typed(&store).expect("its type");
        let submit: SubmitFunction = submit.typed(&store).expect("its type");
        let (created,) = create
            .call(&mut store, (draft(), "made".to_owned()))
            .expect("no trap");
        let thread = created.expect("created").id;
        let (holder, key) = (HOLDER.to_owned(), "key".to_owned());
        let given = (thread.clone(), None, holder, key, None);
        let (started,) = start.call(&mut store, given).expect("no trap");
        let handle = started.expect("started");
        Self {
            store,
            submit,
            thread,
            token: handle.token,
            version: handle.step.version,
            calls: Vec::new(),
        }
    }
}

impl BenchCandidate for DirectRun {
    fn step(&mut self, step: usize, blocks: &str, content: &str) {
        let outcome = outcome(self.calls.pop(), step, blocks, content);
        let given = (
            self.thread.clone(),
            self.token,
            self.version,
            outcome,
            self.version,
        );
        self.store.data_mut().meter.begin_call();
        self.store.set_hostcall_fuel(32 << 20);
        let (submitted,) = self.submit.call(&mut self.store, given).expect("no trap");
        let next = submitted.expect("submitted");
        self.version = next.version;
        self.calls = next.calls;
    }
}
