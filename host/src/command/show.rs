//! `show`: one thread and its last events.

use super::session::{CommandProject, CommandSession};
use super::{chain, fault, view};
use std::collections::VecDeque;
use threadkeep_cli::answer::ShowAnswer;
use threadkeep_cli::args;
use threadkeep_cli::exit::{CommandExit, CommandFault};
use threadkeep_cli::screen::OutputScreen;

/// Entries of one page of events.
const PAGE_ENTRIES: u32 = 100;

/// Shows one thread and its last events.
pub async fn show(
    session: &CommandSession,
    show: args::ShowArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = session.open_to_read(screen)?;
    let mut answer = load_thread(&opened, &show.thread, show.events).await?;
    if answer.thread.next.is_some() {
        answer.continued_in = chain::name_tip(&opened, &show.thread, "show", screen).await;
    }
    Ok(screen.print_answer(&answer))
}

/// Loads a thread with its last `count` events. Each entry has at least one event, so at most
/// `count` entries are read.
pub async fn load_thread(
    opened: &CommandProject,
    thread: &str,
    count: u32,
) -> Result<ShowAnswer, CommandFault> {
    let failed = |error| fault::from_thread_call(opened, thread, &error);
    let tenant = opened.tenant();
    let record = tenant.get(thread).await.map_err(failed)?;
    let wanted = count as usize;
    let mut events = VecDeque::new();
    let after = record.version.saturating_sub(u64::from(count));
    let mut next = Some(None);
    while let (Some(cursor), true) = (next, wanted > 0) {
        let page = tenant
            .events(thread, after, PAGE_ENTRIES, cursor)
            .await
            .map_err(failed)?;
        events.extend(page.events.iter().map(view::event));
        events.drain(..events.len().saturating_sub(wanted));
        next = page.cursor.map(Some);
    }
    Ok(ShowAnswer {
        thread: view::thread(&record),
        events: events.into(),
        continued_in: None,
        exit: CommandExit::Done,
    })
}
