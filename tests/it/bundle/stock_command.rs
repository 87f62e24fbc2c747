//! A project that the stock command runs a bundle in, where both are there.

use crate::cli::fixture::CliProject;
use std::process::{Command, Stdio};
use threadkeep_tests::binary::{self, ProcessOutput};
pub use threadkeep_tests::stock_wasmtime::{OFFLINE, ONLINE, bundle_path};
use threadkeep_tests::stock_wasmtime::{find_missing, program};

/// Answers a message of a thread, whatever it is.
pub const SCRIPT: &str = r#"[{"text": "Hello from a script.", "repeat": "forever"}]"#;

const DIRECTIVE: &str = "---\nlimits: {turns: 5}\n---\nSay hello.\n";

/// A project with a directive `hello`, and a script of answers beside it.
pub struct BundleProject {
    pub project: CliProject,
}

/// The output of a bundle.
#[derive(Debug)]
pub struct BundleAnswer {
    /// The answer, in the notation of WAVE.
    pub out: String,
    /// All else that was printed.
    pub err: String,
}

impl BundleProject {
    /// Makes the project. Returns none with a printed line where the command or the bundles are
    /// missing; fails in CI.
    pub fn new() -> Option<Self> {
        if let Some(missing) = find_missing() {
            return skip_test(&missing);
        }
        let project = CliProject::empty();
        project.write(".ai/directives/hello.md", DIRECTIVE);
        project.write("answers.json", SCRIPT);
        Some(Self { project })
    }

    /// Invokes a function of the offline bundle, with the project granted and the script as model.
    pub fn invoke(&self, call: &str) -> BundleAnswer {
        let arguments = ["--env", "THREADKEEP_PROVIDER=scripted:answers.json"];
        self.invoke_with(
            OFFLINE,
            &[&["--dir", ".::/"][..], &arguments].concat(),
            call,
        )
    }

    /// Invokes a function of a bundle with these arguments of the command.
    pub fn invoke_with(&self, bundle: &str, arguments: &[&str], call: &str) -> BundleAnswer {
        let output = self.command(bundle, arguments, call).output().unwrap();
        BundleAnswer {
            out: String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs a command of a bundle with the script as model; `input` is its standard input.
    pub fn run(&self, bundle: &str, arguments: &[&str], input: &str) -> ProcessOutput {
        let provider = ["--env", "THREADKEEP_PROVIDER=scripted:answers.json"];
        let granted = [&["--dir", ".::/"][..], &provider].concat();
        binary::run_with_input(self.run_command(bundle, &granted, arguments), input)
    }

    /// Runs a command of the offline bundle with the models of `models.yaml`.
    pub fn run_with_models(&self, arguments: &[&str]) -> ProcessOutput {
        binary::run_to_end(self.run_command(OFFLINE, &["--dir", ".::/"], arguments))
    }

    /// Runs a command of a bundle with these options of `wasmtime run`.
    pub fn run_granted(&self, bundle: &str, granted: &[&str], arguments: &[&str]) -> ProcessOutput {
        binary::run_to_end(self.run_command(bundle, granted, arguments))
    }

    fn run_command(&self, bundle: &str, granted: &[&str], arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command
            .current_dir(self.project.path())
            .arg("run")
            .args(granted)
            .arg(bundle_path(bundle))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn command(&self, bundle: &str, arguments: &[&str], call: &str) -> Command {
        let mut command = Command::new(program());
        command
            .current_dir(self.project.path())
            .arg("run")
            .args(arguments)
            .args(["--invoke", call])
            .arg(bundle_path(bundle));
        command
    }

    /// Creates a thread with this id, of the directive `hello`.
    #[track_caller]
    pub fn create(&self, id: &str) {
        let answer = self.invoke(&creation(id, None));
        assert!(answer.out.starts_with("ok("), "{answer:?}");
    }

    /// Has the native command audit the store.
    #[track_caller]
    pub fn assert_sound(&self) {
        let audit = self.project.run(&["audit"]);
        assert!(audit.out.contains("no findings"), "{}", audit.out);
    }
}

/// The call that creates a thread of the directive `hello`.
pub fn creation(id: &str, model: Option<&str>) -> String {
    let model = model.map_or(String::new(), |model| format!("model: some({model:?}), "));
    format!(
        "create({{id: some({id:?}), directive: some(\"hello\"), {model}limits: {{:}}, \
         capabilities: [], approvals: [], incomplete: false}}, \"made-{id}\")"
    )
}

/// The call that runs a thread to its end. It has its whole name, because the command exports a
/// `run`, too.
pub fn run_call(id: &str, key: &str) -> String {
    format!("threadkeep:threads/runner.run@0.1.0({id:?}, none, \"bundle/1\", {key:?}, 100)")
}

fn skip_test(missing: &str) -> Option<BundleProject> {
    assert_ne!(
        std::env::var("CI").as_deref(),
        Ok("true"),
        "{missing} is missing, and CI must not skip its tests"
    );
    println!("skipped: {missing} is missing");
    None
}
