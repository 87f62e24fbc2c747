//! The `engine` section of `doctor`: versions, the component and its native code.

use super::DoctorFindings;
use crate::command::build_details::{WASMTIME, component_hash};
use crate::command::fault;
use crate::command::session::{CommandSession, open_code_cache};
use threadkeep::engine::{COMPONENT, Engine};
use threadkeep_cli::answer::{DoctorSection, ItemState};

/// Adds the section. Returns an engine if one can be created.
pub fn check_engine(session: &CommandSession, findings: &mut DoctorFindings) -> Option<Engine> {
    let mut section = DoctorSection::new("engine");
    section.add_ok("threadkeep", env!("CARGO_PKG_VERSION"));
    section.add_ok("wasmtime", WASMTIME);
    section.add_with_origin(
        "component",
        format!("{} bytes, sha256 {}", COMPONENT.len(), component_hash()),
        "this program",
    );
    check_code_cache(session, &mut section, findings);
    let engine = match session.engine() {
        Ok(engine) => {
            section.add_ok("prepared", "yes");
            Some(engine)
        }
        Err(fault) => {
            section.add_item(ItemState::Bad, "prepared", fault.message.clone(), None);
            findings.add_problem(
                fault.message,
                "report it: the component is part of this program",
            );
            None
        }
    };
    findings.sections.push(section);
    engine
}

fn check_code_cache(
    session: &CommandSession,
    section: &mut DoctorSection,
    findings: &mut DoctorFindings,
) {
    const NAME: &str = "native code";
    let Some((path, origin)) = session.cache_path() else {
        section.add_item(
            ItemState::Warning,
            NAME,
            "is compiled by every command",
            None,
        );
        findings.add_problem(
            "no directory for native code",
            "set THREADKEEP_CACHE to a directory of your own",
        );
        return;
    };
    let shown = path.display().to_string();
    match open_code_cache(&path) {
        Ok(_) => section.add_with_origin(NAME, format!("kept in {shown}"), origin),
        Err(error) => {
            let problem = fault::with_source(&error);
            section.add_item(ItemState::Warning, NAME, problem.clone(), Some(origin));
            findings.add_problem(
                format!("native code is compiled by every command: {problem}"),
                "set THREADKEEP_CACHE to a directory of your own, with mode 0700",
            );
        }
    }
}
