//! `show`: one thread and its last events.

use super::open::{Opened, Session};
use super::{fault, view};
use std::collections::VecDeque;
use threadkeep_cli::answer::ShowAnswer;
use threadkeep_cli::args;
use threadkeep_cli::exit::{Exit, Fault};
use threadkeep_cli::screen::Screen;

/// Entries of one page of events.
const PAGE_ENTRIES: u32 = 100;

/// Shows one thread and its last events.
pub async fn show(session: &Session, show: args::Show, screen: &mut Screen) -> Result<Exit, Fault> {
    let opened = session.open_to_read(screen)?;
    let answer = shown(&opened, &show.thread, show.events).await?;
    Ok(screen.answer(&answer))
}

/// Loads a thread with its last `count` events. Each entry has at least one event, so at most
/// `count` entries are read.
pub async fn shown(opened: &Opened, thread: &str, count: u32) -> Result<ShowAnswer, Fault> {
    let failed = |error| fault::of_thread(opened, thread, &error);
    let tenant = opened.tenant();
    let record = tenant.get(thread).await.map_err(failed)?;
    let wanted = count as usize;
    let mut events = VecDeque::new();
    let mut after = Some(record.version.saturating_sub(u64::from(count)));
    while let (Some(from), true) = (after, wanted > 0) {
        let page = tenant
            .events(thread, from, PAGE_ENTRIES)
            .await
            .map_err(failed)?;
        events.extend(page.events.iter().map(view::event));
        events.drain(..events.len().saturating_sub(wanted));
        after = page.cursor;
    }
    Ok(ShowAnswer {
        thread: view::thread(&record),
        events: events.into(),
        exit: Exit::Done,
    })
}
