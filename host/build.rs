//! Finds the component for the host to embed. Nothing is built or fetched here.
//!
//! It is what `THREADKEEP_COMPONENT` names; else `component/threadkeep.wasm` in the target
//! directory, where `cargo xtask component` writes it; else in the target directory of the
//! checkout, for crates outside its workspace; else beside this file, where the published package
//! carries it. The path is handed on as `THREADKEEP_COMPONENT_PATH`.

#![expect(
    clippy::disallowed_methods,
    reason = "a build script works on the machine itself"
)]

use std::path::{Path, PathBuf};

/// Names another component file, for packagers and for hosts that bring their own.
const OVERRIDE: &str = "THREADKEEP_COMPONENT";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed={OVERRIDE}");
    match component() {
        Ok(path) => {
            println!("cargo:rerun-if-changed={}", path.display());
            println!(
                "cargo:rustc-env=THREADKEEP_COMPONENT_PATH={}",
                path.display()
            );
        }
        Err(message) => println!("cargo::error={message}"),
    }
}

fn component() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os(OVERRIDE) {
        let path = PathBuf::from(named);
        return path
            .canonicalize()
            .map_err(|error| format!("{OVERRIDE} names {}: {error}", path.display()));
    }
    let own = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets no OUT_DIR")?);
    let host = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    // Between the target directory and OUT_DIR are the profile and, sometimes, the target.
    let mut places = own
        .ancestors()
        .map(in_folder)
        .chain([in_folder(&host.join("../target")), in_folder(&host)]);
    places
        .find(|path| path.is_file())
        .ok_or_else(|| missing(&host))
}

fn in_folder(folder: &Path) -> PathBuf {
    folder.join("component").join("threadkeep.wasm")
}

fn missing(host: &Path) -> String {
    format!(
        "the component is not built yet: run `cargo xtask component` in the checkout of Threadkeep \
         that {} is part of, \
         or name a component file in the environment variable {OVERRIDE}",
        host.display()
    )
}
