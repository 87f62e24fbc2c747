//! A project directory for tests: a directive that reads a file, and the files that it needs.

use cap_std::fs::Dir;
use std::sync::{Arc, OnceLock};
use threadkeep::authority::{EnvironmentSnapshot, ProjectDir};
use threadkeep::engine::{CodeCache, Engine};
use threadkeep::limits::EngineLimits;
use threadkeep::policy::{Policy, PolicyPreset};
use threadkeep::project::{OpenProject, ProjectOptions};
use threadkeep::storage::StorageBackend;
use threadkeep::wit::registry;

const DIRECTIVE: &str = "---
limits: {turns: 6, spend: 0.50}
capabilities: [execute.tool.read_file]
inputs: {file: {required: true}}
---
Read ${inputs.file} and say what it holds.
";

/// Creates a temporary project with this `models.yaml`.
pub fn project_dir(models: &str) -> (tempfile::TempDir, Dir) {
    let temporary = tempfile::tempdir().unwrap();
    let dir = Dir::open_ambient_dir(temporary.path(), cap_std::ambient_authority()).unwrap();
    dir.create_dir_all(".ai/directives").unwrap();
    dir.create_dir_all(".ai/config").unwrap();
    dir.write(".ai/directives/describe.md", DIRECTIVE).unwrap();
    dir.write(".ai/config/models.yaml", models).unwrap();
    dir.write("notes.txt", "remember the milk 漢🙂").unwrap();
    (temporary, dir)
}

/// Opens it, over SQLite if no store is given.
pub fn open(
    dir: Dir,
    store: Option<Arc<dyn StorageBackend>>,
    environment: &[(&str, &str)],
) -> OpenProject {
    open_on(engine(), dir, store, environment)
}

/// Opens it on a given engine.
pub fn open_on(
    engine: Engine,
    dir: Dir,
    store: Option<Arc<dyn StorageBackend>>,
    environment: &[(&str, &str)],
) -> OpenProject {
    let pairs = environment
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let options = ProjectOptions {
        environment: EnvironmentSnapshot::from_pairs(pairs),
        store,
        ..ProjectOptions::new(Policy::preset(PolicyPreset::Local))
    };
    OpenProject::open(engine, &ProjectDir::from_dir(dir), options).unwrap()
}

/// Returns the one engine of a test process: the component is compiled once.
pub fn engine() -> Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE
        .get_or_init(|| engine_with(EngineLimits::local()))
        .clone()
}

/// Returns the usual engine, and one with a fresh instance for every call: nothing that matters
/// lives in an instance, so both must give the same answers.
pub fn engines() -> [Engine; 2] {
    let fresh = EngineLimits {
        instance_calls_max: 1,
        ..EngineLimits::local()
    };
    [engine(), engine_with(fresh)]
}

/// Builds an engine with other limits. All tests of a process share native code.
pub fn engine_with(limits: EngineLimits) -> Engine {
    static CACHE: OnceLock<(tempfile::TempDir, CodeCache)> = OnceLock::new();
    let (_, cache) = CACHE.get_or_init(|| {
        let temporary = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(temporary.path(), cap_std::ambient_authority()).unwrap();
        (temporary, CodeCache::new(dir))
    });
    Engine::new(limits, Some(cache)).unwrap()
}

/// A draft for a thread of the directive `describe`.
pub fn describe_draft() -> registry::Draft {
    registry::Draft {
        inputs: Some(r#"{"file": "notes.txt"}"#.to_owned()),
        ..threadkeep_tests::fixture::draft(Some("describe"))
    }
}
