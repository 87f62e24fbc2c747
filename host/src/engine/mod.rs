//! The engine: one wasmtime configuration, the compiled component, and the pool of threads that calls run on.
//!
//! Calls are synchronous and run on the pool's own threads, never on an async runtime's. Epochs stop a call that
//! computes too long; one ticker serves all stores of an engine.

mod cache;
mod pool;

pub use cache::CodeCache;
pub(crate) use pool::Pool;

use crate::bindings::ThreadsPre;
use crate::component::{Context, View, add_to_linker};
use crate::limits::Limits;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, ResourceLimiter};

/// Length of an epoch: how late a call that computes too long may be stopped.
const EPOCH: Duration = Duration::from_millis(10);

/// The component that this crate was built with.
pub const COMPONENT: &[u8] = include_bytes!(env!("THREADKEEP_COMPONENT_PATH"));

/// Why an engine cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// wasmtime refuses the configuration, or the component.
    #[error("the component cannot be prepared: {0:#}")]
    Prepare(wasmtime::Error),
}

/// Data of one store: the tenant's context and the limits of its instance.
pub(crate) struct State {
    pub(crate) context: Context,
    pub(crate) limiter: Limiter,
}

/// A compiled component, ready for any number of tenants. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    engine: wasmtime::Engine,
    pre: ThreadsPre<State>,
    limits: Limits,
    pool: Pool,
    stopped: Arc<AtomicBool>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

impl Engine {
    /// Prepare the embedded component. Its native code is taken from `cache`, or compiled and put there.
    ///
    /// # Errors
    /// If wasmtime refuses it.
    pub fn new(limits: Limits, cache: Option<&CodeCache>) -> Result<Self, EngineError> {
        Self::with_component(COMPONENT, limits, cache)
    }

    /// Prepare another component of the same world.
    ///
    /// # Errors
    /// If it is not one, or wasmtime refuses it.
    pub fn with_component(
        bytes: &[u8],
        limits: Limits,
        cache: Option<&CodeCache>,
    ) -> Result<Self, EngineError> {
        let engine = wasmtime::Engine::new(&config()).map_err(EngineError::Prepare)?;
        let component = match cache {
            Some(cache) => cache.load_or_compile(&engine, bytes),
            None => Component::new(&engine, bytes),
        }
        .map_err(EngineError::Prepare)?;
        let mut linker = Linker::<State>::new(&engine);
        add_to_linker(&mut linker, |state| View {
            context: &state.context,
        })
        .map_err(EngineError::Prepare)?;
        let pre = linker
            .instantiate_pre(&component)
            .and_then(ThreadsPre::new)
            .map_err(EngineError::Prepare)?;
        let stopped = Arc::new(AtomicBool::new(false));
        tick(&engine, &stopped);
        let pool = Pool::new(limits.call_threads_max);
        Ok(Self {
            shared: Arc::new(Shared {
                engine,
                pre,
                limits,
                pool,
                stopped,
            }),
        })
    }

    /// The limits that hold for every call.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.shared.engine
    }

    pub(crate) fn pre(&self) -> &ThreadsPre<State> {
        &self.shared.pre
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.shared.pool
    }

    /// Epochs that a call may last.
    pub(crate) fn call_epochs(&self) -> u64 {
        let epochs = self.shared.limits.call_time_max.as_millis() / EPOCH.as_millis();
        u64::try_from(epochs).unwrap_or(u64::MAX).max(1)
    }
}

/// Core instances, tables and memories of one component instance: it is one module with its adapters.
const INSTANCES_MAX: usize = 16;

/// Holds an instance to its limits, and remembers by name which one it ran into.
pub(crate) struct Limiter {
    memory_bytes_max: usize,
    table_elements_max: usize,
    denied: Option<&'static str>,
}

impl Limiter {
    pub(crate) fn new(limits: &Limits) -> Self {
        let Limits {
            memory_bytes_max,
            table_elements_max,
            ..
        } = *limits;
        Self {
            memory_bytes_max,
            table_elements_max,
            denied: None,
        }
    }

    /// The limit that was hit, if one was.
    pub(crate) fn denied(&self) -> Option<&'static str> {
        self.denied
    }

    fn allow(&mut self, limit: &'static str, desired: usize, maximum: usize) -> bool {
        if desired > maximum {
            self.denied = Some(limit);
        }
        desired <= maximum
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        _: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.allow("memory_bytes_max", desired, self.memory_bytes_max))
    }

    fn table_growing(
        &mut self,
        _: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.allow("table_elements_max", desired, self.table_elements_max))
    }

    fn instances(&self) -> usize {
        INSTANCES_MAX
    }

    fn tables(&self) -> usize {
        INSTANCES_MAX
    }

    fn memories(&self) -> usize {
        INSTANCES_MAX
    }
}

/// What the component does not need is off.
fn config() -> Config {
    let mut config = Config::new();
    config.epoch_interruption(true);
    config.wasm_memory64(false);
    config.wasm_multi_memory(false);
    config.wasm_tail_call(false);
    config.wasm_relaxed_simd(false);
    config.wasm_component_model(true);
    // No import is asynchronous, and calls are several times cheaper without the machinery for it.
    config.concurrency_support(false);
    config
}

/// One ticker moves the epoch for all stores of an engine and ends with it.
fn tick(engine: &wasmtime::Engine, stopped: &Arc<AtomicBool>) {
    let (engine, stopped) = (engine.weak(), Arc::clone(stopped));
    let ticker = move || {
        while !stopped.load(Ordering::Relaxed) {
            std::thread::sleep(EPOCH);
            match engine.upgrade() {
                Some(engine) => engine.increment_epoch(),
                None => return,
            }
        }
    };
    // A host that cannot start a thread cannot run calls either: the pool then says so.
    let _ = std::thread::Builder::new()
        .name("threadkeep-epoch".to_owned())
        .spawn(ticker);
}
