//! `cargo xtask demo`: from a plain checkout to a run of `threadkeep demo`, in one command.
//!
//! The first start compiles the component to native code and keeps it; later ones load it.

use crate::{component, paths, process, setup};
use anyhow::Result;

/// Runs the set-up, builds the component and the command, then runs the demo with these arguments.
pub fn run(arguments: &[String]) -> Result<()> {
    setup::run()?;
    component::build()?;
    // Cargo joins the features of the packages that a command selects. With all of them selected,
    // as `cargo xtask test` selects them, each dependency is compiled once for both commands.
    let mut cargo = process::locked_cargo("build");
    process::run(cargo.args(["--workspace", "--bin", "threadkeep"]))?;
    let program = paths::target_dir()?.join("debug").join("threadkeep");
    let mut demo = process::program(program.with_extension(std::env::consts::EXE_EXTENSION));
    process::run(demo.arg("demo").args(arguments))
}
