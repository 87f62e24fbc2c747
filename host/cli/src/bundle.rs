//! The command of a host whose calls block, such as the bundle under the wasmtime CLI: from the
//! arguments of the process to its exit code.

use crate::args::{CliCommand, CommonArgs};
use crate::command;
use crate::exit::{CommandExit, CommandFault};
use crate::parse;
use crate::screen::{OutputScreen, StreamProperties};
use crate::threads::{CommandHost, block_on};
use std::ffi::OsString;
use std::io::Write;

/// Standard output and standard error of the process.
pub struct OutputStreams {
    /// Standard output.
    pub out: Box<dyn Write + Send>,
    /// Standard error.
    pub err: Box<dyn Write + Send>,
    /// True for each of standard input, output and error that is a terminal.
    pub terminals: [bool; 3],
}

/// Performs the command that the arguments name, the first of which is the program. `open_host`
/// makes a host from the options of every command, or says why it cannot. Returns the exit code.
pub fn run<H: CommandHost>(
    arguments: &[OsString],
    streams: OutputStreams,
    open_host: impl FnOnce(CommonArgs) -> Result<H, CommandFault>,
) -> u8 {
    let [in_terminal, out_terminal, err_terminal] = streams.terminals;
    let properties = StreamProperties {
        json: parse::wants_json(arguments),
        in_terminal,
        out_terminal,
        err_terminal,
        // The environment is the host's, which is not open yet.
        out_styled: false,
        err_styled: false,
        columns: || None,
        now: None,
    };
    let mut screen = OutputScreen::new(streams.out, streams.err, properties);
    let exit = match parse::parse(arguments) {
        Err(said) => screen.print_reply(&said),
        Ok(parsed) => perform(parsed.common, parsed.command, open_host, &mut screen)
            .unwrap_or_else(|fault| screen.print_fault(&fault)),
    };
    screen.finish(exit).code()
}

fn perform<H: CommandHost>(
    common: CommonArgs,
    command: CliCommand,
    open_host: impl FnOnce(CommonArgs) -> Result<H, CommandFault>,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let output = common.output;
    screen.set_output_args(output);
    let host = open_host(common)?;
    let ends = screen.properties();
    let styled = |terminal| output.color.allows(terminal, |name| host.variable(name));
    screen.set_styled(styled(ends.out_terminal), styled(ends.err_terminal));
    block_on(command::perform(&host, command, screen))
}
