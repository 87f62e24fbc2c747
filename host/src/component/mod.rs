//! State of a wasmtime store of the component, and how its imports reach it: context, view,
//! `HasData`, `add_to_linker`.
//!
//! `host.rs` beside this only translates. The context is the tenant's identity: no import takes a
//! tenant as argument.

pub(crate) mod convert;
mod error_record;
mod host;
mod meter;
mod size;
mod step_calls;

pub use crate::bindings::{Threads, ThreadsPre};
pub use meter::CallMeter;
pub(crate) use step_calls::{HasStepCallView, StepCall, StepCallSender, StepCallView};

use crate::clock::{HostClock, SystemClock};
use crate::library::TenantLibrary;
use crate::storage::StorageBackend;
use std::sync::Arc;
use wasmtime::component::{HasData, Linker};

/// The system gives no random numbers: without them no id would be unique, so the call that asked
/// traps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are no random numbers")]
pub struct RandomUnavailable;

/// Gives random bytes for ids.
pub trait RandomSource: Send + Sync {
    /// Fills the buffer.
    ///
    /// # Errors
    /// If it cannot be filled; its content is then not used.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomUnavailable>;
}

/// The operating system's random numbers.
#[derive(Debug, Clone, Copy)]
pub struct SystemRandom;

impl RandomSource for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomUnavailable> {
        getrandom::fill(bytes).map_err(|_| RandomUnavailable)
    }
}

/// Resources that one tenant's component may reach.
#[derive(Clone)]
pub struct TenantContext {
    /// The tenant's record store.
    pub storage: Arc<dyn StorageBackend>,
    /// The tenant's files and policy.
    pub library: Arc<dyn TenantLibrary>,
    /// The time that the component is shown.
    pub clock: Arc<dyn HostClock>,
    /// The random numbers that the component is given.
    pub random: Arc<dyn RandomSource>,
}

impl TenantContext {
    /// A store and a library, with the clock and the random numbers of the system. Set the fields
    /// for others.
    pub fn new(storage: Arc<dyn StorageBackend>, library: Arc<dyn TenantLibrary>) -> Self {
        Self {
            storage,
            library,
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
        }
    }
}

/// A borrowed context with the meter of the call, on which the imports are implemented.
pub struct ImportView<'a> {
    /// The context of the tenant.
    pub context: &'a TenantContext,
    /// The meter of the store: the host resets it when a call begins.
    pub meter: &'a mut CallMeter,
}

/// Marker by which the linker finds the [`ImportView`] of the imports.
pub struct HasImportView;

impl HasData for HasImportView {
    type Data<'a> = ImportView<'a>;
}

/// Adds every import of world `threads` to a linker; `view` finds context and meter in the
/// embedder's own store data. The meter bounds imports and bytes; the embedder must itself set
/// time, memory and the other bounds of an engine.
///
/// # Errors
/// If the linker already has one of the names.
pub fn add_to_linker<T: Send + 'static>(
    linker: &mut Linker<T>,
    view: fn(&mut T) -> ImportView<'_>,
) -> wasmtime::Result<()> {
    Threads::add_to_linker::<T, HasImportView>(linker, view)
}
