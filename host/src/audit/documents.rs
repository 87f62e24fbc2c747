//! The audit of a tenant and of a project: the store, on a blocking thread, then the documents of
//! its threads.

use super::{AuditError, Finding, Invariant, Progress, Report, audit_watched, shown};
use crate::authority::AuthorityError;
use crate::documents::{DocumentError, DocumentState, Documents};
use crate::error::CallError;
use crate::project::OpenProject;
use crate::tenant::Tenant;
use crate::wit::{self, registry::Filter};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Threads of one page, which is the registry's maximum.
const PAGE_THREADS: u32 = 100;

impl Tenant {
    /// Audits everything in its store, as [`super::audit`] does, on a blocking thread.
    ///
    /// # Errors
    /// If the store cannot be read at all. Faults of its records are in the report.
    pub async fn audit(&self) -> Result<Report, AuditError> {
        self.audit_watched(&Arc::default()).await
    }

    /// Audits the store and reports its progress.
    ///
    /// # Errors
    /// As [`Tenant::audit`].
    pub async fn audit_watched(&self, progress: &Arc<Progress>) -> Result<Report, AuditError> {
        let storage = Arc::clone(&self.context().storage);
        let progress = Arc::clone(progress);
        let audit = move || audit_watched(&*storage, &progress);
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
    pub async fn audit(&self) -> Result<Report, AuditError> {
        self.audit_watched(&Arc::default()).await
    }

    /// Audits the project and reports the progress.
    ///
    /// # Errors
    /// As [`OpenProject::audit`].
    pub async fn audit_watched(&self, progress: &Arc<Progress>) -> Result<Report, AuditError> {
        let mut report = self.tenant().audit_watched(progress).await?;
        let Some(threads) = self.threads() else {
            return Ok(report);
        };
        let threads = threads.try_clone().map_err(|error| {
            let error = crate::authority::AuthorityError::from_io(crate::authority::THREADS, error);
            DocumentError::from(error)
        })?;
        let documents = Documents::new(self.tenant().clone(), threads);
        let mut named = Named::of(&report);
        let mut cursor = None;
        loop {
            let page = self.tenant().list(Filter::default(), PAGE_THREADS, cursor);
            let page = match page.await {
                Ok(page) => page,
                Err(CallError::Refused(wit::Error::Corrupt(why))) => {
                    named.unread(&mut report, "", &why.message);
                    return Ok(report);
                }
                Err(error) => return Err(error.into()),
            };
            for thread in page.threads {
                compare(&documents, &thread.id, &mut named, &mut report).await?;
                progress.documents.fetch_add(1, Ordering::Relaxed);
            }
            for thread in page.unreadable {
                named.unread(&mut report, &thread.thread, &thread.why.message);
            }
            cursor = page.cursor;
            if cursor.is_none() {
                return Ok(report);
            }
        }
    }
}

/// Threads of whose records a report says something, by their keys: as many as it names.
struct Named(BTreeSet<String>);

impl Named {
    fn of(report: &Report) -> Self {
        let findings = report.findings.iter();
        let histories = findings.filter(|finding| finding.invariant == Invariant::Histories);
        Self(
            histories
                .map(|finding| finding.thread.to_ascii_lowercase())
                .collect(),
        )
    }

    /// Reports that the component cannot read a record that is JSON, unless the thread's history has a
    /// finding already.
    fn unread(&mut self, report: &mut Report, thread: &str, why: &str) {
        let key = shown(thread).to_ascii_lowercase();
        if self.0.contains(&key) {
            return;
        }
        if report.left_out == 0 {
            self.0.insert(key);
        }
        report.add(Finding {
            thread: shown(thread),
            invariant: Invariant::Histories,
            expected: "records that the component can read".to_owned(),
            found: shown(why),
        });
    }
}

/// Compares the documents of a thread. A document that differs from its records counts if two
/// checks in a row find so; each check has the directory locked.
async fn compare(
    documents: &Documents,
    thread: &str,
    named: &mut Named,
    report: &mut Report,
) -> Result<(), AuditError> {
    let mut before: Option<Vec<String>> = None;
    loop {
        let others = match documents.check(thread).await {
            Ok(states) => others([
                ("thread.json", states.thread),
                ("transcript.jsonl", states.jsonl),
                ("transcript.md", states.markdown),
            ]),
            Err(DocumentError::Call(CallError::Refused(wit::Error::Corrupt(why)))) => {
                named.unread(report, thread, &why.message);
                return Ok(());
            }
            Err(DocumentError::Authority(AuthorityError::Io { source, .. }))
                if source.kind() == ErrorKind::PermissionDenied =>
            {
                report.documents_unread += 1;
                return Ok(());
            }
            Err(DocumentError::Authority(error)) => vec![shown(&error.to_string())],
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
                report.add(Finding {
                    thread: thread.to_owned(),
                    invariant: Invariant::Documents,
                    expected: "documents made from the records, current or older".to_owned(),
                    found,
                });
            }
            return Ok(());
        }
        before = Some(others);
    }
}

fn others(states: [(&str, DocumentState); 3]) -> Vec<String> {
    let others = states
        .into_iter()
        .filter(|(_, state)| *state == DocumentState::Other);
    others
        .map(|(name, _)| format!("another text in {name}: somebody changed it"))
        .collect()
}
