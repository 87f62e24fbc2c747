//! `state`: the state document of a thread, now or at a version.

use super::{chain, fault, thread_names, view};
use crate::answer::StateAnswer;
use crate::args;
use crate::exit::{CommandExit, CommandFault};
use crate::screen::OutputScreen;
use crate::threads::{CommandHost, ProjectThreads};

/// Prints the state document of a thread.
pub async fn state(
    host: &impl CommandHost,
    mut asked: args::StateArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = host.open_to_read(screen)?;
    thread_names::resolve(&opened, &mut asked.thread).await?;
    let failed = |error| fault::from_thread_call(&opened, &asked.thread, &error);
    let loaded = opened.load(&asked.thread, asked.at).await;
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
