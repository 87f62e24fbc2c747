//! The settings of checkpoints on disk: each value with the file that sets it.

use super::{DoctorFindings, ExaminedProject};
use serde_json::Value;
use threadkeep::documents::checkpoints::{CheckpointSettings, SETTINGS_NAME};
use threadkeep::library::TenantLibrary;
use threadkeep_cli::answer::{DoctorSection, ItemState};
use threadkeep_units::persistence::PERSISTENCE_KEYS;

/// Adds the settings of checkpoints. Returns false if they prevent every run.
pub fn check_persistence(project: &ExaminedProject, findings: &mut DoctorFindings) -> bool {
    let mut section = DoctorSection::new(SETTINGS_NAME);
    let found = project.library.document("settings", SETTINGS_NAME);
    let parsed = found.and_then(|text| {
        CheckpointSettings::parse(text.as_deref())?;
        Ok(text)
    });
    let document = match parsed {
        Ok(text) => text.and_then(|text| serde_json::from_str::<Value>(&text).ok()),
        Err(error) => {
            let problem = format!(".ai/config/{SETTINGS_NAME}.yaml: {error}");
            section.add_item(ItemState::Bad, "file", problem.clone(), None);
            let mend = "correct it: no run begins beside it; docs/checkpoints.md has every key";
            findings.add_problem(problem, mend);
            findings.sections.push(section);
            return false;
        }
    };
    let place = project.library.find_persistence_file().ok().flatten();
    let file = document.zip(place);
    for key in PERSISTENCE_KEYS {
        let pointer = format!("/{}", key.path.replace('.', "/"));
        let set = file.as_ref().and_then(|(document, place)| {
            let value = document
                .pointer(&pointer)
                .filter(|value| !value.is_null())?;
            Some((value.to_string(), place.as_str()))
        });
        let (value, origin) = set.unwrap_or_else(|| (key.default.to_owned(), "default"));
        section.add_with_origin(key.path, value.trim_matches('"'), origin);
    }
    findings.sections.push(section);
    true
}
