//! Leftovers of copies of the store.

use super::DoctorFindings;
use crate::command::fault;
use cap_std::fs::Dir;
use threadkeep::project::{REPLACED_DIRECTORY, TransferLeftovers};
use threadkeep_cli::answer::{DoctorSection, ItemState};

/// Adds a copy that is under way or was interrupted, and the stores that were replaced.
pub fn check_leftovers(threads: &Dir, section: &mut DoctorSection, findings: &mut DoctorFindings) {
    let left = match TransferLeftovers::find(threads) {
        Ok(left) => left,
        Err(error) => {
            let problem = fault::from_project(&error).message;
            section.add_item(ItemState::Bad, "copy", problem.clone(), None);
            let mend = "move .ai/threads/current-store away if one store is left";
            findings.add_problem(problem, mend);
            return;
        }
    };
    if let Some(copier) = &left.copier {
        section.add_ok("copy", format!("under way, by the process {copier}"));
    }
    if let Some((what, mend)) = left.describe_interrupted() {
        section.add_item(ItemState::Warning, "copy", what.clone(), None);
        findings.add_problem(what, mend);
    }
    if !left.replaced.is_empty() {
        let bytes: u64 = left.replaced.iter().map(|store| store.bytes).sum();
        let value = format!(
            "{} of {bytes} bytes, which copies have replaced: remove those that you need no more",
            match left.replaced.len() {
                1 => "1 store".to_owned(),
                count => format!("{count} stores"),
            }
        );
        section.add_ok(REPLACED_DIRECTORY, value);
    }
}
