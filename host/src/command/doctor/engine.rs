//! The `engine` section of `doctor`: versions, the component and its native code.

use super::Findings;
use crate::command::fault;
use crate::command::open::{Session, cache};
use sha2::{Digest, Sha256};
use threadkeep::engine::{COMPONENT, Engine};
use threadkeep_cli::answer::{Section, State};

/// The release of wasmtime that this program is built with; a test compares it with the lock file.
const WASMTIME: &str = "48.0.8";

/// Adds the section. Returns an engine if one can be created.
pub fn section(session: &Session, findings: &mut Findings) -> Option<Engine> {
    let mut section = Section::new("engine");
    section.ok("threadkeep", env!("CARGO_PKG_VERSION"));
    section.ok("wasmtime", WASMTIME);
    let digest: String = Sha256::digest(COMPONENT)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    section.from(
        "component",
        format!("{} bytes, sha256 {digest}", COMPONENT.len()),
        "this program",
    );
    native_code(session, &mut section, findings);
    let engine = match session.engine() {
        Ok(engine) => {
            section.ok("prepared", "yes");
            Some(engine)
        }
        Err(fault) => {
            section.item(State::Bad, "prepared", fault.message.clone(), None);
            findings.missing(
                fault.message,
                "report it: the component is part of this program",
            );
            None
        }
    };
    findings.sections.push(section);
    engine
}

fn native_code(session: &Session, section: &mut Section, findings: &mut Findings) {
    const NAME: &str = "native code";
    let Some((path, origin)) = session.cache_path() else {
        section.item(State::Warning, NAME, "is compiled by every command", None);
        findings.missing(
            "no directory for native code",
            "set THREADKEEP_CACHE to a directory of your own",
        );
        return;
    };
    let shown = path.display().to_string();
    match cache(&path) {
        Ok(_) => section.from(NAME, format!("kept in {shown}"), origin),
        Err(error) => {
            let problem = fault::with_source(&error);
            section.item(State::Warning, NAME, problem.clone(), Some(origin));
            findings.missing(
                format!("native code is compiled by every command: {problem}"),
                "set THREADKEEP_CACHE to a directory of your own, with mode 0700",
            );
        }
    }
}
