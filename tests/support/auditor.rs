//! The host's audit for tests: each finding as a sentence.

use threadkeep::storage::StorageBackend;

/// Audits a store at rest; returns its findings, empty if there are none.
pub fn audit(store: &dyn StorageBackend) -> Vec<String> {
    let report = threadkeep::audit::audit(store).expect("the store answers");
    let findings = report.findings.iter();
    let mut said: Vec<String> = findings.map(ToString::to_string).collect();
    for (count, what) in [
        (report.left_out, "findings more"),
        (report.unsettled, "threads or accounts that move"),
    ] {
        if count > 0 {
            said.push(format!("{count} {what}"));
        }
    }
    said
}
