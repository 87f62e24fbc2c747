//! A project on disk with a scripted model, and the command that runs in it.

use crate::audit::fixture::open;
use crate::history::branch_fixture::{PlantedLink, plant_link};
use crate::runner::fixture::RunnerFixture;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use threadkeep_tests::binary::{self, ProcessOutput, RunningProcess};
use threadkeep_tests::fixture::MapLibrary;
pub use threadkeep_tests::fixture::SCRIPTED_MODELS as MODELS;

pub const DIRECTIVE: &str = "---
limits: {turns: 5, spend: 0.50}
capabilities: [execute.tool.read_file, execute.tool.search_files]
inputs: {file: {required: true}}
---
Read ${inputs.file} and say what it holds.
";

/// Two turns: the model reads the file, then answers with text that contains terminal controls.
pub const SCRIPT: &str = r#"[
  {"text": "Let me look.", "calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}],
   "usage": {"input": 100, "output": 10}},
  {"text": "It holds a \u001b[31mnote\u0007.", "usage": {"input": 150, "output": 20}}
]"#;

/// Models of the other projects, and one for a parent.
const FAMILY_MODELS: &str = r#"
providers:
  local: {wire: scripted, file: script.json}
  above: {wire: scripted, file: parent.json}
models:
  tiny: {provider: local, window: 32000, output: 1000, prices: {input: "1.00", output: "2.00"}}
  boss: {provider: above, window: 32000, output: 1000, prices: {input: "1.00", output: "2.00"}}
tiers: {default: tiny}
"#;

const PARENT: &str = "---
model: boss
limits: {turns: 5, spend: 0.50}
capabilities: [execute.tool.*]
---
Have it done.
";

const PART: &str = "---
limits: {turns: TURNS}
capabilities: [execute.tool.read_file]
---
Do your part.
";

const PARENT_SCRIPT: &str = r#"[
  {"calls": [{"name": "spawn_thread", "arguments": {"directive": "part"}}, {"name": "wait_threads",
      "arguments": {}}],
   "usage": {"input": 100, "output": 10}},
  {"text": "Both are done.", "usage": {"input": 100, "output": 10}}
]"#;

/// A model that begins an answer and never finishes it.
pub const SLOW: &str = r#"[{"text": "Begun, and never done.", "chunk": 6, "pause_ms": 590000}]"#;

/// A project in a directory of its own.
pub struct CliProject {
    pub temp: TempDir,
}

impl CliProject {
    pub fn new() -> Self {
        let project = Self::empty();
        project.write(".ai/directives/describe.md", DIRECTIVE);
        project.write(".ai/config/models.yaml", MODELS);
        project.write(".ai/script.json", SCRIPT);
        project.write("slow.json", SLOW);
        project.write("notes.txt", "remember the milk");
        project
    }

    /// An empty project directory.
    pub fn empty() -> Self {
        Self {
            temp: TempDir::new().expect("a temporary directory"),
        }
    }

    pub fn path(&self) -> &Path {
        self.temp.path()
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().expect("it is in a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    pub fn exists(&self, path: &str) -> bool {
        self.path().join(path).exists()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = binary::command(self.path());
        command.args(arguments);
        command
    }

    /// Runs the command to its end.
    pub fn run(&self, arguments: &[&str]) -> ProcessOutput {
        binary::run_to_end(self.command(arguments))
    }

    /// Runs the command to its end with `--json`; returns its one document, with its exit code.
    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let mut arguments = arguments.to_vec();
        arguments.push("--json");
        self.run(&arguments).json()
    }

    /// Starts the command in the background.
    pub fn start(&self, arguments: &[&str]) -> RunningProcess {
        binary::start(self.command(arguments))
    }

    /// Adds a directive `parent` that spawns one `part` and waits for it. A `part` may call a model
    /// `turns` times, needs two calls, and is then suspended.
    pub fn add_family(&self, turns: u32) {
        self.write(".ai/config/models.yaml", FAMILY_MODELS);
        self.write(".ai/parent.json", PARENT_SCRIPT);
        self.write(".ai/directives/parent.md", PARENT);
        self.write(
            ".ai/directives/part.md",
            &PART.replace("TURNS", &turns.to_string()),
        );
    }

    /// Continues a thread that nobody holds in another one, as a hand-off or a resume does.
    pub fn continue_thread(&self, tip: &str, id: &str) {
        let store = open(&self.path().join(".ai/threads"));
        let world = RunnerFixture::over(store, MapLibrary::small());
        plant_link(&world, PlantedLink { tip, id, from: 1 });
    }

    /// Runs a thread with this id to its end.
    pub fn finish_thread(&self, id: &str) {
        let answer = self.json(&["run", "describe", "--input", "file=notes.txt", "--id", id]);
        assert_eq!(answer["status"], "completed", "{answer}");
    }

    /// Starts a run that goes on until it is stopped.
    pub fn start_unending(&self, id: &str) -> RunningProcess {
        let running = self.start(&[
            "run",
            "describe",
            "--input",
            "file=x",
            "--id",
            id,
            "--provider",
            "scripted:slow.json",
        ]);
        running.await_err("a reply is under way");
        running
    }

    pub fn status(&self, id: &str) -> String {
        let shown = self.json(&["show", id]);
        shown["thread"]["status"]
            .as_str()
            .expect("a status")
            .to_owned()
    }

    /// The number of threads in the store.
    pub fn threads(&self) -> usize {
        self.json(&["list"])["threads"]
            .as_array()
            .expect("a list")
            .len()
    }
}
