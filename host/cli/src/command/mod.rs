//! The commands, over the traits of [`threads`](crate::threads). Each opens what it needs, calls
//! the component, and prints an answer.
//!
//! No rule of the product lives here: the component refuses, and a command reports the refusal to
//! the user.

pub mod budget;
pub mod cap_warning;
pub mod chain;
mod change_lines;
pub mod charges;
pub mod checkpoints;
pub mod complete_words;
pub mod decide;
pub mod demo;
pub mod export;
pub mod external_loop;
pub mod fault;
pub mod finished_run;
pub mod inner_run;
pub mod list;
pub mod message_images;
pub mod recover;
pub mod run;
pub mod show;
pub mod signal;
pub mod state;
pub mod thread_names;
mod thread_path;
pub mod transcript;
pub mod tree_totals;
pub mod usage;
pub mod view;

use crate::answer::{CompletionsAnswer, ManAnswer};
use crate::args::{self, CliCommand};
use crate::exit::{CommandExit, CommandFault};
use crate::screen::OutputScreen;
use crate::threads::{CommandHost, ProjectThreads};

/// Performs a command; its answer is on the screen when it returns. A command that a native host
/// alone has, and so performs before it asks here, is refused.
pub async fn perform(
    host: &impl CommandHost,
    command: CliCommand,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    match command {
        CliCommand::Run(run) => run::run(host, run, screen).await,
        CliCommand::Resume(resume) => run::resume(host, resume, screen).await,
        CliCommand::Approve(approve) => decide::approve(host, approve, screen).await,
        CliCommand::Deny(deny) => decide::deny(host, deny, screen).await,
        CliCommand::Answer(answer) => decide::answer(host, answer, screen).await,
        CliCommand::Create(create) => run::create(host, create, screen).await,
        CliCommand::Message(message) => signal::message(host, message, screen).await,
        CliCommand::List(list) => list::list(host, list, screen).await,
        CliCommand::Show(show) => show::show(host, show, screen).await,
        CliCommand::Chain(named) => chain::chain(host, named, screen).await,
        CliCommand::Transcript(asked) => transcript::transcript(host, asked, screen).await,
        CliCommand::State(asked) => state::state(host, asked, screen).await,
        CliCommand::Checkpoints(asked) => checkpoints::checkpoints(host, asked, screen).await,
        CliCommand::Fork(fork) => checkpoints::fork(host, fork, screen).await,
        CliCommand::Raise(raise) => signal::raise(host, raise, screen).await,
        CliCommand::Open(open) => external_loop::open(host, open, screen).await,
        CliCommand::Append(append) => external_loop::append(host, append, screen).await,
        CliCommand::Close(close) => external_loop::close(host, close, screen).await,
        CliCommand::Title(title) => signal::title(host, title, screen).await,
        CliCommand::Cancel(named) => signal::cancel(host, named, screen).await,
        CliCommand::Kill(named) => signal::kill(host, named, screen).await,
        CliCommand::Budget(budget) => budget::budget(host, budget, screen).await,
        CliCommand::Tree(tree) => budget::tree(host, tree, screen).await,
        CliCommand::Export(asked) => export::export(host, asked, screen).await,
        CliCommand::Usage(asked) => usage::usage(host, asked, screen).await,
        CliCommand::Recover(recover) => recover::recover(host, recover, screen).await,
        CliCommand::Demo => demo::demo(host, screen).await,
        CliCommand::Completions(completions) => {
            let script = args::generate_completions(completions.shell);
            Ok(screen.print_answer(&CompletionsAnswer::new(
                completions.shell.to_string(),
                script,
            )))
        }
        CliCommand::Man(asked) => Ok(screen.print_answer(&ManAnswer {
            page: args::man_page(&asked.words)?,
            command: asked.words,
            exit: CommandExit::Done,
        })),
        CliCommand::CompleteWords(asked) => {
            Ok(complete_words::complete_words(host, asked, screen).await)
        }
        CliCommand::Chat(_) => Err(refuse_native(
            "chat",
            "run DIRECTIVE, and resume THREAD TEXT",
        )),
        CliCommand::Init(_) => Err(refuse_native("init", "")),
        CliCommand::Top(_) => Err(refuse_native("top", "list, and tree THREAD")),
        CliCommand::Repair(_) => Err(refuse_native("repair", "")),
        CliCommand::Prune(_) => Err(refuse_native("prune", "")),
        CliCommand::Import(_) => Err(refuse_native("import", "")),
        CliCommand::Copy(_) => Err(refuse_native("copy", "")),
        CliCommand::Audit => Err(refuse_native("audit", "")),
        CliCommand::Doctor(_) => Err(refuse_native("doctor", "")),
    }
}

/// Refuses a command that only the native program has, and says where it is to be had.
fn refuse_native(command: &str, instead: &str) -> CommandFault {
    let message = format!("this build of threadkeep has no `{command}`");
    let native = format!("the native program has it, on the same directory: threadkeep {command}");
    CommandFault::usage(message).with_hint(match instead {
        "" => native,
        instead => format!("{native}; here: {instead}"),
    })
}

/// Tells the user that the project is empty: this may be the wrong directory.
pub fn note_if_empty(opened: &impl ProjectThreads, screen: &mut OutputScreen) {
    if opened.is_memory_only() {
        screen.note(fault::MEMORY_STORE_HINT);
    } else if opened.is_empty() {
        screen.note("there is no store yet: the first `threadkeep run` makes it");
    }
}

/// Creates an id for a request that is sent once.
pub fn fresh_id(threads: &impl ProjectThreads) -> String {
    format!("cli-{}", threads.random_digits())
}
