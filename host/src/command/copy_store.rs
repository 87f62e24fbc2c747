//! `copy`: moves the store of a project to the other kind.

use super::fault;
use super::session::CommandSession;
use cap_std::fs::Dir;
use std::sync::mpsc;
use std::time::Duration;
use threadkeep::authority::{self, HolderState};
use threadkeep::project::{
    ProjectStore, StoreTransfer, TransferError, TransferStep, transfer_store,
};
use threadkeep::storage::whole_store::CopyError;
use threadkeep::wit::Lease;
use threadkeep_cli::answer::CopyAnswer;
use threadkeep_cli::args::{CopyArgs, DurableStoreKind};
use threadkeep_cli::exit::{CommandExit, CommandFault};
use threadkeep_cli::screen::OutputScreen;
use threadkeep_units::lease_grace::is_grace_over;
use threadkeep_units::time::rfc3339_seconds;

/// Copies the store, and makes the copy the one that counts.
pub async fn copy(
    session: &CommandSession,
    asked: CopyArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    if session.common().store.is_some() {
        let message = "copy takes the store that the project has, and no --store";
        return Err(CommandFault::usage(message).with_hint("say with --to what it becomes"));
    }
    let to = match asked.to {
        DurableStoreKind::Sqlite => ProjectStore::Sqlite,
        DurableStoreKind::Files => ProjectStore::Files,
    };
    let directory = session.project_directory()?;
    let threads = directory.threads_dir();
    let threads = threads.map_err(|error| fault::from_authority(&error))?;
    let Some(threads) = threads else {
        return Err(transfer_fault(&TransferError::NoStore));
    };
    check_no_lease(session, &threads, screen).await?;
    let (sender, steps) = mpsc::channel();
    let mut moving = tokio::task::spawn_blocking(move || {
        let mut observe = |step| {
            // The other end is gone only when the command is.
            let _ = sender.send(step);
        };
        transfer_store(&threads, to, &mut observe)
    });
    let mut tick = tokio::time::interval(Duration::from_millis(500));
    let moved = loop {
        tokio::select! {
            biased;
            moved = &mut moving => break moved,
            _ = tick.tick() => {
                if let Some(step) = steps.try_iter().last() {
                    screen.show_live(&describe_step(step));
                }
            }
        }
    };
    let moved = moved.map_err(|error| CommandFault::new("copy", error.to_string()))?;
    let StoreTransfer {
        from,
        to,
        copied,
        threads,
        put_away,
    } = moved.map_err(|error| transfer_fault(&error))?;
    Ok(screen.print_answer(&CopyAnswer {
        from: from.word().to_owned(),
        to: to.word().to_owned(),
        threads,
        records: copied.records,
        entries: copied.entries,
        bytes: copied.bytes,
        replaced: format!(".ai/threads/{put_away}"),
        exit: CommandExit::Done,
    }))
}

/// Refuses to move a store of plain files while a thread in it has a lease whose holder may go on.
/// A native process has a lock file, which the copy itself looks at; a bundle has none, and would
/// lose a reply that is paid.
async fn check_no_lease(
    session: &CommandSession,
    threads: &Dir,
    screen: &mut OutputScreen,
) -> Result<(), CommandFault> {
    if !matches!(ProjectStore::find(threads), Ok(Some(ProjectStore::Files))) {
        return Ok(());
    }
    // A store that cannot be read is found by the copy, which says more about it.
    let Ok(opened) = session.open_to_read(screen) else {
        return Ok(());
    };
    let mut cursor = None;
    loop {
        let Ok(page) = opened.tenant().recover(Vec::new(), cursor).await else {
            return Ok(());
        };
        let now = opened.tenant().context().clock.now();
        for lease in &page.held {
            let life = authority::holder_state(threads, &lease.holder);
            let life = life.map_err(|error| fault::from_authority(&error))?;
            let is_over = is_grace_over(now.seconds, lease.expiry.seconds);
            if matches!(life, HolderState::Unknown) && !is_over {
                return Err(held_fault(lease));
            }
        }
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(());
        }
    }
}

fn held_fault(lease: &Lease) -> CommandFault {
    let Lease {
        thread,
        holder,
        expiry,
    } = lease;
    let until = rfc3339_seconds(expiry.seconds);
    let message = format!("the thread {thread} is held by {holder} until {until}");
    fault::busy(message).with_hint(format!(
        "wait until it ends; if that bundle or loop is dead: threadkeep recover --dead {holder}"
    ))
}

fn describe_step(step: TransferStep) -> String {
    match step {
        TransferStep::Copying(copied) => {
            let (records, entries) = (copied.records, copied.entries);
            format!("  copying: {records} records, {entries} entries")
        }
        TransferStep::Auditing => "  auditing the copy".to_owned(),
        TransferStep::Comparing => "  comparing the copy with the store".to_owned(),
        TransferStep::Named | TransferStep::Chosen | TransferStep::PutAway => {
            "  putting the copy into place".to_owned()
        }
    }
}

fn transfer_fault(error: &TransferError) -> CommandFault {
    let unchanged = "the store is as it was, and counts as before";
    let message = fault::with_source(error);
    match error {
        TransferError::Project(error) => fault::from_project(error),
        TransferError::NoStore => CommandFault::new("no-store", message)
            .with_hint("the first `threadkeep run` makes one; --store says of which kind"),
        TransferError::SameStore(_) | TransferError::LeftoversRemoved(_) => {
            CommandFault::new("same-store", message)
        }
        TransferError::InUse { .. } => {
            fault::busy(message).with_hint("stop what uses the project, and repeat the command")
        }
        TransferError::Copy(CopyError::Differs { .. }) => fault::busy(message).with_hint(unchanged),
        TransferError::Copy(CopyError::Damaged { .. } | CopyError::Unreadable(_)) => {
            CommandFault::new("store", message)
                .with_hint("the store counts as before; `threadkeep doctor` says more")
        }
        TransferError::Findings(_) => CommandFault::new("audit", message)
            .with_hint("the store counts as before; `threadkeep audit` names all that is wrong"),
        TransferError::NotPutAway { .. } => CommandFault::new("io", message)
            .with_hint("the file .ai/threads/current-store says which store counts: leave it"),
        _ => CommandFault::new("copy", message).with_hint(unchanged),
    }
}
