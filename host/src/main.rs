//! The `threadkeep` command: arguments, logs, a runtime, one command, an exit code.

mod command;

use command::CommandSession;
use std::io::{IsTerminal, stderr, stdin, stdout};
use std::process::ExitCode;
use threadkeep::authority::{self, EnvironmentSnapshot};
use threadkeep_cli::args::StoreKind;
use threadkeep_cli::exit::{CommandExit, CommandFault};
use threadkeep_cli::parse;
use threadkeep_cli::screen::{OutputScreen, StreamProperties};

/// Environment variable with the filter of what is logged to standard error, such as
/// `threadkeep=debug`. Nothing is logged without it.
const LOG_VARIABLE: &str = "THREADKEEP_LOG";

/// Memory that SQLite may have, in bytes: a command needs a few MiB, with the caches of its
/// connections at most some tens, which SQLite gives back before it fails. A row of a planted file
/// could take all that the machine has: a search that meets it is refused (`out-of-memory`), and
/// `doctor`, which walks the file and does not search, names the row.
#[cfg(feature = "sqlite")]
const SQLITE_MEMORY_BYTES_MAX: u32 = 48 << 20;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let environment = authority::environment_of_process();
    let ends = StreamProperties {
        json: parse::wants_json(&arguments),
        in_terminal: stdin().is_terminal(),
        out_terminal: stdout().is_terminal(),
        err_terminal: stderr().is_terminal(),
        is_native: true,
        now: None,
    };
    let mut screen = OutputScreen::new(Box::new(stdout()), Box::new(stderr()), ends);
    let exit = match parse::parse(&arguments) {
        Err(said) => screen.print_reply(&said),
        Ok(parsed) => {
            init_logging(&environment, &mut screen);
            if parsed.common.store == Some(StoreKind::Memory) {
                screen.mark_threads_lost();
            }
            run(
                CommandSession::new(parsed.common, environment),
                parsed.command,
                &mut screen,
            )
        }
    };
    ExitCode::from(screen.finish(exit).code())
}

fn run(
    session: CommandSession,
    command: threadkeep_cli::args::CliCommand,
    screen: &mut OutputScreen,
) -> CommandExit {
    #[cfg(feature = "sqlite")]
    if let Err(error) = threadkeep::storage::sqlite::limit_process_memory(SQLITE_MEMORY_BYTES_MAX) {
        return screen.print_fault(&CommandFault::new("sqlite", error.to_string()));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(command::run(&session, command, screen)),
        Err(error) => Err(CommandFault::new(
            "runtime",
            format!("the runtime cannot be started: {error}"),
        )),
    };
    done.unwrap_or_else(|fault| screen.print_fault(&fault))
}

/// Sends spans and events to standard error, if asked for.
fn init_logging(environment: &EnvironmentSnapshot, screen: &mut OutputScreen) {
    let Some(filter) = environment.get(LOG_VARIABLE) else {
        return;
    };
    match tracing_subscriber::EnvFilter::try_new(filter) {
        Ok(filter) => {
            let subscriber = tracing_subscriber::fmt()
                .with_writer(stderr)
                .with_ansi(stderr().is_terminal())
                .with_env_filter(filter);
            // No other code in this process sets a subscriber.
            let _ = subscriber.try_init();
        }
        Err(error) => screen.warn(&format!(
            "{LOG_VARIABLE} is no filter and is ignored: {error}"
        )),
    }
}
