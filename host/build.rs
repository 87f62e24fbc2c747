//! Finds the component that `cargo xtask component` has built, for the host to embed.
//!
//! It is looked for as `component/threadkeep.wasm` in the target directory, or is what `THREADKEEP_COMPONENT` names.
//! Nothing is built or fetched here. The path is handed on as `THREADKEEP_COMPONENT_PATH`.

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
    // Between the target directory and OUT_DIR are the profile and, sometimes, the target.
    let mut places = own.ancestors().map(in_folder);
    places
        .find(|path| path.is_file())
        .ok_or_else(|| "the component is not built yet: run `cargo xtask component`".into())
}

fn in_folder(folder: &Path) -> PathBuf {
    folder.join("component").join("threadkeep.wasm")
}
