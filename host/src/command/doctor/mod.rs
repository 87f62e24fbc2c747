//! `doctor`: reports the configuration, the origin of each value, what works, what is missing and
//! how to fix it.
//!
//! It creates nothing that stays: no directory, no store, no lock file. Directives are tried by
//! creating a thread of each in memory, so that the component itself judges them.

mod coordination;
mod documents;
mod engine;
mod library;
mod persistence;
mod policy;
mod probe;
mod store;
mod transfer;

use super::convert::ConvertRecord;
use super::fault;
use super::session::CommandSession;
use std::sync::Arc;
use threadkeep::authority::ProjectDir;
use threadkeep::component::TenantContext;
use threadkeep::engine::Engine;
use threadkeep::library::GrantedLibrary;
use threadkeep::storage::{StorageBackend, memory::MemoryStore};
use threadkeep::tenant::Tenant;
use threadkeep::tools::{ToolSet, files::FilesTools};
use threadkeep::wit::registry::Draft;
use threadkeep_cli::answer::{
    DoctorAnswer, DoctorProblem, DoctorSection, ItemState, RunnableKinds,
};
use threadkeep_cli::args;
use threadkeep_cli::command::view;
use threadkeep_cli::exit::{CommandExit, CommandFault};
use threadkeep_cli::screen::OutputScreen;
use threadkeep_units::builtin_tools::BUILTIN_TOOL_NAMES;
use threadkeep_units::nearest::suggestion;

/// Checks the whole configuration, or with `--probe` sends one provider a small request.
pub async fn doctor(
    session: &CommandSession,
    doctor: args::DoctorArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    if let Some(provider) = &doctor.probe {
        return probe::probe(session, provider, screen).await;
    }
    let mut diagnosis = DoctorFindings::default();
    let runs = examine(session, &mut diagnosis).await;
    let answer = DoctorAnswer {
        sections: diagnosis.sections,
        missing: diagnosis.missing,
        works: runs.any(),
        runs,
        exit: match runs.any() {
            true => CommandExit::Done,
            false => CommandExit::Error,
        },
    };
    Ok(screen.print_answer(&answer))
}

/// The sections and problems found so far.
#[derive(Default)]
struct DoctorFindings {
    sections: Vec<DoctorSection>,
    missing: Vec<DoctorProblem>,
}

impl DoctorFindings {
    /// Adds a problem: something that is missing or wrong.
    fn add_problem(&mut self, what: impl Into<String>, mend: impl Into<String>) {
        self.missing.push(DoctorProblem {
            what: what.into(),
            mend: mend.into(),
            optional: false,
        });
    }

    /// Adds something that is missing but that nothing which works depends on.
    fn add_optional(&mut self, what: impl Into<String>, mend: impl Into<String>) {
        self.missing.push(DoctorProblem {
            what: what.into(),
            mend: mend.into(),
            optional: true,
        });
    }
}

/// A project opened for inspection; opening it creates nothing in it.
struct ExaminedProject {
    /// `.ai`, if it exists.
    ai: Option<cap_std::fs::Dir>,
    library: Arc<GrantedLibrary>,
    tools: FilesTools,
    /// `.ai/threads`, if it exists, or the reason why it cannot be used.
    threads: Result<Option<cap_std::fs::Dir>, String>,
}

/// Examines everything. Returns the kinds of runs that are possible.
async fn examine(session: &CommandSession, findings: &mut DoctorFindings) -> RunnableKinds {
    let engine = engine::check_engine(session, findings);
    let counted = policy::check_policy(session, findings);
    let mut section = DoctorSection::new("project");
    let project = examine_project(session, &mut section, findings);
    let (Some(engine), Some(project)) = (engine, project) else {
        findings.sections.push(section);
        return RunnableKinds::default();
    };
    let library: Arc<GrantedLibrary> = Arc::clone(&project.library);
    let tried = new_tenant(&engine, library, Arc::new(MemoryStore::new()));
    let directives = library::check_directives(&project, &tried, &mut section, findings).await;
    findings.sections.push(section);
    let providers = library::check_models(session, &project, findings);
    let coordinated =
        coordination::check_coordination(&project, &tried, &providers, findings).await;
    let persisted = persistence::check_persistence(&project, findings);
    let runnable = directives
        .iter()
        .any(|directive| providers.can_answer(&directive.model));
    if !directives.is_empty() && !runnable {
        findings.add_optional(
            "no directive names a model whose provider works",
            "set what the section models marks with ?, or name another model with --model",
        );
    }
    let stored = store::check_store(session, &engine, &project, findings).await;
    let model = check_limits(&engine, &project.library.policy().name, &tried, findings).await;
    list_tools(&project, findings);
    let own_loops = project.ai.is_some() && stored && persisted && coordinated && counted;
    RunnableKinds {
        directives: own_loops && runnable,
        chats: own_loops && model.is_some_and(|model| providers.can_answer(&model)),
        own_loops,
    }
}

/// Adds the project's directory and its `.ai`.
fn examine_project(
    session: &CommandSession,
    section: &mut DoctorSection,
    findings: &mut DoctorFindings,
) -> Option<ExaminedProject> {
    let (path, origin) = session.path();
    let shown = path.display().to_string();
    let opened = session
        .directory()
        .and_then(|project| open_project(session, &project));
    match opened {
        Ok(examined) => {
            section.add_with_origin("directory", shown, origin);
            match &examined.ai {
                Some(_) => section.add_ok(".ai", "present"),
                None => {
                    section.add_item(ItemState::Bad, ".ai", "not there", None);
                    findings.add_problem(
                        "the project has no directory .ai",
                        "`threadkeep init` makes one; `threadkeep demo` shows one",
                    );
                }
            }
            Some(examined)
        }
        Err(fault) => {
            section.add_item(
                ItemState::Bad,
                "directory",
                fault.message.clone(),
                Some(origin),
            );
            findings.add_problem(fault.message, fault.hint.unwrap_or_default());
            None
        }
    }
}

fn open_project(
    session: &CommandSession,
    project: &ProjectDir,
) -> Result<ExaminedProject, CommandFault> {
    let grant = project
        .tool_grant(".")
        .map_err(|error| fault::from_authority(&error))?;
    let ai = || {
        project
            .ai_dir()
            .map_err(|error| fault::from_authority(&error))
    };
    let tools = FilesTools::new(grant);
    let library = GrantedLibrary::open(
        ai()?,
        session.policy()?,
        tools.catalog(),
        session.environment().for_providers(),
    );
    Ok(ExaminedProject {
        ai: ai()?,
        library: Arc::new(library),
        tools,
        threads: project
            .threads_dir()
            .map_err(|error| fault::with_source(&error)),
    })
}

fn new_tenant(
    engine: &Engine,
    library: Arc<GrantedLibrary>,
    storage: Arc<dyn StorageBackend>,
) -> Tenant {
    Tenant::new(engine.clone(), TenantContext::new(storage, library))
}

/// A draft of a thread of a directive, or of a chat, with only its inputs set.
fn minimal_draft(directive: Option<&str>, inputs: String) -> Draft {
    Draft {
        directive: directive.map(str::to_owned),
        inputs: Some(inputs).filter(|text| !text.is_empty()),
        ..Draft::default()
    }
}

/// Adds the caps of the preset, as the component gives them to a chat, and the limits of one call.
/// Returns the model of a chat.
async fn check_limits(
    engine: &Engine,
    policy: &str,
    tried: &Tenant,
    findings: &mut DoctorFindings,
) -> Option<String> {
    let mut model = None;
    let mut section = DoctorSection::new("limits");
    let origin = "preset local, built in";
    match tried.create(minimal_draft(None, String::new())).await {
        Ok(thread) => {
            let caps = view::limits(&thread.limits.convert());
            section.add_with_origin("caps of a thread", caps.describe(), policy);
            model = Some(thread.model);
        }
        Err(error) => section.add_item(
            ItemState::Warning,
            "caps of a thread",
            fault::from_call(&error).message,
            None,
        ),
    }
    for (name, value) in engine.limits().named_values() {
        section.add_with_origin(name, value, origin);
    }
    findings.sections.push(section);
    model
}

fn list_tools(project: &ExaminedProject, findings: &mut DoctorFindings) {
    let mut section = DoctorSection::new("tools");
    let policy = project.library.policy();
    let catalog = project.tools.catalog();
    let names = catalog.iter().map(|tool| tool.name.as_str());
    let names: Vec<&str> = names.chain(BUILTIN_TOOL_NAMES).collect();
    for pattern in policy.unmatched_approvals(&names) {
        let said = suggestion(pattern, names.iter().copied());
        let value = format!("{pattern} matches no tool that there is{said}");
        section.add_item(ItemState::Warning, "approvals", value, Some(&policy.name));
    }
    for tool in &catalog {
        match policy.grants_tool(&tool.name) {
            true => section.add_with_origin(
                &tool.name,
                "reads below the project, never .ai",
                "built in",
            ),
            false => section.add_with_origin(&tool.name, "not granted", &policy.name),
        }
    }
    findings.sections.push(section);
}
