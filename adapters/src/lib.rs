//! The parts that every host of Threadkeep shares, natively and under WASI.
//!
//! It knows neither an engine, nor a runtime, nor how a file is opened: [`library`] reads the
//! definitions of a tenant through the files that a host grants it, [`policy`] is what the operator
//! grants, and [`models`] are the requests and answers of providers, with the wires that carry them
//! but without a client that sends them. [`thread_files`] are the documents of threads on disk,
//! [`file_tools`] the read-only tools, both below a directory that a host grants, and [`blobs`] the
//! bytes of images in the store. A host brings the environment, the directories, the connection
//! and the time.

pub mod blobs;
pub mod ceilings;
mod convert_imports;
pub mod environment;
pub mod file_tools;
pub mod image_type;
pub mod library;
pub mod models;
pub mod policy;
pub mod thread_files;
mod tool_entry;
mod tree_walk;

pub use image_type::{IMAGE_BYTES_MAX, image_type};
pub use tool_entry::ToolEntry;
