//! The engine: one wasmtime configuration, the compiled component, and the thread pool of the
//! component's calls.
//!
//! Calls are synchronous and run on the pool's own threads, or on one that their caller lends. At
//! each epoch a computing call is checked: first its thread lowers its priority, later the call is
//! stopped. One ticker serves all stores of an engine; it also answers callers whose time has
//! passed and drops idle instances.

mod cache;
mod instances;
mod limiter;
mod pool;
mod priority;
mod queue;

pub use cache::CodeCache;
pub(crate) use instances::{ComponentInstance, TenantInstances};
pub(crate) use limiter::InstanceLimiter;
pub(crate) use pool::{NoAnswer, TenantLane};

use crate::bindings::ThreadsPre;
use crate::bindings::threadkeep::threads::{llm, tools};
use crate::component::{
    CallMeter, HasStepCallView, ImportView, StepCallSender, StepCallView, TenantContext,
    add_to_linker,
};
use crate::limits::EngineLimits;
use crate::tools::files::FilePool;
use pool::{CallPool, LentCall};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use threadkeep_storage::locks::SleepingMutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Store, UpdateDeadline};

/// Length of an epoch: the delay with which a call that computes too long may be stopped.
const EPOCH: Duration = Duration::from_millis(10);
/// Computing time after which a call lowers its priority. The component's own calls take a few
/// milliseconds.
const LONG_CALL_TIME: Duration = Duration::from_millis(20);
/// Longest time of a call on a lent thread after which its task does not give way to others.
const LENT_TIME_MAX: Duration = Duration::from_millis(1);
/// Interval in epochs at which the ticker drops idle instances.
const EPOCHS_PER_SWEEP: u32 = 100;
/// Most calls of `runner.run` at once, of all tenants. Each has a thread that waits while models
/// and tools answer; a host with more runs than this uses the driver, which needs none.
const INNER_RUNS_MAX: usize = 64;

/// The component built into this crate.
pub const COMPONENT: &[u8] = include_bytes!(env!("THREADKEEP_COMPONENT_PATH"));

/// The version of `wit/` that this host implements.
pub const WIT_VERSION: &str = "0.1.0";
const WIT_PACKAGE: &str = "threadkeep:threads/";

/// Reason why an engine cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The limits contradict each other.
    #[error("the limit {field} cannot be: {problem}")]
    Limits {
        /// Field of [`EngineLimits`].
        field: &'static str,
        /// The contradiction, and a value that would be right.
        problem: String,
    },
    /// wasmtime refuses the configuration.
    #[error("wasmtime refuses its configuration: {0:#}")]
    Config(wasmtime::Error),
    /// The bytes are no component that this engine can compile.
    #[error("the component cannot be compiled: {0:#}")]
    Compile(wasmtime::Error),
    /// The component was made for another version of the contract.
    #[error(
        "the component speaks {package}@{found} and this host {WIT_VERSION}: build it from the \
         wit/ of this version"
    )]
    Version {
        /// Name of the package.
        package: String,
        /// The version that the component names.
        found: String,
    },
    /// The component lacks an export of world `threads`, or has an import that is not in the world.
    /// Function types are compared when an instance is made: the first call then reports a
    /// mismatch.
    #[error("the component does not fit world threads@{WIT_VERSION}: {0:#}")]
    World(wasmtime::Error),
    /// The thread that stops calls in time and answers their callers cannot be started. Without it,
    /// no call would ever be stopped.
    #[error(
        "the engine's thread cannot be started: {0}; end what holds threads or memory, or raise \
         what this process may have"
    )]
    Thread(std::io::Error),
}

/// Data of one store: the tenant's context, the meter of its calls and the limits of its instance.
pub(crate) struct InstanceState {
    pub(crate) context: TenantContext,
    pub(crate) meter: CallMeter,
    pub(crate) limiter: InstanceLimiter,
    /// Takes the imports `llm` and `tools` of a call of `runner.run`.
    pub(crate) step_calls: Option<StepCallSender>,
}

/// A compiled component, ready for any number of tenants. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<EngineShared>,
    pre: ThreadsPre<InstanceState>,
}

/// State that all components of an engine share.
struct EngineShared {
    engine: wasmtime::Engine,
    limits: EngineLimits,
    pool: CallPool,
    files: FilePool,
    inner_runs: Arc<Semaphore>,
    tenants: SleepingMutex<Vec<Weak<TenantInstances>>>,
}

impl Engine {
    /// Prepares the embedded component. Its native code is taken from `cache`, or compiled and
    /// stored there.
    ///
    /// # Errors
    /// If the limits contradict each other, or wasmtime refuses the component.
    pub fn new(limits: EngineLimits, cache: Option<&CodeCache>) -> Result<Self, EngineError> {
        Self::with_component(COMPONENT, limits, cache)
    }

    /// Prepares another component of the same world.
    ///
    /// # Errors
    /// If the bytes are no such component, the limits contradict each other, or wasmtime refuses
    /// it.
    pub fn with_component(
        bytes: &[u8],
        limits: EngineLimits,
        cache: Option<&CodeCache>,
    ) -> Result<Self, EngineError> {
        if let Some((field, problem)) = limits.find_contradiction() {
            return Err(EngineError::Limits { field, problem });
        }
        let engine =
            wasmtime::Engine::new(&wasmtime_config(&limits)).map_err(EngineError::Config)?;
        let pre = prepare(&engine, bytes, cache)?;
        let shared = Arc::new(EngineShared {
            engine,
            limits,
            pool: CallPool::new(&limits),
            files: FilePool::new(),
            inner_runs: Arc::new(Semaphore::new(INNER_RUNS_MAX)),
            tenants: SleepingMutex::default(),
        });
        start_ticker(&shared, std::thread::Builder::new())?;
        Ok(Self { shared, pre })
    }

    /// Prepares another component; its tenants share threads and limits with those of this engine.
    /// So an operator can move tenants to a new component one by one.
    ///
    /// # Errors
    /// If the bytes are no component of the world, or wasmtime refuses it.
    pub fn prepare_sibling(
        &self,
        bytes: &[u8],
        cache: Option<&CodeCache>,
    ) -> Result<Self, EngineError> {
        Ok(Self {
            shared: Arc::clone(&self.shared),
            pre: prepare(&self.shared.engine, bytes, cache)?,
        })
    }

    /// The limits of every call.
    pub fn limits(&self) -> &EngineLimits {
        &self.shared.limits
    }

    /// A lane of the pool and a set of instances for a new tenant.
    pub(crate) fn add_tenant(&self) -> (TenantLane, Arc<TenantInstances>) {
        let instances = Arc::new(TenantInstances::default());
        let mut tenants = self.shared.tenants.lock();
        tenants.push(Arc::downgrade(&instances));
        (self.shared.pool.add_lane(), instances)
    }

    /// A new instance whose first call must end by `deadline`. Its instantiation already counts.
    pub(crate) fn instantiate(
        &self,
        context: &TenantContext,
        tenant: &Arc<TenantInstances>,
        deadline: Instant,
    ) -> wasmtime::Result<ComponentInstance> {
        let limits = self.limits();
        let mut meter = CallMeter::new(limits);
        meter.begin_call_until(deadline);
        let state = InstanceState {
            context: context.clone(),
            meter,
            limiter: InstanceLimiter::new(limits, Arc::downgrade(tenant)),
            step_calls: None,
        };
        let mut store = Store::new(&self.shared.engine, state);
        store.limiter(|state| &mut state.limiter);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|store| on_epoch(&store.data().meter));
        store.set_hostcall_fuel(limits.host_call_bytes_max);
        store.set_max_component_handles(limits.handles_max);
        let exports = self.pre.instantiate(&mut store)?;
        Ok(ComponentInstance::new(store, exports))
    }

    /// Marks the call on this thread as stopped: the next calls of its tenant run at low priority.
    pub(crate) fn mark_offender() {
        priority::mark_offender();
    }

    /// The threads that the file tools of this engine's tenants share.
    pub(crate) fn file_pool(&self) -> FilePool {
        self.shared.files.clone()
    }

    /// Runs a call on the pool.
    pub(crate) async fn run_call<T: Send + 'static>(
        &self,
        lane: TenantLane,
        call: impl FnOnce(Instant) -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        self.shared.pool.run_call(lane, call).await
    }

    /// Runs a call on this thread, which its caller lends, or on the pool where it has to wait.
    pub(crate) async fn run_lent_call<T, F>(&self, lane: TenantLane, call: F) -> Result<T, NoAnswer>
    where
        T: Send + 'static,
        F: FnOnce(Instant) -> T + Send + 'static,
    {
        let began = Instant::now();
        match self.shared.pool.run_on_lent_thread(lane, call) {
            LentCall::Answered(answer) => {
                // A task that calls without end lets others of its runtime have their turn.
                if began.elapsed() >= LENT_TIME_MAX {
                    tokio::task::yield_now().await;
                }
                tokio::task::consume_budget().await;
                answer
            }
            LentCall::GivenBack(call) => self.run_call(lane, call).await,
        }
    }

    /// Waits until fewer than [`INNER_RUNS_MAX`] calls of `runner.run` are under way.
    pub(crate) async fn admit_inner_run(&self) -> Result<OwnedSemaphorePermit, NoAnswer> {
        let room = Arc::clone(&self.shared.inner_runs).acquire_owned().await;
        room.map_err(|_| NoAnswer::Abandoned)
    }

    /// Runs a call of `runner.run` on a thread of its own: it waits for models and tools, and would
    /// keep a thread of the pool from the calls of others.
    pub(crate) async fn run_outside_pool<T: Send + 'static>(
        &self,
        room: OwnedSemaphorePermit,
        call: impl FnOnce(Instant) -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let deadline = Instant::now() + self.shared.limits.wall_time_max;
        let (answer, answered) = oneshot::channel();
        let work = move || {
            priority::begin_call();
            let _room = room;
            // The caller may be gone.
            let _ = answer.send(call(deadline));
        };
        let thread = std::thread::Builder::new()
            .name("threadkeep-run".to_owned())
            .stack_size(pool::HOST_STACK_BYTES + self.shared.limits.stack_bytes_max);
        thread.spawn(work).map_err(|_| NoAnswer::NoThread)?;
        answered.await.map_err(|_| NoAnswer::Abandoned)
    }
}

impl EngineShared {
    fn drop_idle_instances(&self) {
        let mut live = Vec::new();
        self.tenants.lock().retain(|tenant| {
            let tenant = tenant.upgrade();
            live.extend(tenant.clone());
            tenant.is_some()
        });
        for tenant in live {
            tenant.drop_idle(self.limits.instance_idle_max);
        }
    }
}

fn on_epoch(meter: &CallMeter) -> wasmtime::Result<UpdateDeadline> {
    meter.check_time()?;
    if priority::call_cpu_time() > LONG_CALL_TIME {
        priority::lower_priority();
    }
    Ok(UpdateDeadline::Continue(1))
}

/// Compiles a component and checks it against the world.
fn prepare(
    engine: &wasmtime::Engine,
    bytes: &[u8],
    cache: Option<&CodeCache>,
) -> Result<ThreadsPre<InstanceState>, EngineError> {
    let component = match cache {
        Some(cache) => cache.load_or_compile(engine, bytes),
        None => Component::new(engine, bytes),
    }
    .map_err(EngineError::Compile)?;
    let mut linker = Linker::<InstanceState>::new(engine);
    add_to_linker(&mut linker, |state| ImportView {
        context: &state.context,
        meter: &mut state.meter,
    })
    .and_then(|()| add_step_calls(&mut linker))
    .map_err(EngineError::Config)?;
    linker
        .instantiate_pre(&component)
        .and_then(ThreadsPre::new)
        .map_err(|error| version_mismatch(engine, &component).unwrap_or(EngineError::World(error)))
}

/// Replaces the imports `llm` and `tools`, which trap, by those that serve `runner.run`.
fn add_step_calls(linker: &mut Linker<InstanceState>) -> wasmtime::Result<()> {
    fn view(state: &mut InstanceState) -> StepCallView<'_> {
        StepCallView {
            calls: state.step_calls.as_mut(),
            meter: &mut state.meter,
        }
    }
    linker.allow_shadowing(true);
    llm::add_to_linker::<_, HasStepCallView>(linker, view)?;
    tools::add_to_linker::<_, HasStepCallView>(linker, view)?;
    linker.allow_shadowing(false);
    Ok(())
}

/// The error of a component that was made for another version, if that is why it does not fit.
fn version_mismatch(engine: &wasmtime::Engine, component: &Component) -> Option<EngineError> {
    let kind = component.component_type();
    let imports = kind.imports(engine).map(|(name, item)| (name, item.ty));
    let exports = kind.exports(engine).map(|(name, item)| (name, item.ty));
    imports.chain(exports).find_map(|(name, item)| {
        let (interface, version) = name.strip_prefix(WIT_PACKAGE)?.split_once('@')?;
        let other = matches!(item, ComponentItem::ComponentInstance(_)) && version != WIT_VERSION;
        other.then(|| EngineError::Version {
            package: format!("{WIT_PACKAGE}{interface}"),
            found: version.to_owned(),
        })
    })
}

/// Turns off what the component does not need.
fn wasmtime_config(limits: &EngineLimits) -> Config {
    let mut config = Config::new();
    config.epoch_interruption(true);
    config.max_wasm_stack(limits.stack_bytes_max);
    config.wasm_memory64(false);
    config.wasm_multi_memory(false);
    config.wasm_tail_call(false);
    config.wasm_relaxed_simd(false);
    config.wasm_component_model(true);
    // No import is asynchronous, and calls are several times cheaper without async support.
    config.concurrency_support(false);
    // The allocator stays the one on demand until a figure speaks for a pool: an instance serves
    // 1,000 calls, so a fresh one is rare, and a pool reserves address space for the most instances
    // of all tenants. The bench `turn` prints the cost of a fresh instance from either.
    config
}

/// Starts the ticker, which advances the epoch for all stores of an engine and ends with it.
fn start_ticker(
    shared: &Arc<EngineShared>,
    thread: std::thread::Builder,
) -> Result<(), EngineError> {
    let shared = Arc::downgrade(shared);
    let ticker = move || {
        for epoch in 1_u32.. {
            std::thread::sleep(EPOCH);
            let Some(shared) = shared.upgrade() else {
                return;
            };
            shared.engine.increment_epoch();
            shared.pool.run_upkeep();
            if epoch.is_multiple_of(EPOCHS_PER_SWEEP) {
                shared.drop_idle_instances();
            }
        }
    };
    let named = thread.name("threadkeep-epoch".to_owned());
    named.spawn(ticker).map(drop).map_err(EngineError::Thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: no call was ever stopped, and no caller answered in time. Cause: a failure to start
    /// the ticker was ignored. Fix: without a ticker, making the engine fails.
    #[test]
    fn engine_without_ticker_is_refused() {
        let limits = EngineLimits::strict();
        let shared = Arc::new(EngineShared {
            engine: wasmtime::Engine::new(&wasmtime_config(&limits)).expect("an engine"),
            limits,
            pool: CallPool::new(&limits),
            files: FilePool::new(),
            inner_runs: Arc::new(Semaphore::new(INNER_RUNS_MAX)),
            tenants: SleepingMutex::default(),
        });
        let refused = start_ticker(
            &shared,
            std::thread::Builder::new().stack_size(pool::STACK_BYTES_REFUSED),
        );
        assert!(
            matches!(refused, Err(EngineError::Thread(_))),
            "{refused:?}"
        );
        let started = start_ticker(&shared, std::thread::Builder::new());
        assert!(started.is_ok(), "{started:?}");
    }
}
