//! A project between an outside and a neighbour, opened as an embedder does.

use crate::component::project::engine;
use cap_std::fs::Dir;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use threadkeep::authority::Project;
use threadkeep::library::files::Policy;
use threadkeep::project::{OpenProject, ProjectError, ProjectOptions};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::wit;
use threadkeep_tests::corpus::Outside;
use threadkeep_tests::fixture::{SCRIPTED_MODELS, draft};

/// What stands in the project's own files.
pub const OWN: &str = "own";

/// `outside` and `project`, side by side.
pub struct World {
    _temp: tempfile::TempDir,
    pub outside: Outside,
    pub path: PathBuf,
}

impl World {
    pub fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let outside = Outside::plant(&temp.path().join("outside"));
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

    pub fn dir(&self) -> Dir {
        open_dir(&self.path)
    }

    /// Open it; `sqlite` for the store on disk.
    pub fn open(&self, sqlite: bool) -> Result<OpenProject, ProjectError> {
        let memory = || Arc::new(MemoryStore::new()) as _;
        let options = ProjectOptions {
            store: (!sqlite).then(memory),
            ..ProjectOptions::new(Policy::preset("local"))
        };
        OpenProject::open(engine(), &Project::from_dir(self.dir()), options)
    }
}

pub fn open_dir(path: &Path) -> Dir {
    Dir::open_ambient_dir(path, cap_std::ambient_authority()).unwrap()
}

/// A chat of this id.
pub fn chat(id: &str) -> wit::registry::Draft {
    wit::registry::Draft {
        id: Some(id.to_owned()),
        ..draft(None)
    }
}
