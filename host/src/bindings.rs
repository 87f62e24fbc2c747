//! The component's world as Rust, generated from `wit/`. Nothing is written here by hand.
//!
//! `host/wit` is a link to the checkout's `wit/`, so that the crate's package carries the files.

#![allow(
    missing_docs,
    clippy::all,
    reason = "generated from wit/, where the documentation is"
)]

wasmtime::component::bindgen!({
    path: "wit",
    world: "threads",
    imports: { default: trappable },
    require_store_data_send: true,
});
