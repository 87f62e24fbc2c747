//! The live instances of one tenant: the warm ones, which wait for a call, and the memory of all.

use super::InstanceState;
use crate::bindings::Threads;
use crate::limits::EngineLimits;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use threadkeep_storage::locks::SleepingMutex;
use wasmtime::Store;

/// An instance of the component with its wasmtime store.
pub(crate) struct ComponentInstance {
    pub(crate) store: Store<InstanceState>,
    pub(crate) exports: Threads,
    /// Number of calls that the instance has served.
    pub(crate) calls: u32,
    idle_since: Instant,
}

impl ComponentInstance {
    pub(crate) fn new(store: Store<InstanceState>, exports: Threads) -> Self {
        Self {
            store,
            exports,
            calls: 0,
            idle_since: Instant::now(),
        }
    }
}

/// The warm instances of one tenant, and the linear memory of all its instances.
#[derive(Default)]
pub(crate) struct TenantInstances {
    /// Ordered by last use, the most recent last.
    warm: SleepingMutex<Vec<ComponentInstance>>,
    memory_bytes: AtomicUsize,
}

impl TenantInstances {
    /// Takes a warm instance, if there is one.
    pub(crate) fn take_warm(&self) -> Option<ComponentInstance> {
        self.warm.lock().pop()
    }

    /// Keeps a clean instance for the next call, or drops it as the limits say.
    pub(crate) fn keep_warm(&self, mut instance: ComponentInstance, limits: &EngineLimits) {
        let mut warm = self.warm.lock();
        if instance.calls < limits.instance_calls_max && warm.len() < limits.instances_warm_max {
            instance.idle_since = Instant::now();
            warm.push(instance);
        }
    }

    /// Drops the instances that were idle for longer than `most`.
    pub(crate) fn drop_idle(&self, most: Duration) {
        let mut warm = self.warm.lock();
        let old = warm.partition_point(|instance| instance.idle_since.elapsed() > most);
        let dropped: Vec<ComponentInstance> = warm.drain(..old).collect();
        drop(warm);
        drop(dropped);
    }

    /// Drops all warm instances.
    pub(crate) fn drop_warm(&self) {
        let dropped = std::mem::take(&mut *self.warm.lock());
        drop(dropped);
    }

    /// Number of warm instances.
    pub(crate) fn warm_count(&self) -> usize {
        self.warm.lock().len()
    }

    /// Linear memory of all instances, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// Counts memory, unless the sum would exceed `most`; true if counted.
    pub(super) fn reserve_memory(&self, bytes: usize, most: usize) -> bool {
        let taken = self
            .memory_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
                held.checked_add(bytes).filter(|sum| *sum <= most)
            });
        taken.is_ok()
    }

    pub(super) fn release_memory(&self, bytes: usize) {
        self.memory_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
