//! The settings of coordination: each value with the file that sets it, and what it means where
//! something that it names is missing. The component judges the values.

use super::library::ProviderStatuses;
use super::{DoctorFindings, ExaminedProject, minimal_draft};
use crate::command::fault;
use serde_json::Value;
use threadkeep::error::CallError;
use threadkeep::library::TenantLibrary;
use threadkeep::tenant::Tenant;
use threadkeep::wit;
use threadkeep_cli::answer::{DoctorSection, ItemState};
use threadkeep_units::coordination::{
    BUILTIN_SUMMARY, COORDINATION_KEYS, CoordinationKey, SUMMARY_DIRECTIVE, SUMMARY_MODEL,
    SUMMARY_TIER, TRANSCRIPT_INTEGRITY,
};

/// Most directives whose front matter is looked at: the library lists no more names at once.
const DIRECTIVES_MAX: usize = 500;

/// Adds the settings of coordination. Returns false if they prevent every run.
pub async fn check_coordination(
    project: &ExaminedProject,
    tried: &Tenant,
    providers: &ProviderStatuses,
    findings: &mut DoctorFindings,
) -> bool {
    let mut section = DoctorSection::new("coordination");
    let found = project.library.document("settings", "coordination");
    let document = match found {
        Ok(document) => document.and_then(|text| serde_json::from_str::<Value>(&text).ok()),
        Err(error) => {
            let problem = error.to_string();
            section.add_item(ItemState::Bad, "file", problem.clone(), None);
            findings.add_problem("the settings of coordination cannot be read", problem);
            findings.sections.push(section);
            return false;
        }
    };
    let place = project.library.find_coordination_file().ok().flatten();
    let top_keys: Vec<String> = document
        .as_ref()
        .and_then(Value::as_object)
        .map(|keys| keys.keys().cloned().collect())
        .unwrap_or_default();
    let file = document.zip(place);
    for key in COORDINATION_KEYS {
        let set = file.as_ref().and_then(|(document, place)| {
            let value = document.pointer(&format!("/{}", key.path.replace('.', "/")))?;
            Some((value, place.as_str()))
        });
        let set = set.filter(|(value, _)| !value.is_null() || key.takes_null());
        let none = file.as_ref().is_some_and(|(document, _)| {
            let place = SUMMARY_DIRECTIVE.path.replace('.', "/");
            document.pointer(&format!("/{place}")) == Some(&Value::Null)
        });
        let missing = |value: &str| match none {
            true => None,
            false => find_missing(project, key, value, providers),
        };
        if let Some(problem) = add_value(&mut section, key, set, missing) {
            let place = set.map_or("the model table", |(_, place)| place);
            findings.add_problem(problem, format!("correct it in {place}"));
        }
    }
    add_directives(project, &mut section);
    let good = match tried.create(minimal_draft(None, String::new())).await {
        Err(CallError::Refused(wit::Error::Invalid(wrong)))
            if is_of_coordination(&wrong.field, &top_keys) =>
        {
            let refused = CallError::Refused(wit::Error::Invalid(wrong));
            let fault = fault::from_call(&refused);
            section.add_item(ItemState::Bad, "file", fault.message.clone(), None);
            let mend = "correct it: no run begins beside it".to_owned();
            findings.add_problem(fault.message, fault.hint.unwrap_or(mend));
            false
        }
        _ => true,
    };
    findings.sections.push(section);
    good
}

/// Returns true if the field that an error names is one of the settings of coordination, or a key
/// that stands at the top of their file in its place.
fn is_of_coordination(field: &str, top_keys: &[String]) -> bool {
    let top = field.split('.').next().unwrap_or(field);
    top == "coordination" || top_keys.iter().any(|key| key == top)
}

/// Describes what a value names and the project does not have.
fn find_missing(
    project: &ExaminedProject,
    key: CoordinationKey,
    value: &str,
    providers: &ProviderStatuses,
) -> Option<(ItemState, &'static str)> {
    if key == SUMMARY_MODEL && !providers.has_model(value) {
        return Some(match value == SUMMARY_TIER {
            true => (
                ItemState::Warning,
                "there is no such tier, so the thread's own model",
            ),
            false => (ItemState::Bad, "there is no such model or tier"),
        });
    }
    let is_missing = key == SUMMARY_DIRECTIVE
        && value != BUILTIN_SUMMARY
        && matches!(project.library.document("directive", value), Ok(None));
    is_missing.then_some((ItemState::Bad, "there is no such directive"))
}

/// Adds the value of a key: that of the file, or the default. Returns what it names and is not
/// there, where nothing stands in for it.
fn add_value(
    section: &mut DoctorSection,
    key: CoordinationKey,
    set: Option<(&Value, &str)>,
    find_missing: impl Fn(&str) -> Option<(ItemState, &'static str)>,
) -> Option<String> {
    let (value, origin) = match set {
        Some((value, place)) => (value.to_string(), place),
        None => (key.default.to_owned(), "default"),
    };
    let value = match value.trim_matches('"') {
        "null" => "none",
        text => text,
    };
    let name = key.path.trim_start_matches("coordination.");
    if let Some((state, problem)) = find_missing(value) {
        section.add_item(state, name, format!("{value}: {problem}"), Some(origin));
        return (state == ItemState::Bad).then(|| format!("{name} names {value}: {problem}"));
    }
    if key == TRANSCRIPT_INTEGRITY {
        let value = format!("{value}: read, and without effect until histories are signed");
        section.add_item(ItemState::Ok, name, value, Some(origin));
    } else {
        section.add_with_origin(name, value, origin);
    }
    None
}

/// Adds the directives whose front matter has a summary of its own.
fn add_directives(project: &ExaminedProject, section: &mut DoctorSection) {
    let names = project.library.names("directive").unwrap_or_default();
    for name in names.iter().take(DIRECTIVES_MAX) {
        let Ok(Some(text)) = project.library.document("directive", name) else {
            continue;
        };
        let document = serde_json::from_str::<Value>(&text).unwrap_or_default();
        let Some(summary) = document.pointer("/front/summary") else {
            continue;
        };
        let value = match summary {
            Value::Object(fields) => {
                let fields = fields.iter();
                let fields = fields.map(|(field, value)| format!("{field} {value}"));
                let fields: Vec<String> = fields.collect();
                fields.join(", ").replace('"', "")
            }
            _ => "none".to_owned(),
        };
        let place = format!(".ai/directives/{name}.md");
        section.add_with_origin(&format!("summary of {name}"), value, &place);
    }
}
