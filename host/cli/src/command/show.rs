//! `show`: one thread and its last events.

use super::checkpoints::checkpoint_row;
use super::thread_path::{load_last_entries, path_of};
use super::{cap_warning, chain, fault, thread_names, view};
use crate::answer::{EventView, ShowAnswer};
use crate::args;
use crate::exit::{CommandExit, CommandFault};
use crate::screen::OutputScreen;
use crate::threads::{CommandHost, ProjectThreads};

/// Shows one thread and its last events.
pub async fn show(
    host: &impl CommandHost,
    mut show: args::ShowArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = host.open_to_read(screen)?;
    thread_names::resolve(&opened, &mut show.thread).await?;
    let mut answer = load_thread(&opened, &show.thread, show.events, show.at).await?;
    answer.utc = show.utc;
    let (id, status) = (&answer.thread.thread_id, &answer.thread.status);
    cap_warning::warn_of_account(&opened, id, status, None, screen).await;
    if answer.thread.next.is_some() {
        answer.continued_in = chain::name_tip(&opened, &show.thread, "show", screen).await;
    }
    Ok(screen.print_answer(&answer))
}

/// Loads a thread with its last `count` events, up to the version `at` (the newest if it is
/// `None`). Nearly every entry has an event, so at most `count` entries are read.
pub async fn load_thread(
    opened: &impl ProjectThreads,
    thread: &str,
    count: u32,
    at: Option<u64>,
) -> Result<ShowAnswer, CommandFault> {
    let failed = |error| fault::from_thread_call(opened, thread, &error);
    let record = opened.get(thread).await.map_err(failed)?;
    let until = at.unwrap_or(record.version);
    let entries = match (until, at) {
        (0, None) => Ok(Vec::new()),
        // The entry of the version tells what `at` shows.
        (until, _) => load_last_entries(opened, &record, until, count.max(1)).await,
    };
    // The thread is shown although an earlier link, whose entries it carries, cannot be read.
    let (entries, events_problem) = match entries {
        Ok(entries) => (entries, None),
        Err(fault) if at.is_none() && fault.code == "corrupt" => (Vec::new(), Some(fault.message)),
        Err(fault) => return Err(fault),
    };
    let path = path_of(&record);
    let shown = entries.last().filter(|_| at.is_some());
    let shown = shown.map(|entry| checkpoint_row(&path, entry));
    let mut events: Vec<EventView> = entries.iter().flat_map(view::entry_events).collect();
    events.drain(..events.len().saturating_sub(count as usize));
    Ok(ShowAnswer {
        thread: view::thread(&record),
        at: shown,
        events,
        documents: opened.documents_path(&record.id),
        events_problem,
        continued_in: None,
        exit: CommandExit::Done,
        utc: false,
    })
}
