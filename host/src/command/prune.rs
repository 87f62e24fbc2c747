//! `prune`: removes copies of checkpoints that the settings do not keep, and blobs that nothing
//! names.

use super::fault;
use super::session::{CommandProject, CommandSession};
use std::collections::BTreeSet;
use threadkeep::documents::checkpoints::{CheckpointSettings, PrunedFile};
use threadkeep::documents::{DocumentError, ThreadDocuments};
use threadkeep_cli::answer::{PruneAnswer, PrunedBlobRow, PrunedRow};
use threadkeep_cli::args;
use threadkeep_cli::command::thread_names;
use threadkeep_cli::exit::{CommandExit, CommandFault};
use threadkeep_cli::screen::OutputScreen;

/// Removes the files of the named threads and the blobs of their chains, or those of all threads;
/// with `--dry-run` it only names them.
pub async fn prune(
    session: &CommandSession,
    mut asked: args::PruneArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = match asked.dry_run {
        true => session.open_to_read(screen)?,
        false => session.open()?,
    };
    thread_names::resolve_all(&opened, &mut asked.threads).await?;
    opened.note_if_empty(screen);
    let settings = opened.project().check_settings();
    let settings = settings.map_err(|error| fault::from_settings(&error))?;
    let mut answer = PruneAnswer {
        dry_run: asked.dry_run,
        files: Vec::new(),
        blobs: Vec::new(),
        failed: Vec::new(),
        exit: CommandExit::Done,
    };
    let (mut ids, mut chains) = (Vec::new(), BTreeSet::new());
    for thread in &asked.threads {
        let found = opened.tenant().get(thread).await;
        let found = found.map_err(|error| fault::from_thread_call(&opened, thread, &error))?;
        ids.push(found.id);
        chains.insert(found.chain);
    }
    if let Some(documents) = opened.documents() {
        match ids.is_empty() {
            true => prune_all(documents, &settings, &mut answer).await?,
            false => prune_named(documents, &settings, &ids, &mut answer).await,
        }
    }
    match chains.is_empty() {
        true => prune_blobs(&opened, None, &mut answer).await,
        false => {
            for chain in &chains {
                prune_blobs(&opened, Some(chain), &mut answer).await;
            }
        }
    }
    if !answer.failed.is_empty() {
        answer.exit = CommandExit::Error;
    }
    Ok(screen.print_answer(&answer))
}

async fn prune_named(
    documents: &ThreadDocuments,
    settings: &CheckpointSettings,
    ids: &[String],
    answer: &mut PruneAnswer,
) {
    for id in ids {
        match documents.prune(id, settings, answer.dry_run).await {
            Ok(files) => answer.files.extend(files.into_iter().map(pruned_row)),
            Err(error) => answer.failed.push(describe_failure(id, &error)),
        }
    }
}

async fn prune_all(
    documents: &ThreadDocuments,
    settings: &CheckpointSettings,
    answer: &mut PruneAnswer,
) -> Result<(), CommandFault> {
    let pruned = documents.prune_all(settings, answer.dry_run).await;
    let pruned = pruned.map_err(|error| match &error {
        DocumentError::Call(error) => fault::from_call(error),
        error => CommandFault::new("documents", fault::with_source(error)),
    })?;
    answer.files = pruned.files.into_iter().map(pruned_row).collect();
    let failed = pruned.failed.iter();
    answer.failed = failed
        .map(|failed| describe_failure(&failed.thread, &failed.error))
        .collect();
    if pruned.left_out > 0 {
        let more = format!("{} more threads", pruned.left_out);
        answer.failed.push(more);
    }
    Ok(())
}

/// Removes blobs of a chain, or of all.
async fn prune_blobs(opened: &CommandProject, chain: Option<&str>, answer: &mut PruneAnswer) {
    match opened.tenant().prune_blobs(chain, answer.dry_run).await {
        Ok(blobs) => answer
            .blobs
            .extend(blobs.into_iter().map(|blob| PrunedBlobRow {
                chain_root_id: blob.chain,
                blob: blob.hash,
                bytes: blob.size,
                reason: "unreferenced".to_owned(),
            })),
        Err(error) => {
            let failed = format!("no blob was looked at: {}", fault::with_source(&error));
            answer.failed.push(failed);
        }
    }
}

fn describe_failure(thread: &str, error: &DocumentError) -> String {
    format!("{thread}: {}", fault::with_source(error))
}

fn pruned_row(file: PrunedFile) -> PrunedRow {
    PrunedRow {
        thread_id: file.thread,
        file: file.path,
        reason: file.reason.as_str().to_owned(),
    }
}
