//! The `threadkeep` command without its engine: arguments, commands, faults and output.
//!
//! The native host and the bundle under the wasmtime CLI implement the traits of [`threads`], so
//! both have the same commands and print the same text and JSON. Nothing here opens a file, reads
//! the environment or knows a rule of the product.

pub mod answer;
pub mod args;
pub mod bundle;
pub mod chat_input;
pub mod command;
pub mod context;
pub mod contract;
pub mod exit;
pub mod html;
pub mod input;
pub mod inputs;
pub mod json_text;
pub mod money;
pub mod parse;
pub mod printable;
pub mod screen;
pub mod stream;
pub mod style;
pub mod table;
pub mod threads;
pub mod time_format;
pub mod token;
