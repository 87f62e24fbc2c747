//! `state`: the state document of a thread, now or at a version.

use super::session::CommandSession;
use super::{chain, fault, view};
use threadkeep_cli::answer::StateAnswer;
use threadkeep_cli::args;
use threadkeep_cli::exit::{CommandExit, CommandFault};
use threadkeep_cli::screen::OutputScreen;

/// Prints the state document of a thread.
pub async fn state(
    session: &CommandSession,
    asked: args::StateArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = session.open_to_read(screen)?;
    let failed = |error| fault::from_thread_call(&opened, &asked.thread, &error);
    let loaded = opened.tenant().load(&asked.thread, asked.at).await;
    let loaded = loaded.map_err(failed)?;
    let continued_in = match loaded.thread.next {
        Some(_) => chain::name_tip(&opened, &asked.thread, "state", screen).await,
        None => None,
    };
    Ok(screen.print_answer(&StateAnswer {
        thread_id: loaded.thread.id,
        version: loaded.version,
        state: view::parse_json(&loaded.state),
        continued_in,
        exit: CommandExit::Done,
    }))
}
