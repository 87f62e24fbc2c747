//! Arguments and output of the `threadkeep` command: what a person types, and what a person or a program reads back.
//!
//! Plain structs and no engine: the native host and the bundle under the wasmtime CLI fill the same shapes, so both
//! answer the same JSON. Nothing here opens a file, reads the environment or knows a rule of the product.

pub mod answer;
pub mod args;
pub mod exit;
pub mod inputs;
pub mod money;
pub mod parse;
pub mod printable;
pub mod screen;
pub mod stream;
pub mod table;
pub mod talk;
pub mod token;
pub mod when;
