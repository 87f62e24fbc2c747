//! Real kills: a process that runs threads over SQLite is killed at a random moment, again and
//! again on one directory. Every acknowledged commit is there, once and in order; its runs are
//! closed with a cause and can go on.

use crate::component::project::{describe_draft, project_dir};
use cap_std::fs::Dir;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use threadkeep::authority::ProjectDir;
use threadkeep::component::{RandomSource, SystemRandom};
use threadkeep::documents::ThreadDocuments;
use threadkeep::driver::{CommitNotice, CommitObserver, EventSink, StopReceiver};
use threadkeep::engine::{CodeCache, Engine};
use threadkeep::limits::EngineLimits;
use threadkeep::policy::{Policy, PolicyPreset};
use threadkeep::project::{OpenProject, ProjectOptions, ProjectStore};
use threadkeep_tests::auditor::audit;
use threadkeep_tests::fixture::SCRIPTED_MODELS;
use threadkeep_tests::soak::repetitions;

const KILLS: u32 = 60;
const KILLS_OVER_FILES: u32 = 10;
const DIRECTORY: &str = "THREADKEEP_TEST_KILLED_IN";

const SCRIPT: &str = r#"[
  {"text": "Let me look.", "calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}],
      "delay_ms": 3},
  {"calls": [{"name": "read_file", "arguments": {"path": "nothing.txt"}}, {"name": "no_such_tool",
      "arguments": {}}]},
  {"text": "It holds a note.", "delay_ms": 2}
]"#;

/// Opens a project as the command line does.
pub fn open(path: &Path) -> OpenProject {
    let dir = Dir::open_ambient_dir(path, cap_std::ambient_authority()).unwrap();
    dir.create_dir_all("cache").unwrap();
    let cache = CodeCache::new(dir.open_dir("cache").unwrap());
    let engine = Engine::new(EngineLimits::local(), Some(&cache)).unwrap();
    let options = ProjectOptions::new(Policy::preset(PolicyPreset::Local));
    OpenProject::open(engine, &ProjectDir::from_dir(dir), options).unwrap()
}

/// Prints a line for every durable commit of a run: the thread, and the number of its commits so
/// far. Each is one version.
#[derive(Default)]
struct CommitPrinter {
    commits: Mutex<BTreeMap<String, u64>>,
}

impl CommitObserver for CommitPrinter {
    fn on_commit(&self, commit: &CommitNotice<'_>) {
        let thread = commit.thread;
        let mut commits = self.commits.lock().unwrap();
        let n = commits.entry(thread.to_owned()).or_default();
        *n += 1;
        let mut out = std::io::stdout().lock();
        writeln!(out, "ack {thread} {n}").unwrap();
        out.flush().unwrap();
    }
}

/// The process that the test below kills; no test by itself. It runs threads, two at a time.
#[test]
fn victim() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let project = open(Path::new(&directory));
        let driver = project
            .driver()
            .with_observer(Arc::new(CommitPrinter::default()));
        for _ in 0..500 {
            let (left, right) = tokio::join!(
                perform_run(&project, &driver),
                perform_run(&project, &driver)
            );
            assert!(left && right, "a run did not complete");
        }
    });
}

async fn perform_run(project: &OpenProject, driver: &threadkeep::driver::Driver) -> bool {
    let thread = project.tenant().create(describe_draft()).await.unwrap();
    driver
        .run(&thread.id, None, &EventSink::none(), &StopReceiver::never())
        .await
        .unwrap()
        .status
        == "completed"
}

/// Starts a process that performs nothing but this test, whose `variable` names the directory.
pub fn victim_of(test: &str, variable: &str, directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(variable, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Runs a victim, kills it some time after its first acknowledgement, and returns what it had
/// acknowledged.
fn kill_one(directory: &Path, after: Duration) -> BTreeMap<String, u64> {
    let mut victim = victim_of("crash::kills::victim", DIRECTORY, directory);
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let mut acknowledged = BTreeMap::new();
    let mut note = |line: String| {
        // The test harness may have printed something before on the same line.
        let Some((_, line)) = line.split_once("ack ") else {
            return false;
        };
        if let Some((thread, n)) = line.split_once(' ') {
            acknowledged.insert(thread.to_owned(), n.parse().unwrap());
        }
        true
    };
    while !note(
        lines
            .next()
            .expect("the victim acknowledges something")
            .unwrap(),
    ) {}
    std::thread::sleep(after);
    victim.kill().unwrap();
    victim.wait().unwrap();
    for line in lines.map_while(Result::ok) {
        note(line);
    }
    acknowledged
}

#[tokio::test]
async fn real_kills_lose_nothing() {
    kill_again_and_again(KILLS, ProjectStore::Sqlite).await;
}

#[tokio::test]
async fn real_kills_lose_nothing_in_plain_files() {
    kill_again_and_again(KILLS_OVER_FILES, ProjectStore::Files).await;
}

async fn kill_again_and_again(kills: u32, store: ProjectStore) {
    let (kept, dir) = project_dir(SCRIPTED_MODELS);
    dir.write(".ai/script.json", SCRIPT).unwrap();
    if store == ProjectStore::Files {
        // Where it is, it is used.
        dir.create_dir_all(".ai/threads/store.d").unwrap();
    }
    let seed = seed();
    println!("seed of the kills: {seed}");
    let mut state = seed;
    let (mut events, mut recovered) = (0, 0);
    let kills = repetitions(kills);
    for kill in 0..kills {
        let after = Duration::from_micros(random(&mut state) % 60_000);
        let acknowledged = kill_one(kept.path(), after);
        let project = open(kept.path());
        let closed = project.recover(&[]).await.unwrap();
        recovered += closed.len();
        let findings = audit(&*project.tenant().context().storage);
        assert!(
            findings.is_empty(),
            "seed {seed}, kill {kill}: {findings:#?}"
        );
        whole_lines(kept.path());
        for (thread, n) in &acknowledged {
            let found = project.tenant().get(thread).await.unwrap();
            assert!(
                found.version >= *n,
                "seed {seed}, kill {kill}: {thread} lost {n}, has {}",
                found.version
            );
            assert!(
                ["completed", "suspended"].contains(&found.status.as_str()),
                "{thread} is {}",
                found.status
            );
            events += n;
        }
        if kill % 10 == 9 {
            carry_on(&project, &closed).await;
        }
    }
    assert!(recovered > 0, "no kill hit a run");
    let threads = dir.open_dir(".ai/threads").unwrap();
    assert_eq!(ProjectStore::find(&threads).unwrap(), Some(store));
    println!("kills: {kills}, commits acknowledged: {events}, runs recovered: {recovered}");
}

/// Checks that a kill left no half line in the usage log; it may lose a line.
fn whole_lines(project: &Path) {
    let log = std::fs::read_to_string(project.join(".ai/threads/usage.jsonl"));
    let log = log.unwrap_or_default();
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect(line);
        assert!(line["costUsd"].is_number(), "{line}");
    }
    assert!(log.is_empty() || log.ends_with('\n'));
}

/// Carries recovered threads to their end, and checks that their documents are rebuilt.
async fn carry_on(project: &OpenProject, closed: &[String]) {
    let documents = ThreadDocuments::new(
        project.tenant().clone(),
        project.threads().unwrap().try_clone().unwrap(),
    );
    for thread in closed {
        let ended = project
            .driver()
            .run(thread, None, &EventSink::none(), &StopReceiver::never())
            .await
            .unwrap();
        assert_eq!(ended.status, "completed", "{thread}");
        documents.repair(thread).await.unwrap();
    }
    let findings = audit(&*project.tenant().context().storage);
    assert!(findings.is_empty(), "{findings:#?}");
}

/// Returns the next pseudo-random number.
pub fn random(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Reads `THREADKEEP_TEST_SEED`, or makes a new seed.
pub fn seed() -> u64 {
    let given = std::env::var("THREADKEEP_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| {
        let mut bytes = [0_u8; 8];
        SystemRandom.fill(&mut bytes).unwrap();
        u64::from_be_bytes(bytes)
    })
}
