//! The process: arguments in, exit code out.

use crate::bundle_host::BundleHost;
use std::ffi::OsString;
use std::io::{IsTerminal, stderr, stdin, stdout};
use threadkeep_cli::bundle::{self, OutputStreams};

/// The exported `wasi:cli/run`.
struct CommandProcess;

wasip2::cli::command::export!(CommandProcess);

impl wasip2::exports::cli::run::Guest for CommandProcess {
    fn run() -> Result<(), ()> {
        let arguments: Vec<OsString> = std::env::args_os().collect();
        let streams = OutputStreams {
            out: Box::new(stdout()),
            err: Box::new(stderr()),
            terminals: [
                stdin().is_terminal(),
                stdout().is_terminal(),
                stderr().is_terminal(),
            ],
        };
        match bundle::run(&arguments, streams, BundleHost::new) {
            0 => Ok(()),
            // An error alone would always be 1.
            code => {
                wasip2::cli::exit::exit_with_code(code);
                Err(())
            }
        }
    }
}
