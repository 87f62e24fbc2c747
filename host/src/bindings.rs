//! The component's world as Rust, generated from `wit/`. Nothing is written here by hand.

#![allow(
    missing_docs,
    clippy::all,
    reason = "generated from wit/, where the documentation is"
)]

wasmtime::component::bindgen!({
    path: "../wit",
    world: "threads",
    imports: { default: trappable },
    require_store_data_send: true,
});
