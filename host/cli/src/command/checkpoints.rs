//! `checkpoints`: the committed versions of a thread; and `fork`, which begins a new one there.

use super::thread_path::{load_last_entries, path_of};
use super::view::format_time;
use super::{chain, fault, thread_names, view};
use crate::answer::{CheckpointRow, CheckpointsAnswer, ForkAnswer};
use crate::args;
use crate::contract::{Entry, Thread};
use crate::exit::{CommandExit, CommandFault};
use crate::money;
use crate::screen::OutputScreen;
use crate::threads::{CommandHost, ProjectThreads};
use serde_json::{Value, json};
use std::time::Duration;
use threadkeep_units::thread_path::ThreadPath;

/// Lists the committed versions of a thread, newest first.
pub async fn checkpoints(
    host: &impl CommandHost,
    mut asked: args::CheckpointsArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = host.open_to_read(screen)?;
    thread_names::resolve(&opened, &mut asked.thread).await?;
    let thread = load_record(&opened, &asked.thread).await?;
    let until = asked.at.unwrap_or(thread.version);
    let entries = match until {
        // A thread without entries has reached no version.
        0 if asked.at.is_none() => Vec::new(),
        // One more tells where a further call goes on.
        until => load_last_entries(&opened, &thread, until, asked.limit + 1).await?,
    };
    let path = path_of(&thread);
    let rows = entries.iter().map(|entry| checkpoint_row(&path, entry));
    let mut rows: Vec<CheckpointRow> = rows.rev().collect();
    let next = rows.get(asked.limit as usize).map(|row| row.version);
    rows.truncate(asked.limit as usize);
    let continued_in = chain::name_tip(&opened, &asked.thread, "checkpoints", screen).await;
    Ok(screen.print_answer(&CheckpointsAnswer {
        thread_id: thread.id,
        checkpoints: rows,
        next,
        continued_in,
        exit: CommandExit::Done,
        utc: asked.utc,
    }))
}

/// Converts an entry of a path.
pub fn checkpoint_row(path: &ThreadPath, entry: &Entry) -> CheckpointRow {
    let row = CheckpointRow {
        version: entry.version,
        thread_id: path.owner_of(entry.version).to_owned(),
        reason: entry.reason.clone(),
        time: format_time(entry.time),
        hash: entry.hash.clone(),
        input_tokens: None,
        output_tokens: None,
        text: String::new(),
    };
    row.with_entry(&view::parse_json(&entry.body))
}

/// Begins a thread as another was at a version.
pub async fn fork(
    host: &impl CommandHost,
    mut asked: args::ForkArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = host.open()?;
    thread_names::resolve(&opened, &mut asked.thread).await?;
    let thread = load_record(&opened, &asked.thread).await?;
    let version = asked.at.unwrap_or(thread.version);
    let change = fork_change(&asked).to_string();
    let forked = opened.fork_at(&thread.id, version, Some(change)).await;
    let forked = forked.map_err(|error| fault::from_thread_call(&opened, &thread.id, &error))?;
    opened.refresh_documents(&forked.id, screen).await;
    let continued_in = chain::name_tip(&opened, &asked.thread, "fork", screen).await;
    Ok(screen.print_answer(&ForkAnswer {
        thread: view::thread(&forked),
        continued_in,
        exit: CommandExit::Done,
    }))
}

/// Returns the own properties of a fork as the component takes them: caps as in files.
fn fork_change(asked: &args::ForkArgs) -> Value {
    let caps = &asked.caps;
    let seconds = |time: Duration| format!("{}.{:03}", time.as_secs(), time.subsec_millis());
    json!({
        "title": asked.title,
        "agent": asked.agent,
        "task": asked.task,
        "limits": {
            "turns": caps.turns,
            "tokens": caps.tokens,
            "spend": caps.spend.map(money::format_decimal),
            "spawns": caps.spawns,
            "depth": caps.depth,
            "duration": caps.duration.map(seconds),
        },
    })
}

async fn load_record(opened: &impl ProjectThreads, thread: &str) -> Result<Thread, CommandFault> {
    let found = opened.get(thread).await;
    found.map_err(|error| fault::from_thread_call(opened, thread, &error))
}
