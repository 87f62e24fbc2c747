//! The native side of the commands: an open project behind the traits of `threadkeep-cli`, which
//! has the commands themselves, the run of a thread on a screen, and the commands that only a
//! native host has.
//!
//! No rule of the product lives here: the component refuses, and a command reports the refusal to
//! the user.

mod audit;
mod build_details;
#[cfg(test)]
mod bundle_tests;
mod catch_up;
mod chat;
mod convert;
mod copy_store;
mod doctor;
mod drive;
mod fault;
mod import;
mod imported_parts;
mod init;
mod input;
mod interrupts;
mod prune;
mod repair;
mod session;
mod store_copy;
mod temporary;
mod terminal;
mod threads;
mod top;

pub use build_details::list_details;
pub use session::CommandSession;

use threadkeep_cli::args::CliCommand;
use threadkeep_cli::exit::{CommandExit, CommandFault};
use threadkeep_cli::screen::OutputScreen;

/// Performs a command; its answer is on the screen when it returns.
pub async fn run(
    session: &CommandSession,
    command: CliCommand,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    match command {
        CliCommand::Chat(chat) => chat::chat(session, chat, screen).await,
        CliCommand::Init(_) => init::init(session, screen),
        CliCommand::Top(asked) => top::top(session, asked, screen).await,
        CliCommand::Repair(repair) => repair::repair(session, repair, screen).await,
        CliCommand::Prune(prune) => prune::prune(session, prune, screen).await,
        CliCommand::Import(import) => import::import(session, import, screen).await,
        CliCommand::Copy(copy) => copy_store::copy(session, copy, screen).await,
        CliCommand::Audit => audit::audit(session, screen).await,
        CliCommand::Doctor(doctor) => doctor::doctor(session, doctor, screen).await,
        command => threadkeep_cli::command::perform(session, command, screen).await,
    }
}
