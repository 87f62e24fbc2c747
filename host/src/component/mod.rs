//! What a store of the component holds, and how its imports reach it: context, view, `HasData`, `add_to_linker`.
//!
//! `host.rs` beside this only translates. Tenant identity is the context itself: no import takes a tenant as argument.

pub(crate) mod convert;
mod host;
mod meter;
mod size;

pub use crate::bindings::{Threads, ThreadsPre};
pub use meter::Meter;

use crate::clock::{Clock, SystemClock};
use crate::library::Library;
use crate::storage::Storage;
use std::sync::Arc;
use wasmtime::component::{HasData, Linker};

/// There are no random numbers: without them no id would be unique, so the call that asked traps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are no random numbers")]
pub struct NoRandom;

/// Gives random bytes for ids.
pub trait Random: Send + Sync {
    /// Fill the buffer.
    ///
    /// # Errors
    /// If it cannot be filled; what is in it then is not used.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), NoRandom>;
}

/// The operating system's random numbers.
#[derive(Debug, Clone, Copy)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), NoRandom> {
        getrandom::fill(bytes).map_err(|_| NoRandom)
    }
}

/// What one tenant's component may reach.
#[derive(Clone)]
pub struct Context {
    /// Its store.
    pub storage: Arc<dyn Storage>,
    /// Its files and policy.
    pub library: Arc<dyn Library>,
    /// Its time.
    pub clock: Arc<dyn Clock>,
    /// Its random numbers.
    pub random: Arc<dyn Random>,
}

impl Context {
    /// A store and a library, with the time and the random numbers of the system. To have others, set the fields.
    pub fn new(storage: Arc<dyn Storage>, library: Arc<dyn Library>) -> Self {
        Self {
            storage,
            library,
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
        }
    }
}

/// A borrowed context with the meter of the call, on which the imports are implemented.
pub struct View<'a> {
    /// The tenant's.
    pub context: &'a Context,
    /// The store's: the host tells it when a call begins.
    pub meter: &'a mut Meter,
}

/// Says to the linker that the imports work on a [`View`].
pub struct HasView;

impl HasData for HasView {
    type Data<'a> = View<'a>;
}

/// Add every import of world `threads` to a linker; `view` finds context and meter in the embedder's own store data.
/// The meter bounds imports and bytes; time, memory and what else an engine bounds are then the embedder's to set.
///
/// # Errors
/// If the linker has one of the names already.
pub fn add_to_linker<T: Send + 'static>(
    linker: &mut Linker<T>,
    view: fn(&mut T) -> View<'_>,
) -> wasmtime::Result<()> {
    Threads::add_to_linker::<T, HasView>(linker, view)
}
