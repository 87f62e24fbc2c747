//! `audit`: checks the store and its documents.

use super::fault;
use super::session::{CommandProject, CommandSession};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use threadkeep::audit::{AuditError, AuditFinding, AuditProgress, AuditReport};
use threadkeep_cli::answer::{AuditAnswer, FindingRow};
use threadkeep_cli::exit::{CommandExit, CommandFault};
use threadkeep_cli::screen::OutputScreen;

/// Checks every record of the store and every document.
pub async fn audit(
    session: &CommandSession,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = session.open_to_read(screen)?;
    opened.note_if_empty(screen);
    let report = run_with_progress(&opened, screen)
        .await
        .map_err(|error| audit_fault(&error))?;
    let exit = match report.is_clean() {
        true => CommandExit::Done,
        false => CommandExit::Error,
    };
    Ok(screen.print_answer(&AuditAnswer {
        threads: report.threads,
        entries: report.entries,
        findings: report.findings.into_iter().map(finding_row).collect(),
        left_out: report.left_out,
        unsettled: report.unsettled,
        documents_unread: report.documents_unread,
        exit,
    }))
}

/// Runs the audit and shows its progress on the screen.
async fn run_with_progress(
    opened: &CommandProject,
    screen: &mut OutputScreen,
) -> Result<AuditReport, AuditError> {
    let progress: Arc<AuditProgress> = Arc::default();
    let mut audit = pin!(opened.project().audit_with_progress(&progress));
    let mut tick = tokio::time::interval(Duration::from_millis(500));
    loop {
        tokio::select! {
            biased;
            report = &mut audit => return report,
            _ = tick.tick() => match (progress.threads(), progress.documents()) {
                (0, _) => {}
                (threads, 0) => screen.show_live(&format!("  looking: {threads} threads")),
                (threads, documents) => {
                    screen.show_live(&format!("  comparing documents: {documents} of {threads} \
                                               threads"));
                }
            },
        }
    }
}

fn finding_row(finding: AuditFinding) -> FindingRow {
    let AuditFinding {
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

fn audit_fault(error: &AuditError) -> CommandFault {
    match error {
        AuditError::Call(error) => fault::from_call(error),
        error => CommandFault::new(
            "audit",
            format!("the audit came to no end: {}", fault::with_source(error)),
        )
        .with_hint("`threadkeep doctor` says what works; nothing was written"),
    }
}
