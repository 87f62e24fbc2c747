//! The host's audit as tests ask for it: every finding as a sentence.

use threadkeep::storage::Storage;

/// Everything that is wrong with a store at rest; empty if nothing is.
pub fn audit(store: &dyn Storage) -> Vec<String> {
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
