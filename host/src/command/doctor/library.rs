//! The directives, settings, models and providers of a project.

use super::{DoctorFindings, ExaminedProject, minimal_draft};
use crate::command::fault;
use crate::command::session::CommandSession;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use threadkeep::error::CallError;
use threadkeep::library::models::{
    FieldOrigin, ModelTable, ProviderOrigins, ProviderSpec, TABLE_PLACE, WireProtocol,
};
use threadkeep::library::{LibraryError, TenantLibrary};
use threadkeep::models::scripted::ScriptedProvider;
use threadkeep::policy::matches_pattern;
use threadkeep::project::check_provider;
use threadkeep::tenant::Tenant;
use threadkeep::tools::ToolSet;
use threadkeep::wit;
use threadkeep_cli::answer::{DoctorSection, ItemState};
use threadkeep_units::builtin_tools::BUILTIN_TOOL_NAMES;

/// Most directives that are tried: the library lists no more names at once.
const DIRECTIVES_MAX: usize = 500;

/// The model of a directive that cannot be tried without its inputs.
const DEFAULT_MODEL: &str = "default";

/// A directive that the component accepts.
pub struct UsableDirective {
    /// The model or tier that it names.
    pub model: String,
    /// Its capabilities that match no tool of this host: the directive may be meant for another or
    /// a later host.
    unmatched_capabilities: Vec<String>,
}

/// Tries every directive; counts the usable ones and reports the others.
pub async fn check_directives(
    project: &ExaminedProject,
    tried: &Tenant,
    section: &mut DoctorSection,
    findings: &mut DoctorFindings,
) -> Vec<UsableDirective> {
    let mut good = Vec::new();
    let names = match project.library.names("directive") {
        Ok(names) => names,
        Err(error) => {
            section.add_item(ItemState::Bad, "directives", error.to_string(), None);
            findings.add_problem("the directives cannot be read", error.to_string());
            return good;
        }
    };
    let mut bad = Vec::new();
    for name in names.iter().take(DIRECTIVES_MAX) {
        match try_directive(project, tried, name).await {
            Ok(directive) => {
                for capability in &directive.unmatched_capabilities {
                    let value = format!("the capability {capability} grants no tool that there is");
                    section.add_item(
                        ItemState::Warning,
                        &format!("directive {name}"),
                        value,
                        None,
                    );
                }
                good.push(directive);
            }
            Err(problem) => bad.push((name, problem)),
        }
    }
    section.add_ok(
        "directives",
        format!("{} of {} can be used", good.len(), names.len()),
    );
    for (name, problem) in bad {
        section.add_item(
            ItemState::Bad,
            &format!("directive {name}"),
            problem.clone(),
            None,
        );
        findings.add_problem(format!("the directive {name} cannot be used"), problem);
    }
    if names.is_empty() && project.ai.is_some() {
        findings.add_optional(
            "the project has no directive",
            "write .ai/directives/NAME.md: front matter between lines of ---, then the prompt",
        );
    }
    good
}

/// Creates a thread of the directive in memory, with an empty text for each of its inputs.
async fn try_directive(
    project: &ExaminedProject,
    tried: &Tenant,
    name: &str,
) -> Result<UsableDirective, String> {
    let found = project
        .library
        .document("directive", name)
        .map_err(|error| error.to_string())?;
    let text = found.ok_or("it is gone")?;
    let document: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let declared = document.pointer("/front/inputs").and_then(Value::as_object);
    let inputs: Map<String, Value> = declared
        .into_iter()
        .flatten()
        .map(|(name, _)| (name.clone(), Value::from("")))
        .collect();
    match tried
        .create(minimal_draft(Some(name), Value::Object(inputs).to_string()))
        .await
    {
        Ok(thread) => Ok(UsableDirective {
            model: thread.model,
            unmatched_capabilities: find_unmatched_capabilities(project, thread.capabilities),
        }),
        Err(CallError::Refused(wit::Error::Invalid(wrong)))
            if wrong.field.starts_with("inputs") =>
        {
            let named = document.pointer("/front/model").and_then(Value::as_str);
            Ok(UsableDirective {
                model: named.unwrap_or(DEFAULT_MODEL).to_owned(),
                unmatched_capabilities: Vec::new(),
            })
        }
        Err(error) => {
            let fault = fault::from_call(&error);
            Err(match fault.hint {
                Some(hint) => format!("{} ({hint})", fault.message),
                None => fault.message,
            })
        }
    }
}

/// Returns the capabilities that match no tool, neither of the catalog nor built in. This only
/// warns: the component decides which tools a thread may call.
fn find_unmatched_capabilities(
    project: &ExaminedProject,
    capabilities: Vec<String>,
) -> Vec<String> {
    let catalog = project.tools.catalog();
    let grants = |capability: &String| {
        let pattern = capability.strip_prefix("rye.").unwrap_or(capability);
        let names = catalog.iter().map(|tool| tool.name.as_str());
        let mut names = names.chain(BUILTIN_TOOL_NAMES);
        names.any(|name| matches_pattern(pattern, &format!("execute.tool.{name}")))
    };
    capabilities
        .into_iter()
        .filter(|capability| !grants(capability))
        .collect()
}

/// The providers of the model table and which of them work.
pub struct ProviderStatuses {
    table: Option<ModelTable>,
    works: BTreeMap<String, bool>,
    /// True if a script answers for every provider.
    scripted: bool,
}

impl ProviderStatuses {
    /// Returns true if the tenant has a model or tier of this name, or if its table cannot be read,
    /// which is reported by itself.
    pub fn has_model(&self, name: &str) -> bool {
        let table = self.table.as_ref();
        table.is_none_or(|table| table.resolve(name).is_some())
    }

    /// Returns true if a thread on this model would get answers, as far as that is known without a
    /// call.
    pub fn can_answer(&self, model: &str) -> bool {
        let Some(spec) = self.table.as_ref().and_then(|table| table.resolve(model)) else {
            return false;
        };
        self.scripted || self.works.get(&spec.provider).copied().unwrap_or(false)
    }
}

/// Adds the model table and each provider in it.
pub fn check_models(
    session: &CommandSession,
    project: &ExaminedProject,
    findings: &mut DoctorFindings,
) -> ProviderStatuses {
    let mut section = DoctorSection::new("models");
    let mut providers = ProviderStatuses {
        table: None,
        works: BTreeMap::new(),
        scripted: false,
    };
    match session.script() {
        Ok(None) => {}
        Ok(Some(_)) => {
            providers.scripted = true;
            section.add_with_origin("answers", "of a script, for every model", "--provider");
        }
        Err(fault) => {
            section.add_item(
                ItemState::Bad,
                "answers",
                fault.message.clone(),
                Some("--provider"),
            );
            findings.add_problem(fault.message, fault.hint.unwrap_or_default());
        }
    }
    match project.library.models() {
        Ok(table) => {
            let source = table_source(project);
            section.add_with_origin(
                "table",
                format!("{} models and tiers", table.names().len()),
                source,
            );
            for (tier, model) in table.tiers() {
                section.add_with_origin(&format!("tier {tier}"), model, source);
            }
            for origins in table.providers() {
                let works =
                    examine_provider(project, &table, &origins, &mut section, findings, source);
                providers.works.insert(origins.name, works);
            }
            providers.table = Some(table);
        }
        Err(error) => {
            section.add_item(
                ItemState::Bad,
                "table",
                error.to_string(),
                Some(TABLE_PLACE),
            );
            findings.add_problem("the model table cannot be read", error.to_string());
        }
    }
    findings.sections.push(section);
    providers
}

fn table_source(project: &ExaminedProject) -> &'static str {
    let present = project
        .ai
        .as_ref()
        .is_some_and(|ai| ai.exists("config/models.yaml"));
    match present {
        true => TABLE_PLACE,
        false => "the built-in table",
    }
}

/// Adds one provider. Returns true if it works, as far as that is known without calling it.
fn examine_provider(
    project: &ExaminedProject,
    table: &ModelTable,
    origins: &ProviderOrigins,
    section: &mut DoctorSection,
    findings: &mut DoctorFindings,
    source: &str,
) -> bool {
    let name = format!("provider {}", origins.name);
    let made = table
        .provider(&origins.name)
        .map_err(|error| problem(&error));
    match made.and_then(|spec| check_usable(project, &spec).map(|()| spec)) {
        Ok(spec) => {
            let key = match spec.key {
                Some(_) => format!("key set{}", describe_origin(&origins.key)),
                None => "no key".to_owned(),
            };
            let address = match spec.wire {
                WireProtocol::Scripted => spec.file.unwrap_or_default(),
                WireProtocol::OpenAi | WireProtocol::Anthropic => describe_address(origins),
            };
            let value = format!("{}, {address}, {key}", spec.wire.as_str());
            section.add_with_origin(&name, value, source);
            true
        }
        Err(problem) => {
            let value = match origins.wire {
                WireProtocol::Scripted => format!("{}: {problem}", origins.wire.as_str()),
                WireProtocol::OpenAi | WireProtocol::Anthropic => {
                    format!(
                        "{}, {}: {problem}",
                        origins.wire.as_str(),
                        describe_address(origins)
                    )
                }
            };
            section.add_item(ItemState::Warning, &name, value, Some(source));
            if let FieldOrigin::Variables(names) = &origins.key {
                findings.add_optional(
                    format!("the provider {} does not work: {problem}", origins.name),
                    format!("set {} if you want to use it", names.join(" and ")),
                );
            }
            false
        }
    }
}

/// Describes the address of a provider as it is written, with the variables that set it. The value
/// of a variable is never shown: it may be the operator's own.
fn describe_address(origins: &ProviderOrigins) -> String {
    match (&origins.base_url, origins.shown_url.as_str()) {
        (_, "") => "no address that can be used".to_owned(),
        (FieldOrigin::Variables(names), url) if !url.contains("${") => {
            format!("{url}, another address by {}", names.join(" and "))
        }
        (FieldOrigin::Variables(names), url) => {
            format!("{url}, address by {}", names.join(" and "))
        }
        (FieldOrigin::Absent | FieldOrigin::Written, url) => url.to_owned(),
    }
}

fn check_usable(project: &ExaminedProject, spec: &ProviderSpec) -> Result<(), String> {
    match spec.wire {
        WireProtocol::OpenAi | WireProtocol::Anthropic => {
            check_provider(spec).map_err(|failure| failure.message)
        }
        WireProtocol::Scripted => {
            let file = spec.file.as_deref().unwrap_or_default();
            let text = project
                .library
                .read_script(file)
                .map_err(|error| problem(&error))?;
            ScriptedProvider::parse(&text)
                .map(drop)
                .map_err(|error| error.to_string())
        }
    }
}

fn problem(error: &LibraryError) -> String {
    error.to_string()
}

/// Describes the origin of a value, never the value itself.
fn describe_origin(origin: &FieldOrigin) -> String {
    match origin {
        FieldOrigin::Absent => String::new(),
        FieldOrigin::Written => " in the file".to_owned(),
        FieldOrigin::Variables(names) => format!(" by {}", names.join(" and ")),
    }
}
