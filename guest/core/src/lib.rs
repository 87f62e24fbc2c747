//! The decisions of Threadkeep.
//!
//! Core takes loaded records, a request and the time, and returns a plan: records to write, the
//! entry to append, the step to hand out. It performs nothing.
//!
//! Not in this crate: I/O, clocks, randomness, threads, floating-point numbers, and any order that
//! depends on a hash. Time and ids are arguments. `clippy.toml` beside this crate enforces it.

#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic, missing_docs)]

pub mod continuation;
pub mod error;
pub mod estimate;
pub mod hash;
pub mod history;
pub mod id;
pub mod key;
pub mod ledger;
pub mod limits;
pub mod money;
pub mod ordered_names;
pub mod plan;
pub mod runner;
pub mod settings;
pub mod state;
pub mod thread;
pub mod time;
pub mod transcript;

pub use threadkeep_json as json;
