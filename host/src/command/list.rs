//! `list`: one page of threads.

use super::open::Session;
use super::{fault, view};
use threadkeep::wit::registry::Filter;
use threadkeep_cli::answer::ListAnswer;
use threadkeep_cli::args;
use threadkeep_cli::exit::{Exit, Fault};
use threadkeep_cli::screen::Screen;

/// Lists one page of threads.
pub async fn list(session: &Session, list: args::List, screen: &mut Screen) -> Result<Exit, Fault> {
    let opened = session.open_to_read(screen)?;
    let filter = Filter {
        status: list.filter.status,
        parent: list.filter.parent,
        directive: list.filter.directive,
        agent: list.filter.agent,
        task: list.filter.task,
        chain: list.filter.chain,
    };
    let page = opened.tenant().list(filter, list.limit, list.cursor).await;
    let page = page.map_err(|error| fault::call(&error))?;
    opened.say_if_empty(screen);
    Ok(screen.answer(&ListAnswer {
        threads: page.threads.iter().map(view::row).collect(),
        unreadable: page.unreadable.into_iter().map(view::unreadable).collect(),
        cursor: page.cursor,
        exit: Exit::Done,
    }))
}
