//! The store, the locks of holders and the documents of a project.

use super::{Examined, Findings, tenant};
use crate::command::fault;
use crate::command::open::Session;
use crate::command::repair::everything;
use cap_std::fs::Dir;
use std::collections::BTreeMap;
use std::sync::Arc;
use threadkeep::authority;
use threadkeep::documents::{DocumentState, Documents};
use threadkeep::engine::Engine;
use threadkeep::project::STORE;
use threadkeep::storage::Storage;
use threadkeep::tenant::Tenant;
use threadkeep_cli::answer::{Section, State};
use threadkeep_cli::args::Store;

/// Most lock files that are looked at.
const LOCKS_MAX: usize = 1_000;

/// Threads whose documents are compared: the newest. Comparing reads them whole.
const DOCUMENTS_MAX: u32 = 50;

/// Store, locks and documents; false if a run could not be kept.
pub async fn sections(
    session: &Session,
    engine: &Engine,
    project: &Examined,
    findings: &mut Findings,
) -> bool {
    let memory = session.common().store == Some(Store::Memory);
    let origin = match session.common().store {
        Some(_) => "--store",
        None => "the default",
    };
    let mut section = Section::new("store");
    section.from("kind", if memory { "memory" } else { "sqlite" }, origin);
    #[cfg(feature = "sqlite")]
    section.from("sqlite", rusqlite::version(), "this program");
    let threads = project
        .ai
        .as_ref()
        .and_then(|ai| ai.open_dir("threads").ok());
    let present = threads.as_ref().filter(|threads| threads.exists(STORE));
    let (Some(threads), false) = (present, memory) else {
        if !memory {
            section.ok(STORE, "is made by the first run");
        }
        findings.sections.push(section);
        return true;
    };
    section.ok(STORE, size(threads));
    match open(threads) {
        Ok(storage) => {
            let tenant = tenant(engine, Arc::clone(&project.library), storage);
            statistics(&tenant, &mut section, findings).await;
            findings.sections.push(section);
            locks(threads, findings);
            documents(&tenant, threads, findings).await;
            true
        }
        Err(problem) => {
            section.item(State::Bad, STORE, problem.clone(), None);
            findings.missing(
                format!("the store cannot be opened: {problem}"),
                "keep a copy of .ai/threads before anything else is tried",
            );
            findings.sections.push(section);
            false
        }
    }
}

#[cfg(feature = "sqlite")]
fn open(threads: &Dir) -> Result<Arc<dyn Storage>, String> {
    use threadkeep::storage::sqlite::{SqliteOptions, SqliteStore};
    match SqliteStore::open(threads, STORE, SqliteOptions::local()) {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(not(feature = "sqlite"))]
fn open(_: &Dir) -> Result<Arc<dyn Storage>, String> {
    Err("this build has no sqlite".to_owned())
}

/// Size and format. The format stands in the file's header once the first checkpoint has been written.
fn size(threads: &Dir) -> String {
    use std::io::Read;
    /// Where SQLite keeps `user_version`, and how much of the header that takes.
    const VERSION_AT: std::ops::Range<usize> = 60..64;
    let bytes = threads.metadata(STORE).map_or(0, |metadata| metadata.len());
    let mut header = [0_u8; VERSION_AT.end];
    let read = threads
        .open(STORE)
        .and_then(|mut file| file.read_exact(&mut header));
    let version = read.map(|()| {
        header[VERSION_AT]
            .iter()
            .fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte))
    });
    match version {
        Ok(version) if version > 0 => format!("{bytes} bytes, format {version}"),
        _ => format!("{bytes} bytes"),
    }
}

async fn statistics(tenant: &Tenant, section: &mut Section, findings: &mut Findings) {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut cursor = None;
    loop {
        match tenant.stats(cursor).await {
            Ok(page) => {
                for count in page.counts {
                    *counts.entry(count.status).or_default() += count.threads;
                }
                cursor = page.cursor;
            }
            Err(error) => {
                let fault = fault::call(&error);
                section.item(State::Bad, "threads", fault.message.clone(), None);
                findings.missing("the threads cannot be counted", fault.message);
                return;
            }
        }
        if cursor.is_none() {
            break;
        }
    }
    let shown: Vec<String> = counts
        .iter()
        .map(|(status, count)| format!("{count} {status}"))
        .collect();
    section.ok(
        "threads",
        if shown.is_empty() {
            "none".to_owned()
        } else {
            shown.join(", ")
        },
    );
}

/// Lock files of processes that live, and of those that died.
fn locks(threads: &Dir, findings: &mut Findings) {
    let mut section = Section::new("locks");
    let (mut live, mut dead) = (Vec::new(), 0_u64);
    let entries = threads.read_dir("locks.d").into_iter().flatten();
    for entry in entries.take(LOCKS_MAX).flatten() {
        let name = entry.file_name();
        let Some(holder) = name.to_str().and_then(|name| name.strip_suffix(".lock")) else {
            continue;
        };
        match authority::is_dead(threads, holder) {
            Ok(true) => dead += 1,
            Ok(false) => live.push(holder.to_owned()),
            Err(_) => {}
        }
    }
    section.ok("processes at work", live.len().to_string());
    for holder in live {
        section.ok("holder", holder);
    }
    let state = if dead > 0 { State::Warning } else { State::Ok };
    section.item(state, "left by dead processes", dead.to_string(), None);
    if dead > 0 {
        findings.missing(
            format!("{dead} processes died and may have left threads running"),
            "threadkeep recover",
        );
    }
    findings.sections.push(section);
}

/// The documents of the newest threads, compared with their records.
async fn documents(tenant: &Tenant, threads: &Dir, findings: &mut Findings) {
    let mut section = Section::new("documents");
    let page = tenant.list(everything(), DOCUMENTS_MAX, None).await;
    if let (Ok(page), Ok(threads)) = (page, threads.try_clone()) {
        let documents = Documents::new(tenant.clone(), threads);
        let mut current = 0_u64;
        for thread in &page.threads {
            match compare(&documents, &thread.id).await {
                Ok(()) => current += 1,
                // Whoever runs it brings them up to date.
                Err(_) if thread.status == "running" => current += 1,
                Err(problem) => {
                    section.item(State::Warning, &thread.id, problem.clone(), None);
                    findings.missing(
                        format!("the documents of {} are {problem}", thread.id),
                        format!("threadkeep repair {}", thread.id),
                    );
                }
            }
        }
        section.ok(
            "up to date",
            format!("{current} of the newest {}", page.threads.len()),
        );
    }
    findings.sections.push(section);
}

async fn compare(documents: &Documents, thread: &str) -> Result<(), String> {
    let states = documents
        .check(thread)
        .await
        .map_err(|error| fault::with_source(&error))?;
    let mut worst = Ok(());
    for state in [states.thread, states.jsonl, states.markdown] {
        match state {
            DocumentState::Current => {}
            DocumentState::Stale(_) => worst = worst.and(Err("stale")),
            DocumentState::Missing => worst = worst.and(Err("missing")),
            DocumentState::Other => worst = Err("not what the records say: somebody edited them"),
        }
    }
    worst.map_err(str::to_owned)
}
