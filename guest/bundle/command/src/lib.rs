//! The command `threadkeep` as a component: `wasi:cli/run`, over the interfaces that Threadkeep's
//! component exports, for the stock command `wasmtime`.
//!
//! The commands are those of `threadkeep-cli`; here is what they need of a host. The directory that
//! is granted as `/` is the project. Runs are performed by the component's own loop, and documents
//! are written by the code that the native host writes them by.
//!
//! Built for wasm32-wasip2 this is a component; `cargo xtask bundle` composes it with Threadkeep's
//! and with the providers. For any other target the crate is empty.

#[cfg(target_os = "wasi")]
mod bundle_host;
#[cfg(target_os = "wasi")]
mod calls;
#[cfg(target_os = "wasi")]
mod documents;
#[cfg(target_os = "wasi")]
mod granted_project;
#[cfg(target_os = "wasi")]
mod process;
