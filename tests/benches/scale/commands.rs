//! The time of a whole process of `list`, `show` and `usage` on ten thousand threads, compared with
//! one on twenty, and with a process that opens nothing.

use super::figures::median;
use super::native::{NativeRun, script};
use super::size::BenchSize;
use super::world::BenchCandidate;
use cap_std::fs::Dir;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use threadkeep::storage::StorageBackend;
use threadkeep::storage::sqlite::{CommitDurability, SqliteOptions, SqliteStore};
use threadkeep_tests::binary;

/// Threads of the small store.
const FEW: usize = 20;
/// Steps of each thread: a reply with a call, and the result of the call.
const STEPS: usize = 2;
/// The least number of measurements, and the time after which no more are begun.
const RUNS_MIN: usize = 3;
const MEASURED_MAX: Duration = Duration::from_secs(5);
/// The goal for a process on many threads.
const GOAL: &str = "goal below 50 ms";

/// Prints one line for each command.
pub fn compare(size: BenchSize) {
    let many = size.scale_count(100_000);
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let ids = [
        fill_project(folders[0].path(), FEW),
        fill_project(folders[1].path(), many),
    ];
    let version = time_process(folders[0].path(), &["--version"], size);
    println!("a process on {many} threads, median, beside one on {FEW}; {GOAL}");
    println!(
        "  {:34} {:>9}",
        "--version, which opens nothing",
        millis(version)
    );
    for (name, line) in [
        ("list", "list"),
        ("list --all", "list --all"),
        (
            "list, two filters that nothing meets",
            "list --directive bench --status suspended",
        ),
        ("show ID", "show ID"),
        ("show BEGINNING", "show BEGINNING"),
        ("show @last", "show @last"),
        ("usage", "usage"),
        ("usage --since 2100-01-01", "usage --since 2100-01-01"),
    ] {
        let [few, full] = [0, 1].map(|place: usize| {
            let id = &ids[place];
            let line = line.replace("ID", id);
            let line = line.replace("BEGINNING", &id[..id.len() - 1]);
            let arguments: Vec<&str> = line.split(' ').collect();
            time_process(folders[place].path(), &arguments, size)
        });
        println!(
            "  {name:34} {:>9}   of few {:>9}",
            millis(full),
            millis(few)
        );
    }
}

/// Fills the store of a project with threads, each with a reply and a call; returns the id of one.
fn fill_project(folder: &Path, threads: usize) -> String {
    let path = folder.join(".ai/threads");
    std::fs::create_dir_all(&path).expect("made");
    let dir = Dir::open_ambient_dir(&path, cap_std::ambient_authority()).expect("a folder");
    let options = SqliteOptions {
        durability: CommitDurability::Normal,
        ..SqliteOptions::local()
    };
    let store = SqliteStore::open(&dir, threadkeep::project::SQLITE_STORE, options);
    let store: Arc<dyn StorageBackend> = Arc::new(store.expect("a store"));
    let mut last = String::new();
    for _ in 0..threads {
        let mut run = NativeRun::start(&store);
        for step in 0..STEPS {
            let (blocks, content) = script(step);
            run.step(step, &blocks, &content);
        }
        last = run.thread().to_owned();
    }
    last
}

/// Returns the median time of a process that must succeed. The first one fills caches; a slow one
/// is measured a few times alone.
fn time_process(project: &Path, arguments: &[&str], size: BenchSize) -> Duration {
    let mut times = Vec::new();
    let all = Instant::now();
    for place in 0..=size.steps(20) {
        if place > RUNS_MIN && all.elapsed() > MEASURED_MAX {
            break;
        }
        let mut command = binary::command(project);
        command
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let begun = Instant::now();
        let status = command.status().expect("it starts");
        let time = begun.elapsed();
        assert!(status.success(), "{arguments:?}: {status}");
        if place > 0 {
            times.push(time);
        }
    }
    median(&mut times)
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}
