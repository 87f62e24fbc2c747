//! `list`: one page of threads.

use super::session::CommandSession;
use super::{fault, view};
use threadkeep::wit::registry::Filter;
use threadkeep_cli::answer::ListAnswer;
use threadkeep_cli::args;
use threadkeep_cli::exit::{CommandExit, CommandFault};
use threadkeep_cli::screen::OutputScreen;

/// Lists one page of threads.
pub async fn list(
    session: &CommandSession,
    list: args::ListArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = session.open_to_read(screen)?;
    let filter = filter_of(list.filter);
    let page = opened.tenant().list(filter, list.limit, list.cursor).await;
    let page = page.map_err(|error| fault::from_call(&error))?;
    opened.note_if_empty(screen);
    Ok(screen.print_answer(&ListAnswer {
        threads: page.threads.iter().map(view::thread_row).collect(),
        unreadable: page.unreadable.into_iter().map(view::unreadable).collect(),
        cursor: page.cursor,
        exit: CommandExit::Done,
    }))
}

/// The filter of the forks of a chain.
pub fn forks_of(chain: &str) -> Filter {
    Filter::Other(serde_json::json!({"kind": "forks", "chain": chain}).to_string())
}

/// The filter of the command line, which gives one at most.
fn filter_of(given: args::ListFilter) -> Filter {
    let args::ListFilter {
        status,
        parent,
        directive,
        agent,
        task,
        chain,
        forks,
    } = given;
    let filters = [
        status.map(Filter::Status),
        parent.map(Filter::Parent),
        directive.map(Filter::Directive),
        agent.map(Filter::Agent),
        task.map(Filter::Task),
        chain.map(Filter::Chain),
        forks.map(|chain| forks_of(&chain)),
    ];
    filters.into_iter().flatten().next().unwrap_or_default()
}
