//! Checks for embedders: the library with fewer features, the crate of the guide, and the crate as
//! it would be published.
//!
//! The crate of the guide lies outside the workspace and selects other features, so it has its own
//! target directory. The tests of the reduced library share it, with the same profile: the
//! dependencies, such as wasmtime, are compiled once for both.
//!
//! That crate takes its lock file from the workspace at each check, so it is tested with the
//! versions that are tested here. It is compiled without optimisation, as a newcomer's crate is.

use crate::{component, paths, process, setup};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Feature sets, the crate that each must bring, and the crates that it must not. A set that brings
/// nothing would prove nothing.
const SETS: [(&str, Option<&str>, &[&str]); 3] = [
    (
        "",
        None,
        &["rusqlite", "reqwest", "rustls", "clap", "threadkeep-cli"],
    ),
    (
        "sqlite",
        Some("rusqlite"),
        &["reqwest", "rustls", "clap", "threadkeep-cli"],
    ),
    (
        "http",
        Some("reqwest"),
        &["rusqlite", "clap", "threadkeep-cli"],
    ),
];

/// The path of the guide's crate from the root of the checkout.
const GUIDE_CRATE: &str = "examples/embedder";

/// The profile of an embedder's own build: no optimisation. Without debug information it takes half
/// the time.
const PROFILE: [&str; 4] = [
    "--config=profile.dev.debug=0",
    "--config=profile.dev.opt-level=0",
    "--config=profile.dev.package.\"*\".opt-level=0",
    "--config=profile.dev.package.\"*\".debug=0",
];

/// Checks the library with each feature set: no warning, and no forbidden dependency. Checks what
/// the bundle shares for its target.
pub fn check_features() -> Result<()> {
    setup::run()?;
    component::build()?;
    for (set, own, foreign) in SETS {
        println!("features: {}", if set.is_empty() { "none" } else { set });
        let mut clippy = process::locked_cargo("clippy");
        clippy
            .args(["--package", "threadkeep", "--lib"])
            .args(feature_arguments(set));
        process::run(clippy.args(["--", "-D", "warnings"]))?;
        let tree = dependency_names(set)?;
        check_tree(set, own, foreign, &tree)?;
    }
    check_crates_under_wasi()
}

/// Checks the store of plain files, the adapters and the crates of the bundle under WASI, without
/// the directories of cap-std, which do not build there.
fn check_crates_under_wasi() -> Result<()> {
    println!("the store of plain files, the adapters and the bundle under WASI");
    setup::add_target(setup::WASI_TARGET)?;
    let mut clippy = process::locked_cargo("clippy");
    clippy
        .args([
            "--package",
            "threadkeep-storage",
            "--package",
            "threadkeep-adapters",
            "--package",
            "threadkeep-bundle-providers",
            "--package",
            "threadkeep-bundle-command",
        ])
        .args(["--features", "threadkeep-bundle-providers/http", "--lib"])
        .args(["--target", setup::WASI_TARGET]);
    process::run(clippy.args(["--", "-D", "warnings"]))
}

fn feature_arguments(set: &str) -> [&str; 3] {
    ["--no-default-features", "--features", set]
}

/// Returns the names of the crates in a build with this feature set.
fn dependency_names(set: &str) -> Result<Vec<String>> {
    let mut tree = process::locked_cargo("tree");
    tree.args(["--package", "threadkeep", "--edges", "normal,build"])
        .args(["--prefix", "none", "--format", "{p}"])
        .args(feature_arguments(set));
    let text = process::output(&mut tree).context("cargo tree gives no answer")?;
    let names = text.lines().filter_map(|line| line.split(' ').next());
    Ok(names.map(str::to_owned).collect())
}

fn check_tree(set: &str, own: Option<&str>, foreign: &[&str], tree: &[String]) -> Result<()> {
    let has = |name: &str| tree.iter().any(|found| found == name);
    if let Some(missing) = own.into_iter().chain(["wasmtime"]).find(|name| !has(name)) {
        bail!("the features \"{set}\" do not bring {missing}: is this the right tree?");
    }
    if let Some(name) = foreign.iter().find(|name| has(name)) {
        bail!("the features \"{set}\" bring {name}, which nobody asked for");
    }
    Ok(())
}

/// Formats, compiles and runs the crate of the guide, and runs the library's own tests with its
/// features.
pub fn check_guide_crate() -> Result<()> {
    setup::run()?;
    component::build()?;
    let folder = paths::root().join(GUIDE_CRATE);
    let manifest = folder.join("Cargo.toml");
    // The same versions as in the workspace: cargo removes the crates that this one does not need.
    std::fs::copy(paths::root().join("Cargo.lock"), folder.join("Cargo.lock"))
        .with_context(|| format!("cannot write the lock file of {GUIDE_CRATE}"))?;
    let mut fmt = process::cargo();
    fmt.args(["fmt", "--check", "--manifest-path"])
        .arg(&manifest);
    process::run(&mut fmt)?;
    let mut test = guide_cargo()?;
    process::run(test.arg("--manifest-path").arg(&manifest))?;
    let mut library = guide_cargo()?;
    library.args(["--package", "threadkeep", "--lib"]);
    process::run(library.args(feature_arguments("sqlite")))
}

fn guide_cargo() -> Result<Command> {
    let mut cargo = process::cargo();
    cargo
        .args(["test", "--offline", "--target-dir"])
        .arg(paths::target_dir()?.join("outside"))
        .args(PROFILE);
    Ok(cargo)
}

/// Checks that the crate as it would be published carries the contract and exactly these bytes of
/// the component.
pub fn check_package() -> Result<()> {
    setup::run()?;
    component::build()?;
    let carried = paths::root().join("host").join("component");
    std::fs::create_dir_all(&carried).context("cannot create host/component")?;
    let packed = std::fs::copy(paths::component()?, carried.join("threadkeep.wasm"))
        .context("cannot copy the component")
        .and_then(|_| build_package());
    // Left there, it would hide a newer component from a build of the checkout elsewhere.
    std::fs::remove_dir_all(&carried).context("cannot remove host/component")?;
    let unpacked = packed?;
    for file in ["wit/world.wit", "wit/types.wit", "src/lib.rs", "build.rs"] {
        if !unpacked.join(file).is_file() {
            bail!("the package has no {file}: see `include` in host/Cargo.toml");
        }
    }
    let inside = unpacked.join("component").join("threadkeep.wasm");
    if std::fs::read(&inside).ok() != std::fs::read(paths::component()?).ok() {
        bail!("the package does not carry the component: see `include` in host/Cargo.toml");
    }
    println!("the package of the host carries the component and the contract");
    Ok(())
}

/// Packages the host with the workspace crates that it depends on, and unpacks it.
fn build_package() -> Result<PathBuf> {
    let mut cargo = process::cargo();
    cargo.args(["package", "--no-verify", "--allow-dirty", "--offline"]);
    let packages = [
        "threadkeep",
        "threadkeep-adapters",
        "threadkeep-cli",
        "threadkeep-storage",
        "threadkeep-units",
    ];
    for package in packages {
        cargo.args(["--package", package]);
    }
    process::run(&mut cargo)?;
    let packages = paths::target_dir()?.join("package");
    let name = format!("threadkeep-{}", env!("CARGO_PKG_VERSION"));
    unpack(&packages, &name)?;
    Ok(packages.join(name))
}

fn unpack(packages: &Path, name: &str) -> Result<()> {
    let mut tar = process::program("tar");
    tar.arg("-xzf").arg(packages.join(format!("{name}.crate")));
    process::run(tar.arg("-C").arg(packages))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_held_to_its_set() {
        let tree = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let cases: [(Vec<String>, bool); 4] = [
            (tree(&["threadkeep", "wasmtime", "rusqlite"]), true),
            (
                tree(&["threadkeep", "wasmtime", "rusqlite", "reqwest"]),
                false,
            ),
            (tree(&["threadkeep", "wasmtime"]), false),
            (Vec::new(), false),
        ];
        for (names, fits) in cases {
            let checked = check_tree("sqlite", Some("rusqlite"), &["reqwest"], &names);
            assert_eq!(checked.is_ok(), fits, "{names:?}: {checked:?}");
        }
    }
}
