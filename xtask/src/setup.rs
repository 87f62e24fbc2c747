//! `cargo xtask setup`: adds what a plain checkout lacks. Costs a fraction of a second when nothing
//! is missing.

use crate::process;
use anyhow::{Context, Result};
use std::path::Path;

/// The target of the component: no WASI, so that it can import nothing but our interfaces.
pub const WASM_TARGET: &str = "wasm32-unknown-unknown";

/// The target of the store of plain files in the bundle.
pub const WASI_TARGET: &str = "wasm32-wasip2";

/// Adds the target, then fetches every crate, so that later commands need no network.
pub fn run() -> Result<()> {
    add_target(WASM_TARGET)?;
    fetch()
}

/// Adds a target to the compiler, unless it has it.
pub fn add_target(target: &str) -> Result<()> {
    if target_is_installed(target) {
        return Ok(());
    }
    println!("adding the Rust target {target}");
    let mut rustup = process::program("rustup");
    process::run(rustup.args(["target", "add", target])).with_context(|| {
        format!(
            "the Rust target {target} is missing: connect to the network and run `rustup \
             target add {target}`"
        )
    })
}

/// Asks the compiler, not rustup: a distribution's own Rust may carry the target.
fn target_is_installed(target: &str) -> bool {
    let mut rustc = process::program("rustc");
    rustc.args(["--print", "target-libdir", "--target", target]);
    process::output(&mut rustc).is_some_and(|folder| Path::new(&folder).is_dir())
}

fn fetch() -> Result<()> {
    let mut fetch = process::locked_cargo("fetch");
    fetch.args(["--quiet", "--target", WASM_TARGET]);
    if let Some(host) = process::output(process::program("rustc").args(["--print", "host-tuple"])) {
        fetch.args(["--target", &host]);
    }
    process::run(&mut fetch)
        .context("cannot fetch the crates: connect to the network and run the command again")
}
