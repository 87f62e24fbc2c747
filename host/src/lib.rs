//! Threadkeep keeps the threads of LLM agents: this is its wasmtime host and its library for
//! embedders.
//!
//! An [`engine::Engine`] compiles the component once; a [`tenant::Tenant`] gives it a store, a
//! library, a clock and nothing else; a [`driver::Driver`] performs the steps that it hands out:
//! model calls, tool calls, waits. The host holds no domain rule: it stores, serves, performs steps
//! and enforces ceilings.
//!
//! Begin with [`project::OpenProject`], which makes a directory a tenant, or with
//! [`component::TenantContext::new`] over your own [`storage::StorageBackend`] and
//! [`library::TenantLibrary`]. Models are behind [`models::ModelProvider`], tools behind
//! [`tools::ToolSet`]; [`component::add_to_linker`] serves a wasmtime engine that you already have.
//! The guide is `docs/embedding.md` in the repository; its code is the crate `examples/embedder`.
//!
//! | feature | brings |
//! |---|---|
//! | `sqlite` | [`storage`]'s SQLite backend, and projects that open it by themselves |
//! | `http` | providers of models that speak HTTP |
//! | `cli` | the command `threadkeep`; nothing for a library |
//!
//! All are on by default and none is needed. Nothing here is global, no runtime is started, and
//! logs go to `tracing`.

pub mod audit;
pub mod authority;
mod bindings;
pub mod blobs;
pub mod ceilings;
pub mod clock;
pub mod component;
pub mod documents;
pub mod driver;
pub mod engine;
pub mod error;
pub mod library;
pub mod limits;
pub mod models;
pub mod probe;
pub mod project;
pub mod storage;
pub mod tenant;
pub mod thread_path;
pub mod tools;
pub mod wit;

pub use threadkeep_adapters::{file_tools, policy, thread_files};

/// The crates whose types are in this crate's interface: directories are from the first, linkers
/// from the second.
pub use {cap_std, wasmtime};
