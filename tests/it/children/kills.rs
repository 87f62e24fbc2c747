//! Real kills of a process that drives a tree of three levels over SQLite: everything acknowledged
//! is there, and the next process continues the tree until it is complete.

use crate::component::project::project_dir;
use crate::crash::kills::{open, random, seed, victim_of};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::time::Duration;
use threadkeep::driver::{EventSink, RunEvent, StopReceiver};
use threadkeep::project::OpenProject;
use threadkeep::wit::registry;
use threadkeep_tests::auditor::audit;
use threadkeep_tests::fixture::SCRIPTED_MODELS;
use threadkeep_tests::soak::repetitions;

const KILLS: u32 = 20;
const DIRECTORY: &str = "THREADKEEP_TEST_TREE_KILLED_IN";
/// Threads of a whole tree: a top, two children, and two children of each of those.
const THREADS: usize = 7;

const SCRIPT: &str = r#"[
  {"for": "You are the top", "calls": [
    {"name": "spawn_thread", "arguments": {"directive": "middle", "limits": {"spend": "0.10"}}},
    {"name": "spawn_thread", "arguments": {"directive": "middle"}},
    {"name": "wait_threads", "arguments": {}}], "delay_ms": 3},
  {"for": "You are the top", "text": "All is done.", "delay_ms": 3},
  {"for": "You are in the middle", "calls": [
    {"name": "spawn_thread", "arguments": {"directive": "leaf"}},
    {"name": "spawn_thread", "arguments": {"directive": "leaf", "limits": {"spend": "0.02"}}},
    {"name": "wait_threads", "arguments": {}}], "delay_ms": 4},
  {"for": "You are in the middle", "text": "Mine are done.", "delay_ms": 2},
  {"for": "You are a leaf", "calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}],
      "delay_ms": 5},
  {"for": "You are a leaf", "text": "It holds a note.", "delay_ms": 5}
]"#;

const DIRECTIVES: [(&str, &str); 3] = [
    (
        "top",
        "---\ncapabilities: [execute.tool.*]\nlimits: {spend: 0.50}\n---\nYou are the top.\n",
    ),
    (
        "middle",
        "---\ncapabilities: [execute.tool.*]\n---\nYou are in the middle.\n",
    ),
    (
        "leaf",
        "---\ncapabilities: [execute.tool.read_file]\n---\nYou are a leaf.\n",
    ),
];

fn id(n: usize) -> String {
    format!("top-{n}-abcdef")
}

/// Creates a tree's top if it does not exist, and performs it until nothing is left to do.
async fn perform_tree(project: &OpenProject, n: usize, sink: &EventSink) -> String {
    let top = id(n);
    let draft = registry::Draft {
        id: Some(top.clone()),
        ..threadkeep_tests::fixture::draft(Some("top"))
    };
    // A process that was killed may have created it.
    let _ = project.tenant().create(draft).await;
    let status = project.tenant().get(&top).await.unwrap().status;
    if status == "completed" {
        return status;
    }
    let ended = project
        .driver()
        .run(&top, None, sink, &StopReceiver::never())
        .await;
    ended
        .unwrap_or_else(|error| panic!("{top}: {error}"))
        .status
}

/// Prints a durable fact: the turns of a thread, or its end.
fn acknowledge(top: &str, event: RunEvent) {
    let (thread, event) = match event {
        RunEvent::Child { thread, event } => (thread, *event),
        event => (top.to_owned(), event),
    };
    let line = match event {
        RunEvent::Turn { costs, .. } => format!("ack {thread} {}", costs.turns),
        RunEvent::Ended(ended) => format!("ack {thread} {}", ended.status),
        _ => return,
    };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

/// The process that the test below kills; no test by itself. It performs one tree after the other.
#[test]
fn victim() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let project = open(Path::new(&directory));
        for n in 0..500 {
            let (sink, mut events) = EventSink::channel();
            let told = tokio::spawn(async move {
                while let Some(event) = events.recv().await {
                    acknowledge(&id(n), event);
                }
            });
            let status = perform_tree(&project, n, &sink).await;
            assert_eq!(status, "completed");
            drop(sink);
            told.await.unwrap();
        }
    });
}

/// Acknowledged turns and end of a thread.
#[derive(Debug, Default)]
struct AcknowledgedRun {
    turns: u64,
    end: Option<String>,
}

/// Runs a victim, kills it some time after its first acknowledgement, and adds what it acknowledged
/// to `told`.
fn kill_one(directory: &Path, after: Duration, told: &mut BTreeMap<String, AcknowledgedRun>) {
    let mut victim = victim_of("children::kills::victim", DIRECTORY, directory);
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let mut note = |line: String| {
        // The test harness may have printed something before on the same line.
        let Some((_, line)) = line.split_once("ack ") else {
            return false;
        };
        // The last line may be half a line.
        if let Some((thread, what)) = line.split_once(' ') {
            let told = told.entry(thread.to_owned()).or_default();
            match what.parse() {
                Ok(turns) => told.turns = told.turns.max(turns),
                Err(_) => told.end = Some(what.to_owned()),
            }
        }
        true
    };
    let gone = "the victim acknowledges something";
    while !note(lines.next().expect(gone).unwrap()) {}
    std::thread::sleep(after);
    victim.kill().unwrap();
    victim.wait().unwrap();
    for line in lines.map_while(Result::ok) {
        note(line);
    }
}

#[tokio::test]
async fn a_tree_whose_process_is_killed_again_and_again_is_completed() {
    let (kept, dir) = project_dir(SCRIPTED_MODELS);
    dir.write(".ai/script.json", SCRIPT).unwrap();
    for (name, text) in DIRECTIVES {
        dir.write(format!(".ai/directives/{name}.md"), text)
            .unwrap();
    }
    let seed = seed();
    println!("seed of the kills: {seed}");
    let mut state = seed;
    let (mut told, mut recovered) = (BTreeMap::new(), 0);
    let kills = repetitions(KILLS);
    for kill in 0..kills {
        let after = Duration::from_micros(random(&mut state) % 80_000);
        kill_one(kept.path(), after, &mut told);
        let project = open(kept.path());
        recovered += project.recover(&[]).await.unwrap().len();
        let findings = audit(&*project.tenant().context().storage);
        assert!(
            findings.is_empty(),
            "seed {seed}, kill {kill}: {findings:#?}"
        );
        for (thread, told) in &told {
            let found = project.tenant().get(thread).await.unwrap();
            let (turns, status) = (found.cost.turns, found.status);
            let kept = u64::from(turns) >= told.turns
                && told.end.as_ref().is_none_or(|end| *end == status);
            let what = format!("{told:?}, has {turns} turns and is {status}");
            assert!(kept, "seed {seed}, kill {kill}: {thread} lost {what}");
        }
    }
    assert!(recovered > 0, "no kill hit a run");
    let project = open(kept.path());
    let trees = complete_trees(&project, seed).await;
    let threads = told.len();
    println!(
        "kills: {kills}, trees: {trees}, threads acknowledged: {threads}, runs recovered: \
         {recovered}"
    );
}

/// Brings every tree that was begun to its complete end; returns their number.
async fn complete_trees(project: &OpenProject, seed: u64) -> usize {
    let mut trees = 0;
    while project.tenant().get(&id(trees)).await.is_ok() {
        let top = id(trees);
        let status = perform_tree(project, trees, &EventSink::none()).await;
        assert_eq!(status, "completed", "seed {seed}: {top}");
        let tree = project.tenant().tree(&top, None).await.unwrap().branches;
        let done = tree
            .iter()
            .filter(|branch| branch.status == "completed")
            .count();
        assert_eq!(
            (tree.len(), done),
            (THREADS, THREADS),
            "seed {seed}: {tree:#?}"
        );
        let account = project.tenant().account(&top).await.unwrap();
        let used: u64 = tree.iter().map(|branch| branch.spend).sum();
        let figures = (account.spent, account.held, account.reserved);
        assert_eq!(figures, (used, 0, 0), "seed {seed}: {top}");
        trees += 1;
    }
    let findings = audit(&*project.tenant().context().storage);
    assert!(findings.is_empty(), "seed {seed}: {findings:#?}");
    trees
}
