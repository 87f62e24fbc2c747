//! The commands of the binary. Each opens what it needs, calls the component, and fills an answer
//! of `threadkeep-cli`.
//!
//! No rule of the product lives here: the component refuses, and a command reports the refusal to
//! the user.

mod audit;
mod budget;
mod catch_up;
mod chain;
mod change_lines;
mod charges;
mod chat;
mod checkpoints;
mod copy_store;
mod decide;
mod demo;
mod doctor;
mod drive;
mod external_loop;
mod fault;
mod images;
mod import;
mod imported_parts;
mod input;
mod interrupts;
mod list;
mod prune;
mod recover;
mod repair;
mod run;
mod session;
mod show;
mod signal;
mod state;
mod store_copy;
mod temporary;
mod thread_path;
mod transcript;
mod tree_totals;
mod view;

pub use session::CommandSession;

use threadkeep_cli::answer::CompletionsAnswer;
use threadkeep_cli::args::{self, CliCommand};
use threadkeep_cli::exit::{CommandExit, CommandFault};
use threadkeep_cli::screen::OutputScreen;

/// Performs a command; its answer is on the screen when it returns.
pub async fn run(
    session: &CommandSession,
    command: CliCommand,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    match command {
        CliCommand::Run(run) => run::run(session, run, screen).await,
        CliCommand::Chat(chat) => chat::chat(session, chat, screen).await,
        CliCommand::Resume(resume) => run::resume(session, resume, screen).await,
        CliCommand::Approve(approve) => decide::approve(session, approve, screen).await,
        CliCommand::Deny(deny) => decide::deny(session, deny, screen).await,
        CliCommand::Answer(answer) => decide::answer(session, answer, screen).await,
        CliCommand::Create(create) => run::create(session, create, screen).await,
        CliCommand::Message(message) => signal::message(session, message, screen).await,
        CliCommand::List(list) => list::list(session, list, screen).await,
        CliCommand::Show(show) => show::show(session, show, screen).await,
        CliCommand::Chain(named) => chain::chain(session, named, screen).await,
        CliCommand::Transcript(transcript) => {
            transcript::transcript(session, transcript, screen).await
        }
        CliCommand::State(asked) => state::state(session, asked, screen).await,
        CliCommand::Checkpoints(asked) => checkpoints::checkpoints(session, asked, screen).await,
        CliCommand::Fork(fork) => checkpoints::fork(session, fork, screen).await,
        CliCommand::Raise(raise) => signal::raise(session, raise, screen).await,
        CliCommand::Open(open) => external_loop::open(session, open, screen).await,
        CliCommand::Append(append) => external_loop::append(session, append, screen).await,
        CliCommand::Close(close) => external_loop::close(session, close, screen).await,
        CliCommand::Title(title) => signal::title(session, title, screen).await,
        CliCommand::Cancel(named) => signal::cancel(session, named, screen).await,
        CliCommand::Kill(named) => signal::kill(session, named, screen).await,
        CliCommand::Budget(budget) => budget::budget(session, budget, screen).await,
        CliCommand::Tree(tree) => budget::tree(session, tree, screen).await,
        CliCommand::Recover(recover) => recover::recover(session, recover, screen).await,
        CliCommand::Repair(repair) => repair::repair(session, repair, screen).await,
        CliCommand::Prune(prune) => prune::prune(session, prune, screen).await,
        CliCommand::Import(import) => import::import(session, import, screen).await,
        CliCommand::Copy(copy) => copy_store::copy(session, copy, screen).await,
        CliCommand::Audit => audit::audit(session, screen).await,
        CliCommand::Doctor(doctor) => doctor::doctor(session, doctor, screen).await,
        CliCommand::Demo => demo::demo(session, screen).await,
        CliCommand::Completions(completions) => {
            let script = args::generate_completions(completions.shell);
            Ok(screen.print_answer(&CompletionsAnswer::new(
                completions.shell.to_string(),
                script,
            )))
        }
    }
}
