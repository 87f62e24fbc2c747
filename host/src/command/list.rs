//! `list`: one page of threads.

use super::session::{CommandProject, CommandSession};
use super::{chain, fault, view};
use threadkeep::wit;
use threadkeep::wit::registry::{Filter, RowPage};
use threadkeep_cli::answer::{ListAnswer, has_ended};
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
    let parent = list.filter.parent.clone();
    let filter = filter_of(list.filter);
    let page = opened.tenant().list(filter, list.limit, list.cursor).await;
    let mut page = page.map_err(|error| fault::from_call(&error))?;
    if let Some(parent) = parent {
        add_later_links(&opened, &mut page, screen).await?;
        chain::name_tip(&opened, &parent, "list --parent", screen).await;
    }
    opened.note_if_empty(screen);
    Ok(screen.print_answer(&ListAnswer {
        threads: page.threads.iter().map(view::thread_row).collect(),
        unreadable: page.unreadable.into_iter().map(view::unreadable).collect(),
        cursor: page.cursor,
        exit: CommandExit::Done,
    }))
}

/// Lists the later links of each child in front of it, newest first: the component lists the first
/// link of a child alone, and a child that was continued runs in another.
async fn add_later_links(
    opened: &CommandProject,
    page: &mut RowPage,
    screen: &mut OutputScreen,
) -> Result<(), CommandFault> {
    for child in std::mem::take(&mut page.threads) {
        // Only a thread that has ended can have been continued.
        if has_ended(&child.status) {
            let links = Filter::Chain(child.id.clone());
            let links = opened.tenant().list(links, args::LIST_MAX, None).await;
            let links = links.map_err(|error| fault::from_call(&error))?;
            if links.cursor.is_some() {
                let child = &child.id;
                screen.note(&format!(
                    "{child} has earlier links: `threadkeep chain {child}`"
                ));
            }
            let later = links.threads.into_iter().filter(|link| link.id != child.id);
            page.threads.extend(later);
            let known = |one: &wit::Unreadable| one.thread == child.id;
            page.unreadable
                .extend(links.unreadable.into_iter().filter(|one| !known(one)));
        }
        page.threads.push(child);
    }
    Ok(())
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
