//! `recover`: closes the runs of dead processes.

use super::{charges, fault, note_if_empty, run, view};
use crate::answer::{HeldRow, RecoverAnswer};
use crate::args;
use crate::contract::{
    CallError, CallRefusal, RecordDamage, RefusalKind, ThreadFilter, UnreadableThread,
};
use crate::exit::{CommandExit, CommandFault};
use crate::screen::OutputScreen;
use crate::threads::{CallResult, CommandHost, PAGE_THREADS_MAX, ProjectThreads, ThreadRuns};
use std::collections::BTreeMap;

/// Most held threads that are named: the newest.
const HELD_NAMED_MAX: u32 = 10;

/// Closes the runs of dead holders and brings their documents up to date.
pub async fn recover(
    host: &impl CommandHost,
    recover: args::RecoverArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    if recover.dead.iter().any(String::is_empty) {
        return Err(CommandFault::usage("--dead names no holder")
            .with_hint("`threadkeep show THREAD` names the holder of a thread"));
    }
    let opened = host.open()?;
    // After the recovery no record tells which processes died.
    opened.catch_up(screen).await;
    let recovered = opened.recover_runs(&recover.dead).await?;
    let charged = charges::load_closing_charges(&opened, &recovered.closed).await;
    let swept = opened.sweep_all(None).await;
    let swept = swept.map_err(|error| fault::from_call(&error))?;
    for thread in &recovered.closed {
        opened.refresh_documents(thread, screen).await;
    }
    let left = find_abandoned_tops(&opened, &recovered.closed).await;
    let left = left.map_err(|error| fault::from_call(&error))?;
    note_if_empty(&opened, screen);
    let held = list_held(&opened).await;
    let held = held.map_err(|error| fault::from_call(&error))?;
    let ended = find_ended(&opened, &recovered.closed).await;
    let mut unreadable = recovered.unreadable;
    for found in [swept, left.unreadable].concat() {
        if unreadable.iter().all(|known| known.thread != found.thread) {
            unreadable.push(found);
        }
    }
    // A holder whose run was closed has left no lease to look at.
    if recovered.closed.is_empty() && unreadable.is_empty() {
        for holder in &recover.dead {
            screen.note(&format!("no run is held by {holder}"));
        }
    }
    Ok(screen.print_answer(&RecoverAnswer {
        recovered: recovered.closed,
        ended,
        charged,
        held,
        unreadable: unreadable.into_iter().map(view::unreadable).collect(),
        left: left.tops,
        exit: CommandExit::Done,
    }))
}

/// Those of the threads that have ended. One that cannot be read any more is named elsewhere.
async fn find_ended(opened: &impl ProjectThreads, threads: &[String]) -> Vec<String> {
    let mut ended = Vec::new();
    for thread in threads {
        let found = opened.get(thread).await;
        if found.is_ok_and(|found| found.outcome.is_some()) {
            ended.push(thread.clone());
        }
    }
    ended
}

/// Lists the threads that processes hold which are not known to be dead, so that a lock which
/// another program keeps is not mistaken for a run.
async fn list_held(opened: &impl ProjectThreads) -> CallResult<Vec<HeldRow>> {
    let filter = ThreadFilter::Status("running".to_owned());
    let page = opened.list(filter, HELD_NAMED_MAX, None).await?;
    let mut held = Vec::new();
    for row in page.threads {
        // One that has ended meanwhile has no lease.
        let record = opened.get(&row.id).await;
        if let Some(lease) = record.ok().and_then(|record| record.run.lease) {
            held.push(run::held_row(opened, &lease));
        }
    }
    Ok(held)
}

/// Threads that are left below threads that have ended.
#[derive(Default)]
struct LeftBelow {
    /// Those threads.
    tops: Vec<String>,
    /// Threads that are created or wait, or lie above such a one, and cannot be read: nobody knows
    /// whether they are left.
    unreadable: Vec<UnreadableThread>,
}

/// Finds threads that have ended while threads below them were created, wait or were just
/// recovered: no process drives those until the user resumes the top thread. Trees that another
/// process performs at this moment are left out.
async fn find_abandoned_tops(
    threads: &impl ProjectThreads,
    recovered: &[String],
) -> CallResult<LeftBelow> {
    let (mut lowest, mut left) = (recovered.to_vec(), LeftBelow::default());
    for status in ["created", "waiting"] {
        let filter = ThreadFilter::Status(status.to_owned());
        let mut cursor = None;
        loop {
            let page = threads
                .list(filter.clone(), PAGE_THREADS_MAX, cursor)
                .await?;
            let children = page.threads.into_iter().filter(|one| one.parent.is_some());
            lowest.extend(children.map(|child| child.id));
            left.unreadable.extend(page.unreadable);
            cursor = page.cursor;
            if cursor.is_none() {
                break;
            }
        }
    }
    let mut tops = BTreeMap::new();
    for thread in lowest {
        let Some(top) = find_ended_top(threads, &thread, &mut tops, &mut left.unreadable).await?
        else {
            continue;
        };
        if top != thread && !left.tops.contains(&top) && !has_running_thread(threads, &top).await? {
            left.tops.push(top);
        }
    }
    Ok(left)
}

/// The thread at the top of a tree, if it has ended. `tops` remembers it for every thread on the
/// way; one that cannot be read ends the way and is named.
async fn find_ended_top(
    threads: &impl ProjectThreads,
    thread: &str,
    tops: &mut BTreeMap<String, Option<String>>,
    unreadable: &mut Vec<UnreadableThread>,
) -> CallResult<Option<String>> {
    let (mut way, mut next) = (Vec::new(), thread.to_owned());
    let top = loop {
        if let Some(known) = tops.get(&next) {
            break known.clone();
        }
        way.push(next.clone());
        match threads.get(&next).await {
            Ok(found) => match found.parent {
                Some(parent) => next = parent,
                None => break found.outcome.is_some().then_some(found.id),
            },
            Err(CallError::Refused(refused)) => {
                unreadable.push(unreadable_by(&next, refused));
                break None;
            }
            Err(error) => return Err(error),
        }
    };
    tops.extend(way.into_iter().map(|passed| (passed, top.clone())));
    Ok(top)
}

/// Names a thread that a child has as its parent and that cannot be had.
fn unreadable_by(thread: &str, refused: CallRefusal) -> UnreadableThread {
    let code = match refused.kind {
        RefusalKind::Corrupt => refused.code.clone(),
        _ => fault::described_code(&refused).to_owned(),
    };
    UnreadableThread {
        thread: thread.to_owned(),
        why: RecordDamage {
            code,
            message: refused.message,
        },
    }
}

/// Returns true if a thread of this tree is running. Runs of dead processes were closed before, so
/// its holder lives.
async fn has_running_thread(threads: &impl ProjectThreads, top: &str) -> CallResult<bool> {
    let mut cursor = None;
    loop {
        let page = threads.tree(top, cursor).await?;
        if page
            .branches
            .iter()
            .any(|branch| branch.status == "running")
        {
            return Ok(true);
        }
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(false);
        }
    }
}
