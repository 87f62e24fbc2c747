//! The bundle under the stock command `wasmtime`: a turn's commit over plain files, and a start.

use super::figures::{median, micros};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use threadkeep_tests::stock_wasmtime::{
    OFFLINE, PrecompiledBundle, bundle_path, find_missing, program,
};

/// Starts of each kind whose median is printed.
const STARTS: usize = 9;
/// Commits of one turn: the reply, and the results of its tools.
const TURN_COMMITS: u32 = 2;

/// Prints a turn's commit, and a start without and with a cache of native code.
pub fn print(steps: &dyn Fn(usize) -> usize) {
    println!("the bundle under the stock command wasmtime, over plain files that are synced");
    if let Some(missing) = find_missing() {
        println!("  skipped: {missing} is missing");
        return;
    }
    let turns = u32::try_from(steps(200)).unwrap_or(u32::MAX);
    let commit = measure_commit(turns);
    println!(
        "  a turn's commit, with a scripted model and a tool: {}",
        micros(commit)
    );
    let starts = steps(STARTS);
    for (name, arguments) in [
        (
            "cold, without a cache of native code",
            &["-C", "cache=n"][..],
        ),
        ("warm, with the cache of wasmtime", &[]),
    ] {
        let start = measure_start(arguments, starts);
        println!("  a start, {name}: {}", micros(start));
    }
}

fn write(project: &Path, path: &str, text: &str) {
    let path = project.join(path);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, text).expect("written");
}

/// The time of a commit: that of a long run of turns less that of a short one, which start alike.
fn measure_commit(turns: u32) -> Duration {
    let folder = tempfile::tempdir().expect("a folder");
    let project = folder.path();
    let call = r#"{"name": "read_file", "arguments": {"path": "notes.txt"}}"#;
    let script = format!(
        "[{{\"text\": \"Let me look.\", \"calls\": [{call}], \"repeat\": \"forever\", \
         \"usage\": {{\"input\": 100, \"output\": 10}}}}]"
    );
    write(project, "answers.json", &script);
    write(project, "notes.txt", "remember the milk\n");
    let bundle = PrecompiledBundle::compile();
    let (short, long) = (turns.div_ceil(10), turns + turns.div_ceil(10));
    let [short_time, long_time] = [short, long].map(|turns| {
        let name = format!("run-{turns}");
        let directive = format!(
            "---\nlimits: {{turns: {turns}}}\ncapabilities: [execute.tool.*]\n---\nLook.\n"
        );
        write(project, &format!(".ai/directives/{name}.md"), &directive);
        let creation = format!(
            "create({{id: some({name:?}), directive: some({name:?}), limits: {{:}}, \
             capabilities: [], approvals: [], incomplete: false}}, {name:?})"
        );
        invoke(&bundle, project, &creation);
        let run = format!(
            "threadkeep:threads/runner.run@0.1.0({name:?}, none, \"bench/1\", {name:?}, 1000)"
        );
        let began = Instant::now();
        let answer = invoke(&bundle, project, &run);
        assert!(answer.contains("turns_exceeded"), "{answer}");
        began.elapsed()
    });
    long_time.saturating_sub(short_time) / (TURN_COMMITS * (long - short))
}

fn invoke(bundle: &PrecompiledBundle, project: &Path, call: &str) -> String {
    let output = bundle
        .invocation(project, call)
        .output()
        .expect("it starts");
    let answer = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(answer.starts_with("ok("), "{call}: {output:?}");
    answer
}

/// The median time of the command `list` in a project without threads.
fn measure_start(arguments: &[&str], count: usize) -> Duration {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), ".ai/directives/a.md", "Look.\n");
    let start = || {
        let mut command = Command::new(program());
        command
            .current_dir(folder.path())
            .arg("run")
            .args(arguments)
            .args(["--dir", ".::/"])
            .arg(bundle_path(OFFLINE))
            .arg("list")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let began = Instant::now();
        assert!(command.status().expect("it starts").success());
        began.elapsed()
    };
    // The first one fills the cache, where there is one.
    start();
    let mut times: Vec<Duration> = (0..count).map(|_| start()).collect();
    median(&mut times)
}
