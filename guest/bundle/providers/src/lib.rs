//! The imports of the Threadkeep component, over WASI alone: for hosts that link WASI and nothing
//! else, such as the command `wasmtime`.
//!
//! The directory that the host grants as `/` is the project. Its threads are in the store of plain
//! files, its definitions in `.ai`, and models are those of its `models.yaml` or of a script. A
//! provider's key comes from a variable that the host passes, and from nowhere else.
//!
//! Built for wasm32-wasip2 this is a component; `cargo xtask bundle` composes it with Threadkeep's.
//! For any other target the crate is empty.

#[cfg(target_os = "wasi")]
mod convert;
#[cfg(target_os = "wasi")]
mod exports;
#[cfg(target_os = "wasi")]
mod file_tools;
#[cfg(all(target_os = "wasi", feature = "http"))]
mod http;
#[cfg(target_os = "wasi")]
mod images;
#[cfg(target_os = "wasi")]
mod model;
#[cfg(target_os = "wasi")]
mod project;
#[cfg(target_os = "wasi")]
mod replies;
