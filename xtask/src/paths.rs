//! Paths of the checkout, the target directory, and the files that the commands write there.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// The checkout that this binary was built from.
pub fn root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest)
}

/// Cargo's target directory. This binary is `<target>/<profile>/xtask`, whichever way the directory
/// was set.
pub fn target_dir() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the path of this binary")?;
    let target = own
        .ancestors()
        .nth(2)
        .context("this binary is not in a target directory")?;
    Ok(target.to_path_buf())
}

/// The file of this name that `cargo xtask bundle` writes.
pub fn bundle(name: &str) -> Result<PathBuf> {
    Ok(target_dir()?.join("bundle").join(name))
}

/// The component that `cargo xtask component` writes and the build script of the host reads.
pub fn component() -> Result<PathBuf> {
    Ok(target_dir()?.join("component").join("threadkeep.wasm"))
}
