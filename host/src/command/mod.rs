//! The commands of the binary. Each opens what it needs, calls the component, and fills an answer
//! of `threadkeep-cli`.
//!
//! No rule of the product lives here: the component refuses, and a command reports the refusal to
//! the user.

mod audit;
mod budget;
mod catch_up;
mod chat;
mod copy;
mod demo;
mod doctor;
mod drive;
mod family;
mod fault;
mod input;
mod interrupts;
mod list;
mod open;
mod own;
mod recover;
mod repair;
mod run;
mod show;
mod signal;
mod temporary;
mod transcript;
mod view;

pub use open::Session;

use threadkeep_cli::answer::CompletionsAnswer;
use threadkeep_cli::args::{self, Command};
use threadkeep_cli::exit::{Exit, Fault};
use threadkeep_cli::screen::Screen;

/// Performs a command; its answer is on the screen when it returns.
pub async fn run(session: &Session, command: Command, screen: &mut Screen) -> Result<Exit, Fault> {
    match command {
        Command::Run(run) => run::run(session, run, screen).await,
        Command::Chat(chat) => chat::chat(session, chat, screen).await,
        Command::Resume(resume) => run::resume(session, resume, screen).await,
        Command::Create(create) => run::create(session, create, screen).await,
        Command::Message(message) => signal::message(session, message, screen).await,
        Command::List(list) => list::list(session, list, screen).await,
        Command::Show(show) => show::show(session, show, screen).await,
        Command::Transcript(transcript) => {
            transcript::transcript(session, transcript, screen).await
        }
        Command::Raise(raise) => signal::raise(session, raise, screen).await,
        Command::Open(open) => own::open(session, open, screen).await,
        Command::Append(append) => own::append(session, append, screen).await,
        Command::Close(close) => own::close(session, close, screen).await,
        Command::Title(title) => signal::title(session, title, screen).await,
        Command::Cancel(named) => signal::cancel(session, named, screen).await,
        Command::Kill(named) => signal::kill(session, named, screen).await,
        Command::Budget(budget) => budget::budget(session, budget, screen).await,
        Command::Tree(tree) => budget::tree(session, tree, screen).await,
        Command::Recover(recover) => recover::recover(session, recover, screen).await,
        Command::Repair(repair) => repair::repair(session, repair, screen).await,
        Command::Audit => audit::audit(session, screen).await,
        Command::Doctor(doctor) => doctor::doctor(session, doctor, screen).await,
        Command::Demo => demo::demo(session, screen).await,
        Command::Completions(completions) => {
            let script = args::completions(completions.shell);
            Ok(screen.answer(&CompletionsAnswer::new(
                completions.shell.to_string(),
                script,
            )))
        }
    }
}
