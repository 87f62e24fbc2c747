//! The store and the lock files of a project.

use super::{DoctorFindings, ExaminedProject, documents, new_tenant, transfer};
use crate::command::session::{CommandSession, has_store};
use crate::command::temporary::TemporaryDirectory;
use crate::command::{fault, store_copy};
use cap_std::fs::Dir;
use std::collections::BTreeMap;
use std::sync::Arc;
use threadkeep::authority::{self, HolderState};
use threadkeep::documents::{USAGE_FILE, usage_log_bytes};
use threadkeep::engine::Engine;
use threadkeep::project::{ProjectStore, SQLITE_STORE, open_files_store};
use threadkeep::storage::StorageBackend;
use threadkeep::tenant::{PAGE_THREADS_MAX, Tenant};
use threadkeep::wit::registry::Filter;
use threadkeep_cli::answer::{DoctorSection, ItemState, thread_or_unnamed};
use threadkeep_cli::args::StoreKind;

/// Most lock files that are checked.
const LOCKS_MAX: usize = 1_000;

/// Most unreadable threads that are named: one is reason enough to investigate.
const UNREADABLE_MAX: usize = 10;

/// Adds the sections for store, locks and documents. Returns false if a run could not keep its
/// records.
pub async fn check_store(
    session: &CommandSession,
    engine: &Engine,
    project: &ExaminedProject,
    findings: &mut DoctorFindings,
) -> bool {
    let memory = session.common().store == Some(StoreKind::Memory);
    let threads = project.threads.as_ref().ok().and_then(Option::as_ref);
    let (kind, origin) = examined_kind(session, threads);
    let mut section = DoctorSection::new("store");
    section.add_with_origin("kind", if memory { "memory" } else { kind.word() }, origin);
    #[cfg(feature = "sqlite")]
    if kind == ProjectStore::Sqlite {
        section.add_with_origin("sqlite", rusqlite::version(), "this program");
    }
    if let Some(threads) = threads {
        transfer::check_leftovers(threads, &mut section, findings);
    }
    // A run takes its lock there, even if it keeps its threads in memory.
    let writable = check_writable(project, &mut section, findings);
    let present = threads.filter(|threads| has_store(threads));
    let (Some(threads), false) = (present, memory) else {
        if !memory && writable {
            section.add_ok(kind.place(), "is made by the first run");
        }
        findings.sections.push(section);
        return threads.is_none_or(|threads| check_locks(threads, findings)) && writable;
    };
    match open_examined(session, threads, kind) {
        Ok(store) => {
            section.add_ok(kind.place(), store.size);
            if let Some(copied) = &store.copy {
                section.add_item(ItemState::Warning, "read", store_copy::notice(copied), None);
            }
            for name in store.foreign {
                section.add_item(ItemState::Bad, &name, "is not text, or too long", None);
                findings.add_problem(
                    format!("{name} is not text, or too long: somebody else wrote it"),
                    "mend it from a copy of .ai/threads",
                );
            }
            let storage = Arc::clone(&store.storage);
            let tenant = new_tenant(engine, Arc::clone(&project.library), store.storage);
            let counted = count_threads(&tenant, &mut section, findings).await;
            report_unreadable(&tenant, &mut section, findings).await;
            check_usage_log(threads, &mut section, findings);
            findings.sections.push(section);
            let lockable = check_locks(threads, findings);
            documents::check_documents(&tenant, storage, threads, findings).await;
            writable && counted && lockable
        }
        Err(problem) => {
            section.add_item(ItemState::Bad, kind.place(), problem.clone(), None);
            let (lacks, mend) = match describe_denied_file(threads) {
                Some(lacks) => (
                    lacks,
                    "have its owner or root let you read and write it: nothing is damaged",
                ),
                None => (
                    problem,
                    "keep a copy of .ai/threads before anything else is tried",
                ),
            };
            findings.add_problem(format!("the store cannot be used: {lacks}"), mend);
            findings.sections.push(section);
            false
        }
    }
}

/// Checks that `.ai/threads`, or `.ai` before the first run, can be written: creates a file there
/// and removes it.
fn check_writable(
    project: &ExaminedProject,
    section: &mut DoctorSection,
    findings: &mut DoctorFindings,
) -> bool {
    let (tried, place) = match (&project.threads, &project.ai) {
        (Err(problem), _) => (Err(problem.clone()), ".ai/threads"),
        (Ok(Some(threads)), _) => (try_write(threads, ".ai/threads"), ".ai/threads"),
        (Ok(None), Some(ai)) => (try_write(ai, ".ai"), ".ai"),
        // `.ai` is missing, which was reported above.
        (Ok(None), None) => return false,
    };
    match tried {
        Ok(()) => {
            section.add_ok(place, "can be written");
            true
        }
        Err(problem) => {
            section.add_item(ItemState::Bad, place, problem.clone(), None);
            findings.add_problem(
                format!("{place} cannot be written: {problem}"),
                "make it an ordinary directory that you may write to; what is kept there can be \
                 read as it is",
            );
            false
        }
    }
}

fn try_write(dir: &Dir, place: &str) -> Result<(), String> {
    authority::check_writable(dir, place).map_err(|error| fault::with_source(&error))
}

/// A store that was opened for inspection.
struct ExaminedStore {
    storage: Arc<dyn StorageBackend>,
    /// Names of the values in it that are not text.
    foreign: Vec<String>,
    /// The copy that is read, if the store cannot be read in its own directory.
    copy: Option<TemporaryDirectory>,
    /// Size and format, in words.
    size: String,
}

/// The kind of store that is examined, and who says so.
fn examined_kind(session: &CommandSession, threads: Option<&Dir>) -> (ProjectStore, &'static str) {
    match session.common().store {
        Some(StoreKind::Files) => (ProjectStore::Files, "--store"),
        Some(_) => (ProjectStore::Sqlite, "--store"),
        None => match threads.map(ProjectStore::find) {
            Some(Ok(Some(ProjectStore::Files))) => (ProjectStore::Files, ".ai/threads"),
            _ => (ProjectStore::Sqlite, "the default"),
        },
    }
}

fn open_examined(
    session: &CommandSession,
    threads: &Dir,
    kind: ProjectStore,
) -> Result<ExaminedStore, String> {
    match (kind, ProjectStore::find(threads)) {
        (_, Err(error)) => Err(error.to_string()),
        (ProjectStore::Files, _) => open_files(threads),
        (ProjectStore::Sqlite, _) => open_sqlite(session, threads),
    }
}

fn open_files(threads: &Dir) -> Result<ExaminedStore, String> {
    let store = open_files_store(threads, None).map_err(|error| error.to_string())?;
    let usage = store.usage();
    Ok(ExaminedStore {
        storage: Arc::new(store),
        foreign: Vec::new(),
        copy: None,
        size: format!(
            "{} commits, {} segments, {} commits that are not packed",
            usage.commits, usage.segments, usage.loose
        ),
    })
}

#[cfg(feature = "sqlite")]
fn open_sqlite(session: &CommandSession, threads: &Dir) -> Result<ExaminedStore, String> {
    use threadkeep::storage::StorageError;
    use threadkeep::storage::sqlite::{SqliteOptions, SqliteStore};
    let (opened, copy) = match SqliteStore::open(threads, SQLITE_STORE, SqliteOptions::local()) {
        Err(StorageError::Unavailable { .. }) if store_copy::is_needed(threads) => {
            let copied = store_copy::copy_store(session, threads).map_err(|fault| fault.message)?;
            let dir = copied.dir().map_err(|fault| fault.message)?;
            let opened = SqliteStore::open(dir, SQLITE_STORE, SqliteOptions::local());
            (opened, Some(copied))
        }
        opened => (opened, None),
    };
    let store = opened.map_err(|error| error.to_string())?;
    // Repair of a damaged file is never offered: a rewritten file might be worse than the one that
    // exists.
    let faults = match store.quick_check() {
        Ok(faults) => faults,
        // A row that is too large to be compared is named all the same.
        Err(error) => match store.find_unreadable().unwrap_or_default().first() {
            Some(name) => return Err(format!("{error}; {name} is not text or too long")),
            None => return Err(error.to_string()),
        },
    };
    if let Some(fault) = faults.first() {
        return Err(format!("it is damaged: {fault}"));
    }
    let foreign = store.find_unreadable().map_err(|error| error.to_string())?;
    let bytes = threads
        .metadata(SQLITE_STORE)
        .map_or(0, |found| found.len());
    Ok(ExaminedStore {
        storage: Arc::new(store),
        foreign,
        copy,
        size: format!("{bytes} bytes, format {}", SqliteStore::format_version()),
    })
}

#[cfg(not(unix))]
fn describe_denied_file(_: &Dir) -> Option<String> {
    None
}

/// Describes a file of the store that this user may not read, by its owner and mode.
#[cfg(unix)]
fn describe_denied_file(threads: &Dir) -> Option<String> {
    use cap_std::fs::{MetadataExt, PermissionsExt};
    let names = [
        SQLITE_STORE.to_owned(),
        format!("{SQLITE_STORE}-wal"),
        format!("{SQLITE_STORE}-shm"),
    ];
    names.into_iter().find_map(|name| {
        // A pipe would be waited for.
        let found = threads.symlink_metadata(&name).ok();
        let found = found.filter(|found| found.is_file())?;
        let denied = match threads.open(&name) {
            Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
            Ok(_) => false,
        };
        let (owner, mode) = (found.uid(), found.permissions().mode() & 0o7777);
        denied.then(|| {
            format!(
                ".ai/threads/{name} belongs to the user with the number {owner} and has the mode \
                 {mode:04o}, which does not let you read it"
            )
        })
    })
}

#[cfg(not(feature = "sqlite"))]
fn open_sqlite(_: &CommandSession, _: &Dir) -> Result<ExaminedStore, String> {
    Err("this build has no sqlite".to_owned())
}

/// Adds the number of threads of each status. Returns false if they cannot be counted.
async fn count_threads(
    tenant: &Tenant,
    section: &mut DoctorSection,
    findings: &mut DoctorFindings,
) -> bool {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut cursor = None;
    loop {
        match tenant.stats(cursor).await {
            Ok(page) => {
                for count in page.counts {
                    *counts.entry(count.status).or_default() += u64::from(count.threads);
                }
                cursor = page.cursor;
            }
            Err(error) => {
                let fault = fault::from_call(&error);
                section.add_item(ItemState::Bad, "threads", fault.message.clone(), None);
                findings.add_problem("the threads cannot be counted", fault.message);
                return false;
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
    section.add_ok(
        "threads",
        if shown.is_empty() {
            "none".to_owned()
        } else {
            shown.join(", ")
        },
    );
    true
}

/// Reports threads whose records cannot be read; the other threads are not affected.
async fn report_unreadable(
    tenant: &Tenant,
    section: &mut DoctorSection,
    findings: &mut DoctorFindings,
) {
    let (mut named, mut cursor) = (0, None);
    loop {
        let page = match tenant
            .list(Filter::default(), PAGE_THREADS_MAX, cursor)
            .await
        {
            Ok(page) => page,
            Err(error) => {
                let fault = fault::from_call(&error);
                section.add_item(ItemState::Bad, "records", fault.message.clone(), None);
                findings.add_problem("the threads cannot be listed", fault.message);
                return;
            }
        };
        for thread in page.unreadable {
            named += 1;
            if named > UNREADABLE_MAX {
                return;
            }
            let (id, why) = (thread_or_unnamed(&thread.thread), thread.why.message);
            section.add_item(ItemState::Bad, id, why.clone(), None);
            findings.add_problem(
                format!("{id} cannot be read: {why}"),
                "every other thread goes on; mend the record from a copy of .ai/threads",
            );
        }
        cursor = page.cursor;
        if cursor.is_none() {
            return;
        }
    }
}

/// Adds the usage log of replies, once it exists.
fn check_usage_log(threads: &Dir, section: &mut DoctorSection, findings: &mut DoctorFindings) {
    match usage_log_bytes(threads) {
        Ok(None) => {}
        Ok(Some(bytes)) => section.add_ok(USAGE_FILE, format!("{bytes} bytes")),
        Err(error) => {
            let problem = fault::with_source(&error);
            section.add_item(ItemState::Warning, USAGE_FILE, problem.clone(), None);
            findings.add_problem(
                format!("what replies use is not noted: {problem}"),
                format!(
                    "move away what stands at .ai/threads/{USAGE_FILE}; the next reply makes a new \
                     file"
                ),
            );
        }
    }
}

/// Adds the lock files of live and of dead processes. Returns false if no run could take its lock.
fn check_locks(threads: &Dir, findings: &mut DoctorFindings) -> bool {
    let mut section = DoctorSection::new("locks");
    if let Err(error) = authority::check_locks_dir(threads) {
        let problem = fault::with_source(&error);
        section.add_item(ItemState::Bad, "locks.d", problem.clone(), None);
        findings.add_problem(
            format!("no run can take its lock: {problem}"),
            "put an ordinary directory there, or remove what stands there",
        );
        findings.sections.push(section);
        return false;
    }
    let (mut live, mut dead) = (Vec::new(), 0_u64);
    let entries = threads.read_dir("locks.d").into_iter().flatten();
    for entry in entries.take(LOCKS_MAX).flatten() {
        let name = entry.file_name();
        let Some(holder) = name.to_str().and_then(|name| name.strip_suffix(".lock")) else {
            continue;
        };
        match authority::holder_state(threads, holder) {
            Ok(HolderState::Dead) => dead += 1,
            Ok(HolderState::Lives) => live.push(holder.to_owned()),
            Ok(HolderState::Unknown) | Err(_) => {}
        }
    }
    section.add_ok("processes at work", live.len().to_string());
    for holder in live {
        section.add_ok("holder", holder);
    }
    let state = if dead > 0 {
        ItemState::Warning
    } else {
        ItemState::Ok
    };
    section.add_item(state, "left by dead processes", dead.to_string(), None);
    if dead > 0 {
        findings.add_problem(
            format!("{dead} processes died and may have left threads running"),
            "threadkeep recover",
        );
    }
    findings.sections.push(section);
    true
}
