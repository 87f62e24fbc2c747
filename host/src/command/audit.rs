//! `audit`: checks the store and its documents.

use super::fault;
use super::open::{Opened, Session};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use threadkeep::audit::{AuditError, Finding, Progress, Report};
use threadkeep_cli::answer::{AuditAnswer, FindingRow};
use threadkeep_cli::exit::{Exit, Fault};
use threadkeep_cli::screen::Screen;

/// Checks every record of the store and every document.
pub async fn audit(session: &Session, screen: &mut Screen) -> Result<Exit, Fault> {
    let opened = session.open_to_read(screen)?;
    opened.say_if_empty(screen);
    let report = watched(&opened, screen)
        .await
        .map_err(|error| failed(&error))?;
    let exit = match report.is_clean() {
        true => Exit::Done,
        false => Exit::Error,
    };
    Ok(screen.answer(&AuditAnswer {
        threads: report.threads,
        entries: report.entries,
        findings: report.findings.into_iter().map(row).collect(),
        left_out: report.left_out,
        unsettled: report.unsettled,
        documents_unread: report.documents_unread,
        exit,
    }))
}

/// Runs the audit and shows its progress on the screen.
async fn watched(opened: &Opened, screen: &mut Screen) -> Result<Report, AuditError> {
    let progress: Arc<Progress> = Arc::default();
    let mut audit = pin!(opened.project().audit_watched(&progress));
    let mut tick = tokio::time::interval(Duration::from_millis(500));
    loop {
        tokio::select! {
            biased;
            report = &mut audit => return report,
            _ = tick.tick() => match (progress.threads(), progress.documents()) {
                (0, _) => {}
                (threads, 0) => screen.live(&format!("  looking: {threads} threads")),
                (threads, documents) => {
                    screen.live(&format!("  comparing documents: {documents} of {threads} threads"));
                }
            },
        }
    }
}

fn row(finding: Finding) -> FindingRow {
    let Finding {
        thread,
        invariant,
        expected,
        found,
    } = finding;
    FindingRow {
        thread_id: thread,
        invariant: invariant.number(),
        name: invariant.name().to_owned(),
        expected,
        found,
        advice: invariant.advice().to_owned(),
    }
}

fn failed(error: &AuditError) -> Fault {
    match error {
        AuditError::Call(error) => fault::call(error),
        error => Fault::new(
            "audit",
            format!("the audit came to no end: {}", fault::with_source(error)),
        )
        .hint("`threadkeep doctor` says what works; nothing was written"),
    }
}
