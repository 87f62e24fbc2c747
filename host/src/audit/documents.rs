//! The audit of a tenant and of a project: the store, on a blocking thread, then the documents of
//! its threads.

use super::{
    AuditError, AuditFinding, AuditProgress, AuditReport, StoreInvariant, audit_with_progress,
    printable_text,
};
use crate::authority::AuthorityError;
use crate::documents::{DocumentError, DocumentState, DocumentStates, ThreadDocuments};
use crate::error::CallError;
use crate::project::OpenProject;
use crate::tenant::{PAGE_THREADS_MAX, Tenant};
use crate::wit::{self, registry::Filter};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Tenant {
    /// Audits everything in its store, as [`super::audit`] does, on a blocking thread.
    ///
    /// # Errors
    /// If the store cannot be read at all. Faults of its records are in the report.
    pub async fn audit(&self) -> Result<AuditReport, AuditError> {
        self.audit_with_progress(&Arc::default()).await
    }

    /// Audits the store and reports its progress.
    ///
    /// # Errors
    /// As [`Tenant::audit`].
    pub async fn audit_with_progress(
        &self,
        progress: &Arc<AuditProgress>,
    ) -> Result<AuditReport, AuditError> {
        let storage = Arc::clone(&self.context().storage);
        let progress = Arc::clone(progress);
        let audit = move || audit_with_progress(&*storage, &progress);
        match tokio::task::spawn_blocking(audit).await {
            Ok(done) => Ok(done?),
            Err(_) => Err(AuditError::Abandoned),
        }
    }
}

impl OpenProject {
    /// Audits everything in its store, and compares every document with its records.
    ///
    /// # Errors
    /// If the store or the component does not answer. Faults of records and documents are in the
    /// report.
    pub async fn audit(&self) -> Result<AuditReport, AuditError> {
        self.audit_with_progress(&Arc::default()).await
    }

    /// Audits the project and reports the progress.
    ///
    /// # Errors
    /// As [`OpenProject::audit`].
    pub async fn audit_with_progress(
        &self,
        progress: &Arc<AuditProgress>,
    ) -> Result<AuditReport, AuditError> {
        let mut report = self.tenant().audit_with_progress(progress).await?;
        let Some(threads) = self.threads() else {
            return Ok(report);
        };
        let threads = threads.try_clone().map_err(|error| {
            let error =
                crate::authority::AuthorityError::from_io(crate::authority::THREADS_PATH, error);
            DocumentError::from(error)
        })?;
        let documents = ThreadDocuments::new(self.tenant().clone(), threads);
        let mut named = NamedThreads::of(&report);
        let mut cursor = None;
        loop {
            let page = self
                .tenant()
                .list(Filter::default(), PAGE_THREADS_MAX, cursor);
            let page = match page.await {
                Ok(page) => page,
                Err(CallError::Refused(wit::Error::Corrupt(why))) => {
                    named.report_unreadable(&mut report, "", &why.message);
                    return Ok(report);
                }
                Err(error) => return Err(error.into()),
            };
            for thread in page.threads {
                compare_documents(&documents, &thread.id, &mut named, &mut report).await?;
                progress.documents.fetch_add(1, Ordering::Relaxed);
            }
            for thread in page.unreadable {
                named.report_unreadable(&mut report, &thread.thread, &thread.why.message);
            }
            cursor = page.cursor;
            if cursor.is_none() {
                return Ok(report);
            }
        }
    }
}

/// Threads of whose records a report says something, by their keys: as many as it names.
struct NamedThreads(BTreeSet<String>);

impl NamedThreads {
    fn of(report: &AuditReport) -> Self {
        let findings = report.findings.iter();
        let histories = findings.filter(|finding| finding.invariant == StoreInvariant::Histories);
        Self(
            histories
                .map(|finding| finding.thread.to_ascii_lowercase())
                .collect(),
        )
    }

    /// Reports that the component cannot read a record that is JSON, unless the thread's history
    /// has a finding already.
    fn report_unreadable(&mut self, report: &mut AuditReport, thread: &str, why: &str) {
        let key = printable_text(thread).to_ascii_lowercase();
        if self.0.contains(&key) {
            return;
        }
        if report.left_out == 0 {
            self.0.insert(key);
        }
        report.add(AuditFinding {
            thread: printable_text(thread),
            invariant: StoreInvariant::Histories,
            expected: "records that the component can read".to_owned(),
            found: printable_text(why),
        });
    }
}

/// Compares the documents of a thread. A document that differs from its records counts if two
/// checks in a row find so; each check has the directory locked.
async fn compare_documents(
    documents: &ThreadDocuments,
    thread: &str,
    named: &mut NamedThreads,
    report: &mut AuditReport,
) -> Result<(), AuditError> {
    let mut before: Option<Vec<String>> = None;
    loop {
        let others = match documents.check(thread).await {
            Ok(states) => find_differing(&states),
            Err(DocumentError::Call(CallError::Refused(wit::Error::Corrupt(why)))) => {
                named.report_unreadable(report, thread, &why.message);
                return Ok(());
            }
            Err(DocumentError::Authority(AuthorityError::Io { source, .. }))
                if source.kind() == ErrorKind::PermissionDenied =>
            {
                report.documents_unread += 1;
                return Ok(());
            }
            Err(DocumentError::Authority(error)) => vec![printable_text(&error.to_string())],
            Err(DocumentError::Busy(_)) => {
                report.unsettled += 1;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        if others.is_empty() {
            return Ok(());
        }
        if before.as_ref() == Some(&others) {
            for found in others {
                report.add(AuditFinding {
                    thread: thread.to_owned(),
                    invariant: StoreInvariant::Documents,
                    expected: "documents made from the records, current or older".to_owned(),
                    found,
                });
            }
            return Ok(());
        }
        before = Some(others);
    }
}

fn find_differing(states: &DocumentStates) -> Vec<String> {
    let documents = [
        ("thread.json", states.thread),
        ("transcript.jsonl", states.jsonl),
        ("transcript.md", states.markdown),
        ("state.json", states.checkpoint),
    ];
    let others = documents.into_iter();
    let others = others.filter(|(_, state)| *state == DocumentState::Other);
    let mut found: Vec<String> = others
        .map(|(name, _)| format!("another text in {name}: somebody changed it"))
        .collect();
    if states.is_checkpoint_overdue {
        found.push(
            "a state.json of before the thread stopped: it was not saved since, and nobody is \
             saving it"
                .to_owned(),
        );
    }
    found
}
