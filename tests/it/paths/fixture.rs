//! A project between an outside and a neighbour, opened as an embedder does.

use crate::component::project::engine;
use cap_std::fs::Dir;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use threadkeep::authority::ProjectDir;
use threadkeep::error::CallError;
use threadkeep::policy::{Policy, PolicyPreset};
use threadkeep::project::{OpenProject, ProjectError, ProjectOptions};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::wit;
use threadkeep_tests::corpus::{OutsideTree, assert_clean, assert_message, hostile_names};
use threadkeep_tests::fixture::{SCRIPTED_MODELS, draft};

/// Text of the project's own files.
pub const OWN: &str = "own";

/// `outside` and `project`, side by side.
pub struct GuardedProject {
    _temp: tempfile::TempDir,
    pub outside: OutsideTree,
    pub path: PathBuf,
}

impl GuardedProject {
    pub fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let outside = OutsideTree::create(&temp.path().join("outside"));
        let world = Self {
            path: temp.path().join("project"),
            _temp: temp,
            outside,
        };
        world.write(".ai/directives/x.md", OWN);
        world.write(".ai/knowledge/x.md", OWN);
        world.write(".ai/config/models.yaml", SCRIPTED_MODELS);
        world.write(
            ".ai/script.json",
            r#"[{"text": "own", "repeat": "forever"}]"#,
        );
        world.write("notes.txt", OWN);
        world.write("sub/notes.txt", OWN);
        world
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.path.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub fn names(&self) -> Vec<String> {
        hostile_names(self.outside.path())
    }

    pub fn dir(&self) -> Dir {
        open_dir(&self.path)
    }

    /// Opens the project; `sqlite` selects the store on disk.
    pub fn open(&self, sqlite: bool) -> Result<OpenProject, ProjectError> {
        let memory = || Arc::new(MemoryStore::new()) as _;
        let options = ProjectOptions {
            store: (!sqlite).then(memory),
            ..ProjectOptions::new(Policy::preset(PolicyPreset::Local))
        };
        OpenProject::open(engine(), &ProjectDir::from_dir(self.dir()), options)
    }
}

pub fn open_dir(path: &Path) -> Dir {
    Dir::open_ambient_dir(path, cap_std::ambient_authority()).unwrap()
}

/// A draft of a chat with this id.
pub fn chat(id: &str) -> wit::registry::Draft {
    wit::registry::Draft {
        id: Some(id.to_owned()),
        ..draft(None)
    }
}

/// Judges an answer of the component: its value reveals nothing of the outside, and a refusal is
/// one of the typed ones for a wrong name, with a message. Returns true for a value.
#[track_caller]
pub fn judge<T: std::fmt::Debug>(what: &str, answer: &Result<T, CallError>) -> bool {
    let error = match answer {
        Ok(given) => {
            assert_clean(what, &format!("{given:?}"));
            return true;
        }
        Err(CallError::Refused(error)) => error,
        Err(other) => panic!("{what}: {other}"),
    };
    match error {
        wit::Error::Invalid(wrong) => assert!(!wrong.field.is_empty(), "{what}: where?"),
        wit::Error::NotFound(missing) => assert!(!missing.kind.is_empty(), "{what}: what?"),
        wit::Error::Exists(_)
        | wit::Error::Refused(_)
        | wit::Error::Fenced(_)
        | wit::Error::Conflict(_)
        | wit::Error::Busy(_) => {}
        wit::Error::Exceeded(full) if full.code == "inbox_full" => {}
        other => panic!("{what}: not an error of a name: {other:?}"),
    }
    assert_message(what, &threadkeep::error::describe(error).message);
    false
}
