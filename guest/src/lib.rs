//! The Threadkeep component: loads records, asks the core, commits.
//!
//! Compiled for wasm32 it exports the interfaces of `wit/world.wit` and imports the ones named
//! there, nothing else. Compiled natively it is the same service over the caller's own ports: tests
//! and benchmarks use it so.
//!
//! Not in this crate: decisions (they are in `threadkeep-core`) and durable state: an instance may
//! be dropped between any two calls.

#![deny(missing_docs)]

pub mod error_record;
pub mod ports;
pub mod service;

#[cfg(target_family = "wasm")]
mod component;
#[cfg(target_family = "wasm")]
mod convert;
