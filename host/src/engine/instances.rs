//! The live instances of one tenant: the warm ones, which wait for a call, and the memory of all.

use super::State;
use crate::bindings::Threads;
use crate::limits::Limits;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wasmtime::Store;

/// An instance of the component in a store of its own.
pub(crate) struct Instance {
    pub(crate) store: Store<State>,
    pub(crate) exports: Threads,
    /// Calls that it has had.
    pub(crate) calls: u32,
    idle_since: Instant,
}

impl Instance {
    pub(crate) fn new(store: Store<State>, exports: Threads) -> Self {
        Self {
            store,
            exports,
            calls: 0,
            idle_since: Instant::now(),
        }
    }
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Instances {
    /// The one used last is last.
    warm: Mutex<Vec<Instance>>,
    memory_bytes: AtomicUsize,
}

impl Instances {
    /// A warm one, if there is one.
    pub(crate) fn take(&self) -> Option<Instance> {
        self.lock().pop()
    }

    /// Keep a clean instance for the next call, or drop it as the limits say.
    pub(crate) fn keep(&self, mut instance: Instance, limits: &Limits) {
        let mut warm = self.lock();
        if instance.calls < limits.instance_calls_max && warm.len() < limits.instances_warm_max {
            instance.idle_since = Instant::now();
            warm.push(instance);
        }
    }

    /// Drop those that have waited for longer than `most`.
    pub(crate) fn drop_idle(&self, most: Duration) {
        let mut warm = self.lock();
        let old = warm.partition_point(|instance| instance.idle_since.elapsed() > most);
        let dropped: Vec<Instance> = warm.drain(..old).collect();
        drop(warm);
        drop(dropped);
    }

    /// Drop all that wait.
    pub(crate) fn drop_all(&self) {
        let dropped = std::mem::take(&mut *self.lock());
        drop(dropped);
    }

    /// Number of those that wait.
    pub(crate) fn warm(&self) -> usize {
        self.lock().len()
    }

    /// Linear memory of all, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// Count memory, unless it would be more than `most`.
    pub(super) fn take_memory(&self, bytes: usize, most: usize) -> bool {
        let taken = self
            .memory_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
                held.checked_add(bytes).filter(|sum| *sum <= most)
            });
        taken.is_ok()
    }

    pub(super) fn give_memory(&self, bytes: usize) {
        self.memory_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Instance>> {
        self.warm.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
