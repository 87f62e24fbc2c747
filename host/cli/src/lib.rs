//! Arguments and output of the `threadkeep` command: the text a user types, and the text or JSON it
//! prints.
//!
//! Plain types and no engine: the native host and the bundle under the wasmtime CLI fill the same
//! types, so both print the same JSON. Nothing here opens a file, reads the environment or knows a
//! rule of the product.

pub mod answer;
pub mod args;
pub mod chat_input;
pub mod context;
pub mod exit;
pub mod inputs;
pub mod money;
pub mod parse;
pub mod printable;
pub mod screen;
pub mod stream;
pub mod table;
pub mod time_format;
pub mod token;
