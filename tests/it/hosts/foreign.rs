//! Runs the hosts in Python and Node, where what they need is installed.

use super::scenario::folder;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use threadkeep::engine::COMPONENT;

/// Longest time of one program: both take seconds on a machine that does nothing else.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(300);

/// Returns none with a printed line that names what is missing; fails in CI.
fn skip_host(missing: &str) -> Option<String> {
    assert_ne!(
        std::env::var("CI").as_deref(),
        Ok("true"),
        "{missing} is not installed, and CI must not skip its tests"
    );
    println!("skipped: {missing} is not installed (tests/hosts/README.md)");
    None
}

/// Plays the scenario in Python; returns what the host prints, none if it cannot be run here.
pub fn play_in_python() -> Option<String> {
    let wanted = std::fs::read_to_string(folder().join("python/requirements.txt")).unwrap();
    let version = "import importlib.metadata as m; print('wasmtime==' + m.version('wasmtime'))";
    let mut python = Command::new("python3");
    let found = python.args(["-c", version]).stderr(Stdio::null()).output();
    if found.map_or(Vec::new(), |found| found.stdout) != wanted.as_bytes() {
        return skip_host(&format!("{} of Python", wanted.trim()));
    }
    let kept = tempfile::tempdir().unwrap();
    let component = kept.path().join("threadkeep.wasm");
    std::fs::write(&component, COMPONENT).unwrap();
    let mut program = Command::new("python3");
    program.env("PYTHONDONTWRITEBYTECODE", "1");
    program.arg(folder().join("python/play.py")).arg(component);
    program.arg(folder().join("scenario.jsonl"));
    Some(output_of(&mut program, kept.path()))
}

/// Plays the scenario in Node; returns what the host prints, none if it cannot be run here.
pub fn play_in_node() -> Option<String> {
    let modules = folder().join("node/node_modules");
    let jco = modules.join("@bytecodealliance/jco");
    let wanted = package_version(&folder().join("node/package-lock.json"), |lock| {
        lock.pointer("/packages/node_modules~1@bytecodealliance~1jco/version")
            .cloned()
    });
    let found = package_version(&jco.join("package.json"), |package| {
        package.get("version").cloned()
    });
    let mut node = Command::new("node");
    let runs = node.arg("--version").stdout(Stdio::null()).status();
    if !runs.is_ok_and(|status| status.success()) {
        return skip_host("node");
    }
    let version = wanted.expect("the lock file names a version of jco");
    if found.as_ref() != Some(&version) {
        return skip_host(&format!("jco {version} in tests/hosts/node"));
    }
    let bindings = transpile(&modules.join(".bin/jco"), &version);
    let kept = tempfile::tempdir().unwrap();
    let mut program = Command::new("node");
    program.arg(folder().join("node/play.mjs")).arg(bindings);
    program.arg(folder().join("scenario.jsonl"));
    Some(output_of(&mut program, kept.path()))
}

fn package_version(
    file: &Path,
    of: impl FnOnce(&serde_json::Value) -> Option<serde_json::Value>,
) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let json = serde_json::from_str(&text).ok()?;
    Some(of(&json)?.as_str()?.to_owned())
}

/// Makes JavaScript of the component, once for the same bytes and version of jco; returns the
/// folder.
fn transpile(jco: &Path, version: &str) -> PathBuf {
    let digest = Sha256::new()
        .chain_update(COMPONENT)
        .chain_update(version)
        .finalize();
    let name: String = digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let bindings = all.join(format!("bindings-{name}"));
    if bindings.exists() {
        return bindings;
    }
    let made = tempfile::tempdir_in(all).unwrap();
    let component = made.path().join("component.wasm");
    std::fs::write(&component, COMPONENT).unwrap();
    let out = made.path().join("bindings");
    let mut program = Command::new(jco);
    program.arg("transpile").arg(component).arg("-o").arg(&out);
    program.args(["--name", "threadkeep", "--instantiation", "sync"]);
    program.args(["--no-typescript", "--quiet"]);
    output_of(&mut program, made.path());
    // Another process may have been faster; what it made is the same.
    if std::fs::rename(&out, &bindings).is_err() {
        assert!(bindings.exists(), "the bindings cannot be kept");
    }
    bindings
}

/// Runs a program to its end, in bounded time, with its output in files of a folder; returns what
/// it printed.
fn output_of(program: &mut Command, folder: &Path) -> String {
    let (printed, errors) = (folder.join("printed"), folder.join("errors"));
    let mut child = program
        .stdin(Stdio::null())
        .stdout(File::create(&printed).unwrap())
        .stderr(File::create(&errors).unwrap())
        .spawn()
        .unwrap_or_else(|error| panic!("{program:?}: {error}"));
    let end = Instant::now() + PROGRAM_TIMEOUT;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{program:?} took longer than {PROGRAM_TIMEOUT:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let errors = std::fs::read_to_string(errors).unwrap();
    assert!(
        status.success(),
        "{program:?} ended with {status}:\n{errors}"
    );
    std::fs::read_to_string(printed).unwrap()
}
