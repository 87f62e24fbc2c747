//! The component's world as Rust, generated from `wit/`. Nothing here is written by hand.
//!
//! `host/wit` is a link to the checkout's `wit/`, so that the package of the crate contains the
//! files and there is no second copy. A checkout on a system without symbolic links has to make it
//! one.

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
