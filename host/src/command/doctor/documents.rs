//! The documents of the newest threads, compared with their records.

use super::DoctorFindings;
use crate::command::fault;
use cap_std::fs::Dir;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Arc;
use threadkeep::audit::{self, StoreInvariant};
use threadkeep::authority::AuthorityError;
use threadkeep::documents::{DocumentError, DocumentState, ThreadDocuments};
use threadkeep::storage::StorageBackend;
use threadkeep::tenant::Tenant;
use threadkeep::wit::registry::{Filter, Row};
use threadkeep_cli::answer::{DoctorSection, ItemState};

/// Newest threads whose documents are compared. A comparison reads the documents whole.
const DOCUMENTS_MAX: u32 = 50;

/// Compares the documents of the newest threads with their records. Where they differ, the records
/// are audited: documents are made anew only from records that are sound.
pub async fn check_documents(
    tenant: &Tenant,
    storage: Arc<dyn StorageBackend>,
    threads: &Dir,
    findings: &mut DoctorFindings,
) {
    let mut section = DoctorSection::new("documents");
    let page = tenant.list(Filter::default(), DOCUMENTS_MAX, None).await;
    if let (Ok(page), Ok(threads)) = (page, threads.try_clone()) {
        let documents = ThreadDocuments::new(tenant.clone(), threads);
        let (mut current, mut unread, mut problems) = (0_u64, 0_u64, Vec::new());
        for thread in &page.threads {
            let compared = match compare_documents(&documents, &thread.id).await {
                Ok(()) => check_saved_version(tenant, &documents, thread).await,
                compared => compared,
            };
            match compared {
                Ok(()) => current += 1,
                // The process that runs it brings them up to date.
                Err(_) if thread.status == "running" => current += 1,
                Err(DocumentProblem::MayNotBeRead) => unread += 1,
                Err(problem) => problems.push((thread.id.clone(), problem)),
            }
        }
        report_problems(problems, storage, &mut section, findings).await;
        if unread > 0 {
            let value = format!("{unread} threads: you may not read theirs");
            section.add_item(ItemState::Warning, "left out", value, None);
        }
        section.add_ok(
            "up to date",
            format!("{current} of the newest {}", page.threads.len()),
        );
    }
    findings.sections.push(section);
}

/// Reports the threads whose documents are not up to date, each with what mends it.
async fn report_problems(
    problems: Vec<(String, DocumentProblem)>,
    storage: Arc<dyn StorageBackend>,
    section: &mut DoctorSection,
    findings: &mut DoctorFindings,
) {
    if problems.is_empty() {
        return;
    }
    let unsound = audit_records(storage).await;
    for (thread, problem) in problems {
        let found = unsound
            .as_ref()
            .and_then(|unsound| unsound.get(&thread.to_ascii_lowercase()));
        let (problem, mend) = match (problem, found) {
            (
                DocumentProblem::Documents(problem) | DocumentProblem::Records(problem),
                Some(found),
            ) => {
                let problem = format!("{problem}, and its records are not sound: {found}");
                (problem, fault::RECORDS_HINT.to_owned())
            }
            (DocumentProblem::Records(problem), None) => (problem, fault::RECORDS_HINT.to_owned()),
            (DocumentProblem::Documents(problem), None) if unsound.is_some() => {
                (problem, format!("threadkeep repair {thread}"))
            }
            (DocumentProblem::Documents(problem), None) => (
                problem,
                format!(
                    "threadkeep audit; if it finds nothing wrong with the records: threadkeep \
                     repair {thread}"
                ),
            ),
            (DocumentProblem::MayNotBeRead, _) => continue,
        };
        section.add_item(ItemState::Warning, &thread, problem.clone(), None);
        findings.add_problem(format!("{thread}: {problem}"), mend);
    }
}

/// Audits the records of the store: what was found, by the key of the thread. None if the audit
/// came to no end.
async fn audit_records(storage: Arc<dyn StorageBackend>) -> Option<HashMap<String, String>> {
    let audited = tokio::task::spawn_blocking(move || audit::audit(&*storage));
    let report = audited.await.ok()?.ok()?;
    let records = report
        .findings
        .into_iter()
        .filter(|finding| finding.invariant != StoreInvariant::Documents);
    // A list that was cut does not tell which threads are sound.
    (report.left_out == 0).then(|| {
        records
            .map(|finding| (finding.thread.to_ascii_lowercase(), finding.found))
            .collect()
    })
}

/// The reason why the documents of a thread do not count as up to date.
enum DocumentProblem {
    /// This user may not read them.
    MayNotBeRead,
    /// Their state, or the reason why they cannot be compared.
    Documents(String),
    /// The reason why nothing can be made from the records.
    Records(String),
}

/// Checks that a thread which waits for a person can be gone on with from its `state.json`: a save
/// that failed is found by it.
async fn check_saved_version(
    tenant: &Tenant,
    documents: &ThreadDocuments,
    row: &Row,
) -> Result<(), DocumentProblem> {
    if row.status != "suspended" {
        return Ok(());
    }
    // What cannot be read was compared before.
    let Ok(thread) = tenant.get(&row.id).await else {
        return Ok(());
    };
    let problem = match documents.saved_version(&row.id).await {
        Ok(Some(version)) if version >= thread.version => return Ok(()),
        Ok(Some(version)) => format!(
            "its state.json is of version {version}, and it was suspended at version {}",
            thread.version
        ),
        Ok(None) => "it is suspended, and its state.json was not saved".to_owned(),
        Err(error) => format!(
            "its state.json cannot be read: {}",
            fault::with_source(&error)
        ),
    };
    Err(DocumentProblem::Documents(problem))
}

async fn compare_documents(
    documents: &ThreadDocuments,
    thread: &str,
) -> Result<(), DocumentProblem> {
    let states = match documents.check(thread).await {
        Ok(states) => states,
        Err(DocumentError::Authority(AuthorityError::Io { source, .. }))
            if source.kind() == ErrorKind::PermissionDenied =>
        {
            return Err(DocumentProblem::MayNotBeRead);
        }
        Err(error) => {
            let why = fault::with_source(&error);
            let problem = format!("its documents cannot be compared: {why}");
            return Err(match fault::is_of_records(&error) {
                true => DocumentProblem::Records(problem),
                false => DocumentProblem::Documents(problem),
            });
        }
    };
    let mut worst = Ok(());
    for state in [states.thread, states.jsonl, states.markdown] {
        match state {
            DocumentState::Current => {}
            DocumentState::Stale(_) => worst = worst.and(Err("its documents are stale")),
            DocumentState::Missing => worst = worst.and(Err("its documents are missing")),
            DocumentState::Other => {
                worst = Err("its documents are not what the records say: somebody edited them");
            }
        }
    }
    if states.checkpoint == DocumentState::Other {
        worst = Err("its state.json is not what the records say: somebody edited it");
    }
    worst.map_err(|problem| DocumentProblem::Documents(problem.to_owned()))
}
