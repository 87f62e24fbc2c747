//! `repair`: writes the documents of threads anew.

use super::fault;
use super::session::{CommandProject, CommandSession};
use threadkeep::documents::{DocumentError, ThreadDocuments};
use threadkeep::error::CallError;
use threadkeep::tenant::PAGE_THREADS_MAX;
use threadkeep::wit::{self, registry::Filter};
use threadkeep_cli::answer::{RepairAnswer, thread_or_unnamed};
use threadkeep_cli::args;
use threadkeep_cli::command::thread_names;
use threadkeep_cli::exit::{CommandExit, CommandFault};
use threadkeep_cli::screen::OutputScreen;

/// Most failures that the answer names.
const FAILED_MAX: usize = 100;

/// Writes the documents of the named threads anew, or of all threads.
pub async fn repair(
    session: &CommandSession,
    mut repair: args::RepairArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = session.open()?;
    thread_names::resolve_all(&opened, &mut repair.threads).await?;
    let mut answer = RepairAnswer {
        repaired: Vec::new(),
        failed: Vec::new(),
        exit: CommandExit::Done,
    };
    opened.note_if_empty(screen);
    if let Some(documents) = opened.documents() {
        match repair.threads.is_empty() {
            true => repair_all(&opened, documents, &mut answer).await?,
            false => repair_named(&opened, documents, &repair.threads, &mut answer).await?,
        }
    }
    if !answer.failed.is_empty() {
        answer.exit = CommandExit::Error;
    }
    Ok(screen.print_answer(&answer))
}

/// Repairs the named threads. All ids are resolved before the first file is written.
async fn repair_named(
    opened: &CommandProject,
    documents: &ThreadDocuments,
    threads: &[String],
    answer: &mut RepairAnswer,
) -> Result<(), CommandFault> {
    let mut ids = Vec::with_capacity(threads.len());
    for thread in threads {
        let record = opened.tenant().get(thread).await;
        ids.push(
            record
                .map_err(|error| fault::from_thread_call(opened, thread, &error))?
                .id,
        );
    }
    for id in ids {
        let done = repair_thread(documents, &id).await;
        record_result(answer, id, done);
    }
    Ok(())
}

async fn repair_all(
    opened: &CommandProject,
    documents: &ThreadDocuments,
    answer: &mut RepairAnswer,
) -> Result<(), CommandFault> {
    let mut cursor = None;
    loop {
        let page = opened
            .tenant()
            .list(Filter::default(), PAGE_THREADS_MAX, cursor)
            .await;
        let page = page.map_err(|error| fault::from_call(&error))?;
        for thread in page.threads {
            let done = repair_thread(documents, &thread.id).await;
            record_result(answer, thread.id, done);
        }
        for thread in page.unreadable {
            let name = thread_or_unnamed(&thread.thread).to_owned();
            let error = CallError::Refused(wit::Error::Corrupt(thread.into()));
            record_result(answer, name, Err(error.into()));
        }
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(());
        }
    }
}

/// Writes the documents of a thread anew, and saves its checkpoint if it has stopped.
async fn repair_thread(documents: &ThreadDocuments, thread: &str) -> Result<(), DocumentError> {
    documents.repair(thread).await?;
    documents.save_stopped(thread).await
}

fn record_result(answer: &mut RepairAnswer, thread: String, done: Result<(), DocumentError>) {
    match done {
        Ok(()) => answer.repaired.push(thread),
        Err(error) if answer.failed.len() < FAILED_MAX => {
            let why = fault::with_source(&error);
            answer.failed.push(match fault::is_of_records(&error) {
                true => format!("{thread}: {why}: {}", fault::RECORDS_HINT),
                false => format!("{thread}: {why}"),
            });
        }
        Err(_) => {}
    }
}
