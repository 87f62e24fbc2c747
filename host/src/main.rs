//! The `threadkeep` command: arguments, logs, a runtime, one command, an exit code.

mod command;

use command::CommandSession;
use std::io::{IsTerminal, stderr, stdin, stdout};
use std::process::ExitCode;
use threadkeep::authority::{self, EnvironmentSnapshot};
use threadkeep_cli::args::{CliCommand, StoreKind};
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
    let color = parse::color_mode(&arguments);
    let variable = |name: &str| environment.get(name).map(str::to_owned);
    let (out_terminal, err_terminal) = (stdout().is_terminal(), stderr().is_terminal());
    let ends = StreamProperties {
        json: parse::wants_json(&arguments),
        in_terminal: stdin().is_terminal(),
        out_terminal,
        err_terminal,
        out_styled: color.allows(out_terminal, variable),
        err_styled: color.allows(err_terminal, variable),
        columns: terminal_columns,
        is_native: true,
        now: None,
    };
    let mut screen = OutputScreen::new(Box::new(stdout()), Box::new(stderr()), ends);
    let exit = match parse::parse(&arguments) {
        Err(said) => screen.print_reply(&match parse::wants_details(&arguments) {
            true => said.with_version_details(command::list_details()),
            false => *said,
        }),
        Ok(parsed) => {
            screen.set_output_args(parsed.common.output);
            init_logging(&environment, &mut screen);
            if parsed.common.store == Some(StoreKind::Memory) {
                screen.mark_threads_lost();
            }
            let session = CommandSession::new(parsed.common, environment);
            run(session, parsed.command, &mut screen)
        }
    };
    ExitCode::from(screen.finish(exit).code())
}

fn run(session: CommandSession, command: CliCommand, screen: &mut OutputScreen) -> CommandExit {
    let session = match &command {
        CliCommand::Chat(chat) if chat.thread.is_none() => session.beginning_project(),
        _ => session,
    };
    if command.needs_project() {
        let (path, origin) = session.path();
        screen.note_detail(&format!("project {} ({origin})", path.display()));
    }
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

/// Returns the columns of the terminal that standard error is, or else standard output.
fn terminal_columns() -> Option<usize> {
    let of_error = terminal_size::terminal_size_of(stderr());
    let (width, _) = of_error.or_else(|| terminal_size::terminal_size_of(stdout()))?;
    (width.0 > 0).then(|| width.0.into())
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
