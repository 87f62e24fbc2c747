//! What every host of Threadkeep shares, natively and under WASI.
//!
//! It knows neither an engine, nor a runtime, nor how a file is opened: [`library`] reads the
//! definitions of a tenant through the files that a host grants it, [`file_tools`] reads others for a
//! model, [`policy`] is what the operator grants, and [`models`] are the requests and answers of providers, with the wires that carry them
//! but without a client that sends them. A host brings the environment, the files, the connection
//! and the time.

pub mod ceilings;
pub mod environment;
pub mod file_tools;
pub mod image_type;
pub mod library;
pub mod models;
pub mod policy;
mod tool_entry;

pub use tool_entry::ToolEntry;
