//! `recover`: closes the runs of dead processes.

use super::session::{CommandProject, CommandSession};
use super::{charges, fault, run, view};
use std::collections::BTreeMap;
use threadkeep::error::{CallError, ErrorDescription, describe};
use threadkeep::tenant::{PAGE_THREADS_MAX, Tenant};
use threadkeep::wit;
use threadkeep::wit::registry::Filter;
use threadkeep_cli::answer::{HeldRow, RecoverAnswer};
use threadkeep_cli::args;
use threadkeep_cli::exit::{CommandExit, CommandFault};
use threadkeep_cli::screen::OutputScreen;

/// Most held threads that are named: the newest.
const HELD_NAMED_MAX: u32 = 10;

/// Closes the runs of dead holders and brings their documents up to date.
pub async fn recover(
    session: &CommandSession,
    recover: args::RecoverArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = session.open()?;
    // After the recovery no record tells which processes died.
    opened.catch_up(screen).await;
    let recovered = opened.project().recover_runs(&recover.dead).await;
    let recovered = recovered.map_err(|error| fault::from_recovery(&error))?;
    let charged = charges::load_closing_charges(opened.tenant(), &recovered.closed).await;
    let swept = opened.tenant().sweep_all(None).await;
    let swept = swept.map_err(|error| fault::from_call(&error))?;
    for thread in &recovered.closed {
        opened.refresh_documents(thread, screen).await;
    }
    let left = find_abandoned_tops(opened.tenant(), &recovered.closed).await;
    let left = left.map_err(|error| fault::from_call(&error))?;
    opened.note_if_empty(screen);
    let held = list_held(&opened).await;
    let held = held.map_err(|error| fault::from_call(&error))?;
    let ended = find_ended(opened.tenant(), &recovered.closed).await;
    let mut unreadable = recovered.unreadable;
    for found in [swept.unreadable, left.unreadable].concat() {
        if unreadable.iter().all(|known| known.thread != found.thread) {
            unreadable.push(found);
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
async fn find_ended(tenant: &Tenant, threads: &[String]) -> Vec<String> {
    let mut ended = Vec::new();
    for thread in threads {
        let found = tenant.get(thread).await;
        if found.is_ok_and(|found| found.outcome.is_some()) {
            ended.push(thread.clone());
        }
    }
    ended
}

/// Lists the threads that processes hold which are not known to be dead, so that a lock which
/// another program keeps is not mistaken for a run.
async fn list_held(opened: &CommandProject) -> Result<Vec<HeldRow>, CallError> {
    let filter = Filter::Status("running".to_owned());
    let page = opened.tenant().list(filter, HELD_NAMED_MAX, None).await?;
    let mut held = Vec::new();
    for row in page.threads {
        // One that has ended meanwhile has no lease.
        let record = opened.tenant().get(&row.id).await;
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
    unreadable: Vec<wit::Unreadable>,
}

/// Finds threads that have ended while threads below them were created, wait or were just
/// recovered: no process drives those until the user resumes the top thread. Trees that another
/// process performs at this moment are left out.
async fn find_abandoned_tops(
    tenant: &Tenant,
    recovered: &[String],
) -> Result<LeftBelow, CallError> {
    let (mut lowest, mut left) = (recovered.to_vec(), LeftBelow::default());
    for status in ["created", "waiting"] {
        let filter = Filter::Status(status.to_owned());
        let mut cursor = None;
        loop {
            let page = tenant
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
        let Some(top) = find_ended_top(tenant, &thread, &mut tops, &mut left.unreadable).await?
        else {
            continue;
        };
        if top != thread && !left.tops.contains(&top) && !has_running_thread(tenant, &top).await? {
            left.tops.push(top);
        }
    }
    Ok(left)
}

/// The thread at the top of a tree, if it has ended. `tops` remembers it for every thread on the
/// way; one that cannot be read ends the way and is named.
async fn find_ended_top(
    tenant: &Tenant,
    thread: &str,
    tops: &mut BTreeMap<String, Option<String>>,
    unreadable: &mut Vec<wit::Unreadable>,
) -> Result<Option<String>, CallError> {
    let (mut way, mut next) = (Vec::new(), thread.to_owned());
    let top = loop {
        if let Some(known) = tops.get(&next) {
            break known.clone();
        }
        way.push(next.clone());
        match tenant.get(&next).await {
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
fn unreadable_by(thread: &str, refused: wit::Error) -> wit::Unreadable {
    let why = match refused {
        wit::Error::Corrupt(why) => why.into(),
        refused => {
            let ErrorDescription { code, message, .. } = describe(&refused);
            wit::Failure { code, message }
        }
    };
    wit::Unreadable {
        thread: thread.to_owned(),
        why,
    }
}

/// Returns true if a thread of this tree is running. Runs of dead processes were closed before, so
/// its holder lives.
async fn has_running_thread(tenant: &Tenant, top: &str) -> Result<bool, CallError> {
    let mut cursor = None;
    loop {
        let page = tenant.tree(top, cursor).await?;
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
