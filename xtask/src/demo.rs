//! `cargo xtask demo`: from a plain checkout to a run of `threadkeep demo`, in one command.
//!
//! The first start compiles the component to native code and keeps it; later starts load it.

use crate::{component, process, setup};
use anyhow::Result;

/// Sets up, builds the component, then runs the demo with the arguments as given.
pub fn run(arguments: &[String]) -> Result<()> {
    setup::run()?;
    component::run()?;
    let mut cargo = process::locked_cargo("run");
    cargo
        .args([
            "--package",
            "threadkeep",
            "--bin",
            "threadkeep",
            "--",
            "demo",
        ])
        .args(arguments);
    process::run(&mut cargo)
}
