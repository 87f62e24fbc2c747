//! `doctor`: reports the configuration, the origin of each value, what works, what is missing and
//! how to fix it.
//!
//! It creates nothing that stays: no directory, no store, no lock file. Directives are tried by
//! creating a thread of each in memory, so that the component itself judges them.

mod engine;
mod library;
mod policy;
mod probe;
mod store;

use super::open::Session;
use super::{fault, view};
use std::sync::Arc;
use threadkeep::authority::Project;
use threadkeep::component::Context;
use threadkeep::engine::Engine;
use threadkeep::library::files::FilesLibrary;
use threadkeep::storage::{Storage, memory::MemoryStore};
use threadkeep::tenant::Tenant;
use threadkeep::tools::{Tools, files::FilesTools};
use threadkeep::wit::registry::Draft;
use threadkeep_cli::answer::{Diagnosis, Missing, Runnable, Section, State};
use threadkeep_cli::args;
use threadkeep_cli::exit::{Exit, Fault};
use threadkeep_cli::screen::Screen;

/// Checks the whole configuration, or with `--probe` sends one provider a small request.
pub async fn doctor(
    session: &Session,
    doctor: args::Doctor,
    screen: &mut Screen,
) -> Result<Exit, Fault> {
    if let Some(provider) = &doctor.probe {
        return probe::probe(session, provider, screen).await;
    }
    let mut diagnosis = Findings::default();
    let runs = examine(session, &mut diagnosis).await;
    let answer = Diagnosis {
        sections: diagnosis.sections,
        missing: diagnosis.missing,
        works: runs.any(),
        runs,
        exit: match runs.any() {
            true => Exit::Done,
            false => Exit::Error,
        },
    };
    Ok(screen.answer(&answer))
}

/// The sections and problems found so far.
#[derive(Default)]
struct Findings {
    sections: Vec<Section>,
    missing: Vec<Missing>,
}

impl Findings {
    /// Adds a problem: something that is missing or wrong.
    fn missing(&mut self, what: impl Into<String>, mend: impl Into<String>) {
        self.missing.push(Missing {
            what: what.into(),
            mend: mend.into(),
            optional: false,
        });
    }

    /// Adds something that is missing but that nothing which works depends on.
    fn note(&mut self, what: impl Into<String>, mend: impl Into<String>) {
        self.missing.push(Missing {
            what: what.into(),
            mend: mend.into(),
            optional: true,
        });
    }
}

/// A project opened for inspection; opening it creates nothing in it.
struct Examined {
    /// `.ai`, if it exists.
    ai: Option<cap_std::fs::Dir>,
    library: Arc<FilesLibrary>,
    tools: FilesTools,
    /// `.ai/threads`, if it exists, or the reason why it cannot be used.
    threads: Result<Option<cap_std::fs::Dir>, String>,
}

/// Examines everything. Returns the kinds of runs that are possible.
async fn examine(session: &Session, findings: &mut Findings) -> Runnable {
    let engine = engine::section(session, findings);
    let counted = policy::section(session, findings);
    let mut section = Section::new("project");
    let project = project(session, &mut section, findings);
    let (Some(engine), Some(project)) = (engine, project) else {
        findings.sections.push(section);
        return Runnable::default();
    };
    let library: Arc<FilesLibrary> = Arc::clone(&project.library);
    let tried = tenant(&engine, library, Arc::new(MemoryStore::new()));
    let directives = library::directives(&project, &tried, &mut section, findings).await;
    let settings = library::settings(&project, &mut section, findings);
    findings.sections.push(section);
    let providers = library::models(session, &project, findings);
    let runnable = directives
        .iter()
        .any(|directive| providers.can(&directive.model));
    if !directives.is_empty() && !runnable {
        findings.note(
            "no directive names a model whose provider works",
            "set what the section models marks with ?, or name another model with --model",
        );
    }
    let stored = store::sections(session, &engine, &project, findings).await;
    let model = limits(&engine, &project.library.policy().name, &tried, findings).await;
    tools(&project, findings);
    let own_loops = project.ai.is_some() && stored && settings && counted;
    Runnable {
        directives: own_loops && runnable,
        chats: own_loops && model.is_some_and(|model| providers.can(&model)),
        own_loops,
    }
}

/// Adds the project's directory and its `.ai`.
fn project(session: &Session, section: &mut Section, findings: &mut Findings) -> Option<Examined> {
    let (path, origin) = session.path();
    let shown = path.display().to_string();
    let opened = session
        .directory()
        .and_then(|project| open(session, &project));
    match opened {
        Ok(examined) => {
            section.from("directory", shown, origin);
            match &examined.ai {
                Some(_) => section.ok(".ai", "present"),
                None => {
                    section.item(State::Bad, ".ai", "not there", None);
                    findings.missing(
                        "the project has no directory .ai",
                        "write .ai/directives/NAME.md; `threadkeep demo` shows one",
                    );
                }
            }
            Some(examined)
        }
        Err(fault) => {
            section.item(State::Bad, "directory", fault.message.clone(), Some(origin));
            findings.missing(fault.message, fault.hint.unwrap_or_default());
            None
        }
    }
}

fn open(session: &Session, project: &Project) -> Result<Examined, Fault> {
    let grant = project
        .tool_grant(".")
        .map_err(|error| fault::authority(&error))?;
    let ai = || project.ai().map_err(|error| fault::authority(&error));
    let tools = FilesTools::new(grant);
    let library = FilesLibrary::open(
        ai()?,
        session.policy()?,
        tools.catalog(),
        session.environment().for_providers(),
    );
    Ok(Examined {
        ai: ai()?,
        library: Arc::new(library),
        tools,
        threads: project
            .threads_if_present()
            .map_err(|error| fault::with_source(&error)),
    })
}

fn tenant(engine: &Engine, library: Arc<FilesLibrary>, storage: Arc<dyn Storage>) -> Tenant {
    Tenant::new(engine.clone(), Context::new(storage, library))
}

/// A draft of a thread of a directive, or of a chat, with only its inputs set.
fn draft(directive: Option<&str>, inputs: String) -> Draft {
    Draft {
        directive: directive.map(str::to_owned),
        inputs,
        ..Draft::default()
    }
}

/// Adds the caps of the preset, as the component gives them to a chat, and the limits of one call.
/// Returns the model of a chat.
async fn limits(
    engine: &Engine,
    policy: &str,
    tried: &Tenant,
    findings: &mut Findings,
) -> Option<String> {
    let mut model = None;
    let mut section = Section::new("limits");
    let origin = "preset local, built in";
    match tried.create(draft(None, String::new())).await {
        Ok(thread) => {
            let caps = view::limits(&thread.limits);
            section.from("caps of a thread", caps.shown(), policy);
            model = Some(thread.model);
        }
        Err(error) => section.item(
            State::Warning,
            "caps of a thread",
            fault::call(&error).message,
            None,
        ),
    }
    for (name, value) in engine.limits().named() {
        section.from(name, value, origin);
    }
    findings.sections.push(section);
    model
}

fn tools(project: &Examined, findings: &mut Findings) {
    let mut section = Section::new("tools");
    let policy = project.library.policy();
    for tool in project.tools.catalog() {
        match policy.grants_tool(&tool.name) {
            true => section.from(&tool.name, "reads below the project, never .ai", "built in"),
            false => section.from(&tool.name, "not granted", &policy.name),
        }
    }
    findings.sections.push(section);
}
