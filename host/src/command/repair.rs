//! `repair`: writes the documents of threads anew.

use super::fault;
use super::open::{Opened, Session};
use threadkeep::documents::{DocumentError, Documents};
use threadkeep::error::CallError;
use threadkeep::wit::{self, registry::Filter};
use threadkeep_cli::answer::{RepairAnswer, thread_or_unnamed};
use threadkeep_cli::args;
use threadkeep_cli::exit::{Exit, Fault};
use threadkeep_cli::screen::Screen;

/// Threads of one page.
const PAGE_THREADS: u32 = 100;

/// Most failures that the answer names.
const FAILED_MAX: usize = 100;

/// Writes the documents of the named threads anew, or of all threads.
pub async fn repair(
    session: &Session,
    repair: args::Repair,
    screen: &mut Screen,
) -> Result<Exit, Fault> {
    let opened = session.open()?;
    let mut answer = RepairAnswer {
        repaired: Vec::new(),
        failed: Vec::new(),
        exit: Exit::Done,
    };
    opened.say_if_empty(screen);
    if let Some(documents) = opened.documents() {
        match repair.threads.is_empty() {
            true => every(&opened, documents, &mut answer).await?,
            false => named(&opened, documents, &repair.threads, &mut answer).await?,
        }
    }
    if !answer.failed.is_empty() {
        answer.exit = Exit::Error;
    }
    Ok(screen.answer(&answer))
}

/// Repairs the named threads. All ids are resolved before the first file is written.
async fn named(
    opened: &Opened,
    documents: &Documents,
    threads: &[String],
    answer: &mut RepairAnswer,
) -> Result<(), Fault> {
    let mut ids = Vec::with_capacity(threads.len());
    for thread in threads {
        let record = opened.tenant().get(thread).await;
        ids.push(
            record
                .map_err(|error| fault::of_thread(opened, thread, &error))?
                .id,
        );
    }
    for id in ids {
        let done = documents.repair(&id).await;
        note(answer, id, done.map(drop));
    }
    Ok(())
}

async fn every(
    opened: &Opened,
    documents: &Documents,
    answer: &mut RepairAnswer,
) -> Result<(), Fault> {
    let mut cursor = None;
    loop {
        let page = opened
            .tenant()
            .list(Filter::default(), PAGE_THREADS, cursor)
            .await;
        let page = page.map_err(|error| fault::call(&error))?;
        for thread in page.threads {
            let done = documents.repair(&thread.id).await;
            note(answer, thread.id, done.map(drop));
        }
        for thread in page.unreadable {
            let error = CallError::Refused(wit::Error::Corrupt(thread.why));
            let name = thread_or_unnamed(&thread.thread).to_owned();
            note(answer, name, Err(error.into()));
        }
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(());
        }
    }
}

fn note(answer: &mut RepairAnswer, thread: String, done: Result<(), DocumentError>) {
    match done {
        Ok(()) => answer.repaired.push(thread),
        Err(error) if answer.failed.len() < FAILED_MAX => {
            answer
                .failed
                .push(format!("{thread}: {}", fault::with_source(&error)));
        }
        Err(_) => {}
    }
}
