//! `list`: one page of threads.

use super::{chain, fault, note_if_empty, view};
use crate::answer::{ListAnswer, has_ended};
use crate::args;
use crate::contract::{ListPage, ThreadFilter, UnreadableThread};
use crate::exit::{CommandExit, CommandFault};
use crate::screen::OutputScreen;
use crate::threads::{CommandHost, ProjectThreads};

/// Lists one page of threads.
pub async fn list(
    host: &impl CommandHost,
    list: args::ListArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = host.open_to_read(screen)?;
    let parent = list.filter.parent.clone();
    let filter = filter_of(list.filter);
    let page = opened.list(filter, list.limit, list.cursor).await;
    let mut page = page.map_err(|error| fault::from_call(&error))?;
    if let Some(parent) = parent {
        add_later_links(&opened, &mut page, screen).await?;
        chain::name_tip(&opened, &parent, "list --parent", screen).await;
    }
    note_if_empty(&opened, screen);
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
    opened: &impl ProjectThreads,
    page: &mut ListPage,
    screen: &mut OutputScreen,
) -> Result<(), CommandFault> {
    for child in std::mem::take(&mut page.threads) {
        // Only a thread that has ended can have been continued.
        if has_ended(&child.status) {
            let links = ThreadFilter::Chain(child.id.clone());
            let links = opened.list(links, args::LIST_MAX, None).await;
            let links = links.map_err(|error| fault::from_call(&error))?;
            if links.cursor.is_some() {
                let child = &child.id;
                screen.note(&format!(
                    "{child} has earlier links: `threadkeep chain {child}`"
                ));
            }
            let later = links.threads.into_iter().filter(|link| link.id != child.id);
            page.threads.extend(later);
            let known = |one: &UnreadableThread| one.thread == child.id;
            page.unreadable
                .extend(links.unreadable.into_iter().filter(|one| !known(one)));
        }
        page.threads.push(child);
    }
    Ok(())
}

/// The filter of the forks of a chain.
pub fn forks_of(chain: &str) -> ThreadFilter {
    ThreadFilter::Other(serde_json::json!({"kind": "forks", "chain": chain}).to_string())
}

/// The filter of the command line, which gives one at most.
fn filter_of(given: args::ListFilter) -> ThreadFilter {
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
        status.map(ThreadFilter::Status),
        parent.map(ThreadFilter::Parent),
        directive.map(ThreadFilter::Directive),
        agent.map(ThreadFilter::Agent),
        task.map(ThreadFilter::Task),
        chain.map(ThreadFilter::Chain),
        forks.map(|chain| forks_of(&chain)),
    ];
    filters.into_iter().flatten().next().unwrap_or_default()
}
