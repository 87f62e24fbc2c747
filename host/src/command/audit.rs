//! `audit`.

use super::fault;
use super::open::Session;
use threadkeep::audit::{AuditError, Finding};
use threadkeep_cli::answer::{AuditAnswer, FindingRow};
use threadkeep_cli::exit::{Exit, Fault};
use threadkeep_cli::screen::Screen;

/// Look at everything in the store and its documents.
pub async fn audit(session: &Session, screen: &mut Screen) -> Result<Exit, Fault> {
    let opened = session.open()?;
    opened.say_if_empty(screen);
    let report = opened
        .project()
        .audit()
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
        exit,
    }))
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
