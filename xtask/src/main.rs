//! Developer commands: set-up, component, demo, tests, checks.
//!
//! `cargo xtask <command>` works in a plain checkout on a machine that has rustup and nothing else
//! of this project. Each command has its own file. Dependencies are few on purpose: everything else
//! waits until this is compiled. No rule of the product lives here.

mod bundle;
mod check;
mod component;
mod demo;
mod embed;
mod paths;
mod process;
mod process_tree;
mod setup;
mod skips;
mod soak;
mod systems;
mod test;
mod wit;
mod word_figures;

use std::process::ExitCode;

/// The usage, printed by `cargo xtask` and `cargo xtask help`.
const USAGE: &str = "\
usage: cargo xtask <command>

  setup             add the WebAssembly target and fetch the crates
  component         build guest/ as a component, check its imports, print its size;
                    `--names FILE`: with the names of its functions, into FILE, for a profiler
  bundle            component, composed with what it imports, over WASI: for the command wasmtime
  demo [args...]    set-up, component, then `threadkeep demo`
  test [filter...]  set-up, component, every test; the last line counts passed, failed, skipped
  soak [factor]     the tests that kill processes or try random histories, 10 times as long
  words [faults]    figures of names, doc comments, wide lines and circles; each fault by place
  check [step...]   fmt, clippy, deny, features, outside, package, systems; all if none is named

Optional parts that are missing are named and skipped. With CI=true they are failures.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> anyhow::Result<()> {
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", arguments),
    };
    match command {
        "setup" => setup::run(),
        "component" => component::run(rest),
        "bundle" => bundle::run(),
        "demo" => demo::run(rest),
        "test" => test::run(rest),
        "check" => check::run(rest),
        "soak" => soak::run(rest),
        "words" => word_figures::run(rest),
        "help" | "-h" | "--help" => {
            println!("{USAGE}");
            Ok(())
        }
        other => anyhow::bail!("there is no command `{other}`\n\n{USAGE}"),
    }
}
